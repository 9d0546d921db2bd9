"""Boxes and events for tests of the BE-Tree, what brute force finds of them, and trees that are updated at random."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rules_index.engines.be_tree.outline import keys_of
from rules_index.engines.be_tree.store import NO_NODE
from rules_index.engines.be_tree.structure import BETree, Events
from rules_index.index.boxes import Boxes, Tree

Box = Mapping[int, tuple[int, int]]
"""Attribute -> closed interval of codes."""
Event = Mapping[int, Sequence[tuple[int, int]]]
"""Attribute -> closed intervals of codes."""
A, B, C, D = range(4)
STORY: list[Box] = [
    {A: (2, 12), B: (1, 1)},
    {C: (3, 3)},
    {D: (5, 5)},
    {A: (5, 9)},
    {D: (7, 7)},
    {D: (2, 6)},
    {A: (3, 3)},
    {A: (4, 15), B: (2, 2)},
    {A: (6, 10), B: (4, 4)},
]
"""S1 to S9 of the insertion story of section 6, over four attributes of the codes 0 to 15."""
STORY_SIZES = [16, 16, 16, 16]


def flat(boxes: Sequence[Box], sizes: Sequence[int]) -> Boxes:
    """Boxes as arrays."""
    rows = [(attribute, *box[attribute]) for box in boxes for attribute in sorted(box)]
    attributes, low, high = np.array(rows, np.int32).reshape(-1, 3).T
    start = np.cumsum([0, *(len(box) for box in boxes)], dtype=np.int64)
    return Boxes(np.array(sizes, np.int32), start, attributes, low, high)


def insert(tree: BETree, key: int, box: Box) -> None:
    of = flat([box], [])
    tree.insert(key, of.attributes, of.low, of.high)


def grown(boxes: Sequence[Box], sizes: Sequence[int], **parameters: Any) -> BETree:
    """A tree that the boxes were inserted into one by one."""
    tree = BETree.build(flat([], sizes), **parameters)
    for key, box in enumerate(boxes):
        insert(tree, key, box)
        tree.check()
    return tree


def event_arrays(event: Event) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    intervals = [i for of in event.values() for i in of]
    start = np.cumsum([0, *(len(of) for of in event.values())])
    return np.array(list(event), np.int32), start, np.array(intervals, np.int32).reshape(-1, 2)


def events_of(events: Sequence[Event]) -> Events:
    arrays = [event_arrays(event) for event in events]
    lengths = [len(of) for event in events for of in event.values()]
    return Events(
        np.cumsum([0, *(len(event) for event in events)]),
        np.concatenate([np.empty(0, np.int32), *(attributes for attributes, _, _ in arrays)]),
        np.cumsum([0, *lengths]),
        np.concatenate([np.empty((0, 2), np.int32), *(intervals for _, _, intervals in arrays)]),
    )


def matches(boxes: Mapping[int, Box], event: Event) -> list[int]:
    """Section 3: for every predicate the event has one on the same attribute, and both share a value."""
    return [
        key
        for key, box in sorted(boxes.items())
        if all(any(low <= e and s <= high for s, e in event.get(a, ())) for a, (low, high) in box.items())
    ]


def row_event(codes: np.ndarray) -> Event:
    """A row names every attribute, with one code."""
    return {attribute: [(int(code), int(code))] for attribute, code in enumerate(codes)}


@dataclass(frozen=True)
class LNode:
    """An l-node.

    key       section 4.1: the conjunction of the buckets (attribute, low, high) on its path, the root's first
    boxes     the keys of its boxes, ascending
    covered   the number of their predicates on attributes of the path that are not subsumed
    subsumed  the number of their predicates that equal a bucket of the path
    loss      Loss over the last whole window; 0 before
    """

    key: tuple[tuple[int, int, int], ...]
    boxes: tuple[int, ...]
    covered: int
    subsumed: int
    loss: float

    @property
    def gain(self) -> int:
        """Gain of section 5; covered and subsumed predicates count alike."""
        return self.covered + self.subsumed

    @property
    def rank(self) -> float:
        """Rank of section 5."""
        return self.gain - self.loss


def l_nodes(tree: BETree) -> list[LNode]:
    """The l-nodes of a tree, in preorder."""
    arrays = tree.arrays
    p_nodes = arrays["p_nodes"].tolist()
    predicates = arrays["predicates"].tolist()
    start = arrays["start"].tolist()
    key_of = keys_of(arrays["position"], len(start) - 1).tolist()
    losses = arrays["losses"].tolist() or [0.0] * len(arrays["c_nodes"])
    keys: list[tuple[tuple[int, int, int], ...]] = []
    found = []
    box = 0
    for number, (above, _, low, high, count) in enumerate(arrays["c_nodes"].tolist()):
        if above == NO_NODE:
            keys.append(())
        else:
            attribute, c_node = p_nodes[above]
            keys.append((*keys[c_node], (attribute, low, high)))
        path = {attribute: (low, high) for attribute, low, high in keys[number]}
        named = [p for p in predicates[start[box] : start[box + count]] if p[0] in path]
        subsumed = sum(path[attribute] == (low, high) for attribute, low, high in named)
        boxes = tuple(sorted(key_of[box : box + count]))
        found.append(LNode(keys[number], boxes, len(named) - subsumed, subsumed, losses[number]))
        box += count
    return found


def shape(tree: BETree) -> dict[tuple[tuple[int, int, int], ...], set[str]]:
    """The key of each l-node -> its boxes, as S1, S2, ..."""
    return {node.key: {f"S{box + 1}" for box in node.boxes} for node in l_nodes(tree)}


def walk(tree: Tree, codes: np.ndarray) -> list[int]:
    """The keys at the nodes of a batch tree whose tests, and those above, a row passes: what may hold the row."""
    found: list[int] = []
    node = 0
    while node < len(tree.end):
        tests = tree.tests[tree.test_start[node] : tree.test_start[node + 1]]
        if all(low <= codes[attribute] <= high for attribute, low, high in tests):
            found += tree.keys[tree.key_start[node] : tree.key_start[node + 1]].tolist()
            node += 1
        else:
            node = int(tree.end[node])
    return found


class Draw:
    """Random boxes and events over one to eight attributes, some of many codes, some skewed."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.sizes = self.random.choice([2, 3, 4, 7, 16, 100, 5000], self.random.integers(1, 9)).astype(np.int32)
        self.skew = self.random.random() < 0.4

    def code(self, attribute: int) -> int:
        size = int(self.sizes[attribute])
        if self.random.random() < 0.1:
            return size - 1
        return min(int(self.random.zipf(1.5)) - 1, size - 1) if self.skew else int(self.random.integers(size))

    def interval(self, attribute: int) -> tuple[int, int]:
        kind = self.random.random()
        if kind < 0.1:
            return 0, int(self.sizes[attribute]) - 1
        ends = self.code(attribute), self.code(attribute)
        return (ends[0], ends[0]) if kind < 0.5 else (min(ends), max(ends))

    def attributes(self, most: int) -> list[int]:
        count = self.random.integers(0, min(len(self.sizes), most) + 1)
        return sorted(self.random.choice(len(self.sizes), count, replace=False).tolist())

    def box(self) -> Box:
        return {attribute: self.interval(attribute) for attribute in self.attributes(6)}

    def event(self) -> Event:
        if self.random.random() < 0.5:
            return {a: [(code, code)] for a in range(len(self.sizes)) for code in [self.code(a)]}
        return {a: [self.interval(a) for _ in range(self.random.integers(0, 4))] for a in self.attributes(8)}


