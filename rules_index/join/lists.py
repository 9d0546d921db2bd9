"""Lists of the rows on which each part (local conjunct) of a join's conjunctions holds, and searches in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rules_index.arrays import offsets_of
from rules_index.errors import RulesIndexError
from rules_index.join.window_partners import OrderedRows
from rules_index.kernels.jit import inner, jit


class Lists(NamedTuple):
    """Lists of rows, each by their ascending positions (see `OrderedRows`).

    Lists come in pairs: one of the old rows, one of the new ones. Pairs are ordered by stream; a stream has one for
    each part that is listed, then one with all its rows.

    start     [lists + 1] int64, offsets into position
    position  [.] int32
    """

    start: np.ndarray
    position: np.ndarray


def fill_lists(rows: OrderedRows, matched: Sequence[tuple[np.ndarray, np.ndarray]], parts: Sequence[int]) -> Lists:
    """Makes the lists. matched: for each stream, offsets [rows + 1] int64 and ordinals [.] int32 of the parts that hold
    on each row; parts: the number of parts of each stream. Raises `RulesIndexError` for more entries than 32 bits can
    number."""
    filled = [
        _fill(offsets, ordinals, rows.new, int(rows.begin[stream]), parts[stream])
        for stream, (offsets, ordinals) in enumerate(matched)
    ]
    start = offsets_of(np.concatenate([sizes for sizes, _ in filled]))
    if start[-1] > np.iinfo(np.int32).max:
        raise RulesIndexError(
            f"The rows of a join's window satisfy {start[-1]} parts of rules at once; join fewer rows at a time."
        )
    return Lists(start, np.concatenate([positions for _, positions in filled]))


@jit
def _fill(
    offsets: np.ndarray, ordinals: np.ndarray, new: np.ndarray, begin: int, parts: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the sizes [2 parts + 2] int64 of one stream's lists, and the positions [.] int32 in them."""
    rows = len(offsets) - 1
    sizes = np.zeros(2 * parts + 2, np.int64)
    for row in range(rows):
        of_new = np.int64(new[begin + row])
        for hit in range(offsets[row], offsets[row + 1]):
            sizes[2 * ordinals[hit] + of_new] += 1
        sizes[2 * parts + of_new] += 1
    at = np.cumsum(sizes) - sizes
    positions = np.empty(len(ordinals) + rows, np.int32)
    for row in range(rows):
        of_new = np.int64(new[begin + row])
        for hit in range(offsets[row], offsets[row + 1]):
            to = 2 * ordinals[hit] + of_new
            positions[at[to]] = begin + row
            at[to] += 1
        positions[at[2 * parts + of_new]] = begin + row
        at[2 * parts + of_new] += 1
    return sizes, positions


@inner
def seek(values: np.ndarray, at: int, end: int, value: int) -> int:
    """The first index in [at, end) whose value is not below `value`, or `end`; a galloping search, fastest near
    `at`."""
    if at >= end or values[at] >= value:
        return at
    step = 1
    while at + step < end and values[at + step] < value:
        at += step
        step += step
    high = min(at + step, end)
    while high - at > 1:
        middle = (at + high) >> 1
        if values[middle] < value:
            at = middle
        else:
            high = middle
    return high


@jit
def radix_order(values: np.ndarray) -> np.ndarray:
    """Returns the stable ascending order [values] int32 of `values` [values] int32, by radix sort."""
    order = np.arange(len(values)).astype(np.int32)
    sorted_order = np.empty(len(values), np.int32)
    count = np.empty(2049, np.int64)
    low = high = values[0] if len(values) > 0 else np.int32(0)
    for value in values:
        low, high = min(low, value), max(high, value)
    shift = 0
    while (np.int64(high) - low) >> shift > 0:
        _sort_by_digit(values, np.int64(low), shift, order, sorted_order, count)
        order, sorted_order = sorted_order, order
        shift += 11
    return order


@inner
def _sort_by_digit(
    values: np.ndarray, low: int, shift: int, order: np.ndarray, sorted_order: np.ndarray, count: np.ndarray
) -> None:
    """Sorts `order` by one digit of 11 bits of values - low into `sorted_order`; stable. count: [2049] int64,
    scratch."""
    count[:] = 0
    for value in values:
        count[((value - low) >> shift & 2047) + 1] += 1
    for digit in range(2047):
        count[digit + 1] += count[digit]
    for at in order:
        digit = (values[at] - low) >> shift & 2047
        sorted_order[count[digit]] = at
        count[digit] += 1
