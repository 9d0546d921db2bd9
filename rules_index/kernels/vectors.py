"""Vector instructions over bitmaps and rows that Numba does not offer: intersect, gather, compress, transpose."""

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
    U32,
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
def both(typing_context: Any, bits: Any, high: Any, high2: Any, current: Any, at: Any) -> Any:
    """Writes `bits[high] & bits[high2]`, `GROUP` words, to `current` from `at` on. Returns which words are not zero, as
    bits."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        words = [load_words(context, builder, signature, arguments, 0, arguments[i]) for i in (1, 2)]
        return _store(context, builder, signature, arguments, builder.and_(*words), 3)

    return U64(bits, U64, U64, current, U64), codegen


@intrinsic
def between(typing_context: Any, bits: Any, low: Any, high: Any, low2: Any, high2: Any, current: Any, at: Any) -> Any:
    """Like `both`, for `bits[high] & ~bits[low] & bits[high2] & ~bits[low2]`."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        result = _within(context, builder, signature, arguments)
        return _store(context, builder, signature, arguments, result, 5)

    return U64(bits, U64, U64, U64, U64, current, U64), codegen


@intrinsic
def also_between(
    typing_context: Any, bits: Any, low: Any, high: Any, low2: Any, high2: Any, current: Any, at: Any
) -> Any:
    """Like `between`, intersected with the words already in `current`."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        before = load_words(context, builder, signature, arguments, 5, arguments[6])
        result = builder.and_(before, _within(context, builder, signature, arguments))
        return _store(context, builder, signature, arguments, result, 5)

    return U64(bits, U64, U64, U64, U64, current, U64), codegen


@intrinsic
def all_between(
    typing_context: Any, bits: Any, terms: Any, begin: Any, end: Any, count: Any, every: Any, current: Any, at: Any
) -> Any:
    """Intersects all terms, the pairs (low, high) of `terms[begin:end]`, and the bitmap `every`; writes `GROUP` words
    to `current` from `at` on. A term is `bits[high * count + at] & ~bits[low * count + at]`. Returns which words are
    not zero, as bits from bit `at` on."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        begin, end, count, every, at = arguments[2], arguments[3], arguments[4], arguments[5], arguments[7]

        def bitmap(number: Any) -> Any:
            return load_words(context, builder, signature, arguments, 0, builder.add(builder.mul(number, count), at))

        def words_at(place: Any) -> Any:
            number = builder.load(pointer_to(context, builder, signature, arguments, 1, place, WORD), align=4)
            return bitmap(builder.zext(number, LONG))

        held = numba.core.cgutils.alloca_once_value(builder, bitmap(every))

        with numba.core.cgutils.for_range_slice(builder, begin, end, ir.Constant(LONG, 1), LONG) as (term, _):
            place = builder.mul(term, ir.Constant(LONG, 2))
            low, high = words_at(place), words_at(builder.add(place, ir.Constant(LONG, 1)))
            builder.store(builder.and_(builder.load(held), builder.and_(high, builder.not_(low))), held)
        left = _store(context, builder, signature, arguments, builder.load(held), 6)
        return builder.shl(left, at)

    return U64(bits, terms, U64, U64, U64, U64, current, U64), codegen


@intrinsic
def three_terms(typing_context: Any, bits: Any, terms: Any, term: Any, stop: Any, stride: Any, word: Any) -> Any:
    """Intersects one word of up to three terms, the pairs (low, high) of `terms` from `term` on, all before `stop`:
    `bits[high * stride + word] & ~bits[low * stride + word]`. If fewer are left, the last one is read again."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, _, term, stop, stride, word = arguments

        def word_at(place: Any) -> Any:
            number = builder.load(pointer_to(context, builder, signature, arguments, 1, place, WORD), align=4)
            at = builder.add(builder.mul(builder.zext(number, LONG), stride), word)
            return builder.load(pointer_to(context, builder, signature, arguments, 0, at, LONG), align=8)

        last = builder.sub(stop, ir.Constant(LONG, 1))
        held = ir.Constant(LONG, -1)
        for further in range(3):
            which = builder.add(term, ir.Constant(LONG, further))
            which = builder.select(builder.icmp_unsigned("<", which, last), which, last) if further else term
            place = builder.shl(which, ir.Constant(LONG, 1))
            low, high = word_at(place), word_at(builder.add(place, ir.Constant(LONG, 1)))
            held = builder.and_(held, builder.and_(high, builder.not_(low)))
        return held

    return U64(bits, terms, U64, U64, U64, U64), codegen


@intrinsic
def count_bits(typing_context: Any, bits: Any) -> Any:
    """The number of set bits of a uint64."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return U64(U64), codegen


