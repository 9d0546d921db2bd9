"""Checks stored arrays before a kernel follows them."""

from __future__ import annotations

import numpy as np

from rules_index.engines.be_tree.store import NO_NODE, Parameters
from rules_index.index.array_checks import require, require_offsets, require_range

_SHAPES: dict[str, tuple[type[np.generic], tuple[int, ...]]] = {
    "c_nodes": (np.int32, (5,)),
    "p_nodes": (np.int32, (2,)),
    "start": (np.int64, ()),
    "predicates": (np.int32, (3,)),
    "position": (np.int32, ()),
    "windows": (np.int64, (3,)),
    "losses": (np.float64, ()),
    "clocks": (np.int64, ()),
    "parameters": (np.float64, ()),
}
"""For each array its dtype, and its dimensions after the first."""
MOST_PER_NODE = 2**30
"""The largest max_cap and min_size."""


def require_arrays(arrays: dict[str, np.ndarray], sizes: np.ndarray) -> Parameters:
    """Checks the arrays of a tree, except for whether expressions fit the paths to their l-nodes. Returns its
    parameters."""
    for name, (kind, rest) in _SHAPES.items():
        require(name in arrays, name)
        array = arrays[name]
        require(array.dtype == kind and array.ndim == 1 + len(rest) and array.shape[1:] == rest, name)
    require_range(sizes, 1, 2**31, "sizes")
    _require_nodes(arrays["c_nodes"], arrays["p_nodes"], sizes)
    boxes = len(arrays["start"]) - 1
    require_offsets(arrays["start"], len(arrays["predicates"]), "start")
    require(int(arrays["c_nodes"][:, 4].sum(dtype=np.int64)) == boxes, "c_nodes")
    require_predicates(arrays["predicates"], sizes)
    position = arrays["position"]
    require_range(position, -1, boxes, "position")
    require(bool((np.bincount(position[position >= 0], minlength=boxes) == 1).all()), "position")
    _require_windows(arrays)
    require(len(arrays["parameters"]) == len(Parameters._fields), "parameters")
    max_cap, min_size, theta, rank_window, histogram = arrays["parameters"].tolist()
    for count in (max_cap, min_size):
        require(np.isfinite(count) and count == int(count), "parameters")
    parameters = Parameters(int(max_cap), int(min_size), theta, rank_window, bool(histogram))
    require_parameters(parameters)
    return parameters


def require_parameters(parameters: Parameters) -> None:
    """Requires parameters for which the algorithms are defined."""
    require(1 <= parameters.max_cap <= MOST_PER_NODE, "max_cap")
    require(0 <= parameters.min_size <= MOST_PER_NODE, "min_size")
    require(not np.isnan(parameters.theta), "theta")
    require(0 <= parameters.rank_window <= MOST_PER_NODE, "rank_window")


def require_predicates(predicates: np.ndarray, sizes: np.ndarray) -> None:
    """Requires predicates [., 3] (attribute, low, high) within the attributes and their codes."""
    require_range(predicates[:, 0], 0, len(sizes), "predicates")
    low, high = predicates[:, 1], predicates[:, 2]
    require(bool(((low >= 0) & (low <= high) & (high < sizes[predicates[:, 0]])).all()), "predicates")


def _require_nodes(c_nodes: np.ndarray, p_nodes: np.ndarray, sizes: np.ndarray) -> None:
    """Requires that every node comes after its parent, so that there is no cycle; that every p-node has exactly one
    bucket that is not a half, its whole domain; and that every bucket has no halves, or two that make it up."""
    require(len(c_nodes) > 0, "c_nodes")
    require(bool((c_nodes[0, :2] == NO_NODE).all()), "c_nodes")
    require(bool((c_nodes[:, 4] >= 0).all()), "c_nodes")
    require_range(p_nodes[:, 0], 0, len(sizes), "p_nodes")
    require_range(p_nodes[:, 1], 0, len(c_nodes), "p_nodes")
    require(bool((np.diff(p_nodes[:, 1]) >= 0).all()), "p_nodes")
    named = p_nodes[:, 1].astype(np.int64) * len(sizes) + p_nodes[:, 0]
    require(len(np.unique(named)) == len(named), "p_nodes")
    number = np.arange(1, len(c_nodes))
    above, up, low, high = c_nodes[1:, :4].T
    require_range(above, 0, len(p_nodes), "c_nodes")
    require_range(up, NO_NODE, len(c_nodes), "c_nodes")
    require(bool((up < number).all() and (p_nodes[above, 1] < number).all()), "c_nodes")
    require(bool((low <= high).all()), "c_nodes")
    whole = up == NO_NODE
    require(bool((np.bincount(above[whole], minlength=len(p_nodes)) == 1).all()), "c_nodes")
    domain = sizes[p_nodes[above[whole], 0]]
    require(bool(((low[whole] == 0) & (high[whole] == domain - 1)).all()), "c_nodes")
    halves = np.flatnonzero(~whole)
    halves = halves[np.argsort(up[halves], kind="stable")]
    left, right = halves[::2], halves[1::2]
    require(len(left) == len(right) and bool((np.diff(up[left]) > 0).all()), "c_nodes")
    halved = up[left] - 1
    require(bool((up[left] > 0).all() and (up[left] == up[right]).all()), "c_nodes")
    require(bool((above[left] == above[halved]).all() and (above[right] == above[halved]).all()), "c_nodes")
    require(bool((low[left] == low[halved]).all() and (high[right] == high[halved]).all()), "c_nodes")
    require(bool((high[left] + 1 == low[right]).all()), "c_nodes")


def _require_windows(arrays: dict[str, np.ndarray]) -> None:
    windows, losses, clocks = arrays["windows"], arrays["losses"], arrays["clocks"]
    require(len(windows) == len(losses), "windows")
    require(len(losses) in (0, 2 * len(arrays["c_nodes"]) + len(arrays["p_nodes"])), "losses")
    require(bool(np.isfinite(losses).all() and (losses >= 0).all() and (losses < 2.0**40).all()), "losses")
    require(clocks.shape == (2,) and bool((clocks >= 0).all()), "clocks")
    require(bool((windows >= 0).all() and (windows[:, 1:] <= clocks).all()), "windows")
