"""Multilevel grid file: queries in two steps, pages as halving makes them, and boxes under every change."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from rules_index.engines.grid_file.structure import GridFile
from rules_index.engines.r_tree.nodes import ROOT
from rules_index.engines.r_tree.structure import RTree
from rules_index.index.array_checks import InvalidArraysError
from rules_index.index.boxes import Boxes
from tests.cases import cases, quick_first, soak_but
from tests.unit.engines.box_trees import (
    Draw,
    History,
    Sides,
    arguments,
    boxes_of,
    misshapen,
    overlap,
    overlapping,
    refuse_or_survive,
    row_box,
    run_history,
)

BUILDS: dict[str, Callable[[Boxes], GridFile]] = {
    "default": lambda boxes: GridFile.build(boxes),
    "small pages": lambda boxes: GridFile.build(boxes, page_size=4),
    "smallest pages": lambda boxes: GridFile.build(boxes, page_size=2),
    "small pages, one dimension": lambda boxes: GridFile.build(boxes, page_size=3, dimensions=[0]),
}
# P2: queries over x (attribute 0, of stream S1) and y (attribute 1, of S2), each with the codes 0 to 15
QUERIES: list[Sides] = [
    {0: (5, 10), 1: (0, 5)},
    {0: (0, 6), 1: (0, 15)},
    {0: (7, 15), 1: (8, 15)},
    {0: (7, 7), 1: (4, 6)},
]
TWO_STEPS: dict[str, Callable[[Boxes], GridFile | RTree]] = {
    "grid file": lambda boxes: GridFile.build(boxes, page_size=2),
    "R-tree": lambda boxes: RTree.build(boxes, min_entries=2, max_entries=3),
}


@pytest.mark.parametrize("name", soak_but(("small pages", "small pages, one dimension"), BUILDS))
def test_every_change_keeps_the_pages_sound_and_the_answers_right(name: str) -> None:
    for seed in range(cases(12)):
        run_history(seed, BUILDS[name], 120)


@pytest.mark.parametrize("name", TWO_STEPS)
def test_a_row_of_one_stream_and_then_its_join_results(name: str) -> None:
    index = TWO_STEPS[name](boxes_of([16, 16], QUERIES))
    index.check()
    first = overlapping(index, np.array([0]), np.array([7]), np.array([7]))
    assert first.tolist() == [0, 2, 3]
    for y, second in ((3, [0]), (9, [2]), (5, [0, 3])):
        assert index.search(np.array([7, y]))[0].tolist() == second
    # a row of the other stream that comes last is searched first
    assert overlapping(index, np.array([1]), np.array([9]), np.array([9])).tolist() == [1, 2]


class Stamps:
    """PDFA in a few lines, its marks outside the tree, as `BoxTree` says."""

    def __init__(self, index: GridFile | RTree) -> None:
        self.index = index
        self.node_stamps = np.zeros(len(index.nodes.level), np.int64)
        self.slot_stamps = np.zeros(len(index.boxes.key), np.int64)

    def search(self, row: Sides, mark: bool) -> list[int]:
        """FIRST marks all nodes and slots that these attributes leave; SECOND looks at none but those."""
        nodes, boxes = self.index.nodes, self.index.boxes
        attributes = self.index.dimensions.attributes.tolist()
        found = []
        waiting = [int(nodes.header[ROOT])]
        while waiting:
            node = waiting.pop()
            for entry in nodes.entries[node, : nodes.filled[node]].tolist():
                stamps = self.node_stamps if nodes.level[node] else self.slot_stamps
                if nodes.level[node]:
                    sides = dict(zip(attributes, nodes.bounds[entry].reshape(-1, 2).tolist(), strict=True))
                else:
                    terms = boxes.terms[boxes.start[entry] : boxes.start[entry] + boxes.length[entry]]
                    sides = {a: (low, high) for a, low, high in terms.tolist()}
                if (mark or stamps[entry]) and overlap(sides, row):
                    stamps[entry] |= mark
                    if nodes.level[node]:
                        waiting.append(entry)
                    else:
                        found.append(int(boxes.key[entry]))
            if nodes.following[node] >= 0:
                waiting.append(int(nodes.following[node]))
        return sorted(found)


@pytest.mark.parametrize("name", TWO_STEPS)
def test_marks_can_stand_outside_the_tree(name: str) -> None:
    for seed in range(10):
        history = History(seed, TWO_STEPS[name])
        for _ in range(20):
            history.insert()
            history.delete()
        codes = history.codes(3)
        own = set(range(0, len(codes), 2))
        codes[sorted(own)] = codes[sorted(own), :1]
        stamps = Stamps(history.structure)
        rows = [row_box(row) for row in codes.T]
        first = {a: rows[0][a] for a in own}
        assert stamps.search(first, mark=True) == history.expected(first)
        for row in rows:
            assert stamps.search({a: row[a] for a in row.keys() - own}, mark=False) == history.expected(row)


def naive_pages(points: dict[int, str], page_size: int, halvings: int = 0) -> list[list[int]]:
    """Keys by page: a region that overflows is halved by the next bit of its points."""
    if len(points) <= page_size or halvings == len(next(iter(points.values()))):
        return [sorted(points)] if points else []
    halves = [{key: bits for key, bits in points.items() if bits[halvings] == half} for half in "01"]
    return [page for half in halves for page in naive_pages(half, page_size, halvings + 1)]


def turns(box: Sides, sizes: np.ndarray, dimensions: list[int]) -> str:
    """The bits of a box's point in the order of the halvings: low and high sides in turn, the highest bits first."""
    sides = []
    for a in dimensions:
        bits = int(sizes[a] - 1).bit_length()
        sides += [f"{side:b}".zfill(bits) if bits else "" for side in box.get(a, (0, int(sizes[a]) - 1))]
    rounds = max((len(bits) for bits in sides), default=0)
    return "".join(bits[i] for i in range(rounds) for bits in sides if i < len(bits))


