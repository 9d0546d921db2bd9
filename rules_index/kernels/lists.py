"""Hits to lists: rule-major pairs of (row, rule ordinal) become one ascending list of ordinals a row."""

from __future__ import annotations

import numba

_jit = numba.njit(nogil=True, cache=True, boundscheck=False)


@_jit
def row_lists(hit_rows, hit_rules, hits, rows, mixed, offsets, ordinals):
    """Counting sort by row.

    hit_rows, hit_rules: [>= hits] int32. Where `mixed` is False the rules of equal rows already ascend and
    are distinct; else every list is sorted and freed of repeats. offsets: [rows + 1] int64, written from
    offsets[0] on; ordinals: [>= offsets[0] + hits] int32. Returns the end of the last list.
    """
    begin = offsets[0]
    for row in range(rows):
        offsets[row + 1] = 0
    for hit in range(hits):
        offsets[hit_rows[hit] + 1] += 1
    for row in range(rows):
        offsets[row + 1] += offsets[row]
    at = offsets[:rows].copy()
    for hit in range(hits):
        row = hit_rows[hit]
        ordinals[at[row]] = hit_rules[hit]
        at[row] += 1
    if mixed:
        return _sort_lists(rows, begin, offsets, ordinals)
    return offsets[rows]


@_jit
def _sort_lists(rows, begin, offsets, ordinals):
    write = begin
    start = begin
    for row in range(rows):
        end = offsets[row + 1]
        ascending = True
        for i in range(start + 1, end):
            if ordinals[i] <= ordinals[i - 1]:
                ascending = False
                break
        if not ascending:
            _sort(ordinals, start, end)
        first = write
        for i in range(start, end):
            if write == first or ordinals[i] != ordinals[write - 1]:
                ordinals[write] = ordinals[i]
                write += 1
        start = end
        offsets[row + 1] = write
    return write


@_jit
def _sort(values, begin, end):
    """Shell sort of values[begin:end] in place: lists are short, and mostly in order already."""
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
