"""Summaries of row bitmaps: a few words that limit where a bitmap can have a row.

Conjunctions of rare terms have a row in few places of a block, if in any. The AND of the summaries of a conjunction's
rarest terms gives these places, with `SUMMARY_TERMS` loads for 4,096 rows. Only there its bitmaps are read. A summary
has `GROUP` words, with a bit for eight rows: bit b of word g stands for the rows 512 g + 8 b to 512 g + 8 b + 7.

If several bitmaps share a row, the AND of their summaries has the row's bit. A term that is an interval between two
bitmaps (low and high) has no summary.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import ir

from rules_index.kernels.bitmaps import ALL, EMPTY, STEP
from rules_index.kernels.jit import bare, inner
from rules_index.kernels.llvm import (
    BYTES,
    GROUP,
    LANES,
    LONG,
    PART,
    U64,
    WORD,
    WORDS,
    apart,
    intrinsic,
    load_words,
    pointer_to,
    spread,
)

SUMMARY_TERMS = 5
"""The number of a conjunction's terms whose summaries are read."""
RAREST = 4
"""The number of these whose summaries are read first; for most conjunctions they already show that there is no row."""
FEW_SHARED = 4
"""If conjunctions can have a row in more than so many of a block's `GROUP` groups of words, on average, bitmaps alone
are faster."""
_GROUP = np.uint64(GROUP)
_SUMMARY = ir.Constant(LONG, GROUP), ir.Constant(LONG, 0)
"""The arguments stride and group of `_shared` for summaries: each has `GROUP` words, which are a single group."""


@intrinsic
def add_summary(typing_context: Any, bits: Any, at: Any, count: Any, summaries: Any, to: Any) -> Any:
    """Writes the summary of the `count` words from `bits[at]` on, a multiple of `GROUP`, to `summaries` from `to` on:
    one word for each group of words."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, at, count, _, to = arguments
        begin, step = ir.Constant(LONG, 0), ir.Constant(LONG, GROUP)
        with numba.core.cgutils.for_range_slice(builder, begin, count, step, LONG) as (word, number):
            words = load_words(context, builder, signature, arguments, 0, builder.add(at, word))
            pointer = pointer_to(context, builder, signature, arguments, 3, builder.add(to, number), LONG)
            builder.store(_bytes_used(builder, words), pointer)
        return context.get_dummy_value()

    return numba.types.void(bits, U64, U64, summaries, U64), codegen


@intrinsic
def share_summaries(typing_context: Any, summaries: Any, summary_terms: Any, at: Any) -> Any:
    """1 if the AND of the summaries of `summary_terms[at : at + RAREST]` is not 0, else 0."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        parts = _shared_parts(context, builder, signature, arguments, 0, arguments[2], *_SUMMARY, RAREST)
        some = builder.icmp_unsigned("!=", builder.or_(*parts), ir.Constant(PART, [0] * PART.count))
        some = builder.bitcast(some, ir.IntType(PART.count))
        return builder.zext(builder.icmp_unsigned("!=", some, ir.Constant(some.type, 0)), LONG)

    return U64(summaries, summary_terms, U64), codegen


