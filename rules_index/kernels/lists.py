"""Turns hits (pairs of a row and a rule's ordinal, mostly ordered by rule) into an ascending list of rules for each
row."""

from __future__ import annotations

import numpy as np

from rules_index.kernels.jit import bare, inner

MANY = 32
"""If there are more hits per row, and they are not ordered by rule, they are sorted by rule before they become
lists."""
_PART_BITS = 8
"""The lists of 2 ** _PART_BITS rows are made together, so few that their hits stay in the L2 cache."""
_DIGIT_BITS = 11
"""Bits of a rule's ordinal by which a pass of the radix sort sorts."""


@inner
def row_lists(hit_rows, hit_rules, hits, rows, ascending, distinct, at, offsets, ordinals):
    """Makes the lists by a counting sort of the hits by row.

    hit_rows, hit_rules: [>= hits] int32. ascending: 1 if the rules of a row ascend already; else every list is sorted.
    distinct: 1 if no row has a rule twice; else repeats are removed. at: [>= rows] int32, scratch. offsets: [rows + 1]
    int64, written from offsets[1] on; ordinals: [>= offsets[0] + hits] int32, written from offsets[0] on.
    """
    if not ascending and hits > MANY * rows:
        _lists_of_many(hit_rows, hit_rules, hits, rows, offsets, ordinals)
        if not distinct:
            _leave_out_repeats(rows, offsets, ordinals)
        return
    begin = offsets[0]
    at[:rows] = 0
    # unsigned indices need no test for negative values; these tests would take a fourth of the time
    for hit in range(np.uint64(hits)):
        at[np.uint64(hit_rows[hit])] += 1
    several = False
    total = np.int32(0)
    for each in range(np.uint64(rows)):
        count = at[each]
        at[each] = total
        total += count
        several |= count > 1
        offsets[each + np.uint64(1)] = begin + total
    for hit in range(np.uint64(hits)):
        hit_row = np.uint64(hit_rows[hit])
        place = np.uint64(at[hit_row])
        ordinals[np.uint64(begin) + place] = hit_rules[hit]
        at[hit_row] = place + np.uint64(1)
    if several and not ascending:
        for row in range(rows):
            if offsets[row + 1] - offsets[row] > 1:
                _sort(ordinals, offsets[row], offsets[row + 1])
    if several and not distinct:
        _leave_out_repeats(rows, offsets, ordinals)


@inner
def _lists_of_many(hit_rows, hit_rules, hits, rows, offsets, ordinals):
    """`row_lists` for many hits: partitions the hits by row, then sorts each partition by rule (LSD radix sort) and by
    row."""
    parts = ((rows - 1) >> _PART_BITS) + 1
    start = np.zeros(parts + 1, np.int64)
    for hit in range(hits):
        start[(hit_rows[hit] >> _PART_BITS) + 1] += 1
    most = np.int64(0)
    for part in range(parts):
        most = max(most, start[part + 1])
        start[part + 1] += start[part]
    parted_rows, parted_rules = np.empty(hits, np.int32), np.empty(hits, np.int32)
    to = start.copy()
    highest = np.int32(0)
    for hit in range(hits):
        part = hit_rows[hit] >> _PART_BITS
        parted_rows[to[part]] = hit_rows[hit]
        parted_rules[to[part]] = hit_rules[hit]
        highest = max(highest, hit_rules[hit])
        to[part] += 1
    other_rows, other_rules = np.empty(most, np.int32), np.empty(most, np.int32)
    digits = np.empty((1 << _DIGIT_BITS) + 1, np.int64)
    for part in range(parts):
        of_rows, of_rules = parted_rows[start[part] : start[part + 1]], parted_rules[start[part] : start[part + 1]]
        shift = 0
        while highest >> shift > 0:
            # two passes at a time, so that the result is back in the arrays of the partition
            _by_digit(of_rows, of_rules, shift, digits, other_rows, other_rules)
            shift += _DIGIT_BITS
            _by_digit(other_rows[: len(of_rows)], other_rules, shift, digits, of_rows, of_rules)
            shift += _DIGIT_BITS
        _fill_lists(of_rows, of_rules, part << _PART_BITS, rows, offsets, ordinals)


@bare
def _by_digit(rows, rules, shift, digits, to_rows, to_rules):
    """Sorts pairs by one digit of the rule; the sort is stable. digits [2 ** _DIGIT_BITS + 1] is scratch."""
    mask = (1 << _DIGIT_BITS) - 1
    digits[:] = 0
    for i in range(len(rows)):
        digits[((rules[i] >> shift) & mask) + 1] += 1
    for digit in range(mask + 1):
        digits[digit + 1] += digits[digit]
    for i in range(len(rows)):
        digit = (rules[i] >> shift) & mask
        to_rows[digits[digit]] = rows[i]
        to_rules[digits[digit]] = rules[i]
        digits[digit] += 1


@inner
def _fill_lists(hit_rows, hit_rules, first, rows, offsets, ordinals):
    """Writes the lists of a partition's rows, the first of which is `first`, given its hits in the order of rules."""
    count = min(1 << _PART_BITS, rows - first)
    at = np.zeros(count + 1, np.int64)
    for i in range(len(hit_rows)):
        at[hit_rows[i] - first + 1] += 1
    at[0] = offsets[first]
    for row in range(count):
        at[row + 1] += at[row]
        offsets[first + row + 1] = at[row + 1]
    for i in range(len(hit_rows)):
        row = hit_rows[i] - first
        ordinals[at[row]] = hit_rules[i]
        at[row] += 1


@bare
def _leave_out_repeats(rows, offsets, ordinals):
    """Removes repeats from ascending lists, in place, and adjusts `offsets`."""
    write = start = offsets[0]
    for row in range(rows):
        end = offsets[row + 1]
        first = write
        for i in range(start, end):
            if write == first or ordinals[i] != ordinals[write - 1]:
                ordinals[write] = ordinals[i]
                write += 1
        start = end
        offsets[row + 1] = write


@bare
def _sort(values, begin, end):
    """Shell sort of `values[begin:end]` in place: lists are short and mostly sorted already."""
    ascending = True
    for i in range(begin + 1, end):
        ascending &= values[i - 1] <= values[i]
    if ascending:
        return
    gap = 1
    while gap < (end - begin) // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(begin + gap, end):
            value = values[i]
            to = i
            while to >= begin + gap and values[to - gap] > value:
                values[to] = values[to - gap]
                to -= gap
            values[to] = value
        gap //= 3


@inner
def grown(array, needed):
    """A copy of `array` that has at least `needed` elements and at least twice the former length."""
    larger = np.empty(max(needed, 2 * len(array)), array.dtype)
    larger[: len(array)] = array
    return larger


@inner
def with_room(ordinals, needed, done, rows):
    """`ordinals` if it has `needed` elements, else a copy with more: `needed`, and for each row that is not done yet
    the average of the rows that are `done` (their number)."""
    if needed <= len(ordinals):
        return ordinals
    larger = np.empty(needed + (needed // done + 1) * (rows - done), ordinals.dtype)
    larger[: len(ordinals)] = ordinals
    return larger
