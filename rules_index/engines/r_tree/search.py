"""Searches a tree over boxes for a batch of rows; a row is a box with one code in every attribute."""

from __future__ import annotations

import numpy as np

from rules_index.engines.box_store import BoxArrays
from rules_index.engines.r_tree.dimensions import Dimensions
from rules_index.engines.r_tree.nodes import ROOT, Nodes
from rules_index.kernels.jit import inlined, jit
from rules_index.kernels.lists import grown


@inlined
def meets(bounds: np.ndarray, low: np.ndarray, high: np.ndarray, attributes: np.ndarray) -> bool:
    """Whether the bounds [2 d] of a node overlap [low, high], both [attributes], in every dimension."""
    for dimension in range(len(attributes)):
        attribute = attributes[dimension]
        if bounds[2 * dimension] > high[attribute] or bounds[2 * dimension + 1] < low[attribute]:
            return False
    return True


@inlined
def box_meets(slot: int, boxes: BoxArrays, low: np.ndarray, high: np.ndarray) -> bool:
    """Whether a box overlaps [low, high], both [attributes], in every attribute that it bounds."""
    begin = boxes.start[slot]
    for term in range(begin, begin + boxes.length[slot]):
        attribute = boxes.terms[term, 0]
        if boxes.terms[term, 1] > high[attribute] or boxes.terms[term, 2] < low[attribute]:
            return False
    return True


@jit
def find_overlapping(
    low: np.ndarray, high: np.ndarray, nodes: Nodes, boxes: BoxArrays, dimensions: Dimensions
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Finds, for each row, the boxes that overlap its [low, high] in every attribute; both are [attributes, rows]
    int32.

    Returns offsets [rows + 1] int64, keys [.] int32, ascending within a row, and the totals [3] int64 of inner
    nodes visited, leaves visited and boxes tested.
    """
    attributes, rows = low.shape
    offsets = np.zeros(rows + 1, np.int64)
    keys = np.empty(max(64, rows), np.int32)
    totals = np.zeros(3, np.int64)
    row_low = np.empty(attributes, np.int32)
    row_high = np.empty(attributes, np.int32)
    stack = np.empty((nodes.level[nodes.header[ROOT]] + 1) * nodes.entries.shape[1] + 1, np.int32)
    found = 0
    for row in range(rows):
        row_low[:] = low[:, row]
        row_high[:] = high[:, row]
        stack[0] = nodes.header[ROOT]
        waiting = 1
        while waiting > 0:
            waiting -= 1
            node = stack[waiting]
            if nodes.level[node] > 0:
                totals[0] += 1
                for i in range(nodes.filled[node]):
                    child = nodes.entries[node, i]
                    if meets(nodes.bounds[child], row_low, row_high, dimensions.attributes):
                        stack[waiting] = child
                        waiting += 1
                continue
            while node >= 0:
                count = nodes.filled[node]
                totals[1] += 1
                totals[2] += count
                if found + count > len(keys):
                    keys = grown(keys, found + count)
                for i in range(count):
                    slot = nodes.entries[node, i]
                    if box_meets(slot, boxes, row_low, row_high):
                        keys[found] = boxes.key[slot]
                        found += 1
                node = nodes.following[node]
        offsets[row + 1] = found
        keys[offsets[row] : found].sort()
    return offsets, keys[:found].copy(), totals
