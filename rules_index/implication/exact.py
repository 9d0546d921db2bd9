"""Exact matching: is a part of the query predicate covered by the boxes of the stream predicate?

Kuntschke and Kemper, section 3.5, algorithms 10 to 12. The three strategies differ in which part is cut next, so one
loop serves them all. It stops after so many steps, or where its arrays are full, and goes on from where it was.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from rules_index.engines.r_tree.box_store import grown
from rules_index.implication.dimensions import APART, IMPLIED, compare_dimensions, relation
from rules_index.kernels.jit import inner, jit

Strategy = Literal["bfs", "dfs", "mix"]
_BFS, _DFS, _MIX = range(3)
_STRATEGIES: dict[Strategy, int] = {"bfs": _BFS, "dfs": _DFS, "mix": _MIX}
_COVERED, _REST, _FULL, _PAUSED = range(4)
_HEAD, _TAIL, _SPLITS, _MOST, _REST_BEGIN = range(5)
_STEPS = 1 << 14
"""Comparisons after which the clock is looked at."""


@dataclass(frozen=True)
class Budget:
    """How much may be spent before the answer is left open.

    splits: comparisons of a part with a box (runs of algorithm 9), but for the parts that were taken up together with
    the last one; seconds: about how long.
    """

    splits: int = 1_000_000
    seconds: float = 10.0


class Parts(NamedTuple):
    """The parts that are not covered yet, from `state[_HEAD]` to `state[_TAIL]`.

    boxes     [., d, 2] int32
    position  [.] int32, how many boxes of the stream predicate each was compared with
    first     [.] int32, the place of the first of those that were cut off together
    state     [5] int64: head, tail, comparisons, most parts that lived at once, where the rest begins
    """

    boxes: np.ndarray
    position: np.ndarray
    first: np.ndarray
    state: np.ndarray


class Tree(NamedTuple):
    """What `nearest` reads of an R-tree over the boxes, and the boxes that are not in it as they are.

    beside: [.] int64; the others as in `Nodes`, `BoxArrays` and `Dimensions`
    """

    root: int
    level: np.ndarray
    filled: np.ndarray
    entries: np.ndarray
    bounds: np.ndarray
    key: np.ndarray
    attributes: np.ndarray
    beside: np.ndarray


@dataclass
class Coverage:
    """What became of a part.

    covered: None where the budget was spent before it was known; rest: [., d, 2] what no box covers: with "bfs" and
    no index all of it, else the first that was met; splits: comparisons of a part with a box; most_parts: that lived
    at once.
    """

    covered: bool | None
    rest: np.ndarray
    splits: int
    most_parts: int


def cover(
    part: np.ndarray,
    boxes: np.ndarray,
    rank: np.ndarray,
    order: np.ndarray,
    strategy: Strategy,
    tree: Tree | None,
    budget: Budget,
) -> Coverage:
    """Whether boxes [n, d, 2] cover a part [d, 2]; rank [n, d] int32, order [n] int64 as in `Measures`.

    With a tree a part is compared with the first box in `order` that it shares a row with, and is rest as soon as
    there is none; without, with one box after the other.
    """
    room = 4 * len(part) ** 2 + 16
    position, first = np.zeros((2, room), np.int32)
    parts = Parts(np.empty((room, *part.shape), np.int32), position, first, np.zeros(5, np.int64))
    parts.boxes[0] = part
    parts.state[[_TAIL, _MOST]] = 1
    kernel: Any = _compare_in_turn
    arguments: tuple[Any, ...] = (boxes, rank, order)
    if tree is not None:
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        kernel, arguments = _compare_overlapping, (boxes, rank, place, tree)
    ends = time.monotonic() + budget.seconds
    while True:
        steps = min(_STEPS, budget.splits - int(parts.state[_SPLITS]))
        how = kernel(_STRATEGIES[strategy], parts, *arguments, steps)
        if how == _FULL:
            parts = _with_room(parts)
        elif how != _PAUSED or parts.state[_SPLITS] >= budget.splits or time.monotonic() > ends:
            break
    begin, end = parts.state[[_REST_BEGIN, _TAIL]].tolist()
    rest = parts.boxes[begin if how == _REST else end : end].copy()
    covered = None if how == _PAUSED else how == _COVERED
    return Coverage(covered, rest, *parts.state[[_SPLITS, _MOST]].tolist())


def _with_room(parts: Parts) -> Parts:
    """The parts moved to the front, with room for as many again."""
    live = slice(*parts.state[[_HEAD, _TAIL]].tolist())
    count = live.stop - live.start
    parts.state[[_HEAD, _TAIL]] = 0, count
    boxes, position, first = (
        grown(array[live].copy(), 2 * len(array)) for array in (parts.boxes, parts.position, parts.first)
    )
    first[:count] -= live.start
    return Parts(boxes, position, first, parts.state)


@inner
def _take(strategy: int, parts: Parts, taken: np.ndarray) -> int:
    """Moves the next parts to `taken` [>= 2 d, d, 2] (algorithm 10: the oldest, 11: the newest, 12: all that were cut
    off together last); how many, or -1 where there might be no room for what is cut off them."""
    head, tail = parts.state[_HEAD], parts.state[_TAIL]
    begin = head if strategy == _BFS else tail - 1
    if strategy == _MIX:
        begin = np.int64(parts.first[tail - 1])
    count = 1 if strategy == _BFS else tail - begin
    if tail + count * 2 * taken.shape[1] > len(parts.boxes):
        return -1
    taken[:count] = parts.boxes[begin : begin + count]
    if strategy == _BFS:
        parts.state[_HEAD] = head + 1
    else:
        parts.state[_TAIL] = begin
    return count


@inner
def _add(made: int, position: int, parts: Parts) -> None:
    """Takes up parts that stand behind the last one."""
    tail = parts.state[_TAIL]
    parts.position[tail : tail + made] = position
    parts.first[tail : tail + made] = tail
    parts.state[_TAIL] = tail + made


@jit
def _compare_in_turn(
    strategy: int, parts: Parts, boxes: np.ndarray, rank: np.ndarray, order: np.ndarray, steps: int
) -> int:
    state = parts.state
    last = state[_SPLITS] + steps
    taken = np.empty((2 * boxes.shape[1] + 1, boxes.shape[1], 2), np.int32)
    while state[_HEAD] < state[_TAIL]:
        if state[_SPLITS] >= last:
            return _PAUSED
        position = parts.position[state[_HEAD] if strategy == _BFS else state[_TAIL] - 1]
        if position == len(order):
            state[_REST_BEGIN] = state[_HEAD] if strategy == _BFS else state[_TAIL] - 1
            return _REST
        count = _take(strategy, parts, taken)
        if count < 0:
            return _FULL
        box = order[position]
        for i in range(count):
            made = compare_dimensions(boxes[box], rank[box], taken[i], parts.boxes, state[_TAIL])
            _add(made, position + 1, parts)
        state[_SPLITS] += count
        state[_MOST] = max(state[_MOST], state[_TAIL] - state[_HEAD])
    return _COVERED


@jit
def _compare_overlapping(
    strategy: int, parts: Parts, boxes: np.ndarray, rank: np.ndarray, place: np.ndarray, tree: Tree, steps: int
) -> int:
    state = parts.state
    last = state[_SPLITS] + steps
    taken = np.empty((2 * boxes.shape[1] + 1, boxes.shape[1], 2), np.int32)
    stack = np.empty((tree.level[tree.root] + 1) * tree.entries.shape[1] + 1, np.int32)
    while state[_HEAD] < state[_TAIL]:
        if state[_SPLITS] >= last:
            return _PAUSED
        count = _take(strategy, parts, taken)
        if count < 0:
            return _FULL
        for i in range(count):
            how, box = nearest(taken[i], boxes, rank, place, tree, stack)
            if how == IMPLIED:
                continue
            if how == APART:
                state[_REST_BEGIN] = state[_TAIL]
                parts.boxes[state[_TAIL]] = taken[i]
                _add(1, 0, parts)
                return _REST
            made = compare_dimensions(boxes[box], rank[box], taken[i], parts.boxes, state[_TAIL])
            _add(made, 0, parts)
        state[_SPLITS] += count
        state[_MOST] = max(state[_MOST], state[_TAIL] - state[_HEAD])
    return _COVERED


@jit
def nearest(
    part: np.ndarray, boxes: np.ndarray, rank: np.ndarray, place: np.ndarray, tree: Tree, stack: np.ndarray
) -> tuple[int, int]:
    """Algorithm 6 by an index, and the overlapping box with the least `place`.

    stack: [>= levels * entries + 1] int32, scratch. `IMPLIED` comes with the box that holds the part.
    """
    best = -1
    for i in range(len(tree.beside)):
        box = int(tree.beside[i])
        how = relation(part, boxes[box], rank[box])
        if how == IMPLIED:
            return IMPLIED, box
        if how != APART and (best < 0 or place[box] < place[best]):
            best = box
    stack[0] = tree.root
    waiting = 1
    while waiting > 0:
        waiting -= 1
        node = stack[waiting]
        for i in range(tree.filled[node]):
            entry = tree.entries[node, i]
            if tree.level[node] > 0:
                if _meets(part, tree.bounds[entry], tree.attributes):
                    stack[waiting] = entry
                    waiting += 1
                continue
            box = int(tree.key[entry])
            how = relation(part, boxes[box], rank[box])
            if how == IMPLIED:
                return IMPLIED, box
            if how != APART and (best < 0 or place[box] < place[best]):
                best = box
    return (APART if best < 0 else 0), best


@inner
def _meets(part: np.ndarray, bounds: np.ndarray, attributes: np.ndarray) -> bool:
    for i in range(len(attributes)):
        d = attributes[i]
        if bounds[2 * i] > part[d, 1] or bounds[2 * i + 1] < part[d, 0]:
            return False
    return True


def reading(tree: Any, beside: np.ndarray) -> Tree:
    """What kernels read of an R-tree whose keys are boxes' places; `beside` are to be compared besides."""
    nodes = tree.nodes
    return Tree(
        int(nodes.header[0]), nodes.level, nodes.filled, nodes.entries, nodes.bounds, tree.boxes.key,
        tree.dimensions.attributes, beside,
    )  # fmt: skip
