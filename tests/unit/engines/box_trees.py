"""Boxes that come and go, for tests of trees of boxes: R-trees and grid files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from rules_index.index.array_checks import InvalidArraysError
from rules_index.index.boxes import Boxes, Tree

Sides = dict[int, tuple[int, int]]
"""A box: of the attributes that it bounds, the lowest and the highest code."""


def boxes_of(sizes: Sequence[int] | np.ndarray, boxes: Sequence[Sides]) -> Boxes:
    terms = np.array([(a, *sides) for box in boxes for a, sides in sorted(box.items())], np.int32).reshape(-1, 3)
    start = np.cumsum([0, *(len(box) for box in boxes)]).astype(np.int64)
    attributes, low, high = (np.ascontiguousarray(column) for column in terms.T)
    return Boxes(np.array(sizes, np.int32), start, attributes, low, high)


def arguments(box: Sides) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Attributes, low and high sides, as `insert` takes them."""
    one = boxes_of([], [box])
    return one.attributes, one.low, one.high


def overlap(box: Sides, other: Sides) -> bool:
    """Whether two boxes have a row in common; a row is a box of one code in every attribute."""
    return all(box[a][0] <= other[a][1] and other[a][0] <= box[a][1] for a in box.keys() & other.keys())


def row_box(codes: Sequence[int] | np.ndarray) -> Sides:
    return {a: (int(code), int(code)) for a, code in enumerate(codes)}


# K10: the six boxes and four rows of figure 8, with two codes to a unit so that 4.5 is a code
LEAF_A = [(0, 2, 0, 2), (3, 5, 1, 4), (1, 4, 5, 6)]
LEAF_B = [(4, 7, 3, 5), (8, 9, 0, 2), (6, 9, 6, 8)]
FIGURE_8 = [{0: (2 * a, 2 * b), 1: (2 * c, 2 * d)} for a, b, c, d in LEAF_A + LEAF_B]


