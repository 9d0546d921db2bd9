"""Inserts and removes entries of an R-tree one by one, and keeps its rectangles tight.

Guttman's R-tree (SIGMOD 1984, sections 3.2 and 3.3) and the R*-tree (Beckmann et al., SIGMOD 1990, section 4). A box's
leaf and a node's parent are stored, so that a deletion needs no search for the leaf.
"""

from __future__ import annotations

import numpy as np

from rules_index.engines.box_store import BoxArrays
from rules_index.engines.r_tree.dimensions import Dimensions, box_bounds
from rules_index.engines.r_tree.nodes import ROOT, Nodes, adopt, drop, make_root, new_node
from rules_index.engines.r_tree.rectangles import area, distance, enlarge, overlap_area, union_area
from rules_index.engines.r_tree.split import quadratic_split, r_star_split
from rules_index.kernels.jit import jit

MOST_LEVELS = 32
"""No tree has more levels: nodes have at least two entries, and the number of boxes has at most 32 bits."""
REINSERTED = 0.3
"""The share of an overfull node's entries that the R*-tree reinserts (section 4.3: best for all nodes tested)."""


@jit
def insert_entry(
    entry: int, level: int, nodes: Nodes, boxes: BoxArrays, dimensions: Dimensions, min_entries: int, r_star: bool
) -> None:
    """Adds an entry to a node of this level: a box's slot at level 0, else a node of the level below.

    The pool must have `nodes_needed` free nodes.
    """
    share = 1 / (dimensions.last + 1.0)
    reinserted = reinserted_entries(nodes.entries.shape[1])
    waiting = np.empty((1 + MOST_LEVELS * reinserted, 2), np.int32)
    treated = np.zeros(MOST_LEVELS, np.bool_)
    rectangle = np.empty(nodes.bounds.shape[1], np.int32)
    waiting[0, 0], waiting[0, 1] = entry, level
    count = 1
    while count > 0:
        count -= 1
        entry, level = waiting[count, 0], waiting[count, 1]
        _entry_bounds(entry, level, nodes, boxes, dimensions, rectangle)
        node = _choose(rectangle, level, nodes, share, r_star)
        count = _add(entry, node, nodes, boxes, dimensions, share, min_entries, r_star, treated, waiting, count)


@jit
def reinserted_entries(most_entries: int) -> int:
    """The number of entries that a forced reinsertion removes from an overfull node."""
    return max(1, int(REINSERTED * most_entries))


def nodes_needed(level: int, most_entries: int) -> int:
    """The most nodes that one `insert_entry` takes from a pool whose root has this level.

    Every entry, including those reinserted, can cause splits up to a new root. A root that has split has only two
    entries, so the tree gains fewer than one level for every two levels on which entries are reinserted.
    """
    most_levels = 2 * level + 5
    return (1 + most_levels * int(reinserted_entries(most_entries))) * (most_levels + 1)


@jit
def _entry_bounds(
    entry: int, level: int, nodes: Nodes, boxes: BoxArrays, dimensions: Dimensions, rectangle: np.ndarray
) -> None:
    """Writes an entry's bounds to `rectangle` [2 d]: those of a box at level 0, else those of a node."""
    if level == 0:
        box_bounds(entry, boxes, dimensions, rectangle)
    else:
        rectangle[:] = nodes.bounds[entry]


@jit
def bound(node: int, nodes: Nodes, boxes: BoxArrays, dimensions: Dimensions, rectangle: np.ndarray) -> bool:
    """Makes a node's bounds tight around its entries, or the whole range if it has none. Returns whether they changed.
    rectangle: [2 d] int32, scratch."""
    cover = np.empty(len(rectangle), np.int32)
    for i in range(len(dimensions.last)):
        cover[2 * i], cover[2 * i + 1] = 0, dimensions.last[i]
    for i in range(nodes.filled[node]):
        _entry_bounds(nodes.entries[node, i], nodes.level[node], nodes, boxes, dimensions, rectangle)
        if i == 0:
            cover[:] = rectangle
        else:
            enlarge(cover, rectangle)
    changed = not np.array_equal(cover, nodes.bounds[node])
    nodes.bounds[node] = cover
    return changed


@jit
def _bound_path(node: int, nodes: Nodes, boxes: BoxArrays, dimensions: Dimensions) -> None:
    """Makes bounds tight from a node upwards, until a node's bounds do not change."""
    rectangle = np.empty(nodes.bounds.shape[1], np.int32)
    while node >= 0 and bound(node, nodes, boxes, dimensions, rectangle):
        node = nodes.parent[node]


@jit
def _choose(rectangle: np.ndarray, level: int, nodes: Nodes, share: np.ndarray, r_star: bool) -> int:
    """Returns the node of this level that an entry with this rectangle is added to (Guttman's ChooseLeaf, the R*-tree's
    ChooseSubtree). share: [d] float64, the length of one code."""
    node = nodes.header[ROOT]
    while nodes.level[node] > level:
        entries = nodes.entries[node, : nodes.filled[node]]
        best = entries[0]
        least = np.full(3, np.inf)
        for entry in entries:
            cost = np.zeros(3)
            cost[2] = area(nodes.bounds[entry], share)
            cost[1] = union_area(nodes.bounds[entry], rectangle, share) - cost[2]
            if r_star and nodes.level[node] == 1:
                cost[0] = _overlap_enlargement(entry, entries, rectangle, nodes, share)
            for i in range(3):
                if cost[i] != least[i]:
                    if cost[i] < least[i]:
                        best = entry
                        least[:] = cost
                    break
        node = best
    return node


