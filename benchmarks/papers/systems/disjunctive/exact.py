"""Exact matching: is a part of the query predicate covered by the boxes of the stream predicate?

Kuntschke and Kemper, section 3.5, algorithms 10 to 12. The three strategies differ only in which part is cut next, so
that one loop serves all of them. It stops after a number of steps, or when its arrays are full, and can be resumed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from benchmarks.jit import bare, inlined
from benchmarks.papers.systems.disjunctive.box_bitmaps import BoxBitmaps, box_at, look_up
from benchmarks.papers.systems.disjunctive.dimensions import (
    APART,
    OVERLAPS,
    SortedBoxes,
    copy_box,
    cut,
    cut_off,
    relation,
)
from benchmarks.papers.systems.disjunctive.streams import Stream, Streams
from rules_index.arrays import grown

BFS, DFS, MIX = range(3)
COVERED, REST, FULL, PAUSED = range(4)
HEAD, TAIL, SPLITS, MOST, REST_BEGIN = range(5)


class Parts(NamedTuple):
    """The parts that are not covered yet, from `state[HEAD]` to `state[TAIL]`.

    boxes     [., d, 2] int32
    position  [.] int32, the place in the order of work of the box that each is compared with next
    first     [.] int32, the index of the first part that was cut off together with it
    current   [2 d + 1, d, 2] int32, the parts that are being compared
    next      [2 d + 1] int32, the position of each of these
    state     [5] int64: head, tail, comparisons, the most parts at once, where the rest begins
    """

    boxes: np.ndarray
    position: np.ndarray
    first: np.ndarray
    current: np.ndarray
    next: np.ndarray
    state: np.ndarray


def make_parts(dimensions: int) -> Parts:
    """No parts, with room for a few."""
    room = 4 * dimensions**2 + 16
    position, first = np.zeros((2, room), np.int32)
    current = np.empty((2 * dimensions + 1, dimensions, 2), np.int32)
    next_ = np.empty(len(current), np.int32)
    return Parts(np.empty((room, dimensions, 2), np.int32), position, first, current, next_, np.zeros(5, np.int64))


def with_room(parts: Parts) -> Parts:
    """The parts moved to the front, in arrays with room for as many again."""
    live = slice(*parts.state[[HEAD, TAIL]].tolist())
    count = live.stop - live.start
    parts.state[[HEAD, TAIL]] = 0, count
    boxes, position, first = (
        grown(array[live].copy(), 2 * len(array)) for array in (parts.boxes, parts.position, parts.first)
    )
    first[:count] -= live.start
    return parts._replace(boxes=boxes, position=position, first=first)


@inlined
def start(parts: Parts, boxes: np.ndarray, box: int, position: int) -> None:
    """Begins with a single part, a box."""
    state = parts.state
    copy_box(boxes, box, parts.boxes, 0)
    parts.position[0], parts.first[0] = position, 0
    state[HEAD], state[TAIL], state[SPLITS], state[MOST], state[REST_BEGIN] = 0, 1, 0, 1, 0


@inlined
def _next(strategy: int, state: np.ndarray) -> int:
    """The part that is taken next (algorithm 10: the oldest, 11 and 12: the newest)."""
    return state[HEAD] if strategy == BFS else state[TAIL] - 1


@inlined
def _take(strategy: int, parts: Parts) -> int:
    """Moves the next parts to `current` (algorithm 12: all that were cut off together last). Returns their number, or
    -1 if there may be no room for the parts that will be cut off from them."""
    state = parts.state
    begin = _next(strategy, state)
    if strategy == MIX:
        begin = np.int64(parts.first[begin])
    count = 1 if strategy == BFS else state[TAIL] - begin
    if state[TAIL] + count * 2 * parts.current.shape[1] > len(parts.boxes):
        return -1
    for i in range(count):
        copy_box(parts.boxes, begin + i, parts.current, i)
        parts.next[i] = parts.position[begin + i]
    if strategy == BFS:
        state[HEAD] += 1
    else:
        state[TAIL] = begin
    return count


@bare
def _add(made: int, position: int, parts: Parts) -> None:
    """Adds the parts that have been written behind the last one."""
    tail = parts.state[TAIL]
    for at in range(tail, tail + made):
        parts.position[at] = position
        parts.first[at] = tail
    parts.state[TAIL] = tail + made


@bare
def compare(
    strategy: int, parts: Parts, given: SortedBoxes, order: np.ndarray, count: int, skips: bool, steps: int
) -> int:
    """Compares parts with the first `count` boxes of an order. Returns `COVERED`, `REST`, or why it stopped before.

    A part is compared with one box after the other. If `skips` is True, boxes that share no row with it are passed
    over in the same step, and it is rest at once if no further box shares one.
    """
    state, current, boxes, rank = parts.state, parts.current, given.boxes, given.rank
    last = state[SPLITS] + steps
    while state[HEAD] < state[TAIL]:
        if state[SPLITS] >= last:
            return PAUSED
        begin = parts.position[_next(strategy, state)]
        if begin == count:
            state[REST_BEGIN] = _next(strategy, state)
            if skips:
                # the parts behind it have not been compared with all boxes
                state[TAIL] = state[REST_BEGIN] + 1
            return REST
        several = _take(strategy, parts)
        if several < 0:
            return FULL
        for i in range(several):
            position = begin
            while position < count and relation(current, i, boxes, order[position], rank) == APART:
                position += 1
                if not skips:
                    break
            at = state[TAIL]
            if position == begin or (skips and position < count):
                made = cut(boxes, order[position], rank, current, i, parts.boxes, at)
                _add(made, position + 1, parts)
                continue
            copy_box(current, i, parts.boxes, at)
            _add(1, position, parts)
            if skips:
                state[REST_BEGIN] = at
                return REST
        state[SPLITS] += several
        state[MOST] = max(state[MOST], state[TAIL] - state[HEAD])
    return COVERED


@inlined
def compare_found(
    strategy: int,
    parts: Parts,
    stream: Stream,
    streams: Streams,
    at: int,
    bitmaps: BoxBitmaps,
    corners: bool,
    steps: int,
) -> int:
    """`compare` with bitmaps: a part is looked up as soon as it is cut off, and added only if it shares a row with some
    box and is inside none.

    A part that shares no row with any box is rest at once; if `corners` are tested, so is one with a corner in no box.
    """
    state, boxes = parts.state, parts.boxes
    given, rank = stream.given.boxes, stream.given.rank
    last = state[SPLITS] + steps
    while state[HEAD] < state[TAIL]:
        if state[SPLITS] >= last:
            return PAUSED
        several = _take(strategy, parts)
        if several < 0:
            return FULL
        for i in range(several):
            state[SPLITS] += 1
            tail = kept = state[TAIL]
            box = box_at(parts.next[i], stream, streams, at)
            for side in range(2 * rank.shape[1]):
                if not cut_off(given, box, rank[box, side >> 1], side & 1, parts.current, i, boxes, kept):
                    continue
                how, first = look_up(boxes, kept, stream, streams, at, bitmaps, corners)
                if how == APART:
                    state[REST_BEGIN], state[TAIL] = kept, kept + 1
                    return REST
                if how == OVERLAPS:
                    parts.position[kept], parts.first[kept] = first, tail
                    kept += 1
            state[TAIL] = kept
        state[MOST] = max(state[MOST], state[TAIL] - state[HEAD])
    return COVERED
