"""One growable list of ids for each virtual construct, all in one pool of memory (CEI paper, section 3.2)."""

from __future__ import annotations

from typing import Self

import numpy as np

from rules_index.engines.cei.constructs import ConstructLayout, first_piece
from rules_index.kernels.jit import jit
from rules_index.kernels.lists import grown

SPARE_ENTRIES = 4096
"""The lists are compacted if more than this number of entries, and more than half of the pool's used part, belong to no
list because lists have moved."""

MOST_ENTRIES = (1 << 31) - 1
"""The most entries in all lists: the start of a list, a construct's header, then fits in 4 bytes, as in the paper."""


class IdLists:
    """The list of place p is `pool[start[p] : start[p] + length[p]]`, unordered.

    start     [places] int32
    length    [places] int32
    capacity  [places] int32, None before the first `add`; a full list moves to the end of the pool, with twice the room
    pool      [.] int32
    use       [2] int64: the length of the pool's used part, and the number of entries in it that lists have left behind
    """

    def __init__(self, offsets: np.ndarray, ids: np.ndarray) -> None:
        """Takes concatenated lists; the p-th is `ids[offsets[p] : offsets[p + 1]]`."""
        self._take(offsets, ids)

    def _take(self, offsets: np.ndarray, ids: np.ndarray) -> None:
        if len(ids) > MOST_ENTRIES:
            raise OverflowError(f"all id lists hold at most {MOST_ENTRIES:,} entries, not {len(ids):,}")
        self.start = np.array(offsets[:-1], np.int32)
        self.length = np.diff(offsets).astype(np.int32)
        self.capacity: np.ndarray | None = None
        self.pool = np.array(ids, np.int32)
        self.use = np.array([len(ids), 0], np.int64)

    @classmethod
    def of_terms(cls, layout: ConstructLayout, terms: np.ndarray, owner: np.ndarray) -> Self:
        """Builds the lists of all constructs from terms [., 3] int32 (attribute, low, high; closed): the owner [.]
        int32 of each term is added to the lists of all its pieces, in the order of the terms."""
        places = int(layout.at[-1])
        offsets = np.zeros(places + 1, np.int64)
        _count_places(layout, terms, offsets)
        np.cumsum(offsets, out=offsets)
        ids = np.empty(offsets[-1], np.int32)
        _fill_lists(layout, terms, owner, offsets[:-1].copy(), ids)
        return cls(offsets, ids)

    def add(self, layout: ConstructLayout, terms: np.ndarray, owner: int) -> None:
        """Adds an id to the lists of all pieces of its terms."""
        if self.capacity is None:
            self.capacity = self.length.copy()
        self.pool = _add_terms(layout, terms, owner, self.start, self.length, self.capacity, self.pool, self.use)
        if len(self.pool) > MOST_ENTRIES:
            raise OverflowError(f"all id lists hold at most {MOST_ENTRIES:,} entries")
        if self.use[1] > max(SPARE_ENTRIES, self.use[0] // 2):
            self._take(*self.packed())

    def remove(self, layout: ConstructLayout, terms: np.ndarray, owner: int) -> None:
        """Removes an id from the lists of all pieces of its terms."""
        _remove_terms(layout, terms, owner, self.start, self.length, self.pool)

    def packed(self) -> tuple[np.ndarray, np.ndarray]:
        """(offsets [places + 1] int32, ids [.] int32) of the lists without gaps between them."""
        offsets = np.zeros(len(self.start) + 1, np.int32)
        np.cumsum(self.length, out=offsets[1:])
        return offsets, gather(self.start, self.length, self.pool, offsets)


@jit
def gather(start: np.ndarray, length: np.ndarray, pool: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """The lists `pool[start[p] : start[p] + length[p]]` concatenated, the p-th from `offsets[p]` on."""
    ids = np.empty(offsets[-1], np.int32)
    for place in range(len(start)):
        at = offsets[place]
        for entry in range(length[place]):
            ids[at + entry] = pool[start[place] + entry]
    return ids


@jit
def _count_places(layout: ConstructLayout, terms: np.ndarray, counts: np.ndarray) -> None:
    """Adds the number of pieces at place p to `counts[p + 1]`."""
    for term in range(len(terms)):
        attribute = terms[term, 0]
        kind, k, at = layout.kind[attribute], layout.k[attribute], layout.at[attribute]
        begin, end = np.int64(terms[term, 1]), np.int64(terms[term, 2]) + 1
        while begin < end:
            piece, begin = first_piece(kind, k, begin, end)
            counts[at + piece + 1] += 1


@jit
def _fill_lists(
    layout: ConstructLayout, terms: np.ndarray, owner: np.ndarray, next_entry: np.ndarray, ids: np.ndarray
) -> None:
    """Writes every owner to the lists of its pieces, the list of place p from `next_entry[p]` on."""
    for term in range(len(terms)):
        attribute = terms[term, 0]
        kind, k, at = layout.kind[attribute], layout.k[attribute], layout.at[attribute]
        begin, end = np.int64(terms[term, 1]), np.int64(terms[term, 2]) + 1
        while begin < end:
            piece, begin = first_piece(kind, k, begin, end)
            ids[next_entry[at + piece]] = owner[term]
            next_entry[at + piece] += 1


@jit
def _append(
    place: int,
    owner: int,
    start: np.ndarray,
    length: np.ndarray,
    capacity: np.ndarray,
    pool: np.ndarray,
    use: np.ndarray,
) -> np.ndarray:
    """Appends an owner to a list; returns the pool, reallocated if it had to grow."""
    if length[place] == capacity[place]:
        room = max(4, 2 * capacity[place])
        end = use[0] + room
        if end > len(pool):
            pool = grown(pool, end)
        for entry in range(length[place]):
            pool[use[0] + entry] = pool[start[place] + entry]
        use[1] += capacity[place]
        start[place] = use[0]
        capacity[place] = room
        use[0] = end
    pool[start[place] + length[place]] = owner
    length[place] += 1
    return pool


@jit
def _add_terms(
    layout: ConstructLayout,
    terms: np.ndarray,
    owner: int,
    start: np.ndarray,
    length: np.ndarray,
    capacity: np.ndarray,
    pool: np.ndarray,
    use: np.ndarray,
) -> np.ndarray:
    """Appends an owner to the lists of all pieces of its terms; returns the pool, reallocated if it had to grow."""
    for term in range(len(terms)):
        attribute = terms[term, 0]
        kind, k, at = layout.kind[attribute], layout.k[attribute], layout.at[attribute]
        begin, end = np.int64(terms[term, 1]), np.int64(terms[term, 2]) + 1
        while begin < end:
            piece, begin = first_piece(kind, k, begin, end)
            pool = _append(at + piece, owner, start, length, capacity, pool, use)
    return pool


@jit
def _remove_terms(
    layout: ConstructLayout, terms: np.ndarray, owner: int, start: np.ndarray, length: np.ndarray, pool: np.ndarray
) -> None:
    """Removes an owner from the lists of all pieces of its terms; the last id of a list takes its place."""
    for term in range(len(terms)):
        attribute = terms[term, 0]
        kind, k, at = layout.kind[attribute], layout.k[attribute], layout.at[attribute]
        begin, end = np.int64(terms[term, 1]), np.int64(terms[term, 2]) + 1
        while begin < end:
            piece, begin = first_piece(kind, k, begin, end)
            place = at + piece
            last = start[place] + length[place] - 1
            for entry in range(start[place], last + 1):
                if pool[entry] == owner:
                    pool[entry] = pool[last]
                    length[place] -= 1
                    break
