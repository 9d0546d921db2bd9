"""BE-Trees that grow, shrink and are built at once, against brute force."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from rules_index.engines.be_tree.structure import BETree
from rules_index.index.boxes import Boxes
from tests.cases import cases
from tests.unit.engines.be_trees import Box, Updates, flat, l_nodes, shape


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
        assert {len(node.boxes) for node in l_nodes(tree)} == {0, count}
        assert len(tree.search(np.array([1], np.int32))[0]) == count


@pytest.mark.slow
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
