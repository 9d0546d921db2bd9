"""Finds the anchors of each conjunction, and the rows of the other streams that it can join with them.

Given its anchor, a joined row is any choice of one row of each other stream that has the same key and is within the
stream's window before the anchor. These joined rows are a product of ranges of rows. The ranges are found without
building the product.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rules_index.arrays import grown
from rules_index.join.lists import Lists, seek
from rules_index.kernels.jit import inner, jit


class Entries(NamedTuple):
    """Pairs of a conjunction and an anchor that have joined rows.

    conjunction  [entries] int32
    anchor       [entries] int32, position
    ranges       [entries, streams, 2] int32, from and to in `Lists.position`: the rows of each stream to combine; for
                 the anchor's own stream the anchor alone
    """

    conjunction: np.ndarray
    anchor: np.ndarray
    ranges: np.ndarray

    @property
    def sizes(self) -> np.ndarray:
        """The number [entries] float64 of joined rows of each entry; a product of six ranges can overflow an
        integer."""
        return np.prod(np.diff(self.ranges, axis=2)[:, :, 0], axis=1, dtype=np.float64)

    def chosen(self, places: np.ndarray | slice) -> Entries:
        """The entries with these numbers."""
        return Entries(*(array[places] for array in self))


def find_entries(
    lists: Lists, pairs: np.ndarray, reach: np.ndarray, owned: np.ndarray, combinations: list[int], most: int
) -> tuple[Entries | None, float]:
    """Finds all entries whose anchor is owned [positions] bool. Returns them, or None as soon as there are more than
    `most`; and the share of the conjunctions that were searched until then.

    pairs: [conjunctions, streams] int32, the pair of lists of each stream that a conjunction reads. combinations: of
    old and new rows; bit i is set if the row of stream i is a new one.
    """
    conjunctions, streams = pairs.shape
    found = Entries(np.empty(1024, np.int32), np.empty(1024, np.int32), np.empty((1024, streams, 2), np.int32))
    filled = 0
    for done, combination in enumerate(combinations):
        at = 0
        while at < conjunctions:
            at, filled, needed = _find_while_room(
                at, combination, lists.start, lists.position, pairs, reach, owned, found, filled
            )
            if filled > most:
                return None, (done + at / conjunctions) / len(combinations)
            if at < conjunctions:
                found = Entries(*(grown(array, filled + needed) for array in found))
    return found.chosen(slice(filled)), 1.0


@jit
def _find_while_room(
    begin: int, combination: int, start: np.ndarray, position: np.ndarray, pairs: np.ndarray, reach: np.ndarray,
    owned: np.ndarray, found: Entries, filled: int,
) -> tuple[int, int, int]:  # fmt: skip
    """Appends the entries of conjunctions from `begin` on, up to the first whose entries may not fit.

    Returns that conjunction, the number of entries so far, and for how many entries it may need room.
    """
    streams = pairs.shape[1]
    room = len(found.anchor)
    ends = np.empty((streams, 2), np.int64)
    near = np.empty((streams, 2), np.int64)
    for conjunction in range(begin, len(pairs)):
        driver, total = 0, 0
        for stream in range(streams):
            at = 2 * pairs[conjunction, stream] + (combination >> stream & 1)
            ends[stream, 0], ends[stream, 1] = start[at], start[at + 1]
            total += start[at + 1] - start[at]
            if start[at + 1] - start[at] < ends[driver, 1] - ends[driver, 0]:
                driver = stream
        if ends[driver, 0] == ends[driver, 1]:
            continue
        if filled + total > room:
            return conjunction, filled, total
        for stream in range(streams):
            near[:, 0] = near[:, 1] = ends[:, 0]
            filled = _find_anchors(stream, driver, conjunction, ends, near, position, reach, owned, found, filled)
    return len(pairs), filled, 0


@inner
def _find_anchors(
    stream: int, driver: int, conjunction: int, ends: np.ndarray, near: np.ndarray, position: np.ndarray,
    reach: np.ndarray, owned: np.ndarray, found: Entries, filled: int,
) -> int:  # fmt: skip
    """Appends the entries of a conjunction whose anchors are rows of one stream. The driver is the stream with the
    shortest list; anchors are its own rows, or rows within reach of one of them."""
    done = ends[stream, 0]
    for at in range(ends[driver, 0], ends[driver, 1]):
        first, last = at, at + 1
        if stream != driver:
            row = position[at]
            first = seek(position, done, ends[stream, 1], reach[stream, 1, row])
            last = seek(position, first, ends[stream, 1], reach[stream, 2, row])
            done = last
        for place in range(first, last):
            anchor = position[place]
            if owned[anchor] and _set_ranges(stream, anchor, place, ends, near, position, reach, found.ranges[filled]):
                found.conjunction[filled] = conjunction
                found.anchor[filled] = anchor
                filled += 1
    return filled


@inner
def _set_ranges(
    stream: int, anchor: int, place: int, ends: np.ndarray, near: np.ndarray, position: np.ndarray, reach: np.ndarray,
    ranges: np.ndarray,
) -> bool:  # fmt: skip
    """Writes the ranges [streams, 2] of an anchor. Returns False if one is empty. near: [streams, 2], the ranges of the
    anchor before, where the search begins."""
    for other in range(len(ends)):
        first, last = place, place + 1
        if other != stream:
            first = seek(position, near[other, 0], ends[other, 1], reach[other, 0, anchor])
            last = seek(position, max(first, near[other, 1]), ends[other, 1], reach[other, 1, anchor])
            near[other, 0], near[other, 1] = first, last
            if first == last:
                return False
        ranges[other, 0], ranges[other, 1] = first, last
    return True


@jit
def cut_ranges(ranges: np.ndarray, position: np.ndarray, at: int) -> np.ndarray:
    """Returns where each of `ranges` [ranges, 2] of `Lists.position` has its first position of at least `at`: an index
    [ranges] int32, the end of the range if there is none."""
    cuts = np.empty(len(ranges), np.int32)
    for i in range(len(ranges)):
        cuts[i] = seek(position, ranges[i, 0], ranges[i, 1], at)
    return cuts
