"""The stream predicates: as they were given, and the current one as relaxed so far.

Kuntschke and Kemper, sections 3.1, 3.4 and 3.5 (a subpredicate that does not imply the stream predicate is added to it,
or one of its boxes is widened) and 6.1 (the order of work).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from benchmarks.jit import bare, inlined
from benchmarks.papers.systems.disjunctive.dimensions import Lines, SortedBoxes, copy_box, measure

ORDERED, ADDED, NEAR = range(3)
"""Indices into `Stream.counts`."""


class Streams(NamedTuple):
    """The stream predicates as given, concatenated.

    given  their boxes
    order  [boxes] int64, the boxes of each in its order of work, by decreasing volume
    place  [boxes] int64, the place of each box in that order
    start  [predicates + 1] int64, the first box of each
    """

    given: SortedBoxes
    order: np.ndarray
    place: np.ndarray
    start: np.ndarray


class Stream(NamedTuple):
    """The current stream predicate.

    given   the boxes of all stream predicates, of which the current one's can be widened; then those of all queries,
            which can be added
    order   [.] int64, the current boxes in the order of work, unless an index replaces it
    added_boxes [.] int64, the boxes that were added or widened, which an index does not have as they are now; with an
            index they come last in the order of work
    near    [.] int64, the boxes that share a row with the current subpredicate, as found by R-trees, in the order of
            work
    counts  [3] int64, the number of boxes in order, added_boxes and near
    """

    given: SortedBoxes
    order: np.ndarray
    added_boxes: np.ndarray
    near: np.ndarray
    counts: np.ndarray


def no_stream(streams: Streams, queries: SortedBoxes, most: int) -> Stream:
    """No current predicate yet; there is room for one of at most `most` boxes."""
    given = SortedBoxes(*map(np.concatenate, zip(streams.given, queries, strict=True)))
    # a tree can contain a widened box, too
    order, added_boxes, near = (np.empty(room, np.int64) for room in (most, most, 2 * most))
    return Stream(given, order, added_boxes, near, np.zeros(3, np.int64))


@inlined
def reset(stream: Stream, streams: Streams, at: int, ordered: bool, widened: bool) -> None:
    """Resets the current stream predicate to the one at `at`, as it was given."""
    begin, count = streams.start[at], streams.start[at + 1] - streams.start[at]
    stream.counts[ORDERED], stream.counts[ADDED] = count, 0
    if ordered:
        for i in range(count):
            stream.order[i] = streams.order[begin + i]
    if widened:
        for box in range(begin, begin + count):
            copy(streams.given, box, stream.given, box)


@bare
def copy(source: SortedBoxes, place: int, out: SortedBoxes, at: int) -> None:
    """Copies a box and its measures to another index."""
    copy_box(source.boxes, place, out.boxes, at)
    out.unbounded[at], out.volume[at] = source.unbounded[place], source.volume[place]
    for d in range(source.rank.shape[1]):
        out.rank[at, d] = source.rank[place, d]


@inlined
def add(stream: Stream, box: int, ordered: bool) -> None:
    """Adds a box to the stream predicate."""
    counts = stream.counts
    stream.added_boxes[counts[ADDED]] = box
    counts[ADDED] += 1
    if ordered:
        _put_in_order(stream, box, counts[ORDERED])
        counts[ORDERED] += 1


@bare
def replace(stream: Stream, box: int, wide: np.ndarray, lines: Lines) -> None:
    """Replaces a box by the widened one, wide[0], at its new place in the order of work."""
    copy_box(wide, 0, stream.given.boxes, box)
    measure(stream.given, box, lines)
    order, counts = stream.order, stream.counts
    place = 0
    while order[place] != box:
        place += 1
    for behind in range(place + 1, counts[ORDERED]):
        order[behind - 1] = order[behind]
    _put_in_order(stream, box, counts[ORDERED] - 1)
    for i in range(counts[ADDED]):
        if stream.added_boxes[i] == box:
            return
    stream.added_boxes[counts[ADDED]] = box
    counts[ADDED] += 1


@bare
def _put_in_order(stream: Stream, box: int, count: int) -> None:
    """Inserts a box into the first `count` of the order of work (6.1): larger ones first, then by number."""
    given, order, place = stream.given, stream.order, count
    while place > 0:
        before = order[place - 1]
        if given.unbounded[before] != given.unbounded[box]:
            stands = given.unbounded[before] > given.unbounded[box]
        elif given.volume[before] != given.volume[box]:
            stands = given.volume[before] > given.volume[box]
        else:
            stands = before < box
        if stands:
            break
        order[place] = before
        place -= 1
    order[place] = box
