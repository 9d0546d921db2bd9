"""The batch kernel: a code matrix in, hits out, block by block.

Blocks of rows pass through four steps: bitmaps of the attributes and sets, gates (disjunctions that rules
share), the flat conjunctions in the order of their rules, and the posted ones, which are visited only where
the block has a row with the code they name.

A conjunction starts from its two narrowest terms by the block's own histogram and stops at the first empty
bitmap. Where its narrowest term is an interval of a ranked attribute with few rows, those rows are looked at
one by one.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from rules_index.kernels.bitmaps import (
    DENSE,
    ONE,
    RANKED,
    add_rows,
    bitmap_rows,
    count_codes,
    fill_all,
    fill_dense,
    fill_ranked,
    in_intervals,
    narrow,
    rank_below,
    set_ranks,
    sort_by_code,
    start_with_two,
)
from rules_index.kernels.lists import row_lists

_jit = numba.njit(nogil=True, cache=True, boundscheck=False)

FEW_ROWS = 24
"""Up to so many candidate rows are looked at one by one instead of by bitmap."""


class FlatIndex(NamedTuple):
    """The arrays of an index that the kernels read.

    Attributes: `sizes` [a] numbers of codes; `kind` [a] unused, dense or ranked; `bitmap_at` [a] first bitmap;
    `count_at` [a] first entry of the code counts of a ranked attribute, -1 where its codes are bisected;
    `order_of` [a] its row in `order`, -1 for dense ones.

    Sets: `set_attribute` [s], `set_start` [s + 1] into `set_intervals` [., 2]. The first `bitmap_sets` have a
    bitmap, from `set_bitmap` on; the others are looked up.

    Conjunctions: `dense_start` [c + 1] into `dense_terms` [., 2], pairs (low, high) of bitmaps; `ranked_start`
    [c + 1] into `ranked_terms` [., 3]: (attribute, low, high) of a ranked attribute, or (-1, set, 0). First
    those of gates, by gate (`gate_start` [g + 1]); then `flat` ones, by ascending rule; then the posted ones.
    `target` [c] is the gate's number or the rule's ordinal.

    Postings: `posting_attribute` [p], `posting_at` [p] where its codes begin in `posting_start`, which points
    into `posted`, the conjunctions that name a code.
    """

    sizes: np.ndarray
    kind: np.ndarray
    bitmap_at: np.ndarray
    count_at: np.ndarray
    order_of: np.ndarray
    set_attribute: np.ndarray
    set_start: np.ndarray
    set_intervals: np.ndarray
    dense_start: np.ndarray
    dense_terms: np.ndarray
    ranked_start: np.ndarray
    ranked_terms: np.ndarray
    target: np.ndarray
    gate_start: np.ndarray
    posting_attribute: np.ndarray
    posting_at: np.ndarray
    posting_start: np.ndarray
    posted: np.ndarray
    block_rows: int
    bitmap_sets: int
    set_bitmap: int
    gate_bitmap: int
    flat: int


@_jit
def match_codes(codes, index):
    """Matches a code matrix [attributes, rows] int32.

    Returns (offsets [rows + 1] int64, ordinals [hits] int32), the ordinals of a row ascending and distinct.
    """
    rows = codes.shape[1]
    block_rows = index.block_rows
    words = block_rows >> 6
    ranked = max(1, (index.kind == RANKED).sum())
    bitmaps = index.gate_bitmap + len(index.gate_start) - 1
    bits = np.zeros(bitmaps * words, np.uint64)
    size_of = np.zeros(bitmaps, np.int32)
    counted = 0
    for attribute in range(len(index.sizes)):
        if index.count_at[attribute] >= 0:
            counted += index.sizes[attribute] + 1
    code_counts = np.empty(counted, np.int32)
    order = np.empty((ranked, block_rows), np.int32)
    sorted_codes = np.empty((ranked, block_rows), np.int32)
    scratch = np.empty(block_rows, np.int32)
    offsets = np.zeros(rows + 1, np.int64)
    ordinals = np.empty(max(64, rows), np.int32)
    hit_rows = np.empty(4 * block_rows, np.int32)
    hit_rules = np.empty(4 * block_rows, np.int32)
    for first in range(0, rows, block_rows):
        count = min(block_rows, rows - first)
        _fill_attributes(codes, first, count, words, index, bits, size_of, order, sorted_codes, code_counts)
        _fill_sets(count, words, index, bits, size_of, order, sorted_codes, code_counts)
        hit_rows, hit_rules, flat_hits = _match_flat(
            codes, first, count, words, bits, size_of, order, sorted_codes, code_counts, scratch,
            index.count_at, index.order_of, index.bitmap_at, index.set_attribute, index.set_start,
            index.set_intervals, index.dense_start, index.dense_terms, index.ranked_start, index.ranked_terms,
            index.target, index.gate_start, index.gate_bitmap, index.flat, hit_rows, hit_rules,
        )  # fmt: skip
        hit_rows, hit_rules, hits = _match_posted(
            codes, first, count, words, bits, order, sorted_codes, scratch,
            index.order_of, index.set_attribute, index.set_start, index.set_intervals, index.dense_start,
            index.dense_terms, index.ranked_start, index.ranked_terms, index.target, index.posting_attribute,
            index.posting_at, index.posting_start, index.posted, hit_rows, hit_rules, flat_hits,
        )  # fmt: skip
        needed = offsets[first] + hits
        if needed > len(ordinals):
            ordinals = _grown(ordinals, needed)
        row_lists(hit_rows, hit_rules, hits, count, hits > flat_hits, offsets[first:], ordinals)
    return offsets, ordinals[: offsets[rows]]


@_jit
def _fill_attributes(codes, first, rows, words, index, bits, size_of, order, sorted_codes, code_counts):
    for attribute in range(len(index.sizes)):
        at = index.bitmap_at[attribute]
        if index.kind[attribute] == DENSE:
            fill_dense(codes[attribute], first, rows, words, index.sizes[attribute], at, bits, size_of)
        elif index.kind[attribute] == RANKED:
            ordered = index.order_of[attribute]
            sort_by_code(codes[attribute], first, rows, order[ordered], sorted_codes[ordered])
            fill_ranked(rows, words, order[ordered], at, bits)
            if index.count_at[attribute] >= 0:
                at = index.count_at[attribute]
                count_codes(sorted_codes[ordered], rows, index.sizes[attribute], at, code_counts)


@_jit
def _fill_sets(rows, words, index, bits, size_of, order, sorted_codes, code_counts):
    """The exact bitmaps of the sets that have one."""
    for which in range(index.bitmap_sets):
        attribute = index.set_attribute[which]
        at = index.bitmap_at[attribute]
        to = (index.set_bitmap + which) * words
        bits[to : to + words] = 0
        total = 0
        for interval in range(index.set_start[which], index.set_start[which + 1]):
            low = index.set_intervals[interval, 0]
            high = index.set_intervals[interval, 1] + 1
            if index.kind[attribute] == DENSE:
                if size_of[at + high] > size_of[at + low]:
                    total += size_of[at + high] - size_of[at + low]
                    for word in range(words):
                        bits[to + word] |= bits[(at + high) * words + word] & ~bits[(at + low) * words + word]
            else:
                ordered = index.order_of[attribute]
                counts_at = index.count_at[attribute]
                begin = rank_below(low, counts_at, ordered, rows, code_counts, sorted_codes)
                end = rank_below(high, counts_at, ordered, rows, code_counts, sorted_codes)
                if begin < end:
                    total += end - begin
                    set_ranks(begin, end, words, order, ordered, at, bits, to)
        size_of[index.set_bitmap + which] = total


@_jit
def _match_flat(
    codes, first, rows, words, bits, size_of, order, sorted_codes, code_counts, scratch,
    count_at, order_of, bitmap_at, set_attribute, set_start, set_intervals,
    dense_start, dense_terms, ranked_start, ranked_terms, target, gate_start, gate_bitmap, flat,
    hit_rows, hit_rules,
):  # fmt: skip
    """Gates, then the flat conjunctions by ascending rule; a rule of several is collected before it is written.

    Arrays come one by one, not as `FlatIndex`: taking them out of a tuple costs more than a conjunction does.
    """
    hits = 0
    gates = gate_start[len(gate_start) - 1]
    end = gates + flat
    current = np.empty(words, np.uint64)
    collected = np.empty(words, np.uint64)
    collecting = False
    for conjunction in range(end):
        start = dense_start[conjunction]
        stop = dense_start[conjunction + 1]
        # the two narrowest terms, as size and place in one number: minimum and maximum need no branch
        narrowest = second = np.int64(rows + 1) << 32
        for term in range(start, stop):
            size = np.int64(size_of[dense_terms[term, 1]] - size_of[dense_terms[term, 0]])
            key = (size << 32) | (term - start)
            second = min(second, max(narrowest, key))
            narrowest = min(narrowest, key)
        least = narrowest >> 32
        least_term = start + (narrowest & 0xFFFFFFFF)
        second_term = start + (second & 0xFFFFFFFF)
        found = 0
        if least > 0:
            ranked = ranked_start[conjunction + 1] > ranked_start[conjunction]
            few = False
            if ranked:
                few, found = _few_rows(
                    conjunction, least, codes, first, rows, words, bits, order, sorted_codes, code_counts, scratch,
                    count_at, order_of, set_attribute, set_start, set_intervals,
                    dense_start, dense_terms, ranked_start, ranked_terms,
                )  # fmt: skip
            if not few:
                left = True
                if stop - start >= 2:
                    left = start_with_two(
                        bits, dense_terms[least_term, 0], dense_terms[least_term, 1],
                        dense_terms[second_term, 0], dense_terms[second_term, 1], words, current,
                    )  # fmt: skip
                    for term in range(start, stop):
                        if not left:
                            break
                        if term != least_term and term != second_term:
                            left = narrow(bits, dense_terms[term, 0], dense_terms[term, 1], words, current)
                else:
                    fill_all(rows, words, current)
                    if stop > start:
                        left = narrow(bits, dense_terms[start, 0], dense_terms[start, 1], words, current)
                found = -1 if left else 0
                if ranked and left:
                    found = _narrow_ranked(
                        conjunction, codes, first, rows, words, bits, current, sorted_codes, code_counts, scratch,
                        count_at, order_of, bitmap_at, set_attribute, set_start, set_intervals,
                        ranked_start, ranked_terms,
                    )  # fmt: skip
        more = conjunction + 1 < end and conjunction + 1 != gates and target[conjunction + 1] == target[conjunction]
        if conjunction < gates or more or collecting:
            if not collecting:
                collected[:] = 0
                collecting = True
            if found < 0:
                for word in range(words):
                    collected[word] |= current[word]
            elif found > 0:
                add_rows(scratch, found, collected)
            if more:
                continue
            collecting = False
            if conjunction < gates:
                to = gate_bitmap + target[conjunction]
                bits[to * words : (to + 1) * words] = collected
                size_of[to] = bitmap_rows(collected, words, scratch)
                continue
            found = bitmap_rows(collected, words, scratch)
        elif found < 0:
            found = bitmap_rows(current, words, scratch)
        if found > 0:
            if hits + found > len(hit_rows):
                hit_rows = _grown(hit_rows, hits + found)
                hit_rules = _grown(hit_rules, hits + found)
            rule = target[conjunction]
            for i in range(found):
                hit_rows[hits + i] = scratch[i]
                hit_rules[hits + i] = rule
            hits += found
    return hit_rows, hit_rules, hits


@_jit
def _few_rows(
    conjunction, least, codes, first, rows, words, bits, order, sorted_codes, code_counts, scratch,
    count_at, order_of, set_attribute, set_start, set_intervals,
    dense_start, dense_terms, ranked_start, ranked_terms,
):  # fmt: skip
    """(whether the conjunction is settled, number of rows in `scratch`): settled where an interval of a ranked
    attribute has no row, or is the narrowest term and has few."""
    best = rows + 1
    access = 0
    begin = 0
    for term in range(ranked_start[conjunction], ranked_start[conjunction + 1]):
        attribute = ranked_terms[term, 0]
        if attribute >= 0:
            at = count_at[attribute]
            ordered = order_of[attribute]
            below = rank_below(ranked_terms[term, 1], at, ordered, rows, code_counts, sorted_codes)
            size = rank_below(ranked_terms[term, 2] + 1, at, ordered, rows, code_counts, sorted_codes) - below
            if size == 0:
                return True, 0
            if size < best:
                best = size
                access = attribute
                begin = below
    if best > FEW_ROWS or best > least:
        return False, 0
    return True, look_at(
        conjunction, access, begin, begin + best, codes, first, words, bits, order, scratch,
        order_of, set_attribute, set_start, set_intervals, dense_start, dense_terms, ranked_start, ranked_terms,
    )  # fmt: skip


@_jit
def look_at(
    conjunction, access, begin, end, codes, first, words, bits, order, scratch,
    order_of, set_attribute, set_start, set_intervals, dense_start, dense_terms, ranked_start, ranked_terms,
):  # fmt: skip
    """Rows of ranks [begin, end) of attribute `access` that satisfy all terms on other attributes, one by one."""
    found = 0
    ordered = order_of[access]
    for rank in range(begin, end):
        row = order[ordered, rank]
        matched = True
        for term in range(dense_start[conjunction], dense_start[conjunction + 1]):
            word = row >> 6
            held = bits[dense_terms[term, 1] * words + word] & ~bits[dense_terms[term, 0] * words + word]
            if (held >> np.uint64(row & 63)) & ONE == 0:
                matched = False
                break
        if not matched:
            continue
        for term in range(ranked_start[conjunction], ranked_start[conjunction + 1]):
            attribute = ranked_terms[term, 0]
            if attribute >= 0:
                if attribute != access:
                    code = codes[attribute, first + row]
                    if code < ranked_terms[term, 1] or code > ranked_terms[term, 2]:
                        matched = False
                        break
            else:
                which = ranked_terms[term, 1]
                attribute = set_attribute[which]
                if attribute != access:
                    code = codes[attribute, first + row]
                    if not in_intervals(code, set_start[which], set_start[which + 1], set_intervals):
                        matched = False
                        break
        if matched:
            scratch[found] = row
            found += 1
    return found


@_jit
def _narrow_ranked(
    conjunction, codes, first, rows, words, bits, current, sorted_codes, code_counts, scratch,
    count_at, order_of, bitmap_at, set_attribute, set_start, set_intervals, ranked_start, ranked_terms,
):  # fmt: skip
    """Narrows the current bitmap by the terms on ranked attributes, rounded outwards, then compares the codes of
    the rows that are left. Returns their number, the rows being in `scratch`."""
    begin = ranked_start[conjunction]
    end = ranked_start[conjunction + 1]
    for term in range(begin, end):
        attribute = ranked_terms[term, 0]
        if attribute >= 0:
            at = count_at[attribute]
            ordered = order_of[attribute]
            below = rank_below(ranked_terms[term, 1], at, ordered, rows, code_counts, sorted_codes)
            upto = rank_below(ranked_terms[term, 2] + 1, at, ordered, rows, code_counts, sorted_codes)
            low = bitmap_at[attribute] + (below >> 6)
            high = bitmap_at[attribute] + ((upto + 63) >> 6)
            if not narrow(bits, low, high, words, current):
                return 0
    found = bitmap_rows(current, words, scratch)
    for term in range(begin, end):
        attribute = ranked_terms[term, 0]
        kept = 0
        if attribute >= 0:
            low = ranked_terms[term, 1]
            high = ranked_terms[term, 2]
            for i in range(found):
                code = codes[attribute, first + scratch[i]]
                scratch[kept] = scratch[i]
                kept += low <= code and code <= high
        else:
            which = ranked_terms[term, 1]
            attribute = set_attribute[which]
            for i in range(found):
                code = codes[attribute, first + scratch[i]]
                scratch[kept] = scratch[i]
                kept += in_intervals(code, set_start[which], set_start[which + 1], set_intervals)
        found = kept
    return found


@_jit
def _match_posted(
    codes, first, rows, words, bits, order, sorted_codes, scratch,
    order_of, set_attribute, set_start, set_intervals, dense_start, dense_terms, ranked_start, ranked_terms,
    target, posting_attribute, posting_at, posting_start, posted, hit_rows, hit_rules, hits,
):  # fmt: skip
    """Hits of the posted conjunctions, by the codes that occur in the block."""
    for posting in range(len(posting_attribute)):
        attribute = posting_attribute[posting]
        at = posting_at[posting]
        ordered = order_of[attribute]
        begin = 0
        while begin < rows:
            code = sorted_codes[ordered, begin]
            end = begin + 1
            while end < rows and sorted_codes[ordered, end] == code:
                end += 1
            for entry in range(posting_start[at + code], posting_start[at + code + 1]):
                conjunction = posted[entry]
                found = look_at(
                    conjunction, attribute, begin, end, codes, first, words, bits, order, scratch,
                    order_of, set_attribute, set_start, set_intervals,
                    dense_start, dense_terms, ranked_start, ranked_terms,
                )  # fmt: skip
                if found > 0:
                    if hits + found > len(hit_rows):
                        hit_rows = _grown(hit_rows, hits + found)
                        hit_rules = _grown(hit_rules, hits + found)
                    rule = target[conjunction]
                    for i in range(found):
                        hit_rows[hits + i] = scratch[i]
                        hit_rules[hits + i] = rule
                    hits += found
            begin = end
    return hit_rows, hit_rules, hits


@_jit
def _grown(array, needed):
    larger = np.empty(max(needed, 2 * len(array)), array.dtype)
    larger[: len(array)] = array
    return larger
