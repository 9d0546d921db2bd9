"""Merges the lists of two indexes into one list for each row."""

from __future__ import annotations

import numpy as np

from rules_index.kernels.jit import jit


@jit
def merge_lists(
    starts: np.ndarray,
    rules: np.ndarray,
    numbers: np.ndarray,
    other_starts: np.ndarray,
    other_rules: np.ndarray,
    other_numbers: np.ndarray,
    offsets: np.ndarray,
    out: np.ndarray,
) -> int:
    """Merges each row's rules of two indexes, renumbered and ascending, into `out` [hits of both] int32. Returns how
    many there are.

    starts [rows + 1] and rules [hits] int32, ascending in each row, are the matches of one index. numbers [rules] int32
    are its rules' new ordinals, which ascend; a rule with a negative one is left out. The arrays other_... are the same
    for the other index; no new ordinal is in both. offsets [rows + 1] int64 receives where each row's rules begin.
    """
    at = 0
    offsets[0] = 0
    for row in range(len(starts) - 1):
        first, last = starts[row], starts[row + 1]
        other, end = other_starts[row], other_starts[row + 1]
        while first < last:
            number = numbers[rules[first]]
            first += 1
            if number < 0:
                continue
            while other < end and other_numbers[other_rules[other]] < number:
                out[at] = other_numbers[other_rules[other]]
                at += 1
                other += 1
            out[at] = number
            at += 1
        while other < end:
            out[at] = other_numbers[other_rules[other]]
            at += 1
            other += 1
        offsets[row + 1] = at
    return at
