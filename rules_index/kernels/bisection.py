"""Binary searches in flat arrays."""

from __future__ import annotations

import numpy as np

from rules_index.kernels.jit import inlined


@inlined
def first_at_least(value: int, begin: int, end: int, values: np.ndarray) -> int:
    """The index of the first value in the ascending `values[begin:end]` that is at least `value`; `end` if there is
    none."""
    left, right = begin, end
    while left < right:
        middle = (left + right) >> 1
        if values[middle] < value:
            left = middle + 1
        else:
            right = middle
    return left


@inlined
def first_reaching(code: int, begin: int, end: int, intervals: np.ndarray) -> int:
    """The index of the first of the closed, ascending, disjoint intervals `intervals[begin:end]` whose end is at least
    `code`; `end` if there is none."""
    left, right = begin, end
    while left < right:
        middle = (left + right) >> 1
        if intervals[middle, 1] < code:
            left = middle + 1
        else:
            right = middle
    return left


@inlined
def in_list(value: int, begin: int, end: int, values: np.ndarray) -> bool:
    """Whether a value is among the ascending `values[begin:end]`."""
    at = first_at_least(value, begin, end, values)
    return at < end and values[at] == value


@inlined
def in_intervals(code: int, begin: int, end: int, intervals: np.ndarray) -> bool:
    """Whether a code is in one of the closed, ascending, disjoint intervals `intervals[begin:end]`."""
    at = first_reaching(code, begin, end, intervals)
    return at < end and intervals[at, 0] <= code
