"""Section 5: Rank, Gain and Loss of nodes, the rank of a new attribute, and the windows over which Loss is measured.

All weights are 1, as in the paper. The Rank of an l-node is Gain - Loss; that of another node is the sum of its
children's Ranks - its Loss. Because these are sums, a p-node only keeps the total Gain and the total Loss of everything
below it, and its Rank is their difference. The Gain of an l-node is the number of its expressions' predicates on
attributes of its path; subsumed ones, which equal the path's bucket, and the others, which it covers, count alike.

Interpretations where the paper leaves a choice: The length of a node's window is a number of operations on the whole
tree. Loss is the mean over all events of the window, whether or not they reached the node: what the node adds to the
cost of an average event. In an l-node every evaluated predicate of an expression that does not match is discarded; in a
c-node or p-node, the single evaluation that led to it if nothing below it matches. The end of a window is noticed by
the next adapting search that reaches the node.
"""

from __future__ import annotations

import math

import numpy as np

from rules_index.engines.be_tree.nodes import clear_path, mark_path
from rules_index.engines.be_tree.store import (
    COUNT,
    EVENTS,
    HEADER,
    NEXT,
    NO_EXPRESSION,
    NO_NODE,
    OPERATIONS,
    Store,
)
from rules_index.kernels.jit import inner

LOSS_STEPS = 1024.0
"""Loss is rounded to multiples of 1 / 1024, so that its sums stay exact however often they are updated."""


@inner
def best_attribute(store: Store, c_node: int) -> int:
    """Returns the best-ranked attribute to partition an l-node by, or -1 (GetNextHighestScoreUnusedAttr of algorithm
    5).

    It is not on the path, and at least min_size of the l-node's expressions name it. Its Gain is their number. Its
    Loss, if estimated (`histogram`), is the mean bucket size of a histogram with a bucket for each code. Ties: the
    lowest attribute.
    """
    words, path, uses = store.words, store.path, store.uses
    mark_path(store.c_nodes, path, c_node)
    node = store.c_nodes[c_node]
    _count_uses(words, path, uses, node.head, node.depth)
    clear_path(store.c_nodes, path, c_node)
    return _best_use(words, uses, store.sizes, node.head, node.depth, store.min_size, store.histogram)


@inner
def _count_uses(words: np.ndarray, path: np.ndarray, uses: np.ndarray, expression: int, depth: int) -> None:
    """Counts, for each attribute not on the marked path, the expressions from a given one on that use it, and their
    codes."""
    while expression != NO_EXPRESSION and words[expression + COUNT] > depth:
        for i in range(words[expression + COUNT]):
            at = expression + HEADER + 3 * i
            attribute = words[at]
            if path[attribute, 0] < 0:
                uses[attribute, 0] += 1
                uses[attribute, 1] += words[at + 2] - words[at + 1] + 1
        expression = words[expression + NEXT]


@inner
def _best_use(
    words: np.ndarray, uses: np.ndarray, sizes: np.ndarray, expression: int, depth: int, min_size: int, histogram: bool
) -> int:
    """Returns the best-ranked of the attributes counted, or -1. Resets the counters."""
    best = -1
    best_rank = 0.0
    while expression != NO_EXPRESSION and words[expression + COUNT] > depth:
        for i in range(words[expression + COUNT]):
            attribute = words[expression + HEADER + 3 * i]
            gain = uses[attribute, 0]
            rank = gain - (uses[attribute, 1] / sizes[attribute] if histogram else 0.0)
            better = rank > best_rank or (rank == best_rank and attribute < best)
            if gain >= max(1, min_size) and (best < 0 or better):
                best = attribute
                best_rank = rank
            uses[attribute, 0] = 0
            uses[attribute, 1] = 0
        expression = words[expression + NEXT]
    return best


@inner
def rank_of_p_node(p_nodes: np.ndarray, p_node: int) -> float:
    """The Rank of a p-node, its score when an expression is inserted."""
    return p_nodes[p_node].gain - p_nodes[p_node].loss


@inner
def rank_of_l_node(c_nodes: np.ndarray, l_windows: np.ndarray, c_node: int) -> float:
    """Rank of the l-node of a c-node."""
    return float(c_nodes[c_node].depth) * c_nodes[c_node].count - l_windows[c_node].loss


@inner
def rank_of_c_node(
    c_nodes: np.ndarray, p_nodes: np.ndarray, l_windows: np.ndarray, c_windows: np.ndarray, c_node: int
) -> float:
    """The Rank of a c-node: that of its l-node and its p-nodes, less its own Loss."""
    rank = rank_of_l_node(c_nodes, l_windows, c_node) - c_windows[c_node].loss
    p_node = c_nodes[c_node].first
    while p_node != NO_NODE:
        rank += rank_of_p_node(p_nodes, p_node)
        p_node = p_nodes[p_node].next
    return rank


@inner
def is_over(windows: np.ndarray, number: int, scalars: np.ndarray, rank_window: float, expressions: int) -> bool:
    """Whether a node's window is over: it lasts `rank_window` operations per expression below the node, and at least
    one."""
    return scalars[OPERATIONS] - windows[number].operations >= max(1, math.ceil(rank_window * expressions))


@inner
def take_loss(windows: np.ndarray, number: int, scalars: np.ndarray) -> float:
    """Ends a node's window and begins the next; returns the change of its Loss."""
    window = windows[number]
    before = window.loss
    events = scalars[EVENTS] - window.events
    if events > 0:
        window.loss = math.floor(window.discarded * LOSS_STEPS / events + 0.5) / LOSS_STEPS
    window.discarded = 0
    window.operations = scalars[OPERATIONS]
    window.events = scalars[EVENTS]
    return window.loss - before
