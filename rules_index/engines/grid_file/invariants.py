"""Checks the invariants of a grid file's pages; that they are a tree over all boxes is checked by `nodes.link`."""

from __future__ import annotations

import numpy as np

from rules_index.engines.box_store import BoxArrays
from rules_index.engines.grid_file.deletion import members_within
from rules_index.engines.grid_file.regions import Turns, most_halvings, same_region, set_region
from rules_index.engines.r_tree.dimensions import Dimensions, box_bounds
from rules_index.engines.r_tree.nodes import ROOT, Nodes
from rules_index.kernels.jit import jit

_FAULTS = (
    "",
    "a region is not what its halvings make of it, or the root's is not the whole space",
    "a page other than the root of an empty grid file has no entry",
    "a page has more points than fit although a halving parts them, or a block that is not full",
    "a page's region does not cover what it holds",
    "the regions of two entries of a page overlap",
    "pages that fit in one are not merged",
)


def page_fault(nodes: Nodes, halvings: np.ndarray, boxes: BoxArrays, dimensions: Dimensions, turns: Turns) -> str:
    """Returns the first invariant that some page violates, or "". No page may have more halvings than there are
    turns."""
    return _FAULTS[_page_fault(nodes, halvings, boxes, dimensions, turns)]


@jit
def _page_fault(nodes: Nodes, halvings: np.ndarray, boxes: BoxArrays, dimensions: Dimensions, turns: Turns) -> int:
    """The index in `_FAULTS` of the first invariant that some page violates, 0 for none."""
    root = nodes.header[ROOT]
    region = np.empty(nodes.bounds.shape[1], np.int32)
    if halvings[root] != 0:
        return 1
    for node in range(len(nodes.level)):
        above = nodes.parent[node]
        if nodes.level[node] < 0 or (above >= 0 and nodes.level[above] == 0):
            continue
        set_region(region, nodes.bounds[node], halvings[node], turns)
        if not np.array_equal(region, nodes.bounds[node]):
            return 1
        if nodes.filled[node] == 0 and (node != root or nodes.level[node] > 0):
            return 2
        if nodes.level[node] > 0:
            fault = _directory_fault(node, nodes, halvings, turns)
        else:
            fault = _data_fault(node, nodes, halvings, boxes, dimensions, turns, region)
        if fault:
            return fault
    return 0


@jit
def _data_fault(
    node: int, nodes: Nodes, halvings: np.ndarray, boxes: BoxArrays, dimensions: Dimensions, turns: Turns,
    point: np.ndarray,
) -> int:  # fmt: skip
    """Like `_page_fault`, for a data page with the blocks behind it. point: [c] int32, scratch."""
    block = node
    while block >= 0:
        for slot in nodes.entries[block, : nodes.filled[block]]:
            box_bounds(slot, boxes, dimensions, point)
            if not same_region(point, nodes.bounds[node], halvings[node], turns):
                return 4
        block = nodes.following[block]
        if block >= 0 and (halvings[node] < most_halvings(turns) or nodes.filled[block] < nodes.entries.shape[1]):
            return 3
    return 0


@jit
def _directory_fault(node: int, nodes: Nodes, halvings: np.ndarray, turns: Turns) -> int:
    """Like `_page_fault`, for a directory page."""
    entries = nodes.entries[node, : nodes.filled[node]]
    if node == nodes.header[ROOT] and len(entries) == 1 and halvings[entries[0]] == 0:
        return 6
    for i in range(len(entries)):
        length = halvings[entries[i]]
        bounds = nodes.bounds[entries[i]]
        if length < halvings[node] or not same_region(bounds, nodes.bounds[node], halvings[node], turns):
            return 4
        for other in entries[:i]:
            if same_region(bounds, nodes.bounds[other], min(length, halvings[other]), turns):
                return 5
    for entry in entries:
        length = halvings[entry]
        if length > halvings[node]:
            members = members_within(nodes.bounds[entry], length - 1, node, nodes, turns)
            if members <= nodes.entries.shape[1]:
                return 6
    return 0
