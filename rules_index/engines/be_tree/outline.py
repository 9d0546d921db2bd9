"""Derived forms of a stored BE-Tree: its l-nodes with their keys, and its nodes for the batch kernel."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rules_index.engines.be_tree.store import NO_NODE
from rules_index.index.boxes import Tree
from rules_index.kernels.jit import jit


@dataclass(frozen=True)
class LNode:
    """An l-node.

    key       section 4.1: the conjunction of the buckets (attribute, low, high) on its path, the root's first
    boxes     the keys of its boxes, ascending
    covered   the number of their predicates on attributes of the path that are not subsumed
    subsumed  the number of their predicates that equal a bucket of the path
    loss      Loss over the last whole window; 0 before
    """

    key: tuple[tuple[int, int, int], ...]
    boxes: tuple[int, ...]
    covered: int
    subsumed: int
    loss: float

    @property
    def gain(self) -> int:
        """Gain of section 5; covered and subsumed predicates count alike."""
        return self.covered + self.subsumed

    @property
    def rank(self) -> float:
        """Rank of section 5."""
        return self.gain - self.loss


def l_nodes(arrays: dict[str, np.ndarray]) -> list[LNode]:
    """The l-nodes of a tree, given as the module `arrays` describes it, in preorder."""
    p_nodes = arrays["p_nodes"].tolist()
    predicates = arrays["predicates"].tolist()
    start = arrays["start"].tolist()
    keys_of = _keys(arrays["position"], len(start) - 1).tolist()
    losses = arrays["losses"].tolist() or [0.0] * len(arrays["c_nodes"])
    keys: list[tuple[tuple[int, int, int], ...]] = []
    found = []
    box = 0
    for number, (above, _, low, high, count) in enumerate(arrays["c_nodes"].tolist()):
        if above == NO_NODE:
            keys.append(())
        else:
            attribute, c_node = p_nodes[above]
            keys.append((*keys[c_node], (attribute, low, high)))
        path = {attribute: (low, high) for attribute, low, high in keys[number]}
        named = [p for p in predicates[start[box] : start[box + count]] if p[0] in path]
        subsumed = sum(path[attribute] == (low, high) for attribute, low, high in named)
        boxes = tuple(sorted(keys_of[box : box + count]))
        found.append(LNode(keys[number], boxes, len(named) - subsumed, subsumed, losses[number]))
        box += count
    return found


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
        keys=_keys(arrays["position"], len(arrays["start"]) - 1),
    )


def _keys(position: np.ndarray, boxes: int) -> np.ndarray:
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
