"""The nodes of a tree over boxes: a pool of numbered nodes, and a check that their links form a tree."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rules_index.arrays import grown
from rules_index.engines.box_store import BoxArrays, loaded
from rules_index.index.array_checks import require, require_range
from rules_index.kernels.jit import jit

FREE = -1
"""The level of a node that is not in use."""
ROOT, USED, FIRST_FREE = range(3)
"""Indices into `Nodes.header`: the root; the number of nodes that were ever in use; the first free node."""


class Nodes(NamedTuple):
    """A pool of nodes over d dimensions. A node keeps its number as long as it exists.

    level      [nodes] int32, 0 for a leaf, otherwise one more than its children's; `FREE` if not in use
    parent     [nodes] int32, -1 for the root; of a free node the next free one; of a `following` node the leaf
    filled     [nodes] int32, number of entries
    following  [nodes] int32, the next node of a leaf whose entries do not fit in one node, or -1
    entries    [nodes, most entries] int32, children; in a leaf the slots of boxes
    bounds     [nodes, 2 d] int32, low and high side in each dimension; every box below the node is within them
    header     [3] int64, see `ROOT`
    """

    level: np.ndarray
    parent: np.ndarray
    filled: np.ndarray
    following: np.ndarray
    entries: np.ndarray
    bounds: np.ndarray
    header: np.ndarray


def make_nodes(nodes: int, most_entries: int, dimensions: int) -> Nodes:
    """A pool of free nodes, none of which was ever in use."""
    return Nodes(
        level=np.full(nodes, FREE, np.int32),
        parent=np.full(nodes, -1, np.int32),
        filled=np.zeros(nodes, np.int32),
        following=np.full(nodes, -1, np.int32),
        entries=np.zeros((nodes, most_entries), np.int32),
        bounds=np.zeros((nodes, 2 * dimensions), np.int32),
        header=np.array([0, 0, -1], np.int64),
    )


class Level(NamedTuple):
    """The k nodes of one level, as a bulk loader makes them.

    first   [k] int64, number of the first entry among the nodes of the level below, or slot of the first box
    filled  [k] int64, number of entries, which are contiguous
    bounds  [k, 2 d] int32
    """

    first: np.ndarray
    filled: np.ndarray
    bounds: np.ndarray


def number_levels(levels: list[Level], boxes: BoxArrays, most_entries: int) -> Nodes:
    """A pool of the nodes of all levels, the leaves first and the single root last."""
    at = np.cumsum([0, *(len(level.first) for level in levels)])
    nodes = make_nodes(int(at[-1]), most_entries, levels[0].bounds.shape[1] // 2)
    nodes.header[ROOT], nodes.header[USED] = at[-1] - 1, at[-1]
    for i, (first, filled, bounds) in enumerate(levels):
        span = slice(int(at[i]), int(at[i + 1]))
        nodes.level[span] = i
        nodes.filled[span] = filled
        nodes.bounds[span] = bounds
        taken = np.arange(most_entries) < filled[:, None]
        entry = first[:, None] + np.arange(most_entries) + (at[i - 1] if i else 0)
        nodes.entries[span] = np.where(taken, entry, 0)
        owner = nodes.parent if i else boxes.leaf
        owner[entry[taken]] = np.repeat(np.arange(span.start, span.stop), filled)
    return nodes


def reserve(nodes: Nodes, more: int) -> Nodes:
    """Returns the pool, enlarged if necessary, so that `new_node` can take this many nodes from it."""
    needed = int(nodes.header[USED]) + more
    if needed <= len(nodes.level):
        return nodes
    return Nodes(
        level=grown(nodes.level, needed, FREE),
        parent=grown(nodes.parent, needed, -1),
        filled=grown(nodes.filled, needed),
        following=grown(nodes.following, needed, -1),
        entries=grown(nodes.entries, needed),
        bounds=grown(nodes.bounds, needed),
        header=nodes.header,
    )


@jit
def new_node(level: int, nodes: Nodes) -> int:
    """Takes a node from the pool, which must have a free one; the node has no entries."""
    node = nodes.header[FIRST_FREE]
    if node >= 0:
        nodes.header[FIRST_FREE] = nodes.parent[node]
    else:
        node = nodes.header[USED]
        nodes.header[USED] += 1
    nodes.level[node] = level
    nodes.parent[node] = -1
    nodes.filled[node] = 0
    nodes.following[node] = -1
    return node


@jit
def free_node(node: int, nodes: Nodes) -> None:
    """Frees a node; its entries are not changed."""
    nodes.level[node] = FREE
    nodes.filled[node] = 0
    nodes.following[node] = -1
    nodes.parent[node] = nodes.header[FIRST_FREE]
    nodes.header[FIRST_FREE] = node


@jit
def adopt(node: int, entry: int, nodes: Nodes, boxes: BoxArrays) -> None:
    """Adds an entry to a node that has room: a child, or a box's slot to a leaf."""
    nodes.entries[node, nodes.filled[node]] = entry
    nodes.filled[node] += 1
    if nodes.level[node] == 0:
        boxes.leaf[entry] = node
    else:
        nodes.parent[entry] = node


