"""Hits to lists: rule-major pairs of (row, rule ordinal) become one ascending list of ordinals a row."""

from __future__ import annotations

import numpy as np

from rules_index.kernels.jit import inner


@inner
def row_lists(hit_rows, hit_rules, hits, rows, ascending, distinct, at, offsets, ordinals):
    """Counting sort by row.

    hit_rows, hit_rules: [>= hits] int32. ascending: 1 where the rules of equal rows already ascend, else every list
    is sorted. distinct: 1 where no row has a rule twice, else repeats are left out. at: [>= rows] int32, scratch.
    offsets: [rows + 1] int64, written from offsets[0] on; ordinals: [>= offsets[0] + hits] int32.
    """
    begin = offsets[0]
    at[:rows] = 0
    for hit in range(hits):
        at[hit_rows[hit]] += 1
    several = False
    total = np.int32(0)
    for row in range(rows):
        count = at[row]
        at[row] = total
        total += count
        several |= count > 1
        offsets[row + 1] = begin + total
    to = ordinals[begin:]
    for hit in range(hits):
        row = hit_rows[hit]
        place = at[row]
        to[place] = hit_rules[hit]
        at[row] = place + 1
    if several and not ascending:
        for row in range(rows):
            if offsets[row + 1] - offsets[row] > 1:
                _sort(ordinals, offsets[row], offsets[row + 1])
    if several and not distinct:
        _leave_out_repeats(rows, offsets, ordinals)


@inner
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


@inner
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
