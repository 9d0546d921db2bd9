"""Interval skip lists (Hanson and Johnson), which the CEI paper is compared with: built at once, searched by value.

The end points of all intervals [a, b) are in a skip list; the edge of a level leads from one of its nodes to the next
of at least that level. An interval marks the highest edges that it contains, from a to b. The edges of a level are
disjoint, so that a search reads the marks of the one edge of each level that holds the value, which are those on its
path. Edges are half open here, like the intervals: a value that is an end point needs no marks of its own.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from benchmarks.jit import jit
from rules_index.arrays import offsets_of

MOST_LEVELS = 24


class Arrays(NamedTuple):
    """value [nodes] int64 of the node, ascending, the first one below all; at [nodes + 1] int64 where its edges are;
    forward [edges] int32, the node that an edge leads to, or -1; start [edges + 1] int64 into marks [.] int32."""

    value: np.ndarray
    at: np.ndarray
    forward: np.ndarray
    start: np.ndarray
    marks: np.ndarray


class IsList:
    """The skip list of the intervals [a, b); their keys are 0, 1, .."""

    def __init__(self, a: np.ndarray, b: np.ndarray, seed: int = 7) -> None:
        value = np.concatenate([[-1], np.unique(np.concatenate([a, b]))]).astype(np.int64)
        level = np.minimum(np.random.default_rng(seed).geometric(0.5, len(value)), MOST_LEVELS)
        level[0] = level.max()
        at = offsets_of(level)
        forward = _forward(level, at)
        first, last = np.searchsorted(value, a), np.searchsorted(value, b)
        count = np.zeros(at[-1], np.int64)
        _mark(first, last, at, forward, count, np.empty(0, np.int64), np.empty(0, np.int32))
        start = offsets_of(count)
        marks = np.empty(start[-1], np.int32)
        _mark(first, last, at, forward, np.zeros(at[-1], np.int64), start, marks)
        self._arrays = Arrays(value, at, forward, start, marks)

    @property
    def nbytes(self) -> int:
        """As the paper counts: an id and a pointer for each mark, a value for each node, and for each edge two
        pointers, one forward and one to its marks; 4 bytes each."""
        arrays = self._arrays
        return 8 * len(arrays.marks) + 4 * len(arrays.value) + 8 * len(arrays.forward)

    def search_many(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(offsets [values + 1] int64, keys [.] int32): the intervals that hold each value of x [values]."""
        return _search(np.ascontiguousarray(x, np.float64), self._arrays)


@jit
def _forward(level: np.ndarray, at: np.ndarray) -> np.ndarray:
    forward = np.full(at[-1], -1, np.int32)
    nearest = np.full(level.max(), -1, np.int32)
    for node in range(len(level) - 1, -1, -1):
        for height in range(level[node]):
            forward[at[node] + height] = nearest[height]
            nearest[height] = node
    return forward


@jit
def _mark(first, last, at, forward, count, start, marks):  # type: ignore[no-untyped-def]
    """Counts the marks of each edge, and writes them where there is room for any."""
    for key in range(len(first)):
        node, end = first[key], last[key]
        while node < end:
            edge = at[node + 1] - 1
            while forward[edge] < 0 or forward[edge] > end:
                edge -= 1
            if len(marks):
                marks[start[edge] + count[edge]] = key
            count[edge] += 1
            node = forward[edge]


@jit
def _search(x, arrays):  # type: ignore[no-untyped-def]
    offsets = np.zeros(len(x) + 1, np.int64)
    keys = np.empty(max(64, len(x)), np.int32)
    found = 0
    for number in range(len(x)):
        node = 0
        for height in range(arrays.at[1] - 1, -1, -1):
            edge = arrays.at[node] + height
            following = arrays.forward[edge]
            while following >= 0 and arrays.value[following] <= x[number]:
                node = following
                edge = arrays.at[node] + height
                following = arrays.forward[edge]
            begin, end = arrays.start[edge], arrays.start[edge + 1]
            if found + end - begin > len(keys):
                larger = np.empty(2 * (found + end - begin), np.int32)
                larger[:found] = keys[:found]
                keys = larger
            for place in range(begin, end):
                keys[found] = arrays.marks[place]
                found += 1
        offsets[number + 1] = found
    return offsets, keys[:found]