@intrinsic
def trailing_zeros(typing_context: Any, bits: Any) -> Any:
    """The index of the lowest set bit of a uint64; undefined for 0."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], numba.core.cgutils.true_bit)

    return U64(U64), codegen


@intrinsic
def looked_up(
    typing_context: Any, words: Any, codes: Any, at: Any, at2: Any, at3: Any, factor: Any, shift: Any
) -> Any:  # fmt: skip
    """A uint64 whose bit r, for r below `LOOKED_UP`, says whether a row's bit in the Bloom filter `words` is set. The
    row's three codes (uint8), at `codes[at + r]`, `codes[at2 + r]` and `codes[at3 + r]`, are the bytes of a number, the
    first one the highest. The number of its bit is `number * factor >> shift`, in 32 bits."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        lanes = ir.VectorType(WORD, LOOKED_UP)
        number = ir.Constant(lanes, [0] * LOOKED_UP)
        for place, by in ((2, 16), (3, 8), (4, 0)):
            bytes_ = ir.VectorType(ir.IntType(8), LOOKED_UP)
            pointer = pointer_to(context, builder, signature, arguments, 1, arguments[place], bytes_)
            column = builder.zext(builder.load(pointer, align=1), lanes)
            number = builder.or_(number, builder.shl(column, ir.Constant(lanes, [by] * LOOKED_UP)))
        bit = builder.mul(number, spread(builder, arguments[5], LOOKED_UP))
        bit = builder.lshr(bit, spread(builder, arguments[6], LOOKED_UP))
        words = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        word = _gather(builder, words, builder.lshr(bit, ir.Constant(lanes, [5] * LOOKED_UP)))
        word = builder.lshr(word, builder.and_(bit, ir.Constant(lanes, [31] * LOOKED_UP)))
        mask = builder.bitcast(builder.trunc(word, ir.VectorType(ir.IntType(1), LOOKED_UP)), ir.IntType(LOOKED_UP))
        return builder.zext(mask, LONG)

    return U64(words, codes, U64, U64, U64, U32, U32), codegen


def _gather(builder: Any, words: Any, places: Any) -> Any:
    """Gathers `LOOKED_UP` words of 32 bits from the indices `places` of an array."""
    longs = ir.VectorType(LONG, LOOKED_UP)
    offset = builder.shl(builder.zext(places, longs), ir.Constant(longs, [2] * LOOKED_UP))
    address = builder.add(spread(builder, builder.ptrtoint(words, LONG), LOOKED_UP), offset)
    pointers = ir.VectorType(WORD.as_pointer(), LOOKED_UP)
    lanes, flags = ir.VectorType(WORD, LOOKED_UP), ir.VectorType(ir.IntType(1), LOOKED_UP)
    gather = numba.core.cgutils.get_or_insert_function(
        builder.module,
        ir.FunctionType(lanes, [pointers, WORD, flags, lanes]),
        f"llvm.masked.gather.v{LOOKED_UP}i32.v{LOOKED_UP}p0",
    )
    every, nothing = ir.Constant(flags, [1] * LOOKED_UP), ir.Constant(lanes, [0] * LOOKED_UP)
    return builder.call(gather, [builder.inttoptr(address, pointers), ir.Constant(WORD, 4), every, nothing])


@intrinsic
def compressed(typing_context: Any, out: Any, count: Any, first: Any, bits: Any) -> Any:
    """Writes `first` plus the index of each set bit of `bits`, ascending, to `out` (uint16) from `count` on. Returns
    the new count. Up to 64 elements from `count` on are overwritten."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        count = arguments[1]
        half = LANES // 2
        numbers = ir.VectorType(ir.IntType(16), half)
        first = spread(builder, builder.trunc(arguments[2], ir.IntType(16)), half)
        flags = ir.VectorType(ir.IntType(1), half)
        compress = numba.core.cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(numbers, [numbers, flags, numbers]),
            f"llvm.experimental.vector.compress.v{half}i16",
        )
        for begin in (0, half):
            some = builder.trunc(builder.lshr(arguments[3], ir.Constant(LONG, begin)), ir.IntType(half))
            rows = builder.add(first, ir.Constant(numbers, list(range(begin, begin + half))))
            undefined = ir.Constant(numbers, ir.Undefined)
            found = builder.call(compress, [rows, builder.bitcast(some, flags), undefined])
            builder.store(found, pointer_to(context, builder, signature, arguments, 0, count, numbers), align=2)
            count = builder.add(count, builder.zext(builder.ctpop(some), LONG))
        return count

    return U64(out, U64, U64, U64), codegen


SPILLED = 64
"""The number of elements behind its last one that `add_numbers` may overwrite."""


@intrinsic
def add_numbers(typing_context: Any, out: Any, at: Any, first: Any, bits: Any) -> Any:
    """Writes `first` (int32) plus the index of each set bit of `bits`, ascending, to `out` (int32) from `at` on. Up to
    `SPILLED` elements from `at` on are overwritten."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        some = builder.bitcast(arguments[3], ir.VectorType(ir.IntType(1), LANES))
        compress = numba.core.cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(BYTES, [BYTES, some.type, BYTES]),
            f"llvm.experimental.vector.compress.v{LANES}i8",
        )
        every = ir.Constant(BYTES, list(range(LANES)))
        indices = builder.call(compress, [every, some, ir.Constant(BYTES, ir.Undefined)])

        def store(begin: int) -> None:
            """Stores the numbers of the set bits whose rank is in [begin, begin + LOOKED_UP)."""
            part = ir.Constant(ir.VectorType(WORD, LOOKED_UP), list(range(begin, begin + LOOKED_UP)))
            few = builder.shuffle_vector(indices, ir.Constant(BYTES, ir.Undefined), part)
            numbers = builder.zext(few, ir.VectorType(WORD, LOOKED_UP))
            numbers = builder.add(numbers, spread(builder, arguments[2], LOOKED_UP))
            at = builder.add(arguments[1], ir.Constant(LONG, begin))
            builder.store(numbers, pointer_to(context, builder, signature, arguments, 0, at, numbers.type), align=4)

        store(0)
        many = builder.icmp_unsigned(">", builder.ctpop(arguments[3]), ir.Constant(LONG, LOOKED_UP))
        with builder.if_then(many, likely=False):
            for begin in range(LOOKED_UP, LANES, LOOKED_UP):
                store(begin)
        return context.get_dummy_value()

    return numba.types.void(out, U64, numba.types.int32, U64), codegen