@intrinsic
def add_groups(
    typing_context: Any, summaries: Any, summary_terms: Any, at: Any, numbers: Any, count: Any, first: Any
) -> Any:
    """Writes the groups of words in which the bitmaps `summary_terms[at : at + SUMMARY_TERMS]` can share a row, by
    their summaries: `first` (int32) plus each group's number, to `numbers` (int32) from `count` on. Returns the new
    count. Up to `GROUP` elements from `count` on are overwritten."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        at, count, first = (arguments[i] for i in (2, 4, 5))
        shared = _shared(context, builder, signature, arguments, 0, at, *_SUMMARY)
        return _add(context, builder, signature, arguments, shared, [(3, _numbers(builder, first))], count)

    return U64(summaries, summary_terms, U64, numbers, U64, numba.types.int32), codegen


@intrinsic
def add_words(
    typing_context: Any, bits: Any, summary_terms: Any, at: Any, stride: Any, group: Any, words: Any, places: Any,
    count: Any, first: Any,
) -> Any:  # fmt: skip
    """Intersects `GROUP` words, from word `group` on, of the bitmaps `summary_terms[at : at + SUMMARY_TERMS]`, which
    have `stride` words each. Writes the non-zero words to `words` (uint64) from `count` on, and `first` (int32) plus
    the index of each in the group to `places` (int32). Returns the new count. Up to `GROUP` elements from `count` on
    are overwritten."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, _, at, stride, group, _, _, count, first = arguments
        shared = _shared(context, builder, signature, arguments, 0, at, stride, group)
        given = [(5, shared), (6, _numbers(builder, first))]
        return _add(context, builder, signature, arguments, shared, given, count)

    return U64(bits, summary_terms, U64, U64, U64, words, places, U64, numba.types.int32), codegen


def _shared(
    context: Any, builder: Any, signature: Any, arguments: Any, array: int, at: Any, stride: Any, group: Any,
    bitmaps: int = SUMMARY_TERMS,
) -> Any:  # fmt: skip
    """The AND of a group of words of several bitmaps, which have `stride` words each and are in argument number
    `array`. Argument 1 has the bitmaps' numbers, from `at` on."""
    parts = _shared_parts(context, builder, signature, arguments, array, at, stride, group, bitmaps)
    whole = ir.Constant(ir.VectorType(WORD, GROUP), list(range(GROUP)))
    return builder.shuffle_vector(*(apart(builder, part) for part in parts), whole)


def _shared_parts(
    context: Any, builder: Any, signature: Any, arguments: Any, array: int, at: Any, stride: Any, group: Any,
    bitmaps: int = SUMMARY_TERMS,
) -> list[Any]:  # fmt: skip
    """`_shared` as two halves. Where loads limit the speed, two vectors of half the size take two thirds of the time of
    one."""
    parts: list[Any] = [ir.Constant(PART, [-1] * PART.count)] * 2
    for k in range(bitmaps):
        number = _number(context, builder, signature, arguments, 1, builder.add(at, ir.Constant(LONG, k)))
        words = builder.add(builder.mul(number, stride), group)
        for i in (0, 1):
            place = builder.add(words, ir.Constant(LONG, i * PART.count))
            pointer = pointer_to(context, builder, signature, arguments, array, place, PART)
            parts[i] = builder.and_(parts[i], builder.load(pointer, align=8))
    return parts


def _number(context: Any, builder: Any, signature: Any, arguments: Any, array: int, at: Any) -> Any:
    """Element `at` of the int32 array that is argument number `array`; it must not be negative."""
    pointer = pointer_to(context, builder, signature, arguments, array, at, WORD)
    return builder.zext(builder.load(pointer, align=4), LONG)


def _bytes_used(builder: Any, words: Any) -> Any:
    """64 bits: which bytes of the eight words are not 0."""
    used = builder.icmp_unsigned("!=", builder.bitcast(words, BYTES), ir.Constant(BYTES, [0] * LANES))
    return builder.bitcast(used, LONG)


def _some(builder: Any, words: Any) -> Any:
    """Which of the words are not 0, as a vector of bits."""
    return builder.icmp_unsigned("!=", words, ir.Constant(WORDS, [0] * GROUP))


def _numbers(builder: Any, first: Any) -> Any:
    """The vector `first`, `first` + 1, ... of `GROUP` lanes."""
    return builder.add(spread(builder, first, GROUP), ir.Constant(ir.VectorType(WORD, GROUP), list(range(GROUP))))


