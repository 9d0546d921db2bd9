"""Sort-tile-recursive bulk loading of an R-tree (*ours*; Leutenegger, Lopez and Edgington, STR, ICDE 1997).

Boxes are first grouped by the dimensions that they bound, because one box that is unbounded in a dimension makes its
whole node unbounded there. Each group is tiled by the boxes' centres in the dimensions that it bounds.
"""

from __future__ import annotations

import numpy as np

from rules_index.engines.box_store import BoxStore
from rules_index.engines.r_tree.dimensions import Dimensions, all_bounds
from rules_index.engines.r_tree.nodes import Level, Nodes, number_levels
from rules_index.kernels.jit import jit

GROUPING_DIMENSIONS = 32
"""Only this many dimensions, the first ones, distinguish groups."""


def pack(store: BoxStore, dimensions: Dimensions, min_entries: int, max_entries: int) -> Nodes:
    """Returns the nodes over all boxes of the store, and reorders its boxes by leaf.

    Every node except the root has `min_entries` to `max_entries` entries; 2 * min_entries is at most max_entries + 1.
    """
    slots = store.slots
    levels: list[Level] = []
    below = all_bounds(slots, store.view, dimensions)
    while not levels or len(below) > 1:
        order, begins = _tile(below, dimensions.last, min_entries, max_entries)
        if levels:
            # the children of a node must be contiguous, and are moved together with their contents
            levels[-1] = Level(*(array[order] for array in levels[-1]))
        else:
            store.reorder(slots[order])
        below = _covers(below[order], begins, dimensions.last)
        levels.append(Level(begins[:-1], np.diff(begins), below))
    return number_levels(levels, store.view, max_entries)


def _tile(sides: np.ndarray, last: np.ndarray, min_entries: int, max_entries: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns an order [n] of rectangles [n, 2 d], and where each node's entries begin in it [nodes + 1].

    All groups are tiled at once, with one sort for each dimension that they bound.
    """
    if len(sides) <= max_entries:
        return np.arange(len(sides)), np.array([0, len(sides)])
    bounded = (sides[:, 0::2] > 0) | (sides[:, 1::2] < last)
    order, begins = _groups(bounded, min_entries)
    entries = np.diff(begins)
    nodes = -(-entries // max_entries)
    node_begins = np.append(_cut(begins[:-1], entries, nodes), len(sides))
    # the dimensions by which each group is tiled: those that its first member bounds
    bounds_dimension = bounded[order[begins[:-1]]]
    to_tile = bounds_dimension.sum(axis=1)
    dimension = np.argsort(~bounds_dimension, axis=1, kind="stable")
    group, tile_begin = np.arange(len(nodes)), np.cumsum(nodes) - nodes
    for step in range(int(to_tile.max(initial=0))):
        tile_nodes = np.diff(tile_begin, append=len(node_begins) - 1)
        tile_entries = np.diff(node_begins[tile_begin], append=len(sides))
        left = to_tile[group] - step
        low = np.repeat(2 * dimension[group, step], tile_entries)
        centre = sides[order, low].astype(np.int64) + sides[order, low + 1]
        centre[np.repeat(left <= 0, tile_entries)] = 0
        tile = np.repeat(np.arange(len(group)), tile_entries)
        order = order[np.argsort(tile << 33 | centre, kind="stable")]
        # STR: the k-th root of the number of nodes is the number of slabs, if k dimensions are left; 1e-9 is for
        # rounding errors of the root
        slabs = np.where(left > 0, np.ceil(tile_nodes ** (1 / np.maximum(left, 1)) - 1e-9), 1).astype(np.int64)
        tile_begin, group = _cut(tile_begin, tile_nodes, slabs), np.repeat(group, slabs)
    return order, node_begins


def _cut(begin: np.ndarray, length: np.ndarray, pieces: np.ndarray) -> np.ndarray:
    """Cuts ranges evenly into pieces: where the pieces [.] begin, given the begin, the length and the number of pieces
    of each range."""
    place = np.arange(pieces.sum()) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    return np.repeat(begin, pieces) + place * np.repeat(length, pieces) // np.repeat(pieces, pieces)


def _groups(bounded: np.ndarray, min_entries: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns an order [n] that makes boxes with the same bounded dimensions adjacent, and where each group begins in
    it [groups + 1].

    bounded: [n, d] bool. Groups that are too small for a node are merged with their neighbours.
    """
    grouping = bounded[:, :GROUPING_DIMENSIONS]
    # the first dimension is the most significant bit, so that neighbouring groups differ in less selective ones
    pattern = grouping @ (1 << np.arange(grouping.shape[1])[::-1].astype(np.int64))
    order = np.argsort(pattern, kind="stable")
    begins = np.flatnonzero(np.diff(pattern[order], prepend=-1))
    return order, _large_groups(np.append(begins, len(bounded)), min_entries)


@jit
def _large_groups(begins: np.ndarray, min_entries: int) -> np.ndarray:
    """Returns the borders [.] that are left when groups of fewer than `min_entries` are merged with a neighbour."""
    kept = begins.copy()
    count = 1
    for border in begins[1:]:
        if border - kept[count - 1] >= min_entries:
            kept[count] = border
            count += 1
    kept[count - 1] = begins[-1]
    return kept[:count].copy()


def _covers(sides: np.ndarray, begins: np.ndarray, last: np.ndarray) -> np.ndarray:
    """The bounding rectangle [nodes, 2 d] of the entries of each node, the whole range for one without entries."""
    if not len(sides):
        return np.stack([np.zeros_like(last), last], axis=1).reshape(1, -1)
    covers = np.empty((len(begins) - 1, sides.shape[1]), np.int32)
    covers[:, 0::2] = np.minimum.reduceat(sides[:, 0::2], begins[:-1], axis=0)
    covers[:, 1::2] = np.maximum.reduceat(sides[:, 1::2], begins[:-1], axis=0)
    return covers