@jit
def _overlap_enlargement(
    entry: int, entries: np.ndarray, rectangle: np.ndarray, nodes: Nodes, share: np.ndarray
) -> float:
    """Returns how much an entry's overlap with the others grows if it is enlarged to contain a rectangle."""
    larger = nodes.bounds[entry].copy()
    enlarge(larger, rectangle)
    total = 0.0
    for other in entries:
        if other != entry:
            total += overlap_area(larger, nodes.bounds[other], share)
            total -= overlap_area(nodes.bounds[entry], nodes.bounds[other], share)
    return total


@jit
def _add(
    entry: int, node: int, nodes: Nodes, boxes: BoxArrays, dimensions: Dimensions, share: np.ndarray,
    min_entries: int, r_star: bool, treated: np.ndarray, waiting: np.ndarray, count: int,
) -> int:  # fmt: skip
    """Adds an entry to a node, and splits nodes upwards or queues entries for reinsertion. Returns how many entries are
    queued.

    The queue is `waiting` [., 2] int32 (entry, level) up to `count`; `treated` [levels] bool are the levels that have
    had their one forced reinsertion (OverflowTreatment).
    """
    while nodes.filled[node] == nodes.entries.shape[1]:
        members = np.empty(nodes.entries.shape[1] + 1, np.int32)
        members[:-1] = nodes.entries[node]
        members[-1] = entry
        rectangles = np.empty((len(members), nodes.bounds.shape[1]), np.int32)
        for i in range(len(members)):
            _entry_bounds(members[i], nodes.level[node], nodes, boxes, dimensions, rectangles[i])
        if r_star and node != nodes.header[ROOT] and not treated[nodes.level[node]]:
            treated[nodes.level[node]] = True
            return _reinsert(members, rectangles, node, nodes, boxes, dimensions, share, waiting, count)
        sibling = new_node(nodes.level[node], nodes)
        if r_star:
            side = r_star_split(rectangles, share, min_entries)
        else:
            side = quadratic_split(rectangles, share, min_entries)
        nodes.filled[node] = 0
        for i in range(len(members)):
            adopt(sibling if side[i] else node, members[i], nodes, boxes)
        bound(node, nodes, boxes, dimensions, rectangles[0])
        bound(sibling, nodes, boxes, dimensions, rectangles[0])
        if node == nodes.header[ROOT]:
            bound(make_root(node, sibling, nodes, boxes), nodes, boxes, dimensions, rectangles[0])
            return count
        entry, node = sibling, nodes.parent[node]
    adopt(node, entry, nodes, boxes)
    _bound_path(node, nodes, boxes, dimensions)
    return count


@jit
def _reinsert(
    members: np.ndarray, rectangles: np.ndarray, node: int, nodes: Nodes, boxes: BoxArrays, dimensions: Dimensions,
    share: np.ndarray, waiting: np.ndarray, count: int,
) -> int:  # fmt: skip
    """Removes the entries farthest from an overfull node's centre, and queues them so that the nearest of them is
    inserted first (close reinsert). Returns how many entries are queued."""
    cover = rectangles[0].copy()
    for rectangle in rectangles:
        enlarge(cover, rectangle)
    negative_distance = np.empty(len(members))
    for i in range(len(members)):
        negative_distance[i] = -distance(rectangles[i], cover, share)
    order = np.argsort(negative_distance, kind="mergesort")
    reinserted = reinserted_entries(len(members) - 1)
    nodes.filled[node] = 0
    for i in range(len(order)):
        if i < reinserted:
            waiting[count, 0], waiting[count, 1] = members[order[i]], nodes.level[node]
            count += 1
        else:
            adopt(node, members[order[i]], nodes, boxes)
    _bound_path(node, nodes, boxes, dimensions)
    return count


@jit
def take_out(slot: int, nodes: Nodes, boxes: BoxArrays, dimensions: Dimensions, min_entries: int) -> np.ndarray:
    """Removes a box from its leaf, and underfull nodes from the path above it (CondenseTree, section 3.3).

    Returns the nodes [.] int32 that are no longer in the tree, from the leaf upwards; their entries must be reinserted.
    """
    rectangle = np.empty(nodes.bounds.shape[1], np.int32)
    orphans = np.empty(MOST_LEVELS, np.int32)
    count = 0
    node = boxes.leaf[slot]
    drop(node, slot, nodes)
    while node != nodes.header[ROOT]:
        above = nodes.parent[node]
        if nodes.filled[node] < min_entries:
            drop(above, node, nodes)
            orphans[count] = node
            count += 1
        else:
            bound(node, nodes, boxes, dimensions, rectangle)
        node = above
    bound(node, nodes, boxes, dimensions, rectangle)
    return orphans[:count].copy()


@jit
def loose_node(nodes: Nodes, boxes: BoxArrays, dimensions: Dimensions) -> int:
    """Returns the first node whose bounds are not tight, or -1; makes its bounds tight."""
    rectangle = np.empty(nodes.bounds.shape[1], np.int32)
    for node in range(len(nodes.level)):
        if nodes.level[node] >= 0 and bound(node, nodes, boxes, dimensions, rectangle):
            return node
    return -1