@jit
def drop(node: int, entry: int, nodes: Nodes) -> bool:
    """Removes an entry from a node. Returns whether it was there."""
    for i in range(nodes.filled[node]):
        if nodes.entries[node, i] == entry:
            nodes.filled[node] -= 1
            nodes.entries[node, i] = nodes.entries[node, nodes.filled[node]]
            return True
    return False


@jit
def make_root(node: int, sibling: int, nodes: Nodes, boxes: BoxArrays) -> int:
    """Makes a new root above the old one and, unless it is -1, a sibling of it; the caller must set its bounds."""
    root = new_node(nodes.level[node] + 1, nodes)
    adopt(root, node, nodes, boxes)
    if sibling >= 0:
        adopt(root, sibling, nodes, boxes)
    nodes.header[ROOT] = root
    return root


def saved(nodes: Nodes) -> dict[str, np.ndarray]:
    """Returns the arrays to save; `load_nodes` derives parents and the list of free nodes from them."""
    used = int(nodes.header[USED])
    return {
        "root": nodes.header[ROOT : ROOT + 1].copy(),
        **{f"node_{name}": getattr(nodes, name)[:used] for name in _SAVED},
    }


_SAVED = ("level", "filled", "following", "entries", "bounds")


def load_nodes(arrays: dict[str, np.ndarray], boxes: BoxArrays, dimensions: int) -> Nodes:
    """Loads saved nodes, and sets the boxes' leaves. Raises `InvalidArraysError` if they are not a tree over all
    boxes."""
    root = loaded(arrays, "root", np.int64, 1)
    level, filled, following = (loaded(arrays, f"node_{name}", np.int32, 1) for name in _SAVED[:3])
    entries, bounds = (loaded(arrays, f"node_{name}", np.int32, 2) for name in _SAVED[3:])
    used = len(level)
    require(root.shape == (1,) and 0 <= root[0] < used, "root")
    require(filled.shape == (used,) and following.shape == (used,), "node_filled")
    require(entries.shape[0] == used and bounds.shape == (used, 2 * dimensions), "node_entries")
    require_range(level, FREE, used, "node_level")
    require_range(filled, 0, entries.shape[1] + 1, "node_filled")
    require_range(following, -1, used, "node_following")
    free = np.flatnonzero(level == FREE)
    parent = np.full(used, -1, np.int32)
    parent[free[:-1]] = free[1:]
    header = np.array([root[0], used, free[0] if len(free) else -1], np.int64)
    nodes = Nodes(level, parent, filled, following, entries, bounds, header)
    fault = link(nodes, boxes, parent, boxes.leaf)
    require(not fault, fault)
    return nodes


def link(nodes: Nodes, boxes: BoxArrays, parent: np.ndarray, leaf: np.ndarray) -> str:
    """Writes the parent [nodes] int32 of every node and the leaf [slots] int32 of every box. Returns why the links do
    not form a tree, or "".

    Levels, numbers of entries and `following` must be within their bounds; entries may be arbitrary.
    """
    faults = (
        "",
        "an entry names no node, or no box",
        "a child is not one level below its parent",
        "a node or a box is an entry twice",
        "a node is not below the root",
        "a box is in no leaf",
    )
    return faults[_link(nodes, boxes.key, parent, leaf)]


@jit
def _link(nodes: Nodes, key: np.ndarray, parent: np.ndarray, leaf: np.ndarray) -> int:
    """The number of the first fault that `link` reports, 0 for none; writes parent [nodes] and leaf [slots] int32."""
    met = np.zeros(len(nodes.level), np.bool_)
    stack = np.empty(len(nodes.level), np.int32)
    leaf[:] = -1
    root = nodes.header[ROOT]
    if nodes.level[root] < 0:
        return 1
    stack[0] = root
    parent[root] = -1
    met[root] = True
    waiting = 1
    while waiting > 0:
        waiting -= 1
        node = stack[waiting]
        if nodes.level[node] == 0:
            fault = _link_leaf(node, nodes, key, met, parent, leaf)
            if fault:
                return fault
            continue
        for entry in nodes.entries[node, : nodes.filled[node]]:
            if entry < 0 or entry >= len(met):
                return 1
            if nodes.level[entry] != nodes.level[node] - 1:
                return 2
            if met[entry]:
                return 3
            met[entry] = True
            parent[entry] = node
            stack[waiting] = entry
            waiting += 1
    for node in range(len(met)):
        if nodes.level[node] >= 0 and not met[node]:
            return 4
    for slot in range(len(key)):
        if key[slot] >= 0 and leaf[slot] < 0:
            return 5
    return 0


@jit
def _link_leaf(node: int, nodes: Nodes, key: np.ndarray, met: np.ndarray, parent: np.ndarray, leaf: np.ndarray) -> int:
    """Like `_link`, for a leaf with its `following` nodes. met: [nodes] bool, the nodes found so far."""
    block = node
    while True:
        for slot in nodes.entries[block, : nodes.filled[block]]:
            if slot < 0 or slot >= len(key) or key[slot] < 0:
                return 1
            if leaf[slot] >= 0:
                return 3
            leaf[slot] = node
        block = nodes.following[block]
        if block < 0:
            return 0
        if nodes.level[block] != 0:
            return 2
        if met[block]:
            return 3
        met[block] = True
        parent[block] = node
