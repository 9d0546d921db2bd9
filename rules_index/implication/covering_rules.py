"""Which other rules hold the rows of a rule: loops over lists of matches."""

from __future__ import annotations

import numpy as np

from rules_index.kernels.jit import inner, jit

MOST_ALONE = 32
"""Rules that are tried alone, of those that hold all rows of a rule."""
MOST_STARTED, MOST_ADDED = 8, 8
"""Rules that a union is begun with, and that each further row adds."""


@inner
def _in_list(value: int, begin: int, end: int, values: np.ndarray) -> bool:
    """Whether a value is among ascending ones."""
    last = end
    while begin < end:
        middle = (begin + end) >> 1
        if values[middle] < value:
            begin = middle + 1
        else:
            end = middle
    return begin < last and values[begin] == value


@inner
def _add(value: int, values: np.ndarray, count: int) -> int:
    """Adds a value that is not there yet; how many there are."""
    for i in range(count):
        if values[i] == value:
            return count
    values[count] = value
    return count + 1


@jit
def covering_rules(
    rules: np.ndarray, row_start: np.ndarray, offsets: np.ndarray, hits: np.ndarray, eligible: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Of rules [n] the others that hold their rows, rule i's being row_start[i] to row_start[i + 1].

    A row is held by the rules hits[offsets[row]:offsets[row + 1]], ascending; eligible: [rules] bool, which others
    count. Returns those that hold all rows of the rule, [n, MOST_ALONE] int32, and how many [n] int32; and some that
    hold one of them, [n, MOST_STARTED] int32, and how many [n] int32: none where a row is held by no other.
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
                everywhere = everywhere and _in_list(hits[at], offsets[row], offsets[row + 1], hits)
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
    """Of rules [n] with one row each, as in `covering_rules`, others that hold it besides others[start[i]:start[i +
    1]]: [n, MOST_ADDED] int32, and how many [n] int32."""
    added = np.empty((len(rules), MOST_ADDED), np.int32)
    count = np.zeros(len(rules), np.int32)
    for i in range(len(rules)):
        for at in range(offsets[i], offsets[i + 1]):
            if count[i] == MOST_ADDED:
                break
            known = hits[at] == rules[i] or not eligible[hits[at]]
            for j in range(start[i], start[i + 1]):
                known = known or others[j] == hits[at]
            if not known:
                added[i, count[i]] = hits[at]
                count[i] += 1
    return added, count
