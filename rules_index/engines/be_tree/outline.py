"""The nodes of a stored BE-Tree for the batch kernel."""

from __future__ import annotations

import numpy as np

from rules_index.engines.be_tree.store import NO_NODE
from rules_index.index.boxes import Tree
from rules_index.kernels.jit import jit


def batch_tree(arrays: dict[str, np.ndarray]) -> Tree:
    """The buckets of a tree, given as the module `arrays` describes it, that have a box in them or below."""
    c_nodes, p_nodes = arrays["c_nodes"], arrays["p_nodes"]
    above, up = c_nodes[1:, 0], c_nodes[1:, 1]
    parent = np.concatenate([[NO_NODE], np.where(up == NO_NODE, p_nodes[above, 1], up)])
    boxes = _sums(parent, c_nodes[:, 4].astype(np.int64))
    kept = boxes > 0
    kept[0] = True
    nodes = _sums(parent, kept.astype(np.int64))[kept]
    tests = np.stack([p_nodes[above, 0], c_nodes[1:, 2], c_nodes[1:, 3]], axis=1)[kept[1:]]
    count = int(kept.sum())
    return Tree(
        end=(np.arange(count) + nodes).astype(np.int32),
        test_start=np.maximum(np.arange(-1, count), 0),
        tests=tests,
        key_start=np.concatenate([[0], np.cumsum(c_nodes[kept, 4], dtype=np.int64)]),
        keys=keys_of(arrays["position"], len(arrays["start"]) - 1),
    )


def keys_of(position: np.ndarray, boxes: int) -> np.ndarray:
    """The keys [boxes] int32 of the expressions, in their order."""
    keys = np.empty(boxes, np.int32)
    in_use = np.flatnonzero(position >= 0)
    keys[position[in_use]] = in_use
    return keys


@jit
def _sums(parent: np.ndarray, values: np.ndarray) -> np.ndarray:
    """For every node the sum over itself and all nodes below it; parents come before children."""
    sums = values.copy()
    for node in range(len(parent) - 1, 0, -1):
        sums[parent[node]] += sums[node]
    return sums
