"""Inserts points into a grid file one by one: a page that overflows is divided by halving its region."""

from __future__ import annotations

import numpy as np

from rules_index.engines.box_store import BoxArrays
from rules_index.engines.grid_file.regions import Turns, first_difference, is_upper, most_halvings, set_region
from rules_index.engines.r_tree.dimensions import Dimensions, box_bounds
from rules_index.engines.r_tree.nodes import ROOT, Nodes, adopt, make_root, new_node
from rules_index.kernels.jit import jit


def pages_needed(level: int) -> int:
    """The most pages that one `insert_point` takes from a pool whose root has this level.

    A new page and a page split off on every level, a new root, and a block for points that no halving separates.
    """
    return 2 * (level + 1) + 2


@jit
def insert_point(
    slot: int, nodes: Nodes, halvings: np.ndarray, boxes: BoxArrays, dimensions: Dimensions, turns: Turns
) -> None:
    """Adds a box's point to the data page whose region contains it; the pool must have `pages_needed` free nodes.

    If no entry of a directory page contains the point, the point is in an empty half. A page is then made for the
    largest region around the point that is disjoint from all entries.
    """
    point = np.empty(nodes.bounds.shape[1], np.int32)
    box_bounds(slot, boxes, dimensions, point)
    node = nodes.header[ROOT]
    shared = 0
    inside = True
    while inside and nodes.level[node] > 0:
        inside = False
        shared = 0
        for entry in nodes.entries[node, : nodes.filled[node]]:
            parted = first_difference(point, nodes.bounds[entry], halvings[node], halvings[entry], turns)
            if parted == halvings[entry]:
                inside = True
                node = entry
                break
            shared = max(shared, parted)
    entry = slot
    if not inside:
        for level in range(nodes.level[node]):
            page = new_node(level, nodes)
            halvings[page] = shared + 1
            set_region(nodes.bounds[page], point, shared + 1, turns)
            adopt(page, entry, nodes, boxes)
            entry = page
    _add(entry, node, nodes, halvings, boxes, dimensions, turns)


@jit
def _add(
    entry: int, node: int, nodes: Nodes, halvings: np.ndarray, boxes: BoxArrays, dimensions: Dimensions, turns: Turns
) -> None:
    """Adds an entry to a page, and splits the pages that overflow, upwards from there."""
    page_size, most = nodes.entries.shape[1], most_halvings(turns)
    members = np.empty(page_size + 1, np.int32)
    points = np.empty((page_size + 1, nodes.bounds.shape[1]), np.int32)
    while nodes.filled[node] == page_size and halvings[node] < most:
        members[:page_size] = nodes.entries[node]
        members[page_size] = entry
        parted = most
        for i in range(len(members)):
            if nodes.level[node] == 0:
                box_bounds(members[i], boxes, dimensions, points[i])
            else:
                points[i] = nodes.bounds[members[i]]
            parted = first_difference(points[0], points[i], halvings[node], parted, turns)
        if parted == most:
            halvings[node] = most
            set_region(nodes.bounds[node], points[0], most, turns)
            if node == nodes.header[ROOT]:
                _raise_root(-1, nodes, halvings, boxes, turns)
            break
        sibling = new_node(nodes.level[node], nodes)
        _divide(members, points, node, sibling, parted, nodes, halvings, boxes, turns)
        if node == nodes.header[ROOT]:
            _raise_root(sibling, nodes, halvings, boxes, turns)
            return
        entry, node = sibling, nodes.parent[node]
    if nodes.filled[node] == page_size:
        _spill(node, nodes)
    adopt(node, entry, nodes, boxes)


@jit
def _divide(
    members: np.ndarray, points: np.ndarray, node: int, sibling: int, turn: int,
    nodes: Nodes, halvings: np.ndarray, boxes: BoxArrays, turns: Turns,
) -> None:  # fmt: skip
    """Divides a page's members, with points [members, c], between the page and a sibling, by the half of the region
    that each is in."""
    halvings[node] = halvings[sibling] = turn + 1
    nodes.filled[node] = 0
    for i in range(len(members)):
        page = sibling if is_upper(points[i], turn, turns) else node
        if nodes.filled[page] == 0:
            set_region(nodes.bounds[page], points[i], turn + 1, turns)
        adopt(page, members[i], nodes, boxes)


@jit
def _raise_root(sibling: int, nodes: Nodes, halvings: np.ndarray, boxes: BoxArrays, turns: Turns) -> None:
    """Makes a root of the whole space above the old root, which no longer covers it, and its sibling (-1: none)."""
    node = nodes.header[ROOT]
    root = make_root(node, sibling, nodes, boxes)
    halvings[root] = 0
    set_region(nodes.bounds[root], nodes.bounds[node], 0, turns)


@jit
def _spill(page: int, nodes: Nodes) -> None:
    """Moves the entries of a full page to a block behind it."""
    block = new_node(0, nodes)
    nodes.parent[block] = page
    nodes.entries[block] = nodes.entries[page]
    nodes.filled[block] = nodes.filled[page]
    nodes.following[block] = nodes.following[page]
    nodes.following[page] = block
    nodes.filled[page] = 0


@jit
def add_identical(page: int, slots: np.ndarray, nodes: Nodes, boxes: BoxArrays) -> None:
    """Adds boxes whose points no halving separates from those of a data page."""
    for slot in slots:
        if nodes.filled[page] == nodes.entries.shape[1]:
            _spill(page, nodes)
        adopt(page, slot, nodes, boxes)
