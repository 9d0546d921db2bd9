"""Equality blocks: 64 conjunctions that name the same code, compared with a row at once.

If very many conjunctions are scanned, each is filed under a code that few rows have, 64 with the same code to an
*equality block*. A row is compared only with the blocks of its own codes. For each of its conjunctions, a block has up
to `NAMED` further terms of one code: a byte for the term's attribute (its *slot*) and a byte for its code. The codes of
a row, which are contiguous, are shuffled into the order of these slots and compared in one step, for 64 conjunctions at
once. The conjunctions that pass are verified one by one.

equality_attributes   [slots] int32, the attributes whose codes are tested
equality_start        [256 * slots + 1] int32: element 256 s + c is where the blocks of code c of slot s begin
equality_terms        [blocks * 2 * NAMED * LANES] uint8: for each block and each of `NAMED` terms, the slots of `LANES`
                      conjunctions and then their codes
equality_conjunctions [blocks * LANES] int32, the conjunctions, counted from the first that is scanned
equality_next         [scanned] int64, each conjunction's first term that the blocks do not test, or -1; empty if they
                      test all terms
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import numba
import numpy as np
from llvmlite import ir

from rules_index.kernels.bitmaps import EMPTY, NO_ROW, ONE, count_all
from rules_index.kernels.jit import bare, inner, jit
from rules_index.kernels.lists import grown
from rules_index.kernels.llvm import BYTES, GROUP, LANES, LONG, U64, WORD, WORDS, intrinsic, pointer_to
from rules_index.kernels.scan import passes, word_of
from rules_index.kernels.summaries import put_at
from rules_index.kernels.vectors import trailing_zeros

NAMED = 4
"""The number of a conjunction's terms that an equality block tests, besides the one that it is filed under."""
CODES = 256
"""The number of values of a byte."""
WIDEST = LANES
"""The most attributes whose codes a row can have side by side."""
LISTING = 0.27
"""The time to list a row under its code of an attribute, in units of the time to compare a row with an equality block.
Scanning a conjunction by the summaries of a block of rows takes about one unit (`kernels.summaries`)."""
LOOKING = 1.2
"""The time, in the same unit, to read a group of words in which, by its summaries, a conjunction can have a row."""
HOLDING = 3.0
"""The time, in the same unit, to verify a pair of a row and a conjunction that passes an equality block."""
_BUFFER = 1 << 14
"""Pairs of a row and an equality block that passes: once there are so many, their conjunctions are verified."""
_GROUP = np.uint64(GROUP)
_SHUFFLE = "llvm.x86.avx512.permvar.qi.512"


@intrinsic
def can_shuffle(typing_context: Any) -> Any:
    """Whether the processor has an instruction that shuffles 64 bytes (AVX-512 VBMI)."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return context.get_constant(numba.types.boolean, _has_shuffle(context))

    return numba.types.boolean(), codegen


@jit
def shuffles():
    """`can_shuffle`, for callers that are not compiled."""
    return can_shuffle()


def _has_shuffle(context: Any) -> bool:
    _, _, features = context.codegen().magic_tuple()
    return "+avx512vbmi," in f"{features},"


@intrinsic
def side_by_side(typing_context: Any, coarse: Any, places: Any, at: Any, out: Any, to: Any, stride: Any) -> Any:
    """Transposes codes: writes `coarse[places[i] + at + r]` to `out[to + r * stride + i]`, r and i = 0 .. 7."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, _, at, _, to, stride = arguments
        codes = ir.Constant(WORDS, ir.Undefined)
        for i in range(GROUP):
            pointer = pointer_to(context, builder, signature, arguments, 1, ir.Constant(LONG, i), LONG)
            place = builder.add(builder.load(pointer, align=8), at)
            eight = builder.load(pointer_to(context, builder, signature, arguments, 0, place, LONG), align=1)
            codes = builder.insert_element(codes, eight, ir.Constant(WORD, i))
        order = ir.Constant(ir.VectorType(WORD, LANES), [i * GROUP + row for row in range(GROUP) for i in range(GROUP)])
        turned = builder.shuffle_vector(builder.bitcast(codes, BYTES), ir.Constant(BYTES, ir.Undefined), order)
        turned = builder.bitcast(turned, WORDS)
        for row in range(GROUP):
            eight = builder.extract_element(turned, ir.Constant(WORD, row))
            builder.store(eight, pointer_to(context, builder, signature, arguments, 3, to, LONG), align=1)
            to = builder.add(to, stride)
        return context.get_dummy_value()

    return numba.types.void(coarse, places, U64, out, U64, U64), codegen


