"""The stored arrays of a BE-Tree: loaded, damaged or of wrong shapes; and boxes that are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rules_index.engines.be_tree.structure import BETree
from rules_index.index.array_checks import InvalidArraysError
from tests.unit.engines.be_trees import STORY, STORY_SIZES, A, B, C, Updates, event_arrays, flat, grown, insert


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
