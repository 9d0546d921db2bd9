"""Exact matching: is a part of the query predicate covered by the boxes of the stream predicate?

Kuntschke and Kemper, section 3.5, algorithms 10 to 12. The three strategies differ in which part is cut next, so one
loop serves them all. It stops after so many steps, or where its arrays are full, and goes on from where it was.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rules_index.engines.r_tree.box_store import grown
from rules_index.implication.dimensions import APART, IMPLIED, OVERLAPS, Sorted, copy_box, cut, relation
from rules_index.kernels.jit import bare

BFS, DFS, MIX = range(3)
COVERED, REST, FULL, PAUSED = range(4)
HEAD, TAIL, SPLITS, MOST, REST_BEGIN = range(5)


class Parts(NamedTuple):
    """The parts that are not covered yet, from `state[HEAD]` to `state[TAIL]`.

    boxes     [., d, 2] int32
    position  [.] int32, how many boxes of the stream predicate each was compared with
    first     [.] int32, the place of the first of those that were cut off together
    taken     [2 d + 1, d, 2] int32, those that are compared now
    state     [5] int64: head, tail, comparisons, most parts that lived at once, where the rest begins
    """

    boxes: np.ndarray
    position: np.ndarray
    first: np.ndarray
    taken: np.ndarray
    state: np.ndarray


class Nodes(NamedTuple):
    """What a search reads of an index over the boxes, as in `engines.boxes.Tree`; no nodes stand for no index."""

    end: np.ndarray
    test_start: np.ndarray
    tests: np.ndarray
    key_start: np.ndarray
    keys: np.ndarray


class Stream(NamedTuple):
    """The stream predicate, as relaxed so far.

    given   its boxes, and behind them room for more
    order   [.] int64, the boxes in the order of work, by decreasing volume
    place   [.] int64, the place of each box in it
    beside  [.] int64, the boxes that the index does not have as they are
    near    [.] int64, those that share a row with what is matched, in the order of work
    counts  [3] int64, number of boxes, of those beside, and of those near
    """

    given: Sorted
    order: np.ndarray
    place: np.ndarray
    beside: np.ndarray
    near: np.ndarray
    counts: np.ndarray


def make_parts(dimensions: int) -> Parts:
    """No parts, with room for a few."""
    room = 4 * dimensions**2 + 16
    position, first = np.zeros((2, room), np.int32)
    taken = np.empty((2 * dimensions + 1, dimensions, 2), np.int32)
    return Parts(np.empty((room, dimensions, 2), np.int32), position, first, taken, np.zeros(5, np.int64))


def with_room(parts: Parts) -> Parts:
    """The parts moved to the front, with room for as many again."""
    live = slice(*parts.state[[HEAD, TAIL]].tolist())
    count = live.stop - live.start
    parts.state[[HEAD, TAIL]] = 0, count
    boxes, position, first = (
        grown(array[live].copy(), 2 * len(array)) for array in (parts.boxes, parts.position, parts.first)
    )
    first[:count] -= live.start
    return parts._replace(boxes=boxes, position=position, first=first)


@bare
def start(parts: Parts, boxes: np.ndarray, box: int) -> None:
    """Begins with one part, a box."""
    state = parts.state
    copy_box(boxes, box, parts.boxes, 0)
    parts.position[0] = parts.first[0] = 0
    state[HEAD], state[TAIL], state[SPLITS], state[MOST], state[REST_BEGIN] = 0, 1, 0, 1, 0


@bare
def _next(strategy: int, state: np.ndarray) -> int:
    """The part that is taken next (algorithm 10: the oldest, 11 and 12: the newest)."""
    return state[HEAD] if strategy == BFS else state[TAIL] - 1


@bare
def _take(strategy: int, parts: Parts) -> int:
    """Moves the next parts to `taken` (algorithm 12: all that were cut off together last); how many, or -1 where there
    might be no room for what is cut off them."""
    state = parts.state
    begin = _next(strategy, state)
    if strategy == MIX:
        begin = np.int64(parts.first[begin])
    count = 1 if strategy == BFS else state[TAIL] - begin
    if state[TAIL] + count * 2 * parts.taken.shape[1] > len(parts.boxes):
        return -1
    for i in range(count):
        copy_box(parts.boxes, begin + i, parts.taken, i)
    if strategy == BFS:
        state[HEAD] += 1
    else:
        state[TAIL] = begin
    return count


@bare
def _add(made: int, position: int, parts: Parts) -> None:
    """Takes up parts that stand behind the last one."""
    tail = parts.state[TAIL]
    for at in range(tail, tail + made):
        parts.position[at] = position
        parts.first[at] = tail
    parts.state[TAIL] = tail + made


@bare
def compare(strategy: int, parts: Parts, given: Sorted, order: np.ndarray, count: int, skips: bool, steps: int) -> int:
    """Compares parts with the first `count` boxes of an order: `COVERED`, `REST`, or why it stopped before.

    A part is compared with one box after the other. Where it `skips`, it goes on to the next one that it shares a row
    with, and is rest at once where there is none.
    """
    state, taken, boxes, rank = parts.state, parts.taken, given.boxes, given.rank
    last = state[SPLITS] + steps
    while state[HEAD] < state[TAIL]:
        if state[SPLITS] >= last:
            return PAUSED
        begin = parts.position[_next(strategy, state)]
        if begin == count:
            state[REST_BEGIN] = _next(strategy, state)
            if skips:
                # those behind it were not compared with all
                state[TAIL] = state[REST_BEGIN] + 1
            return REST
        several = _take(strategy, parts)
        if several < 0:
            return FULL
        for i in range(several):
            position = begin
            while position < count and relation(taken, i, boxes, order[position], rank) == APART:
                position += 1
                if not skips:
                    break
            at = state[TAIL]
            if position == begin or (skips and position < count):
                made = cut(boxes, order[position], rank, taken, i, parts.boxes, at)
                _add(made, position + 1, parts)
                continue
            copy_box(taken, i, parts.boxes, at)
            _add(1, position, parts)
            if skips:
                state[REST_BEGIN] = at
                return REST
        state[SPLITS] += several
        state[MOST] = max(state[MOST], state[TAIL] - state[HEAD])
    return COVERED


@bare
def overlapping(parts: np.ndarray, part: int, stream: Stream, nodes: Nodes) -> tuple[int, int]:
    """Algorithm 6 by an index, and how many boxes share a row with a part: these are written to `stream.near`, in the
    order of work, unless one of them holds the part."""
    boxes, rank, place, near = stream.given.boxes, stream.given.rank, stream.place, stream.near
    count = 0
    for i in range(stream.counts[1]):
        box = int(stream.beside[i])
        how = relation(parts, part, boxes, box, rank)
        if how == IMPLIED:
            return IMPLIED, 0
        if how == OVERLAPS:
            count = _put(box, near, count, place)
    end, test_start, tests, key_start, keys = nodes
    node = 0
    while node < len(end):
        if not _passes(parts, part, tests, test_start[node], test_start[node + 1]):
            node = end[node]
            continue
        for at in range(key_start[node], key_start[node + 1]):
            box = int(keys[at])
            how = relation(parts, part, boxes, box, rank)
            if how == IMPLIED:
                return IMPLIED, 0
            if how == OVERLAPS:
                count = _put(box, near, count, place)
        node += 1
    return (OVERLAPS if count else APART), count


@bare
def _put(box: int, near: np.ndarray, count: int, place: np.ndarray) -> int:
    """Puts a box among `count` that are in the order of work, unless it is there; how many there are."""
    at = count
    while at > 0 and place[near[at - 1]] > place[box]:
        at -= 1
    if at > 0 and near[at - 1] == box:
        return count
    for i in range(count, at, -1):
        near[i] = near[i - 1]
    near[at] = box
    return count + 1


@bare
def _passes(parts: np.ndarray, part: int, tests: np.ndarray, begin: int, end: int) -> bool:
    """Whether a part has codes that pass each of some tests."""
    for test in range(begin, end):
        d = tests[test, 0]
        if tests[test, 1] > parts[part, d, 1] or tests[test, 2] < parts[part, d, 0]:
            return False
    return True
