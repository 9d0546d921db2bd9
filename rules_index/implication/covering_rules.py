"""Which other rules are TRUE on the rows of a rule: loops over lists of matches."""

from __future__ import annotations

import numpy as np

from rules_index.kernels.bisection import in_list
from rules_index.kernels.jit import inner, jit

MOST_ALONE = 32
"""If more rules are TRUE on all matched rows of a rule, only so many of them are tried alone."""
MOST_STARTED, MOST_ADDED = 8, 8
"""The most rules with which a union begins, and the most that each further row adds."""


@inner
def _add(value: int, values: np.ndarray, count: int) -> int:
    """Adds a value unless it is there already; returns the new number of values."""
    for i in range(count):
        if values[i] == value:
            return count
    values[count] = value
    return count + 1


@jit
def covering_rules(
    rules: np.ndarray, row_start: np.ndarray, offsets: np.ndarray, hits: np.ndarray, eligible: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """For rules [n], the others that are TRUE on their rows; rule i has the rows row_start[i] to row_start[i + 1].

    The rules hits[offsets[row]:offsets[row + 1]], ascending, are TRUE on a row; eligible: [rules] bool, which others
    are considered. Returns the others that are TRUE on all rows of the rule, [n, MOST_ALONE] int32, and their number
    [n] int32; and some that are TRUE on one of the rows, [n, MOST_STARTED] int32, and their number [n] int32. This is 0
    if there is a row on which no other is TRUE.
    """
    alone, in_union = np.empty((len(rules), MOST_ALONE), np.int32), np.empty((len(rules), MOST_STARTED), np.int32)
    alone_count, in_union_count = np.zeros((2, len(rules)), np.int32)
    for i in range(len(rules)):
        begin, end = row_start[i], row_start[i + 1]
        shortest = begin
        for row in range(begin, end):
            if offsets[row + 1] - offsets[row] < offsets[shortest + 1] - offsets[shortest]:
                shortest = row
        share = max(1, MOST_STARTED // (end - begin))
        for row in range(begin, end):
            added = 0
            for at in range(offsets[row], offsets[row + 1]):
                if hits[at] == rules[i] or not eligible[hits[at]]:
                    continue
                added += 1
                if in_union_count[i] < MOST_STARTED:
                    in_union_count[i] = _add(hits[at], in_union[i], in_union_count[i])
                if added == share:
                    break
            if added == 0:
                in_union_count[i] = 0
                break
        if in_union_count[i] == 0:
            continue
        for at in range(offsets[shortest], offsets[shortest + 1]):
            everywhere = hits[at] != rules[i] and eligible[hits[at]]
            for row in range(begin, end):
                everywhere = everywhere and in_list(hits[at], offsets[row], offsets[row + 1], hits)
            if everywhere:
                alone[i, alone_count[i]] = hits[at]
                alone_count[i] += 1
                if alone_count[i] == MOST_ALONE:
                    break
    return alone, alone_count, in_union, in_union_count


@jit
def further_covering_rules(
    rules: np.ndarray,
    start: np.ndarray,
    others: np.ndarray,
    offsets: np.ndarray,
    hits: np.ndarray,
    eligible: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """For rules [n] with one row each, as in `covering_rules`, others that are TRUE on it and are not among
    others[start[i]:start[i + 1]]: [n, MOST_ADDED] int32, and their number [n] int32."""
    added = np.empty((len(rules), MOST_ADDED), np.int32)
    count = np.zeros(len(rules), np.int32)
    for i in range(len(rules)):
        for at in range(offsets[i], offsets[i + 1]):
            if count[i] == MOST_ADDED:
                break
            is_listed = hits[at] == rules[i] or not eligible[hits[at]]
            for j in range(start[i], start[i + 1]):
                is_listed = is_listed or others[j] == hits[at]
            if not is_listed:
                added[i, count[i]] = hits[at]
                count[i] += 1
    return added, count
