"""Searches an index of boxes by the dimensions of some streams: PDFA's two searches.

A box can bound any attribute. Of a row's codes [attributes] int32, only those of the chosen attributes are read. Where
figure 7 tests "inside", a box has to contain the row, and a node's bounds have to overlap it. One test serves both
trees, since the bounds of a grid file's page are the least low sides and the greatest high sides of its boxes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rules_index.engines.box_store import BoxArrays
from rules_index.engines.r_tree.dimensions import Dimensions
from rules_index.engines.r_tree.nodes import ROOT, Nodes
from rules_index.kernels.jit import inner

NODES, ENTRIES = range(2)
"""Indices into the totals [2] int64 of a search: nodes visited, entries of leaves checked."""


class Marks(NamedTuple):
    """The marks that FIRST sets, stored apart from the tree. A mark is valid if it equals the current `stamp`, a
    counter.

    node   [nodes] int64, marks of the nodes on the paths to the boxes found
    entry  [slots] int64, marks of the boxes found
    """

    node: np.ndarray
    entry: np.ndarray


@inner
def stack_size(nodes: Nodes) -> int:
    """The most nodes that can be on the stack of a search."""
    return (nodes.level[nodes.header[ROOT]] + 1) * nodes.entries.shape[1] + 1


@inner
def collect_first(
    row: np.ndarray, chosen: np.ndarray, nodes: Nodes, boxes: BoxArrays, dimensions: Dimensions, marks: Marks,
    stamp: int, totals: np.ndarray, stack: np.ndarray, found: np.ndarray,
) -> int:  # fmt: skip
    """Like `search_first`, but writes to `found` [slots] and returns the number of boxes. `stack` has `stack_size`
    elements."""
    stack[0] = nodes.header[ROOT]
    waiting, count = 1, 0
    while waiting > 0:
        waiting -= 1
        node = stack[waiting]
        if nodes.level[node] > 0:
            totals[NODES] += 1
            for i in range(nodes.filled[node]):
                child = nodes.entries[node, i]
                if _meets(child, row, chosen, nodes, dimensions):
                    stack[waiting] = child
                    waiting += 1
            continue
        leaf, before = node, count
        while node >= 0:
            totals[NODES] += 1
            totals[ENTRIES] += nodes.filled[node]
            for i in range(nodes.filled[node]):
                slot = nodes.entries[node, i]
                if inside(slot, row, chosen, boxes):
                    marks.entry[slot] = stamp
                    found[count] = slot
                    count += 1
            node = nodes.following[node]
        node = leaf
        while count > before and node >= 0 and marks.node[node] != stamp:
            marks.node[node] = stamp
            node = nodes.parent[node]
    return count


@inner
def collect_marked(
    row: np.ndarray, chosen: np.ndarray, nodes: Nodes, boxes: BoxArrays, dimensions: Dimensions, marks: Marks,
    stamp: int, totals: np.ndarray, stack: np.ndarray, found: np.ndarray,
) -> int:  # fmt: skip
    """SECOND along the marked paths: writes the slots of the boxes that a row is inside in the chosen attributes to
    `found` [slots], in the order of the search; returns their number. `stack` has `stack_size` elements."""
    stack[0] = nodes.header[ROOT]
    waiting = np.int64(marks.node[stack[0]] == stamp)
    count = 0
    while waiting > 0:
        waiting -= 1
        node = stack[waiting]
        if nodes.level[node] > 0:
            totals[NODES] += 1
            for j in range(nodes.filled[node]):
                child = nodes.entries[node, j]
                if marks.node[child] == stamp and _meets(child, row, chosen, nodes, dimensions):
                    stack[waiting] = child
                    waiting += 1
            continue
        while node >= 0:
            totals[NODES] += 1
            for j in range(nodes.filled[node]):
                slot = nodes.entries[node, j]
                if marks.entry[slot] == stamp:
                    totals[ENTRIES] += 1
                    if inside(slot, row, chosen, boxes):
                        found[count] = slot
                        count += 1
            node = nodes.following[node]
    return count


@inner
def _meets(node: int, row: np.ndarray, chosen: np.ndarray, nodes: Nodes, dimensions: Dimensions) -> bool:
    """Whether the bounds of a node contain a row's codes in those of the chosen attributes that are indexed."""
    for dimension in range(len(dimensions.attributes)):
        attribute = dimensions.attributes[dimension]
        if chosen[attribute] and (
            nodes.bounds[node, 2 * dimension] > row[attribute] or nodes.bounds[node, 2 * dimension + 1] < row[attribute]
        ):
            return False
    return True


@inner
def inside(slot: int, row: np.ndarray, chosen: np.ndarray, boxes: BoxArrays) -> bool:
    """Whether a row is inside a box in the chosen attributes."""
    for term in range(boxes.start[slot], boxes.start[slot] + boxes.length[slot]):
        attribute = boxes.terms[term, 0]
        code = row[attribute]
        if chosen[attribute] and (boxes.terms[term, 1] > code or boxes.terms[term, 2] < code):
            return False
    return True
