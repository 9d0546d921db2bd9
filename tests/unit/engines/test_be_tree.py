"""The BE-Tree finds what brute force finds, keeps the paper's invariants through every update, and reproduces the
paper's worked cases."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from rules_index.engines.be_tree.intervals import interval
from rules_index.engines.be_tree.nodes import capacity_of
from rules_index.engines.be_tree.structure import BETree, Events, max_cap_for
from rules_index.index.boxes import Boxes, Structure, Tree
from rules_index.index.conjunction_arrays import InvalidArraysError
from tests.cases import cases

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


def shape(tree: BETree) -> dict[tuple[tuple[int, int, int], ...], set[str]]:
    """The key of each l-node -> its boxes, as S1, S2, ..."""
    return {node.key: {f"S{box + 1}" for box in node.boxes} for node in tree.l_nodes()}


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


def test_it_is_a_structure() -> None:
    structure: type[Structure] = BETree
    assert structure is BETree


def test_an_absent_attribute_is_a_miss() -> None:
    """Section 1: classics, era in (1920s, 1940s), price between 20 and 40, ranking < 5, format not in (paperback)."""
    genre, title, author, era, price, ranking, medium = range(7)
    sizes = [5, 9, 9, 10, 101, 11, 4]
    classics, hardcover = 1, 2
    shopper = {genre: (classics, classics), era: (2, 4), price: (20, 40), ranking: (0, 4), medium: (0, 3)}
    item = {genre: classics, title: 7, author: 3, era: 2, price: 26, ranking: 2, medium: hardcover}
    tree = BETree.build(flat([shopper], sizes))
    event = {attribute: [(code, code)] for attribute, code in item.items()}
    assert tree.search_event(event_arrays(event))[0].tolist() == [0]
    del event[medium]
    assert tree.search_event(event_arrays(event))[0].tolist() == []
    dear = {**event, medium: [(hardcover, hardcover)], price: [(41, 90)]}
    assert tree.search_event(event_arrays(dear))[0].tolist() == []
    offers = {**dear, price: [(3, 19), (41, 90)], era: [(0, 1), (3, 3)]}
    assert tree.search_event(event_arrays(offers))[0].tolist() == [], "a price between the two that are asked"
    offers[price] = [(3, 19), (40, 90)]
    assert tree.search_event(event_arrays(offers))[0].tolist() == [0]


@pytest.mark.parametrize(
    ("operator", "values", "expected"),
    [
        ("<", [4], (1, 3)),
        ("<=", [4], (1, 4)),
        ("=", [4], (4, 4)),
        ("<>", [4], (1, 10)),
        (">", [4], (5, 10)),
        (">=", [4], (4, 10)),
        ("IN", [5, 2, 9], (2, 9)),
        ("NOT IN", [2, 5], (1, 10)),
        ("BETWEEN", [3, 12], (3, 10)),
    ],
)
def test_predicates_become_intervals(operator: str, values: list[int], expected: tuple[int, int]) -> None:
    assert interval(operator, values, 1, 10) == expected


@pytest.mark.parametrize(
    ("operator", "values"), [("<", [1]), (">", [10]), ("BETWEEN", [5, 4]), ("=", [11]), ("~", [1])]
)
def test_predicates_without_an_interval_are_refused(operator: str, values: list[int]) -> None:
    with pytest.raises(ValueError, match=r"holds for no value|is not one of"):
        interval(operator, values, 1, 10)


FINAL_BELOW_A = {
    ((A, 0, 15),): {"S4"},
    ((A, 0, 15), (B, 0, 15)): {"S1", "S8", "S9"},
    ((A, 0, 7),): {"S7"},
    ((A, 8, 15),): set(),
}


def test_the_insertion_story() -> None:
    tree = BETree.build(flat([], STORY_SIZES), max_cap=3, min_size=2)
    top_a, top_d = ((A, 0, 15),), ((D, 0, 15),)
    after = {
        "S3": {(): {"S1", "S2", "S3"}},
        "S4": {(): {"S2", "S3"}, top_a: {"S1", "S4"}},
        "S5": {(): {"S2", "S3", "S5"}, top_a: {"S1", "S4"}},
        "S6": {(): {"S2"}, top_a: {"S1", "S4"}, top_d: {"S3", "S5", "S6"}},
        "S8": {
            (): {"S2"},
            top_a: {"S1", "S4", "S8"},
            ((A, 0, 7),): {"S7"},
            ((A, 8, 15),): set(),
            top_d: {"S3", "S5", "S6"},
        },
        "S9": {(): {"S2"}, **FINAL_BELOW_A, top_d: {"S3", "S5", "S6"}},
    }
    for key, box in enumerate(STORY):
        insert(tree, key, box)
        tree.check()
        name = f"S{key + 1}"
        if name in after:
            assert shape(tree) == after[name], name


def test_without_an_attribute_in_min_size_expressions_an_l_node_grows() -> None:
    tree = grown(STORY[:6], STORY_SIZES, max_cap=3, min_size=3)
    assert shape(tree) == {(): {"S1", "S2", "S3", "S4", "S5", "S6"}}
    insert(tree, 6, STORY[6])
    assert shape(tree) == {(): {"S2", "S3", "S5", "S6"}, ((A, 0, 15),): {"S1", "S4", "S7"}}
    for key in (7, 8):
        insert(tree, key, STORY[key])
    assert shape(tree) == {(): {"S2", "S3", "S5", "S6"}, **FINAL_BELOW_A}
    tree.check()


@pytest.mark.parametrize(
    ("event", "expected", "c_nodes", "expressions"),
    [
        ({A: [(6, 6)], B: [(4, 4)], C: [(3, 3)], D: [(5, 5)]}, [2, 3, 4, 6, 9], 5, 9),
        ({A: [(3, 3)]}, [7], 3, 3),
        ({D: [(7, 7)]}, [5], 2, 4),
        ({A: [(8, 11)], B: [(1, 1)]}, [1, 4], 4, 5),
        ({A: [(0, 7)]}, [4, 7], 3, 3),
        ({A: [(12, 12)], B: [(2, 2)], D: [(6, 6)]}, [6, 8], 5, 8),
        ({B: [(1, 1)]}, [], 1, 1),
        ({}, [], 1, 1),
    ],
)
def test_what_a_search_costs(event: Event, expected: list[int], c_nodes: int, expressions: int) -> None:
    tree = grown(STORY, STORY_SIZES, max_cap=3, min_size=2)
    keys, cost = tree.search_event(event_arrays(event))
    assert (keys + 1).tolist() == expected
    assert cost["c_nodes_visited"] == c_nodes
    assert cost["expressions_checked"] == expressions
    assert cost["matches"] == len(expected)


def test_predicates_are_evaluated_until_one_fails_but_subsumed_ones_never() -> None:
    tree = grown(STORY, STORY_SIZES, max_cap=3, min_size=2)
    # S2 fails at c; S4 and S7 at a: 5..9 and 3 are covered by their buckets, not subsumed.
    assert tree.search_event(event_arrays({A: [(2, 2)]}))[1]["predicates_evaluated"] == 3
    whole = grown([{A: (0, 15), B: (0, 7)}, {A: (0, 15), B: (8, 15)}], STORY_SIZES, max_cap=1, min_size=2)
    assert shape(whole)[((A, 0, 15), (B, 0, 7))] == {"S1"}
    found, cost = whole.search_event(event_arrays({A: [(9, 9)], B: [(1, 1)]}))
    assert found.tolist() == [0] and cost["predicates_evaluated"] == 0


def test_capacity() -> None:
    assert [capacity_of(size, 3) for size in (0, 3, 4, 7)] == [3, 3, 6, 9]
    assert [max_cap_for(share) for share in (0.0001, 0.01, 0.09, 0.1, 0.5)] == [5, 20, 20, 160, 160]


def test_buckets_are_halved_at_their_middle() -> None:
    tree = grown([{A: (code, code)} for code in (8, 9, 11, 12, 15)], STORY_SIZES, max_cap=2, min_size=2)
    buckets = [key[0][1:] for key in shape(tree) if key]
    assert buckets == [(0, 15), (0, 7), (8, 15), (8, 11), (8, 9), (10, 11), (12, 15)]
    odd = grown([{A: (code, code)} for code in range(5)], [5], max_cap=1, min_size=1)
    assert [key[0][1:] for key in shape(odd) if key] == [
        (0, 4), (0, 2), (0, 1), (0, 0), (1, 1), (2, 2), (3, 4), (3, 3), (4, 4),
    ]  # fmt: skip


def test_rank_of_an_l_node() -> None:
    sizes = [8, 4, 4, 8]
    boxes: list[Box] = [{A: (3, 3), B: (1, 1)}, {A: (0, 7), C: (2, 2)}, {D: (5, 5)}]
    tree = grown(boxes, sizes, max_cap=2, min_size=2, rank_window=2.0)
    below_a = ((A, 0, 7),)
    node = next(node for node in tree.l_nodes() if node.key == below_a)
    assert (node.boxes, node.covered, node.subsumed, node.gain, node.rank) == ((0, 1), 1, 1, 2, 2)
    discards = {(3, 1, 0): 1, (3, 1, 2): 0, (3, 0, 0): 2, (3, 0, 2): 1}
    for a, b, c in discards:
        tree.search(np.array([a, b, c, 0], np.int32), adapt=True)
    node = next(node for node in tree.l_nodes() if node.key == below_a)
    assert (node.loss, node.rank) == (1, 1)
    tree.check()


def test_searches_that_do_not_adapt_leave_no_trace() -> None:
    tree = grown(STORY, STORY_SIZES, max_cap=3, min_size=2)
    before = tree.arrays
    tree.search(np.zeros(4, np.int32))
    assert all(np.array_equal(before[name], array) for name, array in tree.arrays.items())
    assert len(before["windows"]) == 0


def test_underflow_inserts_again_and_removes_upwards() -> None:
    tree = grown(STORY, STORY_SIZES, max_cap=3, min_size=2)
    tree.delete(8)
    tree.check()
    assert shape(tree)[((A, 0, 15), (B, 0, 15))] == {"S1", "S8"}
    tree.delete(7)
    tree.check()
    # One is left below b: back to the bucket above, whose halves then fit into it.
    assert shape(tree) == {(): {"S2"}, ((A, 0, 15),): {"S1", "S4", "S7"}, ((D, 0, 15),): {"S3", "S5", "S6"}}
    for key in (0, 3):
        tree.delete(key)
        tree.check()
    assert shape(tree) == {(): {"S2", "S7"}, ((D, 0, 15),): {"S3", "S5", "S6"}}
    for key in (4, 1, 2, 6, 5):
        tree.delete(key)
        tree.check()
    assert shape(tree) == {(): set()} and len(tree) == 0


def test_halves_are_merged_only_together() -> None:
    boxes: list[Box] = [{A: (code, code)} for code in (1, 2, 9, 10)]
    tree = grown(boxes, STORY_SIZES, max_cap=3, min_size=2)
    left, right, whole = ((A, 0, 7),), ((A, 8, 15),), ((A, 0, 15),)
    halved = {(): set(), whole: set(), left: {"S1", "S2"}, right: {"S3", "S4"}}
    assert shape(tree) == halved
    tree.delete(0)
    tree.check()
    assert shape(tree) == {(): set(), whole: {"S2", "S3", "S4"}}
    insert(tree, 0, boxes[0])
    assert shape(tree) == halved


def test_halves_stay_below_a_bucket_that_is_partitioned() -> None:
    tree = grown(STORY, STORY_SIZES, max_cap=3, min_size=2)
    tree.delete(6)
    tree.check()
    assert shape(tree)[((A, 0, 7),)] == set() and shape(tree)[((A, 8, 15),)] == set()
    insert(tree, 6, {A: (1, 2)})
    assert shape(tree)[((A, 0, 7),)] == {"S7"}


def test_the_rank_of_a_new_attribute() -> None:
    """The optimistic rank is popularity; a histogram prefers the less popular attribute that tells more apart."""
    boxes: Sequence[Box] = [*({A: (0, 15), B: (code, code)} for code in (1, 5, 9)), {A: (0, 15)}]
    optimistic = grown(boxes, STORY_SIZES, max_cap=3, min_size=2)
    assert {key[0][0] for key in shape(optimistic) if key} == {A}
    estimated = grown(boxes, STORY_SIZES, max_cap=3, min_size=2, histogram=True)
    assert {key[0][0] for key in shape(estimated) if key} == {B}, "4 - 4 on a, 3 - 3 / 16 on b"


def test_a_node_that_discards_more_than_it_covers_is_recycled() -> None:
    """Partitioned on a while that was the most popular attribute; b, which came later, tells the same boxes apart."""
    boxes: list[Box] = [{A: (0, 15), B: (code, code)} for code in range(3)]
    boxes += [{A: (0, 15), C: (1, 1)}, {A: (0, 15), C: (2, 2)}]
    boxes += [{B: (code, code), D: (1, 1)} for code in range(3, 14)]
    tree = grown(boxes, STORY_SIZES, max_cap=4, min_size=2)
    below_a = [node for node in tree.l_nodes() if node.key[:1] == ((A, 0, 15),)]
    assert {box for node in below_a for box in node.boxes} == {0, 1, 2, 3, 4}
    misses = np.array([7, 15, 15, 15], np.int32)
    for _ in range(12):
        assert tree.search(misses, adapt=True)[0].tolist() == []
        tree.check()
    below_b = [node for node in tree.l_nodes() if node.key and node.key[0][0] == B]
    assert {0, 1, 2} <= {box for node in below_b for box in node.boxes}
    for codes in ([7, 1, 15, 15], [7, 15, 2, 15], [0, 5, 0, 1]):
        row = np.array(codes, np.int32)
        assert tree.search(row)[0].tolist() == matches(dict(enumerate(boxes)), row_event(row))


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


@pytest.mark.parametrize("block", range(4))
def test_every_update_keeps_the_invariants_and_every_search_is_exact(block: int) -> None:
    for seed in range(100 * block, 100 * block + cases(100)):
        sequence = Updates(seed)
        random = sequence.draw.random
        steps: list[Callable[[], None]] = [
            sequence.insert, sequence.insert, sequence.insert, sequence.delete, sequence.search, sequence.search,
            sequence.walk, sequence.load,
        ]  # fmt: skip
        for choice in random.choice(len(steps), 14, p=[0.15, 0.15, 0.15, 0.14, 0.14, 0.14, 0.07, 0.06]):
            steps[choice]()
            sequence.tree.check()
            assert len(sequence.tree) == len(sequence.boxes)
        for key in random.permutation(list(sequence.boxes)).tolist():
            sequence.tree.delete(key)
        sequence.tree.check()
        assert shape(sequence.tree) == {(): set()}


@pytest.mark.slow
def test_a_loaded_tree_goes_on_as_the_stored_one_would() -> None:
    for seed in range(40):
        updates = Updates(seed)
        for _ in range(6):
            updates.insert()
            updates.search()
            updates.delete()
        stored, loaded = updates.tree, BETree.load(updates.tree.arrays, updates.draw.sizes)
        for key in range(500, 540):
            box = updates.draw.box()
            row = np.array([updates.draw.code(a) for a in range(len(updates.draw.sizes))], np.int32)
            answers = []
            for tree in (stored, loaded):
                insert(tree, key, box)
                answers.append(tree.search(row, adapt=True))
            assert np.array_equal(answers[0][0], answers[1][0]) and answers[0][1] == answers[1][1]
        for name, array in stored.arrays.items():
            assert np.array_equal(array, loaded.arrays[name]), name


@pytest.mark.slow
def test_damaged_arrays_are_refused_or_harmless() -> None:
    refused = 0
    for seed in range(600):
        updates = Updates(seed)
        updates.insert()
        updates.search()
        random, sizes = updates.draw.random, updates.draw.sizes
        arrays = {name: array.copy() for name, array in updates.tree.arrays.items()}
        name = random.choice([name for name, array in arrays.items() if array.size])
        values = arrays[name].reshape(-1)
        values[random.integers(len(values))] = random.choice([-1, -7, 0, 1, 2, 3, 10**6, 2**31 - 1])
        try:
            tree = BETree.load(arrays, sizes)
        except InvalidArraysError:
            refused += 1
            continue
        for _ in range(4):
            row = np.array([updates.draw.code(a) for a in range(len(sizes))], np.int32)
            tree.search(row, adapt=True)
        for key in range(1000, 1010):
            insert(tree, key, updates.draw.box())
        for key in np.flatnonzero(tree.arrays["position"] >= 0).tolist():
            tree.delete(key)
        assert len(tree) == 0
    assert refused > 250


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("c_nodes", lambda a: a[:0]),
        ("c_nodes", lambda a: a.astype(np.int64)),
        ("c_nodes", lambda a: a[:, :4]),
        ("p_nodes", lambda a: a[::-1]),
        ("start", lambda a: a[1:]),
        ("predicates", lambda a: a[:-1]),
        ("position", lambda a: a[:-1]),
        ("position", lambda a: np.append(a, a[:1])),
        ("clocks", lambda a: a - 1),
        ("parameters", lambda a: a[:4]),
        ("parameters", lambda a: a * np.nan),
    ],
)
def test_arrays_of_a_wrong_shape_are_refused(name: str, change: Callable[[np.ndarray], np.ndarray]) -> None:
    arrays = grown(STORY, STORY_SIZES, max_cap=3, min_size=2).arrays
    sizes = np.array(STORY_SIZES, np.int32)
    BETree.load(arrays, sizes).check()
    with pytest.raises(InvalidArraysError):
        BETree.load({**arrays, name: change(arrays[name])}, sizes)
    with pytest.raises(InvalidArraysError):
        BETree.load({key: array for key, array in arrays.items() if key != name}, sizes)


@pytest.mark.parametrize(
    ("name", "at", "value", "wrong"),
    [
        ("c_nodes", (2, 3), 6, "halves that leave out a code"),
        ("c_nodes", (5, 3), 14, "a first bucket that is not the whole domain"),
        ("c_nodes", (4, 1), 4, "a bucket that is half of itself"),
        ("c_nodes", (3, 1), -1, "one half alone"),
        ("p_nodes", (2, 1), 2, "a leaf bucket that is partitioned"),
        ("p_nodes", (2, 0), A, "an attribute twice on a path"),
        ("p_nodes", (1, 0), A, "two p-nodes of one attribute"),
        ("predicates", (1, 2), 6, "an expression that one half encloses"),
        ("predicates", (2, slice(1, 3)), 9, "an expression outside of its bucket"),
        ("predicates", (4, 0), A, "an attribute twice in an expression"),
        ("predicates", (0, 0), A, "an expression that its c-node is partitioned for"),
        ("predicates", (9, 0), C, "an expression without an attribute of its path"),
        ("position", 0, 0, "two keys of one expression"),
        ("parameters", 0, 2, "a leaf bucket that overflows and can be halved"),
        ("parameters", 1, 4, "a p-node of fewer than min_size expressions"),
        ("parameters", 0, 2.5, "max_cap that is no integer"),
    ],
)
def test_arrays_against_the_rules_are_refused(name: str, at: Any, value: float, wrong: str) -> None:
    sizes = np.array(STORY_SIZES, np.int32)
    arrays = {key: array.copy() for key, array in grown(STORY, STORY_SIZES, max_cap=3, min_size=2).arrays.items()}
    assert arrays["c_nodes"][:, :4].tolist() == [
        [-1, -1, 0, 0], [0, -1, 0, 15], [0, 1, 0, 7], [0, 1, 8, 15], [2, -1, 0, 15], [1, -1, 0, 15],
    ]  # fmt: skip
    arrays[name][at] = value
    with pytest.raises(InvalidArraysError):
        BETree.load(arrays, sizes)
        pytest.fail(wrong)


@pytest.mark.parametrize("batch", [True, False])
def test_many_boxes(batch: bool) -> None:
    random = np.random.default_rng(7)
    boxes, attributes, named = 30_000, 20, 5
    of = np.sort(np.argsort(random.random((boxes, attributes)), axis=1)[:, :named], axis=1).astype(np.int32)
    low = random.integers(0, 100, (boxes, named)).astype(np.int32)
    high = np.minimum(low + random.choice([0, 0, 3, 30], (boxes, named)), 99).astype(np.int32)
    start = np.arange(boxes + 1) * named
    sizes = np.full(attributes, 100, np.int32)
    tree = BETree.build(Boxes(sizes, start, of.reshape(-1), low.reshape(-1), high.reshape(-1)), batch=batch)
    tree.check()
    codes = random.integers(0, 100, (attributes, 60)).astype(np.int32)
    offsets, keys, cost = tree.search_rows(codes)
    for row in range(60):
        expected = np.flatnonzero(((low <= codes[of, row]) & (codes[of, row] <= high)).all(axis=1))
        assert np.array_equal(np.sort(keys[offsets[row] : offsets[row + 1]]), expected)
    assert 0 < cost["matches"] == len(keys)
    assert cost["expressions_checked"] < 60 * boxes / 10, "most of the boxes are never looked at"
    with ThreadPoolExecutor(4) as pool:
        for again in pool.map(tree.search_rows, [codes] * 8):
            assert np.array_equal(again[0], offsets) and np.array_equal(again[1], keys) and again[2] == cost


def test_boxes_that_no_attribute_tells_apart_share_an_l_node() -> None:
    """A hundred thousand alike, and as many that name nothing: no overflow looks at them all again."""
    count = 100_000
    attributes = np.zeros(count, np.int32)
    alike = Boxes(
        np.array([9], np.int32), np.minimum(np.arange(2 * count + 1), count), attributes, attributes, attributes
    )
    for batch in (True, False):
        tree = BETree.build(alike, batch=batch)
        found, cost = tree.search(np.array([0], np.int32))
        assert len(found) == 2 * count and cost["predicates_evaluated"] == 0
        assert {len(node.boxes) for node in tree.l_nodes()} == {0, count}
        assert len(tree.search(np.array([1], np.int32))[0]) == count


def test_the_height_does_not_grow_with_the_boxes() -> None:
    heights = []
    for count in (200, 20_000):
        random = np.random.default_rng(3)
        boxes: list[Box] = [
            {a: (int(c), int(c)) for a, c in enumerate(random.integers(0, 16, 3))} for _ in range(count)
        ]
        tree = BETree.build(flat(boxes, [16, 16, 16]), max_cap=1, min_size=1)
        tree.check()
        arrays = tree.arrays
        depth = np.ones(len(arrays["c_nodes"]), int)
        for number, (above, up) in enumerate(arrays["c_nodes"][1:, :2].tolist(), 1):
            depth[number] = 1 + depth[up if up >= 0 else arrays["p_nodes"][above, 1]]
        heights.append(depth.max())
    assert heights[0] <= heights[1] <= 3 * (1 + 4) + 1


def test_what_is_not_a_box_or_a_key_is_refused() -> None:
    tree = grown(STORY, STORY_SIZES)
    before = tree.arrays
    for key, box in [
        (0, {A: (1, 1)}),
        (-1, {A: (1, 1)}),
        (2**31, {A: (1, 1)}),
        (9, {A: (2, 1)}),
        (9, {A: (0, 16)}),
        (9, {A: (-1, 3)}),
        (9, {4: (0, 0)}),
    ]:
        with pytest.raises(ValueError, match=r"key|box"):
            insert(tree, key, box)
    with pytest.raises(ValueError, match="box"):
        tree.insert(9, np.array([B, A], np.int32), np.zeros(2, np.int32), np.zeros(2, np.int32))
    for key in (9, -1, 2**40):
        with pytest.raises(KeyError):
            tree.delete(key)
    with pytest.raises(ValueError, match="codes"):
        tree.search(np.zeros(3, np.int32))
    with pytest.raises(ValueError, match="attributes"):
        tree.search_event(event_arrays({4: [(0, 0)]}))
    with pytest.raises(ValueError, match="at most once"):
        tree.search_event((np.array([A, A], np.int32), np.arange(3), np.zeros((2, 2), np.int32)))
    for wrong in ({"max_cap": 0}, {"min_size": -1}, {"theta": float("nan")}, {"rank_window": -1.0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            BETree.build(flat(STORY, STORY_SIZES), **wrong)
    with pytest.raises(ValueError, match="predicates"):
        BETree.build(flat([{A: (0, 16)}], STORY_SIZES))
    assert all(np.array_equal(before[name], array) for name, array in tree.arrays.items())
