"""Renumbering: new constants split regions, and every bound of the tree follows its region's codes.

What a bucket encloses stays enclosed, but its halves may no longer be equal. A bucket of one code can now have several,
although its c-node is partitioned or has more than max_cap expressions: it is then halved, by the forced split rule;
its expressions fill it, so that none of them moves. Where unequal halves could make a c-directory more than twice as
deep as halving does, its p-node is dissolved and its expressions are inserted again.
"""

from __future__ import annotations

import numpy as np

from rules_index.engines.be_tree.arrays import SPARE, from_arrays, to_arrays
from rules_index.engines.be_tree.shrink import recycle_p_node
from rules_index.engines.be_tree.store import C_USED, NO_NODE, Store
from rules_index.kernels.jit import inner, jit


def renumbered(store: Store, sizes: np.ndarray, first: list[np.ndarray], last: list[np.ndarray]) -> Store:
    """The same tree over the new codes; some expressions may still have to be inserted. Raises `ValueError` where
    `first` and `last` do not cover the new codes in order."""
    sizes = np.asarray(sizes, np.int32)
    _require_cover(store.sizes, sizes, first, last)
    arrays = to_arrays(store)
    base = np.cumsum(store.sizes, dtype=np.int64) - store.sizes
    all_first = np.concatenate([*first, np.empty(0, np.int32)]).astype(np.int32)
    all_last = np.concatenate([*last, np.empty(0, np.int32)]).astype(np.int32)
    predicates, c_nodes = arrays["predicates"], arrays["c_nodes"]
    of = base[predicates[:, 0]]
    predicates[:, 1] = all_first[of + predicates[:, 1]]
    predicates[:, 2] = all_last[of + predicates[:, 2]]
    of = base[arrays["p_nodes"][c_nodes[1:, 0], 0]]
    widened = c_nodes[1:, 2] == c_nodes[1:, 3]
    c_nodes[1:, 2] = all_first[of + c_nodes[1:, 2]]
    c_nodes[1:, 3] = all_last[of + c_nodes[1:, 3]]
    widened &= c_nodes[1:, 2] < c_nodes[1:, 3]
    _halve(arrays, 1 + np.flatnonzero(widened), store.max_cap)
    new = from_arrays(arrays, sizes, SPARE)
    _dissolve_deep(new)
    return new


def _require_cover(old: np.ndarray, new: np.ndarray, first: list[np.ndarray], last: list[np.ndarray]) -> None:
    if not len(old) == len(new) == len(first) == len(last):
        raise ValueError("sizes, first and last: one of each an attribute")
    for attribute, (lows, highs) in enumerate(zip(first, last, strict=True)):
        lows, highs = np.asarray(lows), np.asarray(highs)
        if not (
            len(lows) == len(highs) == old[attribute]
            and np.array_equal(lows, [0, *(highs[:-1] + 1)])
            and (lows <= highs).all()
            and highs[-1] == new[attribute] - 1
        ):
            raise ValueError(f"first and last of attribute {attribute} do not cover its codes in order")


def _halve(arrays: dict[str, np.ndarray], widened: np.ndarray, max_cap: int) -> None:
    """Gives two empty halves to each widened c-node that is partitioned or has more than max_cap expressions."""
    c_nodes = arrays["c_nodes"]
    partitioned = np.zeros(len(c_nodes), bool)
    partitioned[arrays["p_nodes"][:, 1]] = True
    halved = widened[partitioned[widened] | (c_nodes[widened, 4] > max_cap)]
    if len(halved) == 0:
        return
    above, _, low, high, _ = c_nodes[halved].T
    middle = low + (high - low) // 2
    empty = np.zeros(len(halved), np.int32)
    left = np.stack([above, halved.astype(np.int32), low, middle, empty], axis=1)
    right = np.stack([above, halved.astype(np.int32), middle + 1, high, empty], axis=1)
    halves = np.stack([left, right], axis=1).reshape(-1, 5)
    arrays["c_nodes"] = np.concatenate([c_nodes, halves])
    if len(arrays["losses"]):
        for name in ("windows", "losses"):
            c_count = len(c_nodes)
            windows = arrays[name]
            new = np.zeros((len(halves), *windows.shape[1:]), windows.dtype)
            if name == "windows":
                new[:, 1:] = arrays["clocks"]
            arrays[name] = np.concatenate(
                [windows[:c_count], new, windows[c_count : 2 * c_count], new, windows[2 * c_count :]]
            )


@inner
def _halvings(codes: int) -> int:
    """How often a bucket with so many codes can be halved: ceil(log2)."""
    count = 0
    while 1 << count < codes:
        count += 1
    return count


@jit
def _dissolve_deep(store: Store) -> None:
    """Dissolves p-nodes with a bucket that, fully halved, could be deeper than twice 1 + ceil(log2 N)."""
    count = store.scalars[C_USED]
    level = np.zeros(count, np.int32)
    for number in range(1, count):
        node = store.c_nodes[number]
        if node.up != NO_NODE:
            level[number] = level[node.up] + 1
    for number in range(1, count):
        node = store.c_nodes[number]
        if node.depth > 0:
            reached = level[number] + _halvings(node.high - node.low + 1)
            if 1 + reached > 2 * (1 + _halvings(store.sizes[node.attribute])):
                recycle_p_node(store, node.above)
