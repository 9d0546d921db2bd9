"""Vector instructions over codes that Numba does not offer: narrowing, comparing, splitting into bits and digits."""

from __future__ import annotations

from typing import Any

import numba
from llvmlite import ir

from rules_index.kernels.llvm import (
    BYTES,
    GROUP,
    LANES,
    LONG,
    LOOKED_UP,
    U8,
    U64,
    WORD,
    WORDS,
    intrinsic,
    load_words,
    pointer_to,
    prefetch_line,
    spread,
)


@intrinsic
def narrow(typing_context: Any, codes: Any, at: Any, by: Any, ahead: Any, out: Any, to: Any) -> Any:
    """Writes `codes[at + r] >> by` (int32) as bytes to `out[to + r]`, r = 0 .. 63, and prefetches the codes at `ahead +
    r`. `at`, `ahead` and `to` are indices into the flattened arrays."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, at, by, ahead, _, to = arguments
        for line in range(0, LANES, LOOKED_UP):
            place = builder.add(ahead, ir.Constant(LONG, line))
            prefetch_line(builder, pointer_to(context, builder, signature, arguments, 0, place, ir.IntType(8)))
        numbers = ir.VectorType(WORD, LANES)
        given = builder.load(pointer_to(context, builder, signature, arguments, 0, at, numbers), align=4)
        given = builder.trunc(builder.lshr(given, spread(builder, by, LANES)), BYTES)
        builder.store(given, pointer_to(context, builder, signature, arguments, 4, to, BYTES), align=1)
        return context.get_dummy_value()

    return numba.types.void(codes, U64, numba.types.int32, U64, out, U64), codegen


@intrinsic
def copy_codes(typing_context: Any, codes: Any, at: Any, ahead: Any, out: Any, to: Any) -> Any:
    """Writes `codes[at + r]` (uint8) to `out[to + r]`, r = 0 .. 63, and prefetches the codes at `ahead + r`. `at`,
    `ahead` and `to` are indices into the flattened arrays."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, at, ahead, _, to = arguments
        prefetch_line(builder, pointer_to(context, builder, signature, arguments, 0, ahead, ir.IntType(8)))
        given = builder.load(pointer_to(context, builder, signature, arguments, 0, at, BYTES), align=1)
        builder.store(given, pointer_to(context, builder, signature, arguments, 3, to, BYTES), align=1)
        return context.get_dummy_value()

    return numba.types.void(codes, U64, U64, out, U64), codegen


@intrinsic
def codes_within(typing_context: Any, codes: Any, at: Any, low: Any, span: Any) -> Any:
    """A uint64 whose bit r is set where `codes[at + r] - low <= span`, r = 0 .. 63; codes, low and span are uint8."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = pointer_to(context, builder, signature, arguments, 0, arguments[1], BYTES)
        above = builder.sub(builder.load(pointer, align=1), spread(builder, arguments[2], LANES))
        within = builder.icmp_unsigned("<=", above, spread(builder, arguments[3], LANES))
        return builder.bitcast(within, ir.IntType(LANES))

    return U64(codes, U64, U8, U8), codegen


@intrinsic
def codes_between(typing_context: Any, codes: Any, at: Any, low: Any, span: Any, bits: Any, to: Any) -> Any:
    """Writes `GROUP` words to `bits` from `to` on: bit r of word w is set where `codes[at + 64 w + r] - low <= span`.
    Codes, low and span are uint8."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        lowest, highest = (spread(builder, arguments[i], LANES) for i in (2, 3))
        for word in range(GROUP):
            at = builder.add(arguments[1], ir.Constant(LONG, word * LANES))
            codes = builder.load(pointer_to(context, builder, signature, arguments, 0, at, BYTES), align=1)
            within = builder.icmp_unsigned("<=", builder.sub(codes, lowest), highest)
            to = builder.add(arguments[5], ir.Constant(LONG, word))
            pointer = pointer_to(context, builder, signature, arguments, 4, to, LONG)
            builder.store(builder.bitcast(within, LONG), pointer, align=8)
        return context.get_dummy_value()

    return numba.types.void(codes, U64, U8, U8, bits, U64), codegen


BITS, DIGITS = 8, 16
"""Bits of a coarse code; and the number of values of a digit. A code has a high and a low digit, a nibble each."""


