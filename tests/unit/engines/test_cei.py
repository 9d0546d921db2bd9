"""Boxes found by CEI, LCI and UI, under every change, against brute force."""

from __future__ import annotations

import math
from typing import get_args

import numpy as np
import pytest

from rules_index.engines.cei.constructs import Kind
from rules_index.engines.cei.structure import Access, Cei
from rules_index.index.array_checks import InvalidArraysError
from rules_index.index.boxes import Boxes, Structure
from tests.cases import cases, quick_first

KINDS: tuple[Kind, ...] = get_args(Kind)
ACCESSES: tuple[Access, ...] = get_args(Access)
Box = tuple[list[int], list[int], list[int]]


class Play:
    """Boxes that come and go, kept in a dictionary beside the structure."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.sizes = self.random.choice([2, 3, 7, 64, 100, 5000], self.random.integers(1, 9)).astype(np.int32)
        self.live: dict[int, Box] = {}

    def box(self) -> Box:
        number = int(self.random.integers(0, min(6, len(self.sizes)) + 1))
        attributes = sorted(self.random.choice(len(self.sizes), number, replace=False).tolist())
        low, high = [], []
        for size in self.sizes[attributes].tolist():
            first, second = sorted(self.random.integers(0, size, 2).tolist())
            ends = [(first, second), (first, first), (0, size - 1), (size - 1, size - 1), (first, size - 1)]
            begin, end = ends[self.random.choice(5, p=[0.4, 0.25, 0.1, 0.15, 0.1])]
            low.append(begin)
            high.append(end)
        return attributes, low, high

    def boxes(self, number: int) -> Boxes:
        """New boxes under the keys 0, 1, .."""
        self.live = {key: self.box() for key in range(number)}
        parts = [np.concatenate([[], *(box[i] for box in self.live.values())]).astype(np.int32) for i in range(3)]
        start = np.cumsum([0, *(len(box[0]) for box in self.live.values())])
        return Boxes(self.sizes, start, *parts)

    def rows(self, number: int) -> np.ndarray:
        """Codes [attributes, rows], each attribute's last code often among them."""
        uniform = self.random.integers(0, self.sizes[:, None], (len(self.sizes), number))
        at_end = self.random.random(uniform.shape) < 0.2
        return np.where(at_end, self.sizes[:, None] - 1, uniform).astype(np.int32)

    def holding(self, row: np.ndarray) -> list[int]:
        return sorted(
            key
            for key, box in self.live.items()
            if all(low <= row[a] <= high for a, low, high in zip(*box, strict=True))
        )


def assert_agrees(play: Play, cei: Cei) -> None:
    cei.check()
    rows = play.rows(3)
    offsets, keys, _ = cei.search_rows(rows)
    for i in range(rows.shape[1]):
        assert keys[offsets[i] : offsets[i + 1]].tolist() == play.holding(rows[:, i])


@pytest.mark.parametrize("access", ACCESSES)
@pytest.mark.parametrize("kind", KINDS)
def test_boxes_agree_with_brute_force_under_every_change(kind: Kind, access: Access) -> None:
    for seed in range(cases(24)):
        play = Play(seed)
        boxes = play.boxes(int(play.random.choice([0, 1, 40])))
        segment_length = int(play.random.choice([0, 1, 8, 4096]))
        cei = Cei.build(boxes, kind=kind, access=access, segment_length=segment_length)
        assert_agrees(play, cei)
        for step in range(30):
            deed = play.random.choice(["insert", "delete", "load"], p=[0.53, 0.38, 0.09])
            if deed == "insert":
                play.live[1000 + step] = attributes, low, high = play.box()
                cei.insert(1000 + step, np.array(attributes, np.int32), np.array(low), np.array(high))
            elif deed == "delete" and play.live:
                key = int(play.random.choice(list(play.live)))
                del play.live[key]
                cei.delete(key)
            elif deed == "load":
                cei = Cei.load(cei.arrays, play.sizes)
            assert_agrees(play, cei)
        for key in list(play.live):
            cei.delete(key)
            del play.live[key]
        assert_agrees(play, cei)
        assert len(cei.tree().keys) == 0


@pytest.mark.slow
def test_many_changes_leave_no_litter_behind() -> None:
    play = Play(3)
    cei = Cei.build(play.boxes(300), access="every")
    first = sum(array.nbytes for array in cei.arrays.values())
    for _ in range(60):
        for key, (attributes, low, high) in list(play.live.items())[:100]:
            cei.delete(key)
            cei.insert(key, np.array(attributes, np.int32), np.array(low), np.array(high))
    assert_agrees(play, cei)
    assert sum(array.nbytes for array in cei.arrays.values()) == first
    assert len(cei._boxes.view.terms) < 40_000 and len(cei._lists.pool) < 40_000


