"""Selection first and join first, which Wang and Kitsuregawa argue against (section 2.1), for two streams.

Neither shares anything between queries. Selection first: each query keeps the rows of both streams that pass its
selections, and joins an arriving row that passes with those kept for it. Join first: each query joins an arriving row
with all rows kept, and then evaluates its selections on what comes of it. Windows do not end here.
"""

from __future__ import annotations

import numpy as np

from benchmarks.jit import inlined, inner, jit
from rules_index.arrays import offsets_of
from rules_index.index.boxes import Boxes


class _Joined:
    """Queries, and the rows of the second stream, which arriving rows of the first one meet."""

    def __init__(self, boxes: Boxes, own: int, rows: np.ndarray, keys: np.ndarray) -> None:
        """boxes: each bounds every attribute, of which the first `own` are the first stream's. rows [rows, attributes]
        int32 and keys [rows] int64 of the second stream."""
        count = len(boxes.sizes)
        self._low = np.ascontiguousarray(boxes.low.reshape(-1, count))
        self._high = np.ascontiguousarray(boxes.high.reshape(-1, count))
        self._own = own
        self._rows = np.ascontiguousarray(rows, np.int32)
        self._keys = np.ascontiguousarray(keys, np.int64)


class SelectionFirst(_Joined):
    """Each query's selections, then its own join."""

    def __init__(self, boxes: Boxes, own: int, rows: np.ndarray, keys: np.ndarray) -> None:
        super().__init__(boxes, own, rows, keys)
        passed = [
            ((row >= self._low[:, own:]) & (row <= self._high[:, own:])).all(axis=1).nonzero()[0] for row in self._rows
        ]
        query = np.concatenate([*passed, np.empty(0, np.int64)]).astype(np.int64)
        row = np.repeat(np.arange(len(passed)), [len(each) for each in passed])
        order = np.argsort(query, kind="stable")
        self._start = offsets_of(np.bincount(query, minlength=len(self._low)))
        self._kept = row[order].astype(np.int64)

    def arrive(self, key: int, row: np.ndarray) -> np.ndarray:
        """The pairs [., 2] int64 of a kept row and a query that its joined row satisfies, by query."""
        return _selection_first(key, row, self._own, self._low, self._high, self._keys, self._start, self._kept)


class JoinFirst(_Joined):
    """Each query's join, then its selections."""

    def arrive(self, key: int, row: np.ndarray) -> np.ndarray:
        """The pairs [., 2] int64 of a kept row and a query that its joined row satisfies, by query."""
        return _join_first(key, row, self._own, self._low, self._high, self._keys, self._rows)


@inlined
def _within(row: np.ndarray, low: np.ndarray, high: np.ndarray, first: int) -> bool:
    for place in range(len(row)):  # noqa: SIM110  (Numba compiles no generators)
        if row[place] < low[first + place] or row[place] > high[first + place]:
            return False
    return True


@inner
def _added(found: np.ndarray, count: int, row: int, query: int) -> np.ndarray:
    if count == len(found):
        larger = np.empty((2 * len(found), 2), np.int64)
        larger[:count] = found
        found = larger
    found[count, 0], found[count, 1] = row, query
    return found


@jit
def _selection_first(
    key: int, row: np.ndarray, own: int, low: np.ndarray, high: np.ndarray, keys: np.ndarray, start: np.ndarray,
    kept: np.ndarray,
) -> np.ndarray:  # fmt: skip
    found = np.empty((64, 2), np.int64)
    count = 0
    for query in range(len(low)):
        if not _within(row, low[query], high[query], 0):
            continue
        for place in range(start[query], start[query + 1]):
            if keys[kept[place]] == key:
                found = _added(found, count, kept[place], query)
                count += 1
    return found[:count]


@jit
def _join_first(
    key: int, row: np.ndarray, own: int, low: np.ndarray, high: np.ndarray, keys: np.ndarray, rows: np.ndarray
) -> np.ndarray:
    found = np.empty((64, 2), np.int64)
    count = 0
    for query in range(len(low)):
        for other in range(len(rows)):
            if keys[other] != key or not _within(row, low[query], high[query], 0):
                continue
            if _within(rows[other], low[query], high[query], own):
                found = _added(found, count, other, query)
                count += 1
    return found[:count]