@intrinsic
def code_planes(typing_context: Any, codes: Any, at: Any, planes: Any, to: Any, stride: Any) -> Any:
    """Sets bit r of the word `planes[to + stride * k]` to bit k of `codes[at + r]` (uint8), r = 0 .. 63, k = 0 .. 7."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, at, _, to, stride = arguments
        codes = builder.load(pointer_to(context, builder, signature, arguments, 0, at, BYTES), align=1)
        for k in range(BITS):
            bit = builder.and_(codes, ir.Constant(BYTES, [1 << k] * LANES))
            some = builder.icmp_unsigned("!=", bit, ir.Constant(BYTES, [0] * LANES))
            builder.store(
                builder.bitcast(some, LONG), pointer_to(context, builder, signature, arguments, 2, to, LONG), align=8
            )
            to = builder.add(to, stride)
        return context.get_dummy_value()

    return numba.types.void(codes, U64, planes, U64, U64), codegen


def _digits(below: bool) -> Any:
    """Makes an intrinsic that turns bit planes of nibbles into bitmaps.

    Bit k of the nibbles is in the plane `planes[at + stride * k]`, k = 0 .. 3. The intrinsic writes `GROUP` words to
    `digits[to + stride * d]`: the rows whose nibble is d, d = 0 .. 15; or, if `below`, those whose nibble is below d, d
    = 0 .. 16.
    """

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, at, _, to, stride = arguments
        plane = []
        for _ in range(4):
            plane.append(load_words(context, builder, signature, arguments, 0, at))
            at = builder.add(at, stride)
        low, high = (_two_bits(builder, below, *plane[i : i + 2]) for i in (0, 2))
        for digit in range(DIGITS + below):
            upper, lower = divmod(digit, 4)
            if not below:
                words = builder.and_(high[upper], low[lower])
            elif lower:
                words = builder.or_(high[upper], builder.and_(high[upper + 1], low[lower]))
            else:
                words = high[upper]
            builder.store(words, pointer_to(context, builder, signature, arguments, 2, to, WORDS), align=8)
            to = builder.add(to, stride)
        return context.get_dummy_value()

    @intrinsic
    def digits(typing_context: Any, planes: Any, at: Any, digits: Any, to: Any, stride: Any) -> Any:
        return numba.types.void(planes, U64, digits, U64, U64), codegen

    return digits


def _two_bits(builder: Any, below: bool, low: Any, high: Any) -> list[Any]:
    """The words of the rows in which two bits, as a number, are 0, 1, 2, 3; or, if `below`, are below 0, 1, 2, 3, 4."""
    not_low, not_high = builder.not_(low), builder.not_(high)
    if below:
        none, every = (ir.Constant(WORDS, [bits] * GROUP) for bits in (0, -1))
        return [none, builder.and_(not_low, not_high), not_high, builder.or_(not_low, not_high), every]
    return [builder.and_(upper, lower) for upper in (not_high, high) for lower in (not_low, low)]


digits_equal, digits_below = _digits(below=False), _digits(below=True)


def _of_digits(ranged: bool) -> Any:
    """Makes an intrinsic that writes `GROUP` words to `bits` from `to` on: the rows whose code is below a bound and, if
    `ranged`, not below a second one.

    A bound is given by three indices into `below`, which `digits_below` has filled: of its high digit, of its high
    digit plus one, and of its low digit.
    """

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def below(place: int) -> Any:
            """The rows whose code is below the bound given by the arguments from number `place` on."""
            high, next_, low = (
                load_words(context, builder, signature, arguments, 0, arguments[place + i]) for i in range(3)
            )
            return builder.or_(high, builder.and_(next_, low))

        words = below(1)
        if ranged:
            words = builder.and_(words, builder.not_(below(4)))
        last = len(arguments) - 1
        builder.store(
            words, pointer_to(context, builder, signature, arguments, last - 1, arguments[last], WORDS), align=8
        )
        return context.get_dummy_value()

    @intrinsic
    def up_to(typing_context: Any, below: Any, high: Any, next_: Any, low: Any, bits: Any, to: Any) -> Any:
        return numba.types.void(below, U64, U64, U64, bits, U64), codegen

    @intrinsic
    def within(
        typing_context: Any, below: Any, high: Any, next_: Any, low: Any, high2: Any, next2: Any, low2: Any,
        bits: Any, to: Any,
    ) -> Any:  # fmt: skip
        return numba.types.void(below, U64, U64, U64, U64, U64, U64, bits, U64), codegen

    return within if ranged else up_to


digits_up_to, digits_between = _of_digits(ranged=False), _of_digits(ranged=True)