def _add(context: Any, builder: Any, signature: Any, arguments: Any, words: Any, given: Any, count: Any) -> Any:
    """Compresses vectors: writes their lanes for which `words` are not 0 to arrays from `count` on. given: pairs of an
    argument's number and a vector. Returns the new count."""
    some = _some(builder, words)
    for array, values in given:
        kind = ir.FunctionType(values.type, [values.type, some.type, values.type])
        name = f"llvm.experimental.vector.compress.v{GROUP}{values.type.element}"
        compress = numba.core.cgutils.get_or_insert_function(builder.module, kind, name)
        found = builder.call(compress, [values, some, ir.Constant(values.type, ir.Undefined)])
        builder.store(found, pointer_to(context, builder, signature, arguments, array, count, values.type), align=4)
    return builder.add(count, builder.zext(builder.ctpop(builder.bitcast(some, ir.IntType(GROUP))), LONG))


@bare
def summarise(bitmaps, words, bits, summaries):
    """Writes the summaries [bitmaps * GROUP] uint64 of all bitmaps. Of each it writes only as many words as a block has
    groups of words."""
    count = np.uint64(words)
    for bitmap in range(np.uint64(bitmaps)):
        add_summary(bits, bitmap * count, count, summaries, bitmap * _GROUP)


@inner
def choose_summary_terms(begin, end, term_start, terms, bitmaps, words, rows, bits):
    """Chooses `summary_terms` and `summary_next` of `kernels.match.KernelArrays` for the conjunctions [begin, end),
    given the bitmaps of a sample block.

    Returns these, and in how many groups of words the conjunctions can have a row. If bitmaps alone are faster, both
    arrays are empty. Else it moves the terms with a summary to the front of each conjunction, in place.
    """
    summary_terms = np.empty((end - begin) * SUMMARY_TERMS, np.int32)
    following = np.empty(end - begin, np.int64)
    # summarising all bitmaps takes as long as scanning a few conjunctions
    if rows < STEP or len(summary_terms) < bitmaps:
        return summary_terms[:0], following[:0], 0
    summaries = np.zeros(bitmaps * GROUP, np.uint64)
    summarise(bitmaps, words, bits, summaries)
    numbers = np.empty(2 * GROUP, np.int32)
    shared = np.uint64(0)
    for conjunction in range(begin, end):
        start, stop = term_start[conjunction], term_start[conjunction + 1]
        at = (conjunction - begin) * SUMMARY_TERMS
        count = _rarest(start, stop, terms, summary_terms[at : at + SUMMARY_TERMS])
        following[conjunction - begin] = start + count if start + count < stop else -1
        shared += add_groups(summaries, summary_terms, np.uint64(at), numbers, np.uint64(0), np.int32(0))
    groups = (rows + STEP - 1) // STEP
    if np.int64(shared) * GROUP > FEW_SHARED * groups * (end - begin):
        return summary_terms[:0], following[:0], 0
    for conjunction in range(begin, end):
        _put_first(term_start[conjunction], term_start[conjunction + 1], terms)
    following = following if following.max() >= 0 else following[:0]
    return summary_terms, following, np.int64(shared)


@bare
def _rarest(start, stop, terms, summary_terms):
    """Writes the bitmaps of the first `SUMMARY_TERMS` of the terms [start, stop) that have a summary, padded with
    `ALL`. Returns how many there are. Terms ascend by number of rows."""
    count = 0
    for term in range(start, stop):
        if count < SUMMARY_TERMS and terms[term, 0] == EMPTY:
            summary_terms[count] = terms[term, 1]
            count += 1
    summary_terms[count:] = ALL
    return count


@bare
def _put_first(start, stop, terms):
    """Moves the terms with a summary before the others; the order is kept otherwise."""
    to = start
    for term in range(start, stop):
        if terms[term, 0] == EMPTY:
            put_at(term, to, terms)
            to += 1


@bare
def put_at(term, to, terms):
    """Moves a term to the earlier index `to`; the terms between move on by one."""
    low, high = terms[term, 0], terms[term, 1]
    for other in range(term, to, -1):
        terms[other, 0], terms[other, 1] = terms[other - 1, 0], terms[other - 1, 1]
    terms[to, 0], terms[to, 1] = low, high
