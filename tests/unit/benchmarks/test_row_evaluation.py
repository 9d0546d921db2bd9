"""Is a row in the union of boxes? Figure 8 of Kuntschke and Kemper, and both evaluations against brute force."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from benchmarks.papers.systems.disjunctive.row_evaluation import scan_evaluate, tree_evaluate
from rules_index.engines.r_tree.structure import RTree
from tests.unit.engines.box_trees import FIGURE_8, Draw, boxes_of, overlap, row_box


@pytest.mark.parametrize(
    ("row", "answer", "nodes", "short_circuit", "at_root"),
    [
        ((2, 9), False, 1, 1, False),
        ((0.5, 4), False, 2, 2, True),
        ((1, 1), True, 2, 2, True),
        ((4.5, 3.5), True, 3, 2, True),
    ],
)
@pytest.mark.parametrize("split", ["quadratic", "r_star"])
def test_figure_8(
    row: tuple[float, float], answer: bool, nodes: int, short_circuit: int, at_root: bool, split: Any
) -> None:
    boxes = boxes_of([20, 20], FIGURE_8)
    tree = RTree.build(boxes, min_entries=2, max_entries=3, split=split)
    codes = np.array([[2 * value] for value in row], np.int32)
    held, cost = tree_evaluate(tree, codes, short_circuit=False)
    assert (held.tolist(), cost["nodes"]) == ([answer], nodes)
    held, cost = tree_evaluate(tree, codes)
    assert (held.tolist(), cost["nodes"]) == ([answer], short_circuit)
    held, cost = tree_evaluate(tree, codes, level_limit=1)
    assert (held.tolist(), cost) == ([at_root], {"nodes": 1, "boxes": 0})
    assert scan_evaluate(boxes, codes)[0].tolist() == [answer]


def test_evaluation_agrees_with_the_standard_one_and_a_level_limit_only_adds_rows() -> None:
    for seed in range(40):
        draw = Draw(seed)
        held = draw.boxes(200)
        boxes = boxes_of(draw.sizes, held)
        codes = draw.codes(30)
        first = [next((i for i, box in enumerate(held) if overlap(box, row_box(row))), -1) for row in codes.T]
        answer, cost = scan_evaluate(boxes, codes)
        assert answer.tolist() == [i >= 0 for i in first]
        assert cost == {"nodes": 0, "boxes": sum(i + 1 if i >= 0 else len(held) for i in first)}
        tree = RTree.build(boxes, min_entries=2, max_entries=4)
        every, every_cost = tree_evaluate(tree, codes, short_circuit=False)
        some, some_cost = tree_evaluate(tree, codes)
        assert every.tolist() == some.tolist() == answer.tolist()
        assert every_cost == tree.search_rows(codes)[2]
        assert some_cost["nodes"] <= every_cost["nodes"] and some_cost["boxes"] <= every_cost["boxes"]
        limited = [tree_evaluate(tree, codes, level_limit=level)[0] for level in range(1, 10)]
        assert all((lower <= upper).all() for upper, lower in pairwise(limited))
        assert limited[-1].tolist() == answer.tolist()


def test_a_level_below_the_first_is_refused() -> None:
    with pytest.raises(ValueError, match="level_limit"):
        tree_evaluate(RTree.build(boxes_of([20, 20], FIGURE_8)), np.zeros((2, 1), np.int32), level_limit=0)
