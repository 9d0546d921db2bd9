"""R-tree and R*-tree: figure 8, the textbook splits, and boxes under every change against brute force."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from rules_index.engines.r_tree.split import quadratic_split, r_star_split
from rules_index.engines.r_tree.structure import RTree
from rules_index.index.array_checks import InvalidArraysError
from rules_index.index.boxes import Boxes
from tests.cases import cases
from tests.unit.engines.box_trees import (
    FIGURE_8,
    Draw,
    Sides,
    arguments,
    boxes_of,
    misshapen,
    overlap,
    refuse_or_survive,
    row_box,
    run_history,
)

BUILDS: dict[str, Callable[[Boxes], RTree]] = {
    "quadratic": lambda boxes: RTree.build(boxes),
    "quadratic, small nodes": lambda boxes: RTree.build(boxes, min_entries=2, max_entries=4),
    "R*": lambda boxes: RTree.build(boxes, split="r_star"),
    "R*, small nodes, one dimension": lambda boxes: RTree.build(
        boxes, split="r_star", min_entries=2, max_entries=3, dimensions=[0]
    ),
}


@pytest.mark.parametrize("name", BUILDS)
def test_every_change_keeps_the_tree_sound_and_its_answers_right(name: str) -> None:
    for seed in range(cases(12)):
        run_history(seed, BUILDS[name], 120)


@pytest.mark.parametrize(("row", "nodes"), [((2, 9), 1), ((0.5, 4), 2), ((1, 1), 2), ((4.5, 3.5), 3)])
@pytest.mark.parametrize("split", ["quadratic", "r_star"])
def test_a_search_visits_the_nodes_of_figure_8(row: tuple[float, float], nodes: int, split: Any) -> None:
    tree = RTree.build(boxes_of([20, 20], FIGURE_8), min_entries=2, max_entries=3, split=split)
    codes = np.array([2 * value for value in row], np.int32)
    found, cost = tree.search(codes)
    assert found.tolist() == [key for key, box in enumerate(FIGURE_8) if overlap(box, row_box(codes))]
    assert cost == {"nodes": nodes, "boxes": 3 * (nodes - 1)}


def test_the_two_leaves_of_figure_8_have_tight_rectangles() -> None:
    tree = RTree.build(boxes_of([20, 20], FIGURE_8), min_entries=2, max_entries=3, dimensions=[0, 1]).tree()
    tests = [tree.tests[tree.test_start[i] : tree.test_start[i + 1]].tolist() for i in range(3)]
    assert tests == [[[0, 0, 18], [1, 0, 16]], [[0, 0, 10], [1, 0, 12]], [[0, 8, 18], [1, 0, 16]]]
    assert tree.end.tolist() == [3, 2, 3]
    assert [sorted(tree.keys[tree.key_start[i] : tree.key_start[i + 1]].tolist()) for i in range(3)] == [
        [],
        [0, 1, 2],
        [3, 4, 5],
    ]


def area(box: Sequence[Sequence[int]]) -> int:
    return int(np.prod([high - low + 1 for low, high in box]))


def margin(box: Sequence[Sequence[int]]) -> int:
    return sum(high - low + 1 for low, high in box)


def cover(boxes: Sequence[Sequence[Sequence[int]]]) -> list[tuple[int, int]]:
    return [(min(low for low, _ in sides), max(high for _, high in sides)) for sides in zip(*boxes, strict=True)]


def common(a: Sequence[Sequence[int]], b: Sequence[Sequence[int]]) -> int:
    sides = [(max(x[0], y[0]), min(x[1], y[1])) for x, y in zip(a, b, strict=True)]
    return area(sides) if all(low <= high for low, high in sides) else 0


def naive_quadratic_split(boxes: list[Any], min_entries: int) -> list[int]:
    """Guttman's PickSeeds and PickNext; the members of the first group."""
    pairs = [(i, j) for i in range(len(boxes)) for j in range(i + 1, len(boxes))]
    seeds = max(pairs, key=lambda p: area(cover([boxes[i] for i in p])) - sum(area(boxes[i]) for i in p))
    groups = [[i] for i in seeds]
    rest = [i for i in range(len(boxes)) if i not in seeds]
    while rest:
        for group in groups:
            if len(group) + len(rest) == min_entries:
                group += rest
                return sorted(groups[0])
        covers = [cover([boxes[i] for i in group]) for group in groups]
        growth = {i: [area(cover([c, boxes[i]])) - area(c) for c in covers] for i in rest}
        chosen = max(rest, key=lambda i: abs(growth[i][0] - growth[i][1]))
        order = [(growth[chosen][g], area(covers[g]), len(groups[g])) for g in (0, 1)]
        groups[0 if order[0] <= order[1] else 1].append(chosen)
        rest.remove(chosen)
    return sorted(groups[0])