@intrinsic
def add_compared(
    typing_context: Any, terms: Any, at: Any, by_row: Any, stride: Any, listed: Any, begin: Any, length: Any, rows: Any,
    found: Any, count: Any,
) -> Any:  # fmt: skip
    """Compares the rows `listed[begin : begin + length]` (uint16) with the equality block at `terms[at]`, which stays
    in registers. The codes of a row begin at `by_row[row * stride]`, and `LANES` bytes are read. For each row that
    passes for some conjunction, it writes from `count` on the row to `rows` (int32), and these conjunctions, as bits,
    to `found` (uint64). Returns the new count; the element behind the last one may be overwritten."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, at, _, stride, _, begin, length, _, _, count = arguments
        if not _has_shuffle(context):
            return count
        block = []
        for k in range(2 * NAMED):
            place = builder.add(at, ir.Constant(LONG, k * LANES))
            block.append(builder.load(pointer_to(context, builder, signature, arguments, 0, place, BYTES), align=1))
        kind = ir.FunctionType(BYTES, [BYTES, BYTES])
        shuffle = numba.core.cgutils.get_or_insert_function(builder.module, kind, _SHUFFLE)
        total = numba.core.cgutils.alloca_once_value(builder, count)
        with numba.core.cgutils.for_range(builder, length, intp=LONG) as loop:
            place = builder.add(begin, loop.index)
            short = builder.load(pointer_to(context, builder, signature, arguments, 4, place, ir.IntType(16)), align=2)
            row = builder.mul(builder.zext(short, LONG), stride)
            codes = builder.load(pointer_to(context, builder, signature, arguments, 2, row, BYTES), align=1)
            equal = [
                builder.icmp_unsigned("==", builder.call(shuffle, [codes, block[k]]), block[k + 1])
                for k in range(0, 2 * NAMED, 2)
            ]
            held = builder.bitcast(reduce(builder.and_, equal), LONG)
            to = builder.load(total)
            builder.store(builder.zext(short, WORD), pointer_to(context, builder, signature, arguments, 7, to, WORD))
            builder.store(held, pointer_to(context, builder, signature, arguments, 8, to, LONG))
            some = builder.icmp_unsigned("!=", held, ir.Constant(LONG, 0))
            builder.store(builder.add(to, builder.zext(some, LONG)), total)
        return builder.load(total)

    return U64(terms, U64, by_row, U64, listed, U64, U64, rows, found, U64), codegen


@bare
def add_compared_one_by_one(terms, at, by_row, stride, listed, begin, length, rows, found, count):
    """`add_compared` for processors without the instruction that `can_shuffle` asks for."""
    for i in range(length):
        row = np.uint64(listed[begin + i])
        held = np.uint64(0)
        for lane in range(LANES):
            same = True
            for k in range(NAMED):
                place = at + np.uint64(2 * k * LANES + lane)
                same &= by_row[row * stride + np.uint64(terms[place])] == terms[place + np.uint64(LANES)]
            held |= np.uint64(same) << np.uint64(lane)
        rows[count] = row
        found[count] = held
        count += np.uint64(held != 0)
    return count


@inner
def match_equality_blocks(
    begin, codes, first, coarse, start, rows, words, chunk_words, bits, disjunction_bits, order,
    equality_attributes, equality_start, equality_terms, equality_conjunctions, equality_next,
    term_start, terms, check_start, checks, set_start, set_intervals, target, hit_rows, hit_rules, hits,
):  # fmt: skip
    """Appends the hits of the scanned conjunctions, the first of which is `begin`, in a block of rows: those that
    `kernels.scan.scan` finds, in another order."""
    slots = len(equality_attributes)
    # the codes of a row are in one cache line, or two rows share one
    stride = WIDEST >> 1 if slots <= WIDEST >> 1 else WIDEST
    places = np.empty((slots + 7) & -8, np.uint64)
    for slot in range(len(places)):
        places[slot] = equality_attributes[min(slot, slots - 1)] * (chunk_words << 6) + start
    by_row = np.empty((((rows + 7) & -8) + 1) * stride + LANES, np.uint8)
    _put_side_by_side(coarse, places, rows, stride, by_row)
    # not a power of two: with one, the lists of all codes would compete for a few sets of the L1 cache
    room = rows + LANES
    listed = np.empty(CODES * room, np.uint16)
    length = np.empty(CODES, np.int32)
    found_rows, found_blocks = np.empty((2, _BUFFER + rows + 1), np.int32)
    found = np.empty(_BUFFER + rows + 1, np.uint64)
    for slot in range(slots):
        if equality_start[slot * CODES] == equality_start[(slot + 1) * CODES]:
            continue
        _list_rows(coarse, places[slot], rows, room, listed, length)
        count = 0
        for code in range(CODES):
            for block in range(equality_start[slot * CODES + code], equality_start[slot * CODES + code + 1]):
                count = _compare(
                    block, equality_terms, by_row, stride, listed, code * room, length[code],
                    found_rows, found_blocks, found, count,
                )  # fmt: skip
                if count >= _BUFFER or (block + 1 == equality_start[(slot + 1) * CODES]):
                    needed = hits + count_all(found, count)
                    if needed > len(hit_rows):
                        hit_rows, hit_rules = grown(hit_rows, needed), grown(hit_rules, needed)
                    hits = _add_held(
                        begin, count, found_rows, found_blocks, found, codes, first, coarse, start, words, chunk_words,
                        bits, disjunction_bits, order, equality_conjunctions, equality_next, term_start, terms,
                        check_start, checks, set_start, set_intervals, target, hit_rows, hit_rules, hits,
                    )  # fmt: skip
                    count = 0
    return hit_rows, hit_rules, hits


@bare
def _put_side_by_side(coarse, places, rows, stride, by_row):
    """Writes the codes of each row side by side, with `stride` bytes from one row to the next. places
    [slots, rounded up to eight] uint64: where the codes of each slot begin in `coarse`."""
    for slot in range(np.uint64(0), np.uint64(len(places)), _GROUP):
        own = places[slot:]
        for row in range(np.uint64(0), np.uint64(rows), _GROUP):
            side_by_side(coarse, own, row, by_row, row * np.uint64(stride) + slot, np.uint64(stride))


@bare
def _list_rows(coarse, at, rows, room, listed, length):
    """Lists the rows with each code of the attribute whose codes begin at `coarse[at]`: the list of code c begins at
    `listed[c * room]` and has `length[c]` rows."""
    length[:] = 0
    for row in range(np.uint64(rows)):
        code = np.uint64(coarse[at + row])
        count = length[code]
        listed[code * np.uint64(room) + np.uint64(count)] = row
        length[code] = count + 1


@bare
def _compare(block, equality_terms, by_row, stride, listed, begin, length, found_rows, found_blocks, found, count):
    """Compares listed rows with an equality block as `add_compared` does, and writes the block's number to
    `found_blocks` beside them."""
    at, to = np.uint64(block) * np.uint64(2 * NAMED * LANES), np.uint64(count)
    begin, length = np.uint64(begin), np.uint64(length)
    if can_shuffle():
        to = add_compared(equality_terms, at, by_row, np.uint64(stride), listed, begin, length, found_rows, found, to)
    else:
        to = add_compared_one_by_one(
            equality_terms, at, by_row, np.uint64(stride), listed, begin, length, found_rows, found, to
        )
    found_blocks[count:to] = block
    return np.int64(to)


@bare
def _add_held(
    begin, count, found_rows, found_blocks, found, codes, first, coarse, start, words, chunk_words, bits,
    disjunction_bits, order, equality_conjunctions, equality_next, term_start, terms, check_start, checks, set_start,
    set_intervals, target, hit_rows, hit_rules, hits,
):  # fmt: skip
    """Appends the hits among the pairs of a row and a conjunction that passed an equality block: the other terms and
    the checks are tested here. The arrays have room for all."""
    to = np.uint64(hits)
    for i in range(np.uint64(count)):
        row, held = np.uint64(found_rows[i]), found[i]
        block = np.uint64(found_blocks[i]) * np.uint64(LANES)
        while held != 0:
            number = np.uint64(equality_conjunctions[block + trailing_zeros(held)])
            held &= held - ONE
            conjunction = np.uint64(begin) + number
            hit_rows[to] = order[np.uint64(start) + row]
            hit_rules[to] = target[conjunction]
            passed = True
            if len(equality_next) and equality_next[number] >= 0:
                bit = ONE << (row & np.uint64(63))
                stop = term_start[conjunction + ONE]
                passed = word_of(row >> np.uint64(6), bit, equality_next[number], stop, words, bits, terms) != 0
            if passed and check_start[conjunction] < check_start[conjunction + ONE]:
                passed = passes(
                    np.int64(conjunction), order[np.uint64(start) + row], codes, first, coarse, chunk_words,
                    disjunction_bits, check_start, checks, set_start, set_intervals,
                )  # fmt: skip
            to += np.uint64(passed)
    return np.int64(to)


@inner
def equality_blocks_of(begin, end, term_start, terms, bitmap_attribute, bitmap_start, bitmap_intervals):
    """Makes the `equality_...` arrays for the conjunctions [begin, end), each filed under its first term of one code.
    They are empty if a conjunction has no such term, or if too many attributes are named. Moves the terms that equality
    blocks test to the front, in place."""
    slot_of = np.full(bitmap_attribute.max() + 1, -1, np.int32)
    slots = _put_codes_first(begin, end, term_start, terms, bitmap_attribute, bitmap_start, bitmap_intervals, slot_of)
    if slots == 0:
        return no_equality_blocks()
    attributes = np.empty(slots, np.int32)
    for attribute in range(len(slot_of)):
        if slot_of[attribute] >= 0:
            attributes[slot_of[attribute]] = attribute
    filed = np.zeros(CODES * slots + 1, np.int32)
    for conjunction in range(begin, end):
        filed[_place(terms, term_start[conjunction], slot_of, bitmap_attribute, bitmap_start, bitmap_intervals)] += 1
    equality_start = np.zeros(CODES * slots + 1, np.int32)
    for place in range(CODES * slots):
        equality_start[place + 1] = equality_start[place] + (filed[place] + LANES - 1) // LANES
    blocks = equality_start[CODES * slots]
    equality_terms = np.empty(blocks * 2 * NAMED * LANES, np.uint8)
    equality_conjunctions = np.zeros(blocks * LANES, np.int32)
    following = np.empty(end - begin, np.int64)
    filed[:] = 0
    _fill_equality_blocks(
        begin, end, term_start, terms, bitmap_attribute, bitmap_start, bitmap_intervals, slot_of, equality_start, filed,
        equality_terms, equality_conjunctions, following,
    )  # fmt: skip
    some = following.max() >= 0
    return attributes, equality_start, equality_terms, equality_conjunctions, following if some else following[:0]


@bare
def _put_codes_first(begin, end, term_start, terms, bitmap_attribute, bitmap_start, bitmap_intervals, slot_of):
    """Moves the first terms of one code of each conjunction, at most `NAMED` + 1, before its others, and gives their
    attributes slots in `slot_of` [attributes]. Returns the number of slots; 0 if a conjunction has no such term or
    there would be more than `WIDEST` slots."""
    slots = 0
    for conjunction in range(begin, end):
        count = 0
        for term in range(term_start[conjunction], term_start[conjunction + 1]):
            if count <= NAMED and _is_code(terms, term, bitmap_start, bitmap_intervals):
                attribute = bitmap_attribute[terms[term, 1]]
                if slot_of[attribute] < 0:
                    slot_of[attribute] = slots
                    slots += 1
                put_at(term, term_start[conjunction] + count, terms)
                count += 1
        if count == 0 or slots > WIDEST:
            return 0
    return slots


@bare
def _fill_equality_blocks(
    begin, end, term_start, terms, bitmap_attribute, bitmap_start, bitmap_intervals, slot_of, equality_start, filed,
    equality_terms, equality_conjunctions, following,
):  # fmt: skip
    """Writes the equality blocks, and to `following` each conjunction's next term to test or -1. `filed`
    [len(equality_start)] int32, all 0, receives the number of conjunctions filed under each code."""
    # no row has this code, so an unused lane of a block matches nothing
    equality_terms[:] = NO_ROW
    for at in range(0, len(equality_terms), 2 * LANES):
        equality_terms[at : at + LANES] = 0
    for conjunction in range(begin, end):
        term, stop = term_start[conjunction], term_start[conjunction + 1]
        place = _place(terms, term, slot_of, bitmap_attribute, bitmap_start, bitmap_intervals)
        block, lane = equality_start[place] + filed[place] // LANES, filed[place] % LANES
        filed[place] += 1
        equality_conjunctions[block * LANES + lane] = conjunction - begin
        after = term + 1
        while after < min(stop, term + 1 + NAMED) and _is_code(terms, after, bitmap_start, bitmap_intervals):
            after += 1
        following[conjunction - begin] = after if after < stop else -1
        for k in range(NAMED):
            # a conjunction with fewer terms repeats its first one
            bitmap = terms[term + k + 1 if term + k + 1 < after else term, 1]
            at = (block * NAMED + k) * 2 * LANES + lane
            equality_terms[at] = slot_of[bitmap_attribute[bitmap]]
            equality_terms[at + LANES] = bitmap_intervals[bitmap_start[bitmap], 0]


@inner
def no_equality_blocks():
    """Empty equality-block arrays."""
    none = np.empty(0, np.int32)
    return none, none, np.empty(0, np.uint8), none, np.empty(0, np.int64)


@bare
def _is_code(terms, term, bitmap_start, bitmap_intervals):
    """Whether a term names exactly one coarse code."""
    low, high = terms[term, 0], terms[term, 1]
    if low != EMPTY or high + 1 >= len(bitmap_start) or bitmap_start[high + 1] - bitmap_start[high] != 1:
        return False
    at = bitmap_start[high]
    return bitmap_intervals[at, 0] == bitmap_intervals[at, 1]


@bare
def _place(terms, term, slot_of, bitmap_attribute, bitmap_start, bitmap_intervals):
    """The index in `equality_start` of the code that a term names."""
    bitmap = terms[term, 1]
    return slot_of[bitmap_attribute[bitmap]] * CODES + bitmap_intervals[bitmap_start[bitmap], 0]


@bare
def comparing(begin, end, term_start, terms, size_of, blocks, coarse, stride, rows):
    """Estimates the time to scan a block of rows by equality blocks, in the unit of `LISTING`. size_of [bitmaps]: the
    number of the block's rows in each bitmap."""
    attributes, equality_start, _, _, following = blocks
    met = np.int64(0)
    for slot in range(len(attributes)):
        at = attributes[slot] * stride
        for row in range(rows):
            place = slot * CODES + coarse[at + row]
            met += equality_start[place + 1] - equality_start[place]
    held = 0.0
    for conjunction in range(begin, end):
        stop = term_start[conjunction + 1]
        if len(following) and following[conjunction - begin] >= 0:
            stop = following[conjunction - begin]
        share = 1.0
        for term in range(term_start[conjunction], stop):
            share *= size_of[terms[term, 1]] / rows
        held += share
    return met + LISTING * rows * len(attributes) + HOLDING * rows * held
