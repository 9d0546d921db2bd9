"""Orders the rows of all sides of a join, and finds for each row the rows of the other sides that it can be joined
with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from rules_index.arrays import offsets_of
from rules_index.errors import RulesIndexError
from rules_index.kernels.jit import jit

FIRST, BETWEEN, LAST = range(3)
"""Indices into the second dimension of `OrderedRows.reach`."""
FARTHEST = 1 << 61
"""Event times must be closer to the epoch than this, in microseconds, so that the difference of two fits in 64 bits."""


@dataclass(frozen=True)
class Side:
    """The rows of one stream in a join.

    rows   has at least the columns that `JoinIndex.inputs` asks for: those of the stream under their own names or
           prefixed with the stream's, or as fields of structs; derived ones under the names of their leaves
    keys   [rows] int64, equal on all sides where the join's keys are; -1 for a row that joins nothing (a NULL key or
           a NULL event time)
    times  [rows] int64, event time in microseconds since the epoch; arbitrary for a row that joins nothing
    new    [rows] bool; only joined rows with at least one new row are found
    owned  [rows] bool; only joined rows with an owned anchor are found; the anchor is the row with the latest time, of
           several such rows that of the first stream

    Rows may be in any order. If time is divided into slices that are matched separately, each slice owns its own rows
    and also brings the rows of the longest window before it. If rows arrive in batches, each row is new in exactly one
    of them. Either way each joined row is found once.
    """

    rows: pa.Table
    keys: np.ndarray
    times: np.ndarray
    new: np.ndarray
    owned: np.ndarray


@dataclass(frozen=True)
class OrderedRows:
    """The rows of all sides by position: side after side, each ordered by key and then by time.

    windows  [streams] int64, microseconds
    begin    [streams + 1] int64, the first position of each side
    row      [positions] int64, number within the side
    key, time  [positions] int64
    new, owned  [positions] bool
    """

    windows: np.ndarray
    begin: np.ndarray
    row: np.ndarray
    key: np.ndarray
    time: np.ndarray
    new: np.ndarray
    owned: np.ndarray

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.row)

    @cached_property
    def stream(self) -> np.ndarray:
        """The side [positions] int64 of each row."""
        return np.repeat(np.arange(len(self.windows)), np.diff(self.begin))

    @cached_property
    def reach(self) -> np.ndarray:
        """For each row the positions of the rows of a stream within its reach: [streams, 3, positions] int32.

        If only the two are joined, the row is the anchor of those from `FIRST` up to `BETWEEN`, and those from
        `BETWEEN` up to `LAST` are the row's anchor. The values for a row's own stream are meaningless.
        """
        return _find_reach(self.begin, self.key, self.time, self.windows)

    def only(self, chosen: np.ndarray, owned: np.ndarray | None = None) -> OrderedRows:
        """Returns the chosen rows [positions] bool. If `owned` [positions] bool is given, it replaces the present
        one."""
        begin = np.concatenate([[0], np.cumsum(chosen)])[self.begin]
        owned = self.owned if owned is None else owned
        columns = (self.row, self.key, self.time, self.new, owned)
        return OrderedRows(self.windows, begin, *(column[chosen] for column in columns))

    def useful(self) -> np.ndarray:
        """Returns which rows [positions] bool may be part of a joined row that is wanted: each has a row of every other
        side within reach; it or one of these is new; and it or one of these that can be its anchor is owned."""
        return _find_useful(self.begin, self.reach, self.new, self.owned)

    def between(self, low: float, high: float) -> tuple[OrderedRows, np.ndarray]:
        """Returns the rows that can be in joined rows with a time in [low, high), and which rows [positions] bool they
        are. Of these, only rows with such a time stay owned."""
        chosen = (self.time + self.windows[self.stream] >= low) & (self.time < high)
        return self.only(chosen, self.owned & (self.time >= low)), chosen


def place_rows(sides: Sequence[Side], windows: Sequence[int]) -> OrderedRows:
    """Orders the rows of all sides that can be part of a joined row."""
    rows = order_rows(sides, windows)
    return rows.only(rows.useful())


def order_rows(sides: Sequence[Side], windows: Sequence[int], by_key: bool = True) -> OrderedRows:
    """Orders the rows of all sides that have a key. Without `by_key` the rows of a side are ordered by time alone, and
    `reach` is meaningless. Raises `RulesIndexError` for sides or windows that do not fit."""
    if len(windows) != len(sides) or any(window < 0 for window in windows):
        raise RulesIndexError(f"Each of the {len(sides)} streams has a window of 0 or more, not {list(windows)}.")
    columns: list[tuple[np.ndarray, ...]] = []
    for side in sides:
        given = (side.keys, side.times, side.new, side.owned)
        if any(len(array) != side.rows.num_rows for array in given):
            raise RulesIndexError("Keys, times and flags of a side are as many as its rows.")
        if "".join(array.dtype.kind for array in given) != "iibb":
            raise RulesIndexError("Keys and times of a side are signed integers, and its flags are Boolean.")
        joining = np.flatnonzero(side.keys >= 0)
        if ((side.times[joining] >= FARTHEST) | (side.times[joining] <= -FARTHEST)).any():
            raise RulesIndexError("Event times are less than 73,000 years from 1970.")
        times = side.times[joining]
        row = joining[np.lexsort((times, side.keys[joining])) if by_key else np.argsort(times, kind="stable")]
        columns.append((row, *(array[row] for array in given)))
    row, key, time, new, owned = (np.concatenate(arrays) for arrays in zip(*columns, strict=True))
    begin = offsets_of(np.array([len(each[0]) for each in columns]))
    reachable = np.array([min(window, 2 * FARTHEST) for window in windows], np.int64)
    return OrderedRows(reachable, begin, row, key, time, new, owned)


@jit
def _find_reach(begin: np.ndarray, key: np.ndarray, time: np.ndarray, windows: np.ndarray) -> np.ndarray:
    """`OrderedRows.reach` [streams, 3, positions] int32; all arguments but begin and windows are [positions]."""
    streams = len(windows)
    reach = np.empty((streams, 3, len(key)), np.int32)
    for stream in range(streams):
        for other in range(streams):
            if other == stream:
                continue
            # of rows of one time, the row of the first stream is the anchor
            tie = np.int64(other > stream)
            first = between = last = begin[other]
            end = begin[other + 1]
            for at in range(begin[stream], begin[stream + 1]):
                first = _pass_by(first, end, key, time, key[at], time[at] - windows[other])
                between = _pass_by(between, end, key, time, key[at], time[at] + tie)
                last = _pass_by(last, end, key, time, key[at], time[at] + windows[stream] + 1)
                reach[other, 0, at] = first
                reach[other, 1, at] = between
                reach[other, 2, at] = last
    return reach


@jit
def _pass_by(at: int, end: int, key: np.ndarray, time: np.ndarray, of_key: int, before: int) -> int:
    """The first position from `at` on whose row has a higher key, or the key and a time of at least `before`."""
    while at < end and (key[at] < of_key or (key[at] == of_key and time[at] < before)):
        at += 1
    return at


@jit
def _find_useful(begin: np.ndarray, reach: np.ndarray, new: np.ndarray, owned: np.ndarray) -> np.ndarray:
    """`OrderedRows.useful` [positions] bool, by prefix sums of new and owned rows."""
    useful = np.zeros(len(new), np.bool_)
    new_before = np.zeros(len(new) + 1, np.int64)
    owned_before = np.zeros(len(new) + 1, np.int64)
    new_before[1:] = np.cumsum(new)
    owned_before[1:] = np.cumsum(owned)
    for stream in range(len(begin) - 1):
        for at in range(begin[stream], begin[stream + 1]):
            meets, has_new, has_owned = True, new[at], owned[at]
            for other in range(len(begin) - 1):
                if other != stream:
                    first, between, last = reach[other, 0, at], reach[other, 1, at], reach[other, 2, at]
                    meets &= first < last
                    has_new |= new_before[last] > new_before[first]
                    has_owned |= owned_before[last] > owned_before[between]
            useful[at] = meets and has_new and has_owned
    return useful
