"""Two-phase cutting of space: insertion, partitioning and clustering (algorithms 3 to 6).

Unfinished work is kept in the store: expressions that are in no l-node (`PENDING`), and c-nodes whose l-node may
overflow (`schedule`). `work` proceeds in steps that each need little room, so it can stop when a pool is full and
resume with larger pools.
"""

from __future__ import annotations

import numpy as np

from rules_index.engines.be_tree.nodes import (
    add_above,
    arrange,
    arrange_all,
    capacity_of,
    clear_path,
    defer,
    find_predicate,
    mark_path,
    new_c_node,
    new_expression,
    new_p_node,
    push,
    unlink,
)
from rules_index.engines.be_tree.rank import best_attribute, rank_of_p_node
from rules_index.engines.be_tree.store import (
    COUNT,
    HEADER,
    NEXT,
    NO_EXPRESSION,
    NO_NODE,
    OPERATIONS,
    PENDING,
    SCHEDULED,
    Store,
    find_p_node,
    has_room,
    is_crowded,
)
from rules_index.kernels.jit import inner, jit

DONE, SHORT, CROWDED = range(3)
"""The results of `work`: nothing is left to do; more room is needed; nothing is left to do, but room is scarce."""


@jit
def is_box(sizes: np.ndarray, predicates: np.ndarray) -> bool:
    """Whether predicates [., 3] (attribute, low, high) are within the codes, and their attributes ascend."""
    before = -1
    for i in range(len(predicates)):
        attribute, low, high = predicates[i, 0], predicates[i, 1], predicates[i, 2]
        if attribute <= before or attribute >= len(sizes) or low < 0 or low > high or high >= sizes[attribute]:
            return False
        before = attribute
    return True


@jit
def insert_boxes(store: Store, keys: np.ndarray, start: np.ndarray, predicates: np.ndarray, begin: int) -> int:
    """Inserts boxes one by one, from number `begin` on. Returns the number at which it stopped, for lack of room or at
    the end. The last box that it took is still pending: `work` must follow.

    keys [boxes] int32, not in use; start [boxes + 1] int64 into predicates [., 3] int32 (attribute, low, high).
    """
    for box in range(begin, len(start) - 1):
        words = HEADER + 3 * (start[box + 1] - start[box])
        if not _work(store) or is_crowded(store, words):
            return box
        defer(store, new_expression(store, keys[box], predicates, start[box], start[box + 1]))
        store.scalars[OPERATIONS] += 1
    return len(start) - 1


@jit
def work(store: Store) -> int:
    """Inserts pending expressions and cuts overflowing l-nodes; returns `DONE`, `SHORT` or `CROWDED`."""
    if not _work(store):
        return SHORT
    return CROWDED if is_crowded(store, 0) else DONE


@inner
def _work(store: Store) -> bool:
    """Does the work of `work`. Returns False if it stopped for lack of room."""
    scalars = store.scalars
    while scalars[SCHEDULED] > 0 or scalars[PENDING] != NO_EXPRESSION:
        if not has_room(store):
            return False
        if scalars[SCHEDULED] > 0:
            _cut_one(store)
        else:
            expression = scalars[PENDING]
            scalars[PENDING] = store.words[expression + NEXT]
            _insert(store, expression)
    return True


@jit
def schedule(store: Store, c_node: int, capacity: int, new: bool) -> None:
    """Schedules an l-node to be cut until it has at most `capacity` expressions. new: all its expressions have just
    been moved there, so those that stay are arranged in the end."""
    row = store.scalars[SCHEDULED]
    store.schedule[row, 0] = c_node
    store.schedule[row, 1] = capacity
    store.schedule[row, 2] = new
    store.scalars[SCHEDULED] = row + 1


@inner
def _insert(store: Store, expression: int) -> None:
    """InsertBETree (algorithm 3): descends to the l-node where no p-node takes the expression further."""
    c_nodes, p_nodes, directory, words = store.c_nodes, store.p_nodes, store.directory, store.words
    c_node = 0
    at = _best_p_node(c_nodes, p_nodes, directory, words, c_node, expression)
    while at >= 0:
        p_node = find_p_node(directory, p_nodes, c_node, words[at])
        c_node = _home(c_nodes, p_nodes[p_node].top, words[at + 1], words[at + 2])
        at = _best_p_node(c_nodes, p_nodes, directory, words, c_node, expression)
    push(c_nodes, words, c_node, expression)
    add_above(c_nodes, p_nodes, c_node, 1, c_nodes[c_node].depth)
    mark_path(c_nodes, store.path, c_node)
    arrange(words, store.path, expression)
    clear_path(c_nodes, store.path, c_node)
    capacity = capacity_of(c_nodes[c_node].count - 1, store.max_cap)
    if c_nodes[c_node].count > capacity:
        schedule(store, c_node, capacity, False)