class Updates:
    """A tree beside the plain dictionary of its boxes, updated alike."""

    def __init__(self, seed: int) -> None:
        self.draw = Draw(seed)
        random = self.draw.random
        self.boxes = {key: self.draw.box() for key in range(random.choice([0, 5, 40]))}
        self.tree = BETree.build(
            flat(list(self.boxes.values()), self.draw.sizes.tolist()),
            max_cap=int(random.choice([1, 2, 3, 5])),
            min_size=int(random.choice([0, 1, 2, 3, 6])),
            theta=float(random.choice([0.0, 0.0, 1.5])),
            rank_window=float(random.choice([0.1, 1.0])),
            histogram=bool(random.random() < 0.3),
            batch=bool(random.random() < 0.5),
        )
        self.tree.check()

    def insert(self) -> None:
        for _ in range(self.draw.random.choice([1, 1, 4, 12])):
            key = int(self.draw.random.integers(0, 10 + 2 * len(self.boxes)))
            box = dict(self.draw.box())
            if self.boxes and self.draw.random.random() < 0.2:
                box = dict(next(iter(self.boxes.values())))
            if key in self.boxes:
                self.tree.delete(key)
            self.boxes[key] = box
            insert(self.tree, key, box)

    def delete(self) -> None:
        for key in self.draw.random.permutation(list(self.boxes))[: self.draw.random.choice([1, 1, 6, 30])]:
            self.tree.delete(int(key))
            del self.boxes[int(key)]

    def search(self) -> None:
        events = [self.draw.event() for _ in range(3)]
        adapt = bool(self.draw.random.random() < 0.5)
        offsets, keys, cost = self.tree.search_events(events_of(events), adapt)
        for i, event in enumerate(events):
            found = np.sort(keys[offsets[i] : offsets[i + 1]]).tolist()
            assert found == matches(self.boxes, event)
        assert cost["matches"] == len(keys) <= cost["expressions_checked"]

    def walk(self) -> None:
        codes = np.array([self.draw.code(attribute) for attribute in range(len(self.draw.sizes))], np.int32)
        candidates = walk(self.tree.tree(), codes)
        assert len(set(candidates)) == len(candidates)
        expected = matches(self.boxes, row_event(codes))
        assert matches({key: self.boxes[key] for key in candidates}, row_event(codes)) == expected
        found, cost = self.tree.search(codes)
        assert found.tolist() == expected and cost["expressions_checked"] == len(candidates)

    def load(self) -> None:
        arrays = self.tree.arrays
        self.tree = BETree.load(arrays, self.draw.sizes)
        assert all(np.array_equal(arrays[name], array) for name, array in self.tree.arrays.items())
