"""Self-adjustment by matching (section 5): an event's discarded evaluations are added to the windows of the nodes that
it visited; nodes whose Rank is below theta at the end of their window are recycled."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rules_index.engines.be_tree.deletion import recycle_c_node, recycle_l_node, recycle_p_node
from rules_index.engines.be_tree.nodes import add_loss
from rules_index.engines.be_tree.rank import is_over, rank_of_c_node, rank_of_l_node, rank_of_p_node, take_loss
from rules_index.engines.be_tree.store import EVENTS, NO_EXPRESSION, NO_NODE, OPERATIONS, PENDING, Store
from rules_index.kernels.jit import inner

_L_NODE, _C_NODE, _P_NODE = 1, 2, 4


class Trace(NamedTuple):
    """The c-nodes that an event visited, in order.

    steps      [visits, 4] int32: the c-node; the visit that led to it; the matches in its l-node, and after
               `_enter` also below its p-nodes; the matches in the halves of its bucket and below, replaced in `_close`
               by the windows that it closed
    discarded  [visits] int64, the predicates evaluated in its l-node for expressions that did not match
    """

    steps: np.ndarray
    discarded: np.ndarray


@inner
def new_trace(visits: int) -> Trace:
    """A trace with room for so many visits."""
    return Trace(np.empty((visits, 4), np.int32), np.empty(visits, np.int64))


@inner
def observe(store: Store, trace: Trace, visits: int) -> bool:
    """Adds one event to the windows. Returns whether expressions of recycled nodes are left for `space_cutting.work`.

    All windows that are over are closed before the first Rank is computed. Nodes are examined from the root down, so a
    node that is recycled with a node above it is not recycled again.
    """
    store.scalars[OPERATIONS] += 1
    store.scalars[EVENTS] += 1
    _enter(store, trace, visits)
    _close(store, trace.steps, visits)
    visit, kind = _next_to_recycle(store, trace.steps, 0, visits)
    while kind != 0:
        c_node = trace.steps[visit, 0]
        if kind == _P_NODE:
            recycle_p_node(store, store.c_nodes[c_node].above)
        elif kind == _C_NODE:
            recycle_c_node(store, c_node)
        else:
            recycle_l_node(store, c_node)
        visit, kind = _next_to_recycle(store, trace.steps, visit + 1, visits)
    return store.scalars[PENDING] != NO_EXPRESSION


@inner
def _close(store: Store, steps: np.ndarray, visits: int) -> None:
    """Closes the windows that are over, and writes which ones to the last column of `steps`: the sum of `_L_NODE`,
    `_C_NODE` and, if the c-node has the largest bucket of its p-node, `_P_NODE`."""
    c_nodes, p_nodes, scalars = store.c_nodes, store.p_nodes, store.scalars
    l_windows, c_windows, p_windows = store.l_windows, store.c_windows, store.p_windows
    rank_window = store.rank_window
    for visit in range(visits):
        c_node = steps[visit, 0]
        node = c_nodes[c_node]
        above = node.above
        closed = 0
        if is_over(l_windows, c_node, scalars, rank_window, node.count):
            add_loss(c_nodes, p_nodes, above, take_loss(l_windows, c_node, scalars))
            closed += _L_NODE
        if is_over(c_windows, c_node, scalars, rank_window, node.below):
            add_loss(c_nodes, p_nodes, above, take_loss(c_windows, c_node, scalars))
            closed += _C_NODE
        p_node = above if node.up == NO_NODE else NO_NODE
        if p_node != NO_NODE and is_over(p_windows, p_node, scalars, rank_window, p_nodes[p_node].size):
            add_loss(c_nodes, p_nodes, p_node, take_loss(p_windows, p_node, scalars))
            closed += _P_NODE
        steps[visit, 3] = closed


@inner
def _next_to_recycle(store: Store, steps: np.ndarray, begin: int, visits: int) -> tuple[int, int]:
    """Finds the first visit, from `begin` on, to a node whose Rank is below theta at the end of its window. Returns the
    visit and which of the nodes there it is (`_L_NODE`, `_C_NODE`, `_P_NODE`; 0 if there is none).

    The root is excluded: its path is empty. A node that was removed together with a recycled one has depth -1.
    """
    c_nodes, p_nodes, theta = store.c_nodes, store.p_nodes, store.theta
    l_windows, c_windows = store.l_windows, store.c_windows
    for visit in range(begin, visits):
        c_node, closed = steps[visit, 0], steps[visit, 3]
        depth = c_nodes[c_node].depth
        kind = 0
        if depth > 0 and closed & _L_NODE != 0 and rank_of_l_node(c_nodes, l_windows, c_node) < theta:
            kind = _L_NODE
        ranked = depth > 0 and closed & _C_NODE != 0
        if ranked and rank_of_c_node(c_nodes, p_nodes, l_windows, c_windows, c_node) < theta:
            kind = _C_NODE
        if depth > 0 and closed & _P_NODE != 0 and rank_of_p_node(p_nodes, c_nodes[c_node].above) < theta:
            kind = _P_NODE
        if kind != 0:
            return visit, kind
    return visits, 0


@inner
def _enter(store: Store, trace: Trace, visits: int) -> None:
    """Adds the discarded evaluations to the windows: those of the l-nodes, and one for each c-node and p-node without a
    match."""
    steps, c_nodes = trace.steps, store.c_nodes
    l_windows, c_windows, p_windows = store.l_windows, store.c_windows, store.p_windows
    for visit in range(visits):
        steps[visit, 3] = 0
    for visit in range(visits - 1, -1, -1):
        c_node, led_by = steps[visit, 0], steps[visit, 1]
        node = c_nodes[c_node]
        l_windows[c_node].discarded += trace.discarded[visit]
        c_windows[c_node].discarded += steps[visit, 2] == 0
        matches = steps[visit, 2] + steps[visit, 3]
        if node.up != NO_NODE:
            steps[led_by, 3] += matches
        elif node.above != NO_NODE:
            p_windows[node.above].discarded += matches == 0
            steps[led_by, 2] += matches
