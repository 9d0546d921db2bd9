"""Removes points from a grid file: buddies whose members fit in one page are merged."""

from __future__ import annotations

import numpy as np

from rules_index.engines.box_store import BoxArrays
from rules_index.engines.grid_file.regions import Turns, same_region, set_region
from rules_index.engines.r_tree.nodes import ROOT, Nodes, adopt, drop, free_node
from rules_index.kernels.jit import jit


@jit
def delete_point(slot: int, nodes: Nodes, halvings: np.ndarray, boxes: BoxArrays, turns: Turns) -> None:
    """Removes a box's point, then merges pages level by level upwards, until a directory page keeps all its entries."""
    node = boxes.leaf[slot]
    _take_out(slot, node, nodes)
    while node != nodes.header[ROOT]:
        above = nodes.parent[node]
        entries = nodes.filled[above]
        _merge(node, above, nodes, halvings, boxes, turns)
        if nodes.filled[above] == entries:
            break
        node = above
    root = nodes.header[ROOT]
    while nodes.level[root] > 0 and nodes.filled[root] == 1 and halvings[nodes.entries[root, 0]] == 0:
        child = nodes.entries[root, 0]
        free_node(root, nodes)
        nodes.header[ROOT] = child
        nodes.parent[child] = -1
        root = child
    if nodes.filled[root] == 0:
        nodes.level[root] = 0


@jit
def _take_out(slot: int, page: int, nodes: Nodes) -> None:
    """Removes a slot from a data page. Keeps the blocks behind the page full: the page itself fills the gap."""
    block = page
    while not drop(block, slot, nodes):
        block = nodes.following[block]
    if block != page:
        nodes.filled[page] -= 1
        nodes.entries[block, nodes.filled[block]] = nodes.entries[page, nodes.filled[page]]
        nodes.filled[block] += 1
    block = nodes.following[page]
    if nodes.filled[page] == 0 and block >= 0:
        nodes.entries[page] = nodes.entries[block]
        nodes.filled[page] = nodes.filled[block]
        nodes.following[page] = nodes.following[block]
        free_node(block, nodes)


@jit
def _merge(node: int, above: int, nodes: Nodes, halvings: np.ndarray, boxes: BoxArrays, turns: Turns) -> None:
    """Undoes the halvings that made a page's region, the last one first, as long as the members of the larger region
    fit in one page. above: the directory page that has the page as an entry.

    A page without entries is removed first, so that its buddy takes over the whole region.
    """
    page_size = nodes.entries.shape[1]
    region = nodes.bounds[node].copy()
    length = halvings[node]
    if nodes.filled[node] == 0:
        drop(above, node, nodes)
        free_node(node, nodes)
    while length > halvings[above]:
        length -= 1
        if members_within(region, length, above, nodes, turns) > page_size:
            break
        keeper = -1
        i = 0
        while i < nodes.filled[above]:
            entry = nodes.entries[above, i]
            if not same_region(nodes.bounds[entry], region, length, turns):
                i += 1
            elif keeper < 0:
                keeper = entry
                i += 1
            else:
                for member in nodes.entries[entry, : nodes.filled[entry]]:
                    adopt(keeper, member, nodes, boxes)
                drop(above, entry, nodes)
                free_node(entry, nodes)
        if keeper >= 0:
            halvings[keeper] = length
            set_region(nodes.bounds[keeper], region, length, turns)


@jit
def members_within(region: np.ndarray, length: int, page: int, nodes: Nodes, turns: Turns) -> int:
    """Returns how many members a directory page's entries have in the region that contains a point after `length`
    halvings.

    For a data page with blocks behind it, only one block is counted.
    """
    members = 0
    for entry in nodes.entries[page, : nodes.filled[page]]:
        if same_region(nodes.bounds[entry], region, length, turns):
            members += nodes.filled[entry]
            if nodes.following[entry] >= 0:
                members += nodes.entries.shape[1]
    return members