class Draw:
    """Random boxes: narrow, wide, of one code, of all codes, of the last code alone, over 1 to 8 attributes."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        largest = self.random.choice([3, 12, 100, 5000])
        self.sizes: np.ndarray = self.random.integers(2, largest + 1, self.random.integers(1, 9)).astype(np.int32)

    def sides(self, size: int) -> tuple[int, int]:
        kind = self.random.random()
        if kind < 0.1:
            return 0, size - 1
        if kind < 0.2:
            return size - 1, size - 1
        low, high = np.sort(self.random.integers(0, size, 2)).tolist()
        return (low, low) if kind < 0.5 else (low, high)

    def box(self) -> Sides:
        count = self.random.integers(0, min(len(self.sizes), 6) + 1)
        chosen = np.sort(self.random.choice(len(self.sizes), count, replace=False))
        return {int(a): self.sides(int(self.sizes[a])) for a in chosen}

    def boxes(self, most: int) -> list[Sides]:
        return [self.box() for _ in range(self.random.integers(0, most))]

    def codes(self, rows: int) -> np.ndarray:
        """[attributes, rows] int32."""
        return self.random.integers(0, self.sizes[:, None], (len(self.sizes), rows)).astype(np.int32)


class History(Draw):
    """A structure under random changes, and the boxes that it should hold by key."""

    def __init__(self, seed: int, build: Callable[[Boxes], Any]) -> None:
        super().__init__(seed)
        boxes = self.boxes(120)
        self.held = dict(enumerate(boxes))
        self.structure = build(boxes_of(self.sizes, boxes))

    def insert(self) -> None:
        key = len(self.held) if self.random.random() < 0.5 else int(self.random.integers(0, 10**9))
        box = self.held[self.any_key()] if self.held and self.random.random() < 0.3 else self.box()
        if key in self.held:
            with pytest.raises(ValueError, match=str(key)):
                self.structure.insert(key, *arguments(box))
        else:
            self.structure.insert(key, *arguments(box))
            self.held[key] = box

    def any_key(self) -> int:
        return int(self.random.choice(list(self.held)))

    def delete(self) -> None:
        if self.held:
            key = self.any_key()
            self.structure.delete(key)
            del self.held[key]
            with pytest.raises(KeyError):
                self.structure.delete(key)

    def load(self) -> None:
        arrays = {name: array.copy() for name, array in self.structure.arrays.items()}
        assert {str(array.dtype) for array in arrays.values()} <= {"int32", "int64", "float64", "uint8"}
        self.structure = type(self.structure).load(arrays, self.sizes)

    def expected(self, query: Sides) -> list[int]:
        return sorted(key for key, box in self.held.items() if overlap(box, query))

    def compare(self) -> None:
        structure = self.structure
        structure.check()
        assert len(structure) == len(self.held)
        codes = self.codes(1)[:, 0]
        found, _ = structure.search(codes)
        assert found.dtype == np.int32 and found.tolist() == self.expected(row_box(codes))
        known = np.flatnonzero(self.random.random(len(codes)) < 0.5)
        some = {a: side for a, side in row_box(codes).items() if a in known}
        assert overlapping(structure, known, codes[known], codes[known]).tolist() == self.expected(some)
        query = self.box()
        assert overlapping(structure, *arguments(query)).tolist() == self.expected(query)
        check_tree(structure.tree(), self.held, row_box(codes))


def overlapping(structure: Any, attributes: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """The keys [.] int32, ascending, of the boxes that overlap a box with bounds on these attributes."""
    event = (attributes, np.arange(len(attributes) + 1), np.stack([low, high], axis=1))
    return structure.search_event(event)[0]


def check_tree(tree: Tree, held: dict[int, Sides], row: Sides) -> None:
    """Every box stands at one node, and above it no test fails on a row that it holds."""
    assert sorted(tree.keys.tolist()) == sorted(held)
    reached: list[int] = []
    node = 0
    while node < len(tree.end):
        tests = tree.tests[tree.test_start[node] : tree.test_start[node + 1]].tolist()
        if all(low <= row[a][0] <= high for a, low, high in tests):
            reached += tree.keys[tree.key_start[node] : tree.key_start[node + 1]].tolist()
            node += 1
        else:
            node = int(tree.end[node])
    assert {key for key, box in held.items() if overlap(box, row)} <= set(reached)


def run_history(seed: int, build: Callable[[Boxes], Any], steps: int) -> None:
    history = History(seed, build)
    history.compare()
    for step in range(steps):
        # long runs mostly of one kind let the tree grow and shrink by levels
        likely, unlikely = history.insert, history.delete
        if step * 5 // steps % 2:
            likely, unlikely = unlikely, likely
        changes = [*[likely] * 12, *[unlikely] * 4, history.load]
        changes[history.random.integers(0, len(changes))]()
        history.compare()
    for key in list(history.held):
        history.structure.delete(key)
    history.held = {}
    history.compare()


def refuse_or_survive(seed: int, build: Callable[[Boxes], Any]) -> bool:
    """Damages one number of a saved structure; True where it is refused, else nothing done to it may fail."""
    history = History(seed, build)
    arrays = {name: array.copy() for name, array in history.structure.arrays.items()}
    name = history.random.choice([name for name, array in arrays.items() if array.size])
    flat = arrays[name].reshape(-1)
    at = history.random.integers(0, len(flat))
    damage = history.random.choice([-(2**31), -7, -1, 1, 2, 10**6])
    flat[at : at + 1] = (flat[at : at + 1].astype(np.int64) + damage).astype(flat.dtype)
    try:
        damaged = type(history.structure).load(arrays, history.sizes)
    except InvalidArraysError:
        return True
    damaged.search_rows(history.codes(20))
    damaged.tree()
    for key in range(10**9, 10**9 + 30):
        damaged.insert(key, *arguments(history.box()))
    for key in range(10**9, 10**9 + 30):
        damaged.delete(key)
    damaged.check()
    return False


def misshapen(arrays: dict[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
    """Each array left out, of another type, of another number of dimensions, too short, and too long by one row."""
    wrong = []
    for name, array in arrays.items():
        wrong.append({key: value for key, value in arrays.items() if key != name})
        others = [array.astype(np.int16), array[None], array[:-1], np.concatenate([array, array[-1:]])]
        wrong += [{**arrays, name: other} for other in others]
    return wrong
