"""Searches R-trees over the boxes of predicates (Kuntschke and Kemper, section 3.6).

A subpredicate is looked up once. Its parts are compared only with the boxes that were found, and skip those that do not
overlap them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from benchmarks.jit import bare
from benchmarks.papers.systems.disjunctive.dimensions import APART, IMPLIED, OVERLAPS, relation
from benchmarks.papers.systems.disjunctive.streams import ADDED, Stream, Streams
from rules_index.arrays import offsets_of
from rules_index.index.boxes import Tree


class BoxTrees(NamedTuple):
    """The nodes of one tree for each of some predicates, as in `index.boxes.Tree`, concatenated.

    start       [predicates + 1] int64, the first node of each
    end         [nodes] int64, the first node behind the subtree of the node
    test_start  [nodes + 1] int64 into tests
    tests       [., 3] int32 (dimension, low, high)
    key_start   [nodes + 1] int64 into keys
    keys        [.] int64, boxes by their number among those of all predicates
    """

    start: np.ndarray
    end: np.ndarray
    test_start: np.ndarray
    tests: np.ndarray
    key_start: np.ndarray
    keys: np.ndarray

    @classmethod
    def of(cls, trees: Sequence[Tree], first_box: np.ndarray) -> BoxTrees:
        """Concatenates a tree over the boxes of each predicate, which begin at `first_box` [trees + 1] int64."""
        nodes, tests, keys = (
            offsets_of(np.array([len(getattr(tree, name)) for tree in trees], np.int64))
            for name in ("end", "tests", "keys")
        )
        return cls(
            nodes,
            _shifted([tree.end for tree in trees], nodes),
            np.append(_shifted([tree.test_start[:-1] for tree in trees], tests), tests[-1]),
            np.concatenate([np.empty((0, 3), np.int32), *(tree.tests for tree in trees)]),
            np.append(_shifted([tree.key_start[:-1] for tree in trees], keys), keys[-1]),
            _shifted([tree.keys for tree in trees], first_box),
        )


def _shifted(arrays: Sequence[np.ndarray], by: np.ndarray) -> np.ndarray:
    """The arrays concatenated as int64, with an addend [arrays + 1] added to each."""
    shifted = (array.astype(np.int64) + each for array, each in zip(arrays, by[:-1].tolist(), strict=True))
    return np.concatenate([np.empty(0, np.int64), *shifted])


@bare
def overlapping(
    parts: np.ndarray, part: int, stream: Stream, streams: Streams, at: int, trees: BoxTrees
) -> tuple[int, int]:
    """Algorithm 6 (QC) by a tree, and the number of boxes that share a row with a part. These are written to
    `stream.near` in the order of work, unless one of them contains the part."""
    boxes, rank, near = stream.given.boxes, stream.given.rank, stream.near
    count = 0
    node = trees.start[at]
    while node < trees.start[at + 1]:
        if not _passes(parts, part, trees.tests, trees.test_start[node], trees.test_start[node + 1]):
            node = trees.end[node]
            continue
        for key in range(trees.key_start[node], trees.key_start[node + 1]):
            box = trees.keys[key]
            how = relation(parts, part, boxes, box, rank)
            if how == IMPLIED:
                return IMPLIED, 0
            if how == OVERLAPS:
                count = _put(box, near, count, streams.place)
        node += 1
    for i in range(stream.counts[ADDED]):
        box = stream.added_boxes[i]
        how = relation(parts, part, boxes, box, rank)
        if how == IMPLIED:
            return IMPLIED, 0
        if how == OVERLAPS:
            near[count] = box
            count += 1
    return (OVERLAPS if count else APART), count


@bare
def _put(box: int, near: np.ndarray, count: int, place: np.ndarray) -> int:
    """Inserts a box into `count` boxes in the order of work, unless it is there; returns the new number."""
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
