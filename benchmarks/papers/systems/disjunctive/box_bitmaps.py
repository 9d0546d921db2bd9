"""A bitmap index over the boxes of predicates: for each code, the boxes that begin at or before it and those that end
at or after it.

It answers the queries of Kuntschke and Kemper's section 3.6 by an AND of two words per 64 boxes and dimension: which
boxes share a row with a part, contain it, or contain one of its corners. So each part that is cut off can be looked up
again, in whatever order parts are taken. The index has 3 bits per box and code of each dimension: it is for predicates
of hundreds of boxes and constants, not of millions.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from benchmarks.jit import bare, inlined, inner
from benchmarks.papers.systems.disjunctive.dimensions import APART, IMPLIED, OVERLAPS, relation
from benchmarks.papers.systems.disjunctive.streams import ADDED, Stream, Streams
from rules_index.arrays import segment_ids
from rules_index.kernels.vectors import trailing_zeros

_BEGUN, _LASTING = range(2)
_ALL = np.uint64(0xFFFF_FFFF_FFFF_FFFF)


class BoxBitmaps(NamedTuple):
    """The bitmaps of one or more predicates.

    Bit b of a predicate's word w stands for box 64 w + b in its order of work.
    bits     [predicates, d, most codes, 2, words] uint64: the boxes that begin at the code or below, and those that end
             at it or above
    holding  [d, most codes, words, predicates] uint64: the boxes that do both
    """

    bits: np.ndarray
    holding: np.ndarray

    @classmethod
    def of(cls, boxes: np.ndarray, order: np.ndarray, start: np.ndarray, codes: int) -> BoxBitmaps:
        """The bitmaps of boxes [boxes, d, 2] int32 with codes below `codes`; order and start are as in
        `streams.Streams`."""
        words = (int(np.diff(start).max(initial=0)) + 63) // 64
        bits = np.zeros((len(start) - 1, boxes.shape[1], codes, 2, words), np.uint64)
        owner = segment_ids(start)
        place = np.arange(len(order)) - start[owner]
        bit = np.uint64(1) << (place % 64).astype(np.uint64)
        for d in range(boxes.shape[1]):
            for which, end in enumerate(boxes[order, d].T):
                np.bitwise_or.at(bits[:, d, :, which], (owner, end, place // 64), bit)
        begun, lasting = bits[:, :, :, _BEGUN], bits[:, :, ::-1, _LASTING]
        begun[:] = np.bitwise_or.accumulate(begun, axis=2)
        lasting[:] = np.bitwise_or.accumulate(lasting, axis=2)
        holding = np.moveaxis(begun & bits[:, :, :, _LASTING], 0, 3)
        return cls(bits, np.ascontiguousarray(holding))


@inner
def find_held(queries: np.ndarray, start: np.ndarray, bitmaps: BoxBitmaps, held: np.ndarray) -> None:
    """Tests, for all stream predicates at once, which subpredicates of queries have their lowest and highest corner in
    boxes of the stream predicate, extended by the subpredicates before them.

    queries, start: their boxes [subpredicates, d, 2] int32 and the first of each query [queries + 1]; held receives the
    result [subpredicates, predicates] bool. All subpredicates before the current one count as added: a corner in one
    that is not added is in a box anyway, since boxes cover that subpredicate.
    """
    predicates = held.shape[1]
    corner, boxes = np.empty((2, predicates), np.uint64)
    for query in range(len(start) - 1):
        for box in range(start[query], start[query + 1]):
            held[box] = True
            for end in range(2):
                corner[:] = 0
                for other in range(start[query], box):
                    if _has_corner(queries, box, end, queries, other):
                        corner[:] = _ALL
                for word in range(bitmaps.holding.shape[2]):
                    boxes[:] = _ALL
                    for d in range(queries.shape[1]):
                        holding = bitmaps.holding[d, queries[box, d, end], word]
                        for at in range(predicates):
                            boxes[at] &= holding[at]
                    for at in range(predicates):
                        corner[at] |= boxes[at]
                for at in range(predicates):
                    held[box, at] &= corner[at] != 0


@inlined
def look_up(
    parts: np.ndarray, part: int, stream: Stream, streams: Streams, at: int, bitmaps: BoxBitmaps, corners: bool
) -> tuple[int, int]:
    """Algorithm 6 (QC) for a part, and the place in the order of work of the first box that shares a row with it.

    If `corners` are tested, a part whose lowest or highest corner is in no box is `APART`, too, because it is not
    covered. That takes a few words only, and boxes seldom contain both corners.
    """
    if corners and not (
        _is_held(parts, part, 0, stream, streams, at, bitmaps)
        and _is_held(parts, part, 1, stream, streams, at, bitmaps)
    ):
        return APART, -1
    bits, given = bitmaps.bits, stream.given
    count = streams.start[at + 1] - streams.start[at]
    first: Any = -1
    for word in range((count + 63) // 64):
        near = held = _ALL
        for d in range(bits.shape[1]):
            low, high = parts[part, d, 0], parts[part, d, 1]
            near &= bits[at, d, high, _BEGUN, word] & bits[at, d, low, _LASTING, word]
            held &= bits[at, d, low, _BEGUN, word] & bits[at, d, high, _LASTING, word]
            if not near:
                break
        if near & held:
            return IMPLIED, -1
        if first < 0 and near:
            first = 64 * word + np.int64(trailing_zeros(near))
    for i in range(stream.counts[ADDED]):
        how = relation(parts, part, given.boxes, stream.added_boxes[i], given.rank)
        if how == IMPLIED:
            return IMPLIED, -1
        if how == OVERLAPS and first < 0:
            first = count + i
    return (OVERLAPS if first >= 0 else APART), first


@inlined
def _is_held(
    parts: np.ndarray, part: int, end: int, stream: Stream, streams: Streams, at: int, bitmaps: BoxBitmaps
) -> bool:
    """Whether a box contains the lowest (`end` 0) or highest (1) corner of a part."""
    bits = bitmaps.bits
    count = streams.start[at + 1] - streams.start[at]
    for word in range((count + 63) // 64):
        held = _ALL
        for d in range(bits.shape[1]):
            code = parts[part, d, end]
            held &= bits[at, d, code, _BEGUN, word] & bits[at, d, code, _LASTING, word]
            if not held:
                break
        if held:
            return True
    for i in range(stream.counts[ADDED]):
        if _has_corner(parts, part, end, stream.given.boxes, stream.added_boxes[i]):
            return True
    return False


@inlined
def _has_corner(parts: np.ndarray, part: int, end: int, boxes: np.ndarray, box: int) -> bool:
    """Whether a given box contains the lowest or highest corner of a part."""
    for d in range(boxes.shape[1]):
        code = parts[part, d, end]
        if code < boxes[box, d, 0] or code > boxes[box, d, 1]:
            return False
    return True


@bare
def box_at(place: int, stream: Stream, streams: Streams, at: int) -> int:
    """The box at a place that `look_up` has returned."""
    begin = streams.start[at]
    count = streams.start[at + 1] - begin
    return streams.order[begin + place] if place < count else stream.added_boxes[place - count]