@inner
def _best_p_node(
    c_nodes: np.ndarray, p_nodes: np.ndarray, directory: np.ndarray, words: np.ndarray, c_node: int, expression: int
) -> int:
    """Returns where the predicate to descend by begins in `words`: among the expression's attributes, the one whose
    p-node in the c-node's p-directory has the highest Rank. -1 if none has a p-node. Attributes on the path need not be
    excluded: none occurs twice on a path, so they have no p-node here."""
    best = -1
    if c_nodes[c_node].partitions == 0:
        return best
    best_rank = 0.0
    for i in range(words[expression + COUNT]):
        at = expression + HEADER + 3 * i
        p_node = find_p_node(directory, p_nodes, c_node, words[at])
        if p_node != NO_NODE:
            rank = rank_of_p_node(p_nodes, p_node)
            if best < 0 or rank > best_rank or (rank == best_rank and words[at] < words[best]):
                best = at
                best_rank = rank
    return best


@inner
def _home(c_nodes: np.ndarray, c_node: int, low: int, high: int) -> int:
    """Returns the c-node with the smallest bucket that encloses an interval, searched from a given c-node down
    (InsertCDir, algorithm 4)."""
    half = c_node
    while half != NO_NODE:
        c_node = half
        node = c_nodes[c_node]
        half = node.left if high <= node.middle else node.right if low > node.middle else NO_NODE
    return c_node


@inner
def _cut_one(store: Store) -> None:
    """Takes one step with the c-node that was scheduled last: splits its bucket, partitions it, or ends its work
    (SpaceClustering, algorithm 6; at the root it is SpacePartitioning).

    By the forced split rule a leaf bucket that can be halved is halved first. If no attribute qualifies, the l-node
    keeps its expressions, and its capacity grows.
    """
    row = store.scalars[SCHEDULED] - 1
    c_node = store.schedule[row, 0]
    node = store.c_nodes[c_node]
    if node.count > store.schedule[row, 1]:
        if node.above != NO_NODE and node.left == NO_NODE and node.low < node.high:
            _split(store, c_node)
            return
        attribute = best_attribute(store, c_node)
        if attribute >= 0:
            _partition(store, c_node, attribute)
            return
    store.scalars[SCHEDULED] = row
    if store.schedule[row, 2]:
        arrange_all(store.c_nodes, store.words, store.path, c_node)


@inner
def _split(store: Store, c_node: int) -> None:
    """Halves a leaf bucket [s, e] into [s, m] and [m + 1, e], m = (s + e) div 2, and moves the expressions that a half
    encloses into it."""
    c_nodes, words = store.c_nodes, store.words
    node = c_nodes[c_node]
    left = new_c_node(store, node.above, c_node, node.low, node.middle)
    right = new_c_node(store, node.above, c_node, node.middle + 1, node.high)
    node.left = left
    node.right = right
    expression = node.head
    while expression != NO_EXPRESSION:
        after = words[expression + NEXT]
        at = find_predicate(words, expression, node.attribute)
        half = left if words[at + 2] <= node.middle else right if words[at + 1] > node.middle else NO_NODE
        if half != NO_NODE:
            unlink(c_nodes, words, expression)
            push(c_nodes, words, half, expression)
        expression = after
    for half in (left, right):
        c_nodes[half].below = c_nodes[half].count
        node.below -= c_nodes[half].count
        if c_nodes[half].count > 0:
            schedule(store, half, store.max_cap, True)


@inner
def _partition(store: Store, c_node: int, attribute: int) -> None:
    """Adds a p-node and moves all expressions with its attribute to its first bucket, the whole domain."""
    c_nodes, words = store.c_nodes, store.words
    p_node = new_p_node(store, c_node, attribute)
    top = new_c_node(store, p_node, NO_NODE, 0, store.sizes[attribute] - 1)
    store.p_nodes[p_node].top = top
    node = c_nodes[c_node]
    expression = node.head
    while expression != NO_EXPRESSION and words[expression + COUNT] > node.depth:
        after = words[expression + NEXT]
        if find_predicate(words, expression, attribute) >= 0:
            unlink(c_nodes, words, expression)
            push(c_nodes, words, top, expression)
        expression = after
    moved = c_nodes[top].count
    c_nodes[top].below = moved
    store.p_nodes[p_node].size = moved
    store.p_nodes[p_node].gain = moved * (node.depth + 1)
    add_above(c_nodes, store.p_nodes, c_node, 0, moved)
    schedule(store, top, store.max_cap, True)
