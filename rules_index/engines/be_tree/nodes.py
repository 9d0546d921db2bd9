"""Operations on single nodes and expressions: make, remove and move them, and update the sums above them."""

from __future__ import annotations

import numpy as np

from rules_index.engines.be_tree.store import (
    C_USED,
    COUNT,
    EVALUATED,
    EVENTS,
    HEADER,
    KEY,
    NEXT,
    NO_EXPRESSION,
    NO_NODE,
    NODE,
    OPERATIONS,
    P_ALIVE,
    P_USED,
    PENDING,
    PREVIOUS,
    WORDS_USED,
    Store,
    enter_p_node,
    leave_p_node,
)
from rules_index.kernels.jit import inner, jit


@jit
def capacity_of(count: int, max_cap: int) -> int:
    """Returns how many expressions an l-node that has `count` may have before it is cut: max_cap_j of section 4.2."""
    return max(1, -(-count // max_cap)) * max_cap


@inner
def new_window(store: Store, windows: np.ndarray, number: int) -> None:
    """Begins a node's first window, if windows are kept."""
    if len(windows) > 0:
        windows[number].discarded = 0
        windows[number].operations = store.scalars[OPERATIONS]
        windows[number].events = store.scalars[EVENTS]
        windows[number].loss = 0.0


@inner
def new_c_node(store: Store, above: int, up: int, low: int, high: int) -> int:
    """Makes an empty c-node with a bucket [low, high] in the c-directory of the p-node `above`; returns its number."""
    number = store.scalars[C_USED]
    store.scalars[C_USED] = number + 1
    node = store.c_nodes[number]
    node.above = above
    node.up = up
    node.left = NO_NODE
    node.right = NO_NODE
    node.low = low
    node.high = high
    node.middle = (low + high) // 2
    node.partitions = 0
    node.first = NO_NODE
    node.head = NO_EXPRESSION
    node.tail = NO_EXPRESSION
    node.count = 0
    node.below = 0
    if above == NO_NODE:
        node.parent = NO_NODE
        node.attribute = -1
        node.depth = 0
    else:
        p_node = store.p_nodes[above]
        node.parent = p_node.above
        node.attribute = p_node.attribute
        node.depth = store.c_nodes[p_node.above].depth + 1
    new_window(store, store.l_windows, number)
    new_window(store, store.c_windows, number)
    return number


@inner
def new_p_node(store: Store, c_node: int, attribute: int) -> int:
    """Makes an empty p-node, still without a bucket, in the p-directory of a c-node; returns its number."""
    number = store.scalars[P_USED]
    store.scalars[P_USED] = number + 1
    store.scalars[P_ALIVE] += 1
    node = store.p_nodes[number]
    node.attribute = attribute
    node.above = c_node
    node.top = NO_NODE
    node.size = 0
    node.gain = 0
    node.loss = 0.0
    parent = store.c_nodes[c_node]
    node.previous = NO_NODE
    node.next = parent.first
    if parent.first != NO_NODE:
        store.p_nodes[parent.first].previous = number
    parent.first = number
    parent.partitions += 1
    enter_p_node(store.directory, store.p_nodes, number)
    new_window(store, store.p_windows, number)
    return number


@inner
def drop_p_node(store: Store, number: int) -> None:
    """Removes a p-node from its p-directory."""
    leave_p_node(store.directory, store.p_nodes, number)
    node = store.p_nodes[number]
    parent = store.c_nodes[node.above]
    if node.previous == NO_NODE:
        parent.first = node.next
    else:
        store.p_nodes[node.previous].next = node.next
    if node.next != NO_NODE:
        store.p_nodes[node.next].previous = node.previous
    parent.partitions -= 1
    node.attribute = -1
    store.scalars[P_ALIVE] -= 1


@inner
def new_expression(store: Store, key: int, predicates: np.ndarray, begin: int, end: int) -> int:
    """Writes an expression with the predicates `predicates[begin:end]` (attribute, low, high), which is still in no
    l-node; returns its number."""
    words = store.words
    number = store.scalars[WORDS_USED]
    store.scalars[WORDS_USED] = number + HEADER + 3 * (end - begin)
    words[number + KEY] = key
    words[number + EVALUATED] = end - begin
    words[number + COUNT] = end - begin
    at = number + HEADER
    for i in range(begin, end):
        for word in range(3):
            words[at + word] = predicates[i, word]
        at += 3
    store.expressions[key] = number
    return number


@inner
def find_predicate(words: np.ndarray, expression: int, attribute: int) -> int:
    """Returns where an expression's predicate on an attribute begins in `words`, or -1."""
    at = expression + HEADER
    for _ in range(words[expression + COUNT]):
        if words[at] == attribute:
            return at
        at += 3
    return -1


@inner
def push(c_nodes: np.ndarray, words: np.ndarray, c_node: int, expression: int) -> None:
    """Puts an expression into an l-node: at the end if all its attributes are on the path, else at the front, so that
    expressions by which the l-node can still be partitioned come first."""
    node = c_nodes[c_node]
    if words[expression + COUNT] <= node.depth:
        append(c_nodes, words, c_node, expression)
        return
    words[expression + NODE] = c_node
    words[expression + PREVIOUS] = NO_EXPRESSION
    words[expression + NEXT] = node.head
    if node.head == NO_EXPRESSION:
        node.tail = expression
    else:
        words[node.head + PREVIOUS] = expression
    node.head = expression
    node.count += 1


@inner
def append(c_nodes: np.ndarray, words: np.ndarray, c_node: int, expression: int) -> None:
    """Puts an expression at the end of an l-node."""
    node = c_nodes[c_node]
    words[expression + NODE] = c_node
    words[expression + PREVIOUS] = node.tail
    words[expression + NEXT] = NO_EXPRESSION
    if node.tail == NO_EXPRESSION:
        node.head = expression
    else:
        words[node.tail + NEXT] = expression
    node.tail = expression
    node.count += 1


@inner
def unlink(c_nodes: np.ndarray, words: np.ndarray, expression: int) -> None:
    """Removes an expression from its l-node."""
    node = c_nodes[words[expression + NODE]]
    after = words[expression + NEXT]
    before = words[expression + PREVIOUS]
    if before == NO_EXPRESSION:
        node.head = after
    else:
        words[before + NEXT] = after
    if after == NO_EXPRESSION:
        node.tail = before
    else:
        words[after + PREVIOUS] = before
    node.count -= 1


@inner
def defer(store: Store, expression: int) -> None:
    """Leaves an expression that is in no l-node for `space_cutting.work` to insert."""
    store.words[expression + NEXT] = store.scalars[PENDING]
    store.scalars[PENDING] = expression


@inner
def add_above(c_nodes: np.ndarray, p_nodes: np.ndarray, c_node: int, expressions: int, gain: int) -> None:
    """Adds to the numbers of expressions of a c-node and all nodes above it, and to the Gain of the p-nodes among
    these."""
    c_nodes[c_node].below += expressions
    while c_node != 0:
        p_node = p_nodes[c_nodes[c_node].above]
        p_node.size += expressions
        p_node.gain += gain
        c_node = c_nodes[c_node].parent
        c_nodes[c_node].below += expressions


@inner
def add_loss(c_nodes: np.ndarray, p_nodes: np.ndarray, p_node: int, loss: float) -> None:
    """Adds to the Loss of a p-node and of the p-nodes above it."""
    while p_node != NO_NODE:
        p_nodes[p_node].loss += loss
        p_node = c_nodes[p_nodes[p_node].above].above


@inner
def mark_path(c_nodes: np.ndarray, path: np.ndarray, c_node: int) -> None:
    """Writes the buckets on the path to a c-node to `path` [attributes, 2]."""
    while c_node != 0:
        node = c_nodes[c_node]
        path[node.attribute, 0] = node.low
        path[node.attribute, 1] = node.high
        c_node = node.parent


@inner
def clear_path(c_nodes: np.ndarray, path: np.ndarray, c_node: int) -> None:
    """Undoes `mark_path`."""
    while c_node != 0:
        path[c_nodes[c_node].attribute, 0] = -1
        c_node = c_nodes[c_node].parent


@inner
def _role(words: np.ndarray, path: np.ndarray, at: int) -> int:
    """Returns the role of the predicate that begins at `at`, given the marked path (section 5): 0 if its attribute is
    not on the path, 1 if it is covered, 2 if it is subsumed, being equal to the path's bucket. Searches do not evaluate
    a subsumed predicate again."""
    low, high = path[words[at], 0], path[words[at], 1]
    subsumed = (words[at + 1] == low) & (words[at + 2] == high)
    return 0 if low < 0 else 1 + subsumed


@inner
def arrange(words: np.ndarray, path: np.ndarray, expression: int) -> None:
    """Orders an expression's predicates by their role on the marked path, then by attribute."""
    begin = expression + HEADER
    subsumed = 0
    for i in range(words[expression + COUNT]):
        at = begin + 3 * i
        role = _role(words, path, at)
        subsumed += role == 2
        attribute, low, high = words[at], words[at + 1], words[at + 2]
        while at > begin and (_role(words, path, at - 3), words[at - 3]) > (role, attribute):
            words[at], words[at + 1], words[at + 2] = words[at - 3], words[at - 2], words[at - 1]
            at -= 3
        words[at], words[at + 1], words[at + 2] = attribute, low, high
    words[expression + EVALUATED] = words[expression + COUNT] - subsumed


@inner
def arrange_all(c_nodes: np.ndarray, words: np.ndarray, path: np.ndarray, c_node: int) -> None:
    """Orders the predicates of all expressions of an l-node."""
    mark_path(c_nodes, path, c_node)
    expression = c_nodes[c_node].head
    while expression != NO_EXPRESSION:
        arrange(words, path, expression)
        expression = words[expression + NEXT]
    clear_path(c_nodes, path, c_node)