@pytest.mark.parametrize("access", ACCESSES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_tree_leads_every_row_to_each_of_its_boxes_once(kind: Kind, access: Access) -> None:
    for seed in range(6):
        play = Play(seed)
        structure: Structure = Cei.build(play.boxes(60), kind=kind, access=access)
        tree = structure.tree()
        nodes = len(tree.end)
        assert tree.end.tolist() == list(range(1, nodes + 1))
        assert [len(tree.test_start), len(tree.key_start)] == [nodes + 1, nodes + 1]
        for row in play.rows(8).T:
            reached = []
            for node in range(nodes):
                tests = tree.tests[tree.test_start[node] : tree.test_start[node + 1]]
                if all(low <= row[attribute] <= high for attribute, low, high in tests):
                    reached += tree.keys[tree.key_start[node] : tree.key_start[node + 1]].tolist()
            assert len(set(reached)) == len(reached) and set(play.holding(row)) <= set(reached)


def test_a_search_counts_what_it_read() -> None:
    play = Play(11)
    boxes = play.boxes(80)
    row = play.rows(1)[:, 0]
    satisfied = sum(
        low <= row[a] <= high for box in play.live.values() for a, low, high in zip(*box, strict=True)
    )  # fmt: skip
    filed = np.unique(boxes.attributes)
    every, narrowest = (Cei.build(boxes, access=access, segment_length=2) for access in ACCESSES)
    keys, costs = every.search(row)
    lists = sum(1 + min(1, math.ceil(math.log2(play.sizes[a]))) for a in filed)
    assert costs == {
        "lists_read": lists,
        "ids_read": satisfied,
        "predicates_evaluated": 0,
        "matches": len(keys),
    }
    found, costs = narrowest.search(row)
    bounded = [box for box in play.live.values() if box[0]]
    shares = [[(h - low + 1) / play.sizes[a] for a, low, h in zip(*box, strict=True)] for box in bounded]
    access = [share.index(min(share)) for share in shares]
    candidates = sum(box[1][i] <= row[box[0][i]] <= box[2][i] for box, i in zip(bounded, access, strict=True))
    assert found.tolist() == keys.tolist() and costs["ids_read"] == candidates
    assert costs["matches"] == len(keys) and costs["predicates_evaluated"] <= 5 * candidates


@pytest.mark.parametrize("access", ACCESSES)
def test_segments_follow_the_width_of_the_intervals(access: Access) -> None:
    sizes = np.array([1000, 1000, 100_000], np.int32)
    low = np.tile([0, 10, 50], 50).astype(np.int32)
    width = np.tile([16, 100, 3], 50).astype(np.int32)
    attributes = np.tile(np.arange(3), 50).astype(np.int32)
    boxes = Boxes(sizes, np.arange(151), attributes, low, low + width - 1)
    lengths = 1 << Cei.build(boxes, access=access).arrays["k"]
    # the power of two nearest to the width, and at most 64 segments a domain
    assert lengths.tolist() == [16, 128, 2048]


def test_boxes_that_are_not_sound_are_refused() -> None:
    sizes = np.array([4, 9], np.int32)
    cei = Cei.build(Boxes(sizes, np.zeros(1, np.int64), *(np.empty(0, np.int32),) * 3))
    cei.insert(5, np.array([0, 1]), np.array([0, 3]), np.array([3, 8]))
    wrong = [
        (5, [0], [0], [1]),
        (-1, [0], [0], [1]),
        (2**31, [0], [0], [1]),
        (6, [0, 0], [0, 0], [1, 1]),
        (6, [1, 0], [0, 0], [1, 1]),
        (6, [2], [0], [1]),
        (6, [0], [-1], [1]),
        (6, [0], [2], [1]),
        (6, [0], [2], [4]),
    ]
    for key, *box in wrong:
        with pytest.raises(ValueError, match=r"key|box"):
            cei.insert(key, *(np.array(part, np.int64) for part in box))
    cei.check()
    with pytest.raises(ValueError, match="box"):
        Cei.build(Boxes(sizes, np.array([0, 1]), *(np.array([x], np.int32) for x in (0, 2, 4))))
    with pytest.raises(KeyError):
        cei.delete(6)
    with pytest.raises(ValueError, match="codes"):
        cei.search(np.array([0, 9], np.int32))
    for name, value in (("kind", "tree"), ("access", "widest"), ("segment_length", 12)):
        with pytest.raises(ValueError, match=r"kind|access|power of two"):
            Cei.build(Boxes(sizes, np.zeros(1, np.int64), *(np.empty(0, np.int32),) * 3), **{name: value})


def test_a_domain_of_too_many_constructs_is_refused_in_words() -> None:
    sizes = np.array([100_000_000], np.int32)
    with pytest.raises(ValueError, match="200,000,000 constructs"):
        Cei.build(Boxes(sizes, np.zeros(1, np.int64), *(np.empty(0, np.int32),) * 3), segment_length=16)


@pytest.mark.slow
@pytest.mark.parametrize("access", quick_first(1, ACCESSES))
def test_arrays_that_contradict_each_other_are_refused_or_harmless(access: Access) -> None:
    refused = 0
    for seed in range(200):
        play = Play(seed)
        kind = KINDS[seed % 3]
        arrays = {
            name: array.copy() for name, array in Cei.build(play.boxes(30), kind=kind, access=access).arrays.items()
        }
        name = play.random.choice([name for name in arrays if arrays[name].size])
        place = play.random.integers(0, arrays[name].size)
        arrays[name].reshape(-1)[place] += play.random.choice([-1, 1, -7, 10**6, 2**31 - 1 - 10**6])
        try:
            cei = Cei.load(arrays, play.sizes)
            cei.check()
            cei.search_rows(play.rows(20))
            cei.tree()
        except InvalidArraysError:
            refused += 1
    assert refused > 150


def test_arrays_of_another_shape_are_refused() -> None:
    play = Play(4)
    arrays = Cei.build(play.boxes(30)).arrays
    for name in arrays:
        for changed in (arrays[name][:-1], arrays[name].astype(np.float64), arrays[name][None]):
            with pytest.raises(InvalidArraysError):
                Cei.load({**arrays, name: changed}, play.sizes)
        with pytest.raises(InvalidArraysError):
            Cei.load({other: array for other, array in arrays.items() if other != name}, play.sizes)