def naive_r_star_split(boxes: list[Any], min_entries: int) -> list[int]:
    """ChooseSplitAxis and ChooseSplitIndex; the members of the first group."""
    n = len(boxes)

    def distributions(axis: int) -> list[tuple[list[int], list[int]]]:
        by_low = sorted(range(n), key=lambda i: (boxes[i][axis][0], boxes[i][axis][1]))
        by_high = sorted(range(n), key=lambda i: (boxes[i][axis][1], boxes[i][axis][0]))
        cuts = range(min_entries, n - min_entries + 1)
        return [(order[:k], order[k:]) for order in (by_low, by_high) for k in cuts]

    def covers(groups: tuple[list[int], list[int]]) -> list[list[tuple[int, int]]]:
        return [cover([boxes[i] for i in group]) for group in groups]

    axes = range(len(boxes[0]))
    axis = min(axes, key=lambda a: sum(margin(c) for groups in distributions(a) for c in covers(groups)))
    best = min(distributions(axis), key=lambda groups: (common(*covers(groups)), sum(map(area, covers(groups)))))
    return sorted(best[0])


@pytest.mark.parametrize(
    ("split", "naive"), [(quadratic_split, naive_quadratic_split), (r_star_split, naive_r_star_split)]
)
def test_splits_are_those_of_the_textbook(split: Callable[..., np.ndarray], naive: Callable[..., list[int]]) -> None:
    random = np.random.default_rng(1)
    for _ in range(300):
        # powers of two as sizes, so that shares are exact and ties are ties in both
        size, dimensions = int(random.choice([4, 64])), int(random.integers(1, 4))
        max_entries = int(random.integers(3, 11))
        min_entries = int(random.integers(2, (max_entries + 1) // 2 + 1))
        boxes = np.sort(random.integers(0, size, (max_entries + 1, dimensions, 2)), axis=2).astype(np.int32)
        side = split(boxes.reshape(len(boxes), -1), np.full(dimensions, 1 / size), min_entries)
        assert np.flatnonzero(side == 0).tolist() == naive(boxes.tolist(), min_entries)


def naive_cost(i: int, covers: list[Any], box: Any, r_star: bool) -> tuple[int, int, int]:
    """What ChooseLeaf, or ChooseSubtree above the leaves, weighs of the i-th leaf."""
    larger = cover([covers[i], box])
    grown = [common(larger, other) - common(covers[i], other) for j, other in enumerate(covers) if j != i]
    return sum(grown) if r_star else 0, area(larger) - area(covers[i]), area(covers[i])


def naive_insert(leaves: list[list[int]], boxes: list[Any], key: int, r_star: bool) -> None:
    """A box, by its key, into a tree of one or two levels, 5 to 10 entries a node."""
    waiting, reinserted = [key], False
    while waiting:
        key = waiting.pop()
        covers = [cover([boxes[k] for k in leaf]) for leaf in leaves if leaf]
        chosen = min(range(len(covers)), key=lambda i: naive_cost(i, covers, boxes[key], r_star), default=0)
        leaf = leaves[chosen]
        leaf.append(key)
        if len(leaf) == 11 and r_star and len(leaves) > 1 and not reinserted:
            reinserted = True
            middle = [low + high for low, high in cover([boxes[k] for k in leaf])]
            apart = {k: sum((sum(side) - m) ** 2 for side, m in zip(boxes[k], middle, strict=True)) for k in leaf}
            far = sorted(leaf, key=lambda k: -apart[k])
            leaf[:], waiting = far[3:], far[:3]
        elif len(leaf) == 11:
            split = naive_r_star_split if r_star else naive_quadratic_split
            first = split([boxes[k] for k in leaf], 5)
            leaves.append([k for i, k in enumerate(leaf) if i not in first])
            leaf[:] = [leaf[i] for i in first]


@pytest.mark.slow
@pytest.mark.parametrize("split", ["quadratic", "r_star"])
def test_boxes_go_to_the_leaves_that_the_textbook_chooses(split: Any) -> None:
    random = np.random.default_rng(6)
    for _ in range(10):
        # powers of two as sizes, as above
        boxes = np.sort(random.integers(0, 64, (60, 2, 2)), axis=2).tolist()
        tree = RTree.build(boxes_of([64, 64], []), split=split)
        leaves: list[list[int]] = [[]]
        for key, box in enumerate(boxes):
            tree.insert(key, *arguments(dict(enumerate(box))))
            naive_insert(leaves, boxes, key, split == "r_star")
            assert len(leaves) <= 10
            leaf = tree.boxes.leaf[: key + 1]
            found = sorted(np.flatnonzero(leaf == node).tolist() for node in np.unique(leaf))
            assert found == sorted(sorted(keys) for keys in leaves)


def inserted_one_by_one(boxes: list[Sides], sizes: list[int], split: Any) -> RTree:
    tree = RTree.build(boxes_of(sizes, []), split=split)
    for key, box in enumerate(boxes):
        tree.insert(key, *arguments(box))
    return tree


def test_forced_reinsertion_and_overlap_save_the_r_star_tree_nodes_to_visit() -> None:
    random = np.random.default_rng(2)
    corners = random.integers(0, 950, (1500, 2))
    widths = random.integers(1, 50, (1500, 2))
    boxes = [{a: (int(c[a]), int(c[a] + w[a])) for a in (0, 1)} for c, w in zip(corners, widths, strict=True)]
    rows = random.integers(0, 1000, (2, 300)).astype(np.int32)
    quadratic, r_star = (inserted_one_by_one(boxes, [1000, 1000], split) for split in ("quadratic", "r_star"))
    assert r_star.search_rows(rows)[2]["nodes"] < quadratic.search_rows(rows)[2]["nodes"]


def test_bulk_loading_leaves_no_node_that_could_be_spared_and_tiles_hardly_overlap() -> None:
    points = [{0: (x, x), 1: (y, y)} for x in range(100) for y in range(100)]
    random = np.random.default_rng(3)
    tree = RTree.build(boxes_of([100, 100], [points[i] for i in random.permutation(len(points))]))
    tree.check()
    assert len(tree.tree().end) == 1000 + 100 + 10 + 1
    rows = random.integers(0, 100, (2, 1000)).astype(np.int32)
    # four levels: few rows lie in two rectangles of one level
    assert tree.search_rows(rows)[2]["nodes"] < 1000 * 4 * 1.5


def test_bulk_loading_keeps_boxes_apart_that_leave_different_attributes_unbounded() -> None:
    random = np.random.default_rng(4)
    boxes: list[Sides] = [{i % 2: (int(code), int(code))} for i, code in enumerate(random.integers(0, 500, 2000))]
    tree = RTree.build(boxes_of([500, 500], boxes)).tree()
    leaves = np.flatnonzero(np.diff(tree.key_start))
    assert len(leaves) == 200
    assert (np.diff(tree.test_start)[leaves] == 1).all()


def test_the_indexed_attributes_are_those_of_which_boxes_hold_least() -> None:
    for seed in range(20):
        draw = Draw(seed)
        draw.sizes = draw.random.integers(2, 50, 12).astype(np.int32)
        held = [draw.box() for _ in range(50)]
        whole = {a: (0, int(size) - 1) for a, size in enumerate(draw.sizes)}
        widths = [[high - low + 1 for low, high in ({**whole, **box}[a] for a in range(12))] for box in held]
        share = (np.array(widths) / draw.sizes).mean(axis=0)
        chosen = RTree.build(boxes_of(draw.sizes, held)).dimensions.attributes
        assert len(chosen) == 8
        assert np.allclose(share[chosen], np.sort(share)[:8])


@pytest.mark.parametrize("attributes", [0, 3])
def test_without_a_dimension_every_box_is_tested(attributes: int) -> None:
    draw = Draw(5)
    draw.sizes = np.full(attributes, 7, np.int32)
    held = [draw.box() for _ in range(60)]
    for split in ("quadratic", "r_star"):
        tree = RTree.build(boxes_of(draw.sizes, held), dimensions=[], split=split)
        for key in range(60, 90):
            held.append(draw.box())
            tree.insert(key, *arguments(held[-1]))
        tree.check()
        row = draw.codes(1)[:, 0]
        found, cost = tree.search(row)
        assert found.tolist() == [key for key, box in enumerate(held) if overlap(box, row_box(row))]
        assert cost["boxes"] == 90
        del held[60:]


@pytest.mark.parametrize(
    "parameters",
    [
        {"min_entries": 1},
        {"min_entries": 6},
        {"max_entries": 2},
        {"split": "linear"},
        {"dimensions": [0, 0]},
        {"dimensions": [2]},
        {"dimensions": [-1]},
    ],
)
def test_wrong_parameters_are_refused(parameters: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(parameters))):
        RTree.build(boxes_of([4, 4], FIGURE_8[:0]), **parameters)


def test_a_row_of_another_number_of_codes_and_a_negative_key_are_refused() -> None:
    tree = RTree.build(boxes_of([20, 20], FIGURE_8))
    with pytest.raises(ValueError, match="2 codes"):
        tree.search(np.zeros(3, np.int32))
    with pytest.raises(ValueError, match="-1"):
        tree.insert(-1, *arguments(FIGURE_8[0]))
    with pytest.raises(KeyError):
        tree.delete(-1)


@pytest.mark.slow
def test_damaged_arrays_are_refused_or_harmless() -> None:
    refused = sum(refuse_or_survive(seed, BUILDS[name]) for seed in range(100) for name in BUILDS)
    assert refused > 200


def test_misshapen_arrays_are_refused() -> None:
    tree = RTree.build(boxes_of([20, 20], FIGURE_8 * 5))
    for arrays in misshapen(tree.arrays):
        with pytest.raises(InvalidArraysError):
            RTree.load(arrays, tree.sizes)


def test_offsets_whose_differences_wrap_around_are_refused() -> None:
    arrays = RTree.build(boxes_of([20, 20], FIGURE_8[:4])).arrays
    least, most = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    arrays["box_start"] = np.array([0, most, least, -1, 8])
    with pytest.raises(InvalidArraysError):
        RTree.load(arrays, np.array([20, 20], np.int32))


def test_nodes_that_point_at_each_other_are_refused() -> None:
    arrays = RTree.build(boxes_of([20, 20], FIGURE_8 * 30)).arrays
    root = int(arrays["root"][0])
    inner = np.flatnonzero(arrays["node_level"] > 0)
    assert len(inner) >= 3
    for node in inner:
        damaged = {**arrays, "node_entries": arrays["node_entries"].copy(), "node_level": arrays["node_level"].copy()}
        damaged["node_entries"][node, 0] = root
        with pytest.raises(InvalidArraysError):
            RTree.load(damaged, np.array([20, 20], np.int32))
        # not even where the levels would have it so
        damaged["node_level"][root] = arrays["node_level"][node] - 1
        with pytest.raises(InvalidArraysError):
            RTree.load(damaged, np.array([20, 20], np.int32))