@intrinsic
def copy_numbers(typing_context: Any, source: Any, at: Any, out: Any, to: Any) -> Any:
    """Copies `LOOKED_UP` int32 from `source[at]` on to `out` from `to` on."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        numbers = ir.VectorType(WORD, LOOKED_UP)
        given = builder.load(pointer_to(context, builder, signature, arguments, 0, arguments[1], numbers), align=4)
        builder.store(given, pointer_to(context, builder, signature, arguments, 2, arguments[3], numbers), align=4)
        return context.get_dummy_value()

    return numba.types.void(source, U64, out, U64), codegen


@intrinsic
def spread_number(typing_context: Any, number: Any, out: Any, to: Any) -> Any:
    """Writes an int32 `LOOKED_UP` times to `out` from `to` on."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        numbers = spread(builder, arguments[0], LOOKED_UP)
        builder.store(
            numbers, pointer_to(context, builder, signature, arguments, 1, arguments[2], numbers.type), align=4
        )
        return context.get_dummy_value()

    return numba.types.void(numba.types.int32, out, U64), codegen


@intrinsic
def prefetch(typing_context: Any, array: Any, at: Any) -> Any:
    """Prefetches the cache line of element `at` of the flattened array."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        prefetch_line(builder, pointer_to(context, builder, signature, arguments, 0, arguments[1], ir.IntType(8)))
        return context.get_dummy_value()

    return numba.types.void(array, U64), codegen


@intrinsic
def transpose(typing_context: Any, source: Any, begin: Any, target: Any, to: Any) -> Any:
    """Transposes the 64 words from `source[begin]` on, and writes them to `target` from `to` on: bit j of word i
    becomes bit i of word j. Returns the number of set bits."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        square = ir.VectorType(LONG, LANES)
        words = builder.load(pointer_to(context, builder, signature, arguments, 0, arguments[1], square), align=8)
        kinds = {"llvm.ctpop": [square], "llvm.fshl": [square] * 3}
        count, rotate = (
            numba.core.cgutils.get_or_insert_function(
                builder.module, ir.FunctionType(square, kind), f"{name}.v{LANES}i64"
            )
            for name, kind in kinds.items()
        )
        total = numba.core.cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(LONG, [square]), f"llvm.vector.reduce.add.v{LANES}i64"
        )
        found = builder.call(total, [builder.call(count, [words])])
        undefined = ir.Constant(square, ir.Undefined)
        by = LANES // 2
        while by:
            # squares of `by` words and bits are swapped across the diagonal of each square that is twice as wide
            low = sum(1 << bit for bit in range(LANES) if not bit & by)
            keep = [low if not word & by else low << by for word in range(LANES)]
            across = ir.Constant(ir.VectorType(WORD, LANES), [word ^ by for word in range(LANES)])
            other = builder.shuffle_vector(words, undefined, across)
            turn = ir.Constant(square, [by if not word & by else LANES - by for word in range(LANES)])
            other = builder.call(rotate, [other, other, turn])
            kept = ir.Constant(square, keep)
            words = builder.or_(builder.and_(words, kept), builder.and_(other, builder.not_(kept)))
            by //= 2
        builder.store(words, pointer_to(context, builder, signature, arguments, 2, arguments[3], square), align=8)
        return found

    return U64(source, U64, target, U64), codegen


def _within(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """`bits[high] & ~bits[low] & bits[high2] & ~bits[low2]`, `GROUP` words, given the arguments of `between`."""
    low, high, low2, high2 = (load_words(context, builder, signature, arguments, 0, arguments[i]) for i in (1, 2, 3, 4))
    return builder.and_(builder.and_(high, high2), builder.not_(builder.or_(low, low2)))


def _store(context: Any, builder: Any, signature: Any, arguments: Any, words: Any, array: int) -> Any:
    """Stores words to the array that is argument number `array`, from the next argument on. Returns which words are not
    0, as bits."""
    builder.store(
        words, pointer_to(context, builder, signature, arguments, array, arguments[array + 1], WORDS), align=8
    )
    some = builder.icmp_unsigned("!=", words, ir.Constant(WORDS, [0] * GROUP))
    return builder.zext(builder.bitcast(some, ir.IntType(GROUP)), ir.IntType(64))