@pytest.mark.parametrize("page_size", quick_first(1, [3, 2, 8]))
@pytest.mark.slow
def test_pages_are_those_that_halving_in_turn_makes_whatever_came_and_went(page_size: int) -> None:
    for seed in range(12):
        history = History(seed, lambda boxes: GridFile.build(boxes, page_size=page_size))
        for step in range(40):
            (history.insert if step % 11 else history.delete)()
            if step > 25:
                history.delete()
            dimensions = history.structure.dimensions.attributes.tolist()
            points = {key: turns(box, history.sizes, dimensions) for key, box in history.held.items()}
            tree = history.structure.tree()
            pages = [tree.keys[a:b].tolist() for a, b in pairwise(tree.key_start)]
            assert sorted(sorted(page) for page in pages if page) == sorted(naive_pages(points, page_size))


def test_a_page_lets_pass_what_its_region_can_hold() -> None:
    # low sides below 8 and from 8 on are told apart first; of a high side from 8 on nothing follows
    boxes: list[Sides] = [{0: (1, 3)}, {0: (2, 9)}, {0: (12, 13)}, {0: (9, 15)}]
    tree = GridFile.build(boxes_of([16], boxes), page_size=2).tree()
    tests = [tree.tests[a:b].tolist() for a, b in pairwise(tree.test_start)]
    keys = [sorted(tree.keys[a:b].tolist()) for a, b in pairwise(tree.key_start)]
    assert tests == [[], [], [[0, 8, 15]]]
    assert keys == [[], [0, 1], [2, 3]]


def test_points_that_no_halving_parts_share_a_page_that_grows_and_shrinks() -> None:
    same: Sides = {0: (3, 5)}
    grid = GridFile.build(
        boxes_of([8, 8], [{**same, 1: (i % 8, i % 8)} for i in range(100)]), dimensions=[0], page_size=4
    )
    grid.check()
    found, cost = grid.search(np.array([4, 7]))
    assert found.tolist() == list(range(7, 100, 8))
    assert cost == {"directory_pages": 1, "data_pages": 25, "points": 100}
    grid.insert(100, *arguments({0: (6, 6)}))
    for key in range(100):
        grid.delete(key)
        grid.check()
    assert grid.search(np.array([6, 0]))[0].tolist() == [100]
    for key in range(100):
        grid.insert(key, *arguments(same))
        grid.check()
    # the page of the other box begins at the code 4
    assert grid.search(np.array([3, 0]))[1] == {"directory_pages": 1, "data_pages": 25, "points": 100}


def test_the_cost_of_a_search_is_the_pages_whose_regions_the_row_is_in() -> None:
    for seed in range(20):
        draw = Draw(seed)
        grid = GridFile.build(boxes_of(draw.sizes, draw.boxes(300)), page_size=4)
        tree = grid.tree()
        row = draw.codes(1)[:, 0]
        directory = data = points = node = 0
        while node < len(tree.end):
            tests = tree.tests[tree.test_start[node] : tree.test_start[node + 1]].tolist()
            if not all(low <= row[a] <= high for a, low, high in tests):
                node = int(tree.end[node])
                continue
            here = int(tree.key_start[node + 1] - tree.key_start[node])
            is_data = tree.end[node] == node + 1
            directory += not is_data
            data += max(1, -(-here // 4)) if is_data else 0
            points += here
            node += 1
        assert grid.search(row)[1] == {"directory_pages": directory, "data_pages": data, "points": points}


@pytest.mark.parametrize("attributes", [0, 3])
def test_without_a_dimension_there_is_one_page(attributes: int) -> None:
    draw = Draw(5)
    draw.sizes = np.full(attributes, 7, np.int32)
    held = [draw.box() for _ in range(60)]
    grid = GridFile.build(boxes_of(draw.sizes, held), dimensions=[], page_size=8)
    for key in range(60, 90):
        held.append(draw.box())
        grid.insert(key, *arguments(held[-1]))
        grid.check()
    row = draw.codes(1)[:, 0]
    found, cost = grid.search(row)
    assert found.tolist() == [key for key, box in enumerate(held) if overlap(box, row_box(row))]
    assert cost == {"directory_pages": 0, "data_pages": 12, "points": 90}


@pytest.mark.parametrize("parameters", [{"page_size": 1}, {"dimensions": [0, 0]}, {"dimensions": [2]}])
def test_wrong_parameters_are_refused(parameters: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(parameters))):
        GridFile.build(boxes_of([4, 4], []), **parameters)


@pytest.mark.slow
def test_damaged_arrays_are_refused_or_harmless() -> None:
    refused = sum(refuse_or_survive(seed, BUILDS[name]) for seed in range(100) for name in BUILDS)
    assert refused > 200


def test_misshapen_arrays_are_refused() -> None:
    grid = GridFile.build(boxes_of([16, 16], QUERIES * 5), page_size=3)
    for arrays in misshapen(grid.arrays):
        with pytest.raises(InvalidArraysError):
            GridFile.load(arrays, grid.sizes)
