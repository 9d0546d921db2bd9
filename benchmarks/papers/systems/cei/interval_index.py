"""The CEI paper's index of one attribute's intervals: insert, delete, and search by value."""

from __future__ import annotations

from typing import Self

import numpy as np

from benchmarks.jit import jit
from rules_index.engines.cei.constructs import (
    KINDS,
    UI,
    ConstructLayout,
    Kind,
    choose_k,
    covering,
    first_piece,
    lay_out,
    levels,
)
from rules_index.engines.cei.id_lists import IdLists
from rules_index.engines.cei.invariants import check_decomposition, check_lists
from rules_index.kernels.lists import grown

INTERVAL, POINT = 0, 1
"""The two sorts of lists: those of the constructs, and r point lists for closed right ends (section 3.4)."""


class IntervalIndex:
    """Intervals [a, b) of integers in [0, r) by key, cut into virtual constructs of one kind.

    A value x is in the interval of a key if a <= x < b or, for a closed interval, at the integer x = b; x may be any
    real number. Keys should be dense: memory grows with the largest one.

    `segment_length` is the paper's L, a power of two; 0: `choose_k` chooses it.
    """

    def __init__(self, r: int, segment_length: int = 0, kind: Kind = "cei") -> None:
        if r < 1:
            raise ValueError(f"a domain has at least one value, not r = {r}")
        self.kind: Kind = kind
        self._a = np.full(0, -1, np.int64)
        self._b = np.full(0, -1, np.int64)
        self._closed = np.zeros(0, bool)
        self._lay_out(r, segment_length)
        self._lists = IdLists.of_terms(self._layout, *self._terms(np.arange(0)))

    @classmethod
    def build(
        cls,
        r: int,
        a: np.ndarray,
        b: np.ndarray,
        closed: np.ndarray | None = None,
        segment_length: int = 0,
        kind: Kind = "cei",
    ) -> Self:
        """Builds the index of the intervals [a, b), both [intervals] int64, with keys 0, 1, ..; of [a, b] where
        `closed` [intervals] bool."""
        index = cls(r, segment_length, kind)
        index._a, index._b = np.array(a, np.int64), np.array(b, np.int64)
        index._closed = np.zeros(len(a), bool) if closed is None else np.array(closed, bool)
        index._require(index._a, index._b, index._closed)
        terms, owner = index._terms(np.arange(len(a)))
        index._lay_out(r, segment_length, terms)
        index._lists = IdLists.of_terms(index._layout, terms, owner)
        return index

    @property
    def r(self) -> int:
        """The size of the domain, rounded up to a multiple of L."""
        return self._r

    @property
    def segment_length(self) -> int:
        """The segment length L."""
        return 1 << int(self._layout.k[INTERVAL])

    @property
    def pieces(self) -> int:
        """D of the paper: the number of ids in all lists, including those of points."""
        return int(self._lists.length.sum())

    @property
    def most_pieces_of_open_ended(self) -> int:
        """The most pieces of an interval [a, r): r/L - 1 segments and log L pieces in the remnant.

        Section 3.4 says r/L, which leaves out the remnant. For L = r the result is log r, as there.
        """
        segments = self.r // self.segment_length
        k = int(self._layout.k[INTERVAL])
        return max(segments, segments - 1 + k)

    def decompose(self, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(offsets [intervals + 1], ids): the global ids of the pieces of each [a, b), from left to right."""
        begin, end = np.asarray(a, np.int64), np.asarray(b, np.int64)
        self._require(begin, end, np.zeros(len(begin), bool))
        kind, k = KINDS[self.kind], int(self._layout.k[INTERVAL])
        offsets = np.concatenate([[0], np.cumsum(_count_pieces(kind, k, begin, end))])
        ids: np.ndarray = _list_pieces(kind, k, begin, end, offsets)
        return offsets, ids

    def insert(self, key: int, a: int, b: int | None = None, closed: bool = False) -> None:
        """Adds [a, b), or [a, b] if `closed`, or [a, r) if b is None. Raises `ValueError` if the key is in use."""
        if key < 0 or (key < len(self._a) and self._a[key] >= 0):
            raise ValueError(f"key {key} is negative or in use")
        end = self._r if b is None else b
        self._require(np.array([a]), np.array([end]), np.array([closed]))
        if key >= len(self._a):
            room = max(key + 1, 2 * len(self._a)) - len(self._a)
            self._a = np.append(self._a, np.full(room, -1, np.int64))
            self._b = np.append(self._b, np.full(room, -1, np.int64))
            self._closed = np.append(self._closed, np.zeros(room, bool))
        self._a[key], self._b[key], self._closed[key] = a, end, closed
        self._lists.add(self._layout, self._terms(np.array([key]))[0], key)

    def delete(self, key: int) -> None:
        """Removes an interval. Raises `KeyError` if no interval has this key."""
        if not 0 <= key < len(self._a) or self._a[key] < 0:
            raise KeyError(key)
        self._lists.remove(self._layout, self._terms(np.array([key]))[0], key)
        self._a[key] = -1

    def search(self, x: float) -> np.ndarray:
        """The keys [.] int32, in the order of the lists, of the intervals that contain x (figure 11)."""
        return self.search_many(np.array([x]))[1]

    def search_many(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns (offsets [values + 1] int64, keys [.] int32): the intervals that contain each value of x [values], in
        the order of the lists."""
        below = np.floor(x).astype(np.int64)
        if len(below) and (below.min() < 0 or below.max() >= self._r):
            raise ValueError(f"a value is outside of the domain [0, {self._r})")
        lists = self._lists
        found: tuple[np.ndarray, np.ndarray] = _search(
            below, below == x, self._layout, lists.start, lists.length, lists.pool
        )
        return found

    def covering_ids(self, x: float) -> list[int]:
        """The global ids of the constructs that contain x, shortest first: the lists that a search reads."""
        kind, k = int(self._layout.kind[INTERVAL]), int(self._layout.k[INTERVAL])
        ids: list[int] = []
        for level in range(levels(kind, k)):
            construct, number, step = covering(kind, k, int(np.floor(x)), level)
            ids += [construct - i * step for i in range(number)]
        return ids

    def check(self) -> None:
        """Raises `AssertionError` if the pieces of an interval overlap, do not cover it or are more than needed, or if
        the lists do not have exactly the pieces of the present intervals."""
        terms, owner = self._terms(np.flatnonzero(self._a >= 0))
        check_decomposition(self._layout, terms)
        counts = np.bincount(owner, minlength=len(self._a))
        at = np.concatenate([[0], np.cumsum(counts)])[:-1]
        wrong = check_lists(self._layout, at, counts, terms, *self._lists.packed())
        assert not wrong, wrong

    def _lay_out(self, r: int, segment_length: int, terms: np.ndarray | None = None) -> None:
        known = np.empty((0, 3), np.int32) if terms is None else terms[terms[:, 0] == INTERVAL]
        k = choose_k(np.array([r]), known, segment_length)
        length = 1 if self.kind == "ui" else 1 << int(k[0])
        self._r = -(-r // length) * length
        self._layout = lay_out(np.array([KINDS[self.kind], UI]), np.array([self._r] * 2), np.append(k, 0))

    def _terms(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the terms [., 3] int32 of intervals, key by key, and the key [.] int32 of each: [a, b) for the
        constructs, and a closed end b for the point lists."""
        a, b, closed = self._a[keys], self._b[keys], self._closed[keys]
        interval = np.stack([np.full(len(keys), INTERVAL), a, b - 1], axis=1)
        point = np.stack([np.full(len(keys), POINT), b, b], axis=1)
        used = np.stack([a < b, closed], axis=1)
        terms = np.stack([interval, point], axis=1)[used]
        return terms.astype(np.int32), np.repeat(keys, used.sum(axis=1)).astype(np.int32)

    def _require(self, a: np.ndarray, b: np.ndarray, closed: np.ndarray) -> None:
        if not ((a >= 0) & (a < b + closed) & (b + closed <= self._r)).all():
            raise ValueError(f"an interval is empty or not within [0, {self._r})")


@jit
def _search(
    below: np.ndarray,
    whole: np.ndarray,
    layout: ConstructLayout,
    start: np.ndarray,
    length: np.ndarray,
    pool: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Returns offsets [values + 1] int64 and keys [.] int32. below: the floor [values] of each value; whole: whether
    the value is an integer, so that its point list is read as well."""
    offsets = np.zeros(len(below) + 1, np.int64)
    keys = np.empty(max(64, len(below)), np.int32)
    found = 0
    for value in range(len(below)):
        for list_kind in range(INTERVAL, POINT + 1 if whole[value] else POINT):
            kind, k, at = layout.kind[list_kind], layout.k[list_kind], layout.at[list_kind]
            for level in range(levels(kind, k)):
                construct, number, step = covering(kind, k, below[value], level)
                for _ in range(number):
                    place = at + construct
                    needed = found + length[place]
                    if needed > len(keys):
                        keys = grown(keys, needed)
                    for entry in range(start[place], start[place] + length[place]):
                        keys[found] = pool[entry]
                        found += 1
                    construct -= step
        offsets[value + 1] = found
    return offsets, keys[:found]


@jit
def _count_pieces(kind: int, k: int, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The number of pieces [intervals] int64 of each [a, b)."""
    counts = np.zeros(len(a), np.int64)
    for interval in range(len(a)):
        start = a[interval]
        while start < b[interval]:
            _, start = first_piece(kind, k, start, b[interval])
            counts[interval] += 1
    return counts


@jit
def _list_pieces(kind: int, k: int, a: np.ndarray, b: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """The ids [offsets[-1]] int64 of the pieces of each [a, b), from left to right."""
    ids = np.empty(offsets[-1], np.int64)
    for interval in range(len(a)):
        start = a[interval]
        at = offsets[interval]
        while start < b[interval]:
            piece, start = first_piece(kind, k, start, b[interval])
            ids[at] = piece
            at += 1
    return ids
