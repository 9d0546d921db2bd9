"""Converts a tree over boxes to nodes for the batch kernel."""

from __future__ import annotations

import numpy as np

from rules_index.engines.box_store import BoxArrays
from rules_index.engines.r_tree.dimensions import Dimensions
from rules_index.engines.r_tree.nodes import ROOT, USED, Nodes
from rules_index.index.boxes import Tree
from rules_index.kernels.jit import jit


def preorder(nodes: Nodes, boxes: BoxArrays, dimensions: Dimensions) -> Tree:
    """The nodes in preorder, each with a test for every dimension in which its bounds exclude codes."""
    order, end, key_start, keys = _preorder(nodes, boxes.key)
    bounds = nodes.bounds[order].reshape(len(order), -1, 2)
    low, high = bounds[:, :, 0], np.minimum(bounds[:, :, 1], dimensions.last)
    where, dimension = np.nonzero((low > 0) | (high < dimensions.last))
    tests = np.stack([dimensions.attributes[dimension], low[where, dimension], high[where, dimension]], axis=1)
    test_start = np.zeros(len(order) + 1, np.int64)
    np.cumsum(np.bincount(where, minlength=len(order)), out=test_start[1:])
    return Tree(end, test_start, tests.astype(np.int32), key_start, keys)


@jit
def _preorder(nodes: Nodes, key: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Returns the nodes in preorder [n]; for each node the place of the first node behind its subtree [n] and where its
    keys begin [n + 1]; and the keys."""
    used = nodes.header[USED]
    order = np.empty(used, np.int32)
    place = np.empty(used, np.int32)
    key_start = np.zeros(used + 1, np.int64)
    keys = np.empty(len(key), np.int32)
    stack = np.empty(used, np.int32)
    stack[0] = nodes.header[ROOT]
    waiting = 1
    met = 0
    found = 0
    while waiting > 0:
        waiting -= 1
        node = stack[waiting]
        order[met] = node
        place[node] = met
        met += 1
        if nodes.level[node] > 0:
            for i in range(nodes.filled[node] - 1, -1, -1):
                stack[waiting] = nodes.entries[node, i]
                waiting += 1
        else:
            block = node
            while block >= 0:
                for slot in nodes.entries[block, : nodes.filled[block]]:
                    keys[found] = key[slot]
                    found += 1
                block = nodes.following[block]
        key_start[met] = found
    end = np.arange(1, met + 1).astype(np.int32)
    # backwards from the last node: each subtree is complete before its parent takes over its end
    for i in range(met - 1, 0, -1):
        above = place[nodes.parent[order[i]]]
        end[above] = max(end[above], end[i])
    return order[:met].copy(), end, key_start[: met + 1].copy(), keys[:found].copy()
