"""Is a row in the union of boxes? Standard and index-based evaluation of a disjunctive predicate.

Kuntschke and Kemper, section 4: SE tests one box after the other, IE visits the nodes whose bounds contain the row, and
IE with short circuit (IE+SC) stops at the first box that contains it.
"""

from __future__ import annotations

import numpy as np

from benchmarks.jit import inlined, jit
from rules_index.engines.box_store import BoxArrays
from rules_index.engines.r_tree.dimensions import Dimensions
from rules_index.engines.r_tree.nodes import ROOT, Nodes
from rules_index.engines.r_tree.search import box_meets, meets
from rules_index.engines.r_tree.structure import RTree
from rules_index.index.boxes import Boxes


def tree_evaluate(
    tree: RTree, codes: np.ndarray, *, short_circuit: bool = True, level_limit: int | None = None
) -> tuple[np.ndarray, dict[str, int]]:
    """Evaluates the rows of a code matrix [attributes, rows] int32 by IE+SC, or by IE without `short_circuit`. Returns
    holds [rows] bool, and the cost.

    level_limit: the number of levels, from the root on, whose nodes are visited. A row that is not in the union may
    then count as inside; one that is in it always does (section 4.2).
    """
    if level_limit is not None and level_limit < 1:
        raise ValueError(f"level_limit is at least 1, not {level_limit}")
    codes = np.ascontiguousarray(codes, np.int32)
    last_level = 0 if level_limit is None else int(tree.nodes.level[tree.nodes.header[ROOT]]) + 1 - level_limit
    holds, totals = _evaluate_rows(codes, tree.nodes, tree.boxes, tree.dimensions, bool(short_circuit), last_level)
    return holds, {"nodes": int(totals[0]), "boxes": int(totals[1])}


@jit
def _evaluate_rows(
    codes: np.ndarray, nodes: Nodes, boxes: BoxArrays, dimensions: Dimensions, short_circuit: bool, last_level: int
) -> tuple[np.ndarray, np.ndarray]:
    """Evaluates the rows of a code matrix [attributes, rows] int32 by IE, or by IE+SC if `short_circuit`. Returns holds
    [rows] bool and totals [2] int64: nodes visited and boxes tested.

    Nodes below `last_level` are not visited; at that level an entry's bounds decide.
    """
    attributes, rows = codes.shape
    holds = np.zeros(rows, np.bool_)
    totals = np.zeros(2, np.int64)
    row = np.empty(attributes, np.int32)
    stack = np.empty((nodes.level[nodes.header[ROOT]] + 1) * nodes.entries.shape[1] + 1, np.int32)
    for i in range(rows):
        row[:] = codes[:, i]
        stack[0] = nodes.header[ROOT]
        waiting = 1
        held = False
        while waiting > 0 and not (held and short_circuit):
            waiting -= 1
            node = stack[waiting]
            totals[0] += 1
            if nodes.level[node] == 0:
                held |= _leaf_holds(node, row, nodes, boxes, short_circuit, totals)
                continue
            # the first entry is pushed last, so that it is visited next
            for j in range(nodes.filled[node] - 1, -1, -1):
                child = nodes.entries[node, j]
                if meets(nodes.bounds[child], row, row, dimensions.attributes):
                    if nodes.level[node] <= last_level:
                        held = True
                    else:
                        stack[waiting] = child
                        waiting += 1
        holds[i] = held
    return holds, totals


@inlined
def _leaf_holds(
    leaf: int, row: np.ndarray, nodes: Nodes, boxes: BoxArrays, short_circuit: bool, totals: np.ndarray
) -> bool:
    """Whether a row [attributes] is in a box of a leaf; adds the boxes tested to totals[1]."""
    held = False
    for i in range(nodes.filled[leaf]):
        totals[1] += 1
        if box_meets(nodes.entries[leaf, i], boxes, row, row):
            held = True
            if short_circuit:
                break
    return held


def scan_evaluate(boxes: Boxes, codes: np.ndarray) -> tuple[np.ndarray, dict[str, int]]:
    """Evaluates the rows of a code matrix [attributes, rows] int32 by SE (algorithm 5). Returns holds [rows] bool, and
    the cost.

    Boxes are tested in their order; the paper (section 6.1) sorts them by decreasing volume first.
    """
    codes = np.ascontiguousarray(codes, np.int32)
    holds, tested = _scan_rows(codes, boxes.start, boxes.attributes, boxes.low, boxes.high)
    return holds, {"nodes": 0, "boxes": int(tested)}


@jit
def _scan_rows(
    codes: np.ndarray, start: np.ndarray, attributes: np.ndarray, low: np.ndarray, high: np.ndarray
) -> tuple[np.ndarray, int]:
    """Returns holds [rows] bool and the number of boxes tested. start [boxes + 1] int64 are offsets into attributes,
    low and high [.] int32."""
    holds = np.zeros(codes.shape[1], np.bool_)
    row = np.empty(codes.shape[0], np.int32)
    tested = 0
    for i in range(len(holds)):
        row[:] = codes[:, i]
        for box in range(len(start) - 1):
            tested += 1
            inside = True
            for term in range(start[box], start[box + 1]):
                code = row[attributes[term]]
                if code < low[term] or code > high[term]:
                    inside = False
                    break
            if inside:
                holds[i] = True
                break
    return holds, tested
