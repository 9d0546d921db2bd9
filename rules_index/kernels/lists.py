"""Hits to lists: pairs of (row, rule ordinal), mostly rule-major, become one ascending list of ordinals a row."""

from __future__ import annotations

import numpy as np

from rules_index.kernels.jit import bare, inner

MANY = 32
"""Hits a row from which on unordered hits are sorted by rule before they become lists."""
_PART_BITS = 8
"""Rows of which lists are made together, as a power of two: their hits stay in the nearer caches."""
_DIGIT_BITS = 11


@inner
def row_lists(hit_rows, hit_rules, hits, rows, ascending, distinct, at, offsets, ordinals):
    """Counting sort by row.

    hit_rows, hit_rules: [>= hits] int32. ascending: 1 where the rules of equal rows already ascend, else every list
    is sorted. distinct: 1 where no row has a rule twice, else repeats are left out. at: [>= rows] int32, scratch.
    offsets: [rows + 1] int64, written from offsets[0] on; ordinals: [>= offsets[0] + hits] int32.
    """
    if not ascending and hits > MANY * rows:
        _lists_of_many(hit_rows, hit_rules, hits, rows, offsets, ordinals)
        if not distinct:
            _leave_out_repeats(rows, offsets, ordinals)
        return
    if _in_order(hit_rows, hit_rules, hits):
        _lists_in_order(hit_rows, hit_rules, hits, rows, offsets, ordinals)
        return
    begin = offsets[0]
    at[:rows] = 0
    # unsigned places spare the test for negative indices, here a fourth of the time
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
        of = np.uint64(hit_rows[hit])
        place = np.uint64(at[of])
        ordinals[np.uint64(begin) + place] = hit_rules[hit]
        at[of] = place + np.uint64(1)
    if several and not ascending:
        for row in range(rows):
            if offsets[row + 1] - offsets[row] > 1:
                _sort(ordinals, offsets[row], offsets[row + 1])
    if several and not distinct:
        _leave_out_repeats(rows, offsets, ordinals)


@bare
def _in_order(hit_rows, hit_rules, hits):
    """Whether hits ascend by row and rule, none twice."""
    for hit in range(1, hits):
        row, before = hit_rows[hit], hit_rows[hit - 1]
        if row < before or (row == before and hit_rules[hit] <= hit_rules[hit - 1]):
            return False
    return True


@bare
def _lists_in_order(hit_rows, hit_rules, hits, rows, offsets, ordinals):
    """As `row_lists`, of hits that stand as in the lists."""
    begin = offsets[0]
    offsets[1 : rows + 1] = begin
    for hit in range(hits):
        offsets[np.uint64(hit_rows[hit]) + np.uint64(1)] = begin + hit + 1
    end = begin
    for row in range(1, rows + 1):
        end = max(end, offsets[row])
        offsets[row] = end
    for hit in range(hits):
        ordinals[begin + hit] = hit_rules[hit]


@inner
def _lists_of_many(hit_rows, hit_rules, hits, rows, offsets, ordinals):
    """As `row_lists`: hits are parted by row, those of a part sorted by rule, digit by digit, and then by row."""
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
            # there and back, so that the result is where it was
            _by_digit(of_rows, of_rules, shift, digits, other_rows, other_rules)
            shift += _DIGIT_BITS
            _by_digit(other_rows[: len(of_rows)], other_rules, shift, digits, of_rows, of_rules)
            shift += _DIGIT_BITS
        _fill_lists(of_rows, of_rules, part << _PART_BITS, rows, offsets, ordinals)


@bare
def _by_digit(rows, rules, shift, digits, to_rows, to_rules):
    """Sorts pairs by one digit of the rule, stable."""
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
    """The lists of the rows from `first` on of one part, from their hits in the order of the rules."""
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
    """Shell sort of values[begin:end] in place: lists are short, and mostly in order already."""
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
    """A copy with room for at least `needed` elements, and for twice as many as before."""
    larger = np.empty(max(needed, 2 * len(array)), array.dtype)
    larger[: len(array)] = array
    return larger


@inner
def with_room(ordinals, needed, done, rows):
    """`ordinals`, or a copy with room for `needed` of them and for as many in each of the other rows as in those that
    are done."""
    if needed <= len(ordinals):
        return ordinals
    larger = np.empty(needed + (needed // done + 1) * (rows - done), ordinals.dtype)
    larger[: len(ordinals)] = ordinals
    return larger
