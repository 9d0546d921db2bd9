"""Deletion, underflow, the merge rule, and recycling (sections 4.2, 4.3 and 5).

Interpretations where the paper leaves a choice: A p-node underflows when fewer than min_size expressions are left below
it, the number needed to make one; they are inserted again from the root. Two sibling leaf buckets are only merged into
their parent together, and only if all three are open and their l-nodes together fit into max_cap. Merging one half
alone would leave its later expressions in the parent.
"""

from __future__ import annotations

import numpy as np

from rules_index.engines.be_tree.nodes import (
    add_above,
    add_loss,
    arrange,
    clear_path,
    defer,
    drop_p_node,
    mark_path,
    new_window,
    push,
    unlink,
)
from rules_index.engines.be_tree.store import (
    NEXT,
    NO_EXPRESSION,
    NO_NODE,
    NODE,
    OPERATIONS,
    Store,
)
from rules_index.kernels.jit import inner, jit


@jit
def remove(store: Store, key: int) -> None:
    """Removes the expression of a key that is in use. Nodes that underflow are dissolved; `space_cutting.work` must
    then insert their expressions again."""
    expression = store.expressions[key]
    store.expressions[key] = NO_EXPRESSION
    store.scalars[OPERATIONS] += 1
    c_node = store.words[expression + NODE]
    unlink(store.c_nodes, store.words, expression)
    add_above(store.c_nodes, store.p_nodes, c_node, -1, -store.c_nodes[c_node].depth)
    tidy(store, c_node)


@inner
def tidy(store: Store, c_node: int) -> None:
    """Merges and removes nodes that have become too small, from a c-node that has lost expressions upwards."""
    while True:
        if _can_merge(store.c_nodes, c_node, store.max_cap):
            _merge(store, c_node)
        node = store.c_nodes[c_node]
        if node.above == NO_NODE:
            return
        if store.p_nodes[node.above].size < max(1, store.min_size):
            c_node = store.p_nodes[node.above].above
            dissolve(store, node.above)
        elif node.up != NO_NODE and _can_merge(store.c_nodes, node.up, store.max_cap):
            c_node = node.up
        else:
            return


@inner
def _can_merge(c_nodes: np.ndarray, c_node: int, max_cap: int) -> bool:
    """Returns whether the halves of a bucket can be merged into it (the merge rule)."""
    node = c_nodes[c_node]
    if node.left == NO_NODE:
        return False
    left, right = c_nodes[node.left], c_nodes[node.right]
    all_open = node.partitions + left.partitions + right.partitions == 0
    leaves = (left.left == NO_NODE) & (right.left == NO_NODE)
    return all_open & leaves & (node.count + left.count + right.count <= max_cap)


@inner
def _merge(store: Store, c_node: int) -> None:
    """Moves the expressions of both halves of a bucket to its own l-node, and removes the halves."""
    node = store.c_nodes[c_node]
    mark_path(store.c_nodes, store.path, c_node)
    for half in (node.left, node.right):
        node.below += store.c_nodes[half].count
        expression = store.c_nodes[half].head
        while expression != NO_EXPRESSION:
            after = store.words[expression + NEXT]
            push(store.c_nodes, store.words, c_node, expression)
            arrange(store.words, store.path, expression)
            expression = after
        if len(store.c_windows) > 0:
            add_loss(store.c_nodes, store.p_nodes, node.above, -store.l_windows[half].loss - store.c_windows[half].loss)
        store.c_nodes[half].depth = -1
    clear_path(store.c_nodes, store.path, c_node)
    node.left = NO_NODE
    node.right = NO_NODE


@inner
def dissolve(store: Store, number: int) -> None:
    """Removes a p-node with everything below it, and leaves its expressions to be inserted again."""
    c_nodes = store.c_nodes
    p_node = store.p_nodes[number]
    parent = p_node.above
    add_above(store.c_nodes, store.p_nodes, parent, -p_node.size, -p_node.gain)
    add_loss(store.c_nodes, store.p_nodes, c_nodes[parent].above, -p_node.loss)
    # descends to a c-node with nothing below it, removes it, and goes on from its parent: no stack is needed
    c_node = p_node.top
    while c_node != parent:
        node = c_nodes[c_node]
        if node.partitions > 0:
            c_node = store.p_nodes[node.first].top
        elif node.left != NO_NODE:
            c_node = node.left
            node.left = NO_NODE
        elif node.right != NO_NODE:
            c_node = node.right
            node.right = NO_NODE
        else:
            _defer_all(store, c_node)
            node.depth = -1
            if node.up != NO_NODE:
                c_node = node.up
            else:
                c_node = store.p_nodes[node.above].above
                drop_p_node(store, node.above)


@inner
def _defer_all(store: Store, c_node: int) -> None:
    """Empties an l-node, and leaves its expressions to be inserted again."""
    node = store.c_nodes[c_node]
    expression = node.head
    while expression != NO_EXPRESSION:
        after = store.words[expression + NEXT]
        defer(store, expression)
        expression = after
    node.head = NO_EXPRESSION
    node.tail = NO_EXPRESSION
    node.count = 0


@inner
def recycle_l_node(store: Store, c_node: int) -> None:
    """Empties the l-node of a c-node other than the root, and leaves its expressions to be inserted again."""
    node = store.c_nodes[c_node]
    add_above(store.c_nodes, store.p_nodes, c_node, -node.count, -node.count * node.depth)
    _defer_all(store, c_node)
    add_loss(store.c_nodes, store.p_nodes, node.above, -store.l_windows[c_node].loss)
    new_window(store, store.l_windows, c_node)
    tidy(store, c_node)


@inner
def recycle_c_node(store: Store, c_node: int) -> None:
    """Empties the l-node and the p-directory of a c-node other than the root, and leaves their expressions to be
    inserted again."""
    node = store.c_nodes[c_node]
    while node.first != NO_NODE:
        dissolve(store, node.first)
    add_loss(store.c_nodes, store.p_nodes, node.above, -store.c_windows[c_node].loss)
    new_window(store, store.c_windows, c_node)
    recycle_l_node(store, c_node)


@inner
def recycle_p_node(store: Store, number: int) -> None:
    """Removes a p-node, and leaves its expressions to be inserted again."""
    parent = store.p_nodes[number].above
    dissolve(store, number)
    tidy(store, parent)
