"""A BE-Tree as plain arrays, nodes in preorder: for storage, for a new layout in memory, and for the batch kernel.

| array | |
|---|---|
| `c_nodes` | [c, 5] int32: the parent p-node (-1: the root), the bucket of which its own is a half (-1: none), its |
| | bucket's lowest and highest code, and the number of expressions in its l-node |
| `p_nodes` | [p, 2] int32: the attribute, and the parent c-node, by which they ascend |
| `start`, `predicates` | [boxes + 1] int64 into [., 3] int32 (attribute, low, high): expressions, l-node by l-node |
| `position` | [keys] int32: the number of each key's expression, -1 for keys that are not in use |
| `windows`, `losses` | [2 c + p, 3] int64 and [2 c + p] float64: `WINDOW` of all l-nodes, c-nodes and p-nodes; empty |
| | until the first search that adapts |
| `clocks` | [2] int64: operations and events |
| `parameters` | [5] float64: `Parameters` |
"""

from __future__ import annotations

import numpy as np

from rules_index.engines.be_tree.nodes import (
    add_above,
    add_loss,
    append,
    arrange_all,
    clear_path,
    find_predicate,
    mark_path,
    new_c_node,
    new_expression,
    new_p_node,
)
from rules_index.engines.be_tree.store import (
    C_USED,
    COUNT,
    EVENTS,
    HEADER,
    KEY,
    NEXT,
    NO_EXPRESSION,
    NO_NODE,
    OPERATIONS,
    P_ALIVE,
    P_USED,
    SMALLEST_POOL,
    WORDS_USED,
    Parameters,
    Store,
    empty_store,
    parameters_of,
    with_keys,
    with_windows,
)
from rules_index.engines.be_tree.validate import require_arrays
from rules_index.index.array_checks import require
from rules_index.kernels.jit import inner, jit

SPARE = 0.125
"""The spare room of a new layout, as a share of what is in use."""


def from_boxes(start: np.ndarray, predicates: np.ndarray, parameters: Parameters) -> dict[str, np.ndarray]:
    """The arrays of a tree with all boxes in the root's l-node, with their numbers as keys."""
    boxes = len(start) - 1
    return {
        "c_nodes": np.array([[NO_NODE, NO_NODE, 0, 0, boxes]], np.int32),
        "p_nodes": np.empty((0, 2), np.int32),
        "start": start,
        "predicates": predicates,
        "position": np.arange(boxes, dtype=np.int32),
        "windows": np.empty((0, 3), np.int64),
        "losses": np.empty(0, np.float64),
        "clocks": np.zeros(2, np.int64),
        "parameters": np.array(parameters, np.float64),
    }


def to_arrays(store: Store) -> dict[str, np.ndarray]:
    """The arrays of a tree that has no unfinished work."""
    boxes = int(store.c_nodes[0]["below"])
    c_nodes = np.empty((int(store.scalars[C_USED]), 5), np.int32)
    p_nodes = np.empty((int(store.scalars[P_ALIVE]), 2), np.int32)
    start = np.zeros(boxes + 1, np.int64)
    predicates = np.empty((int(store.scalars[WORDS_USED]) // 3, 3), np.int32)
    keys = np.empty(boxes, np.int32)
    c_numbers, p_numbers = np.empty(len(c_nodes), np.int32), np.empty(len(p_nodes), np.int32)
    c_count = _write(store, c_nodes, p_nodes, start, predicates, keys, c_numbers, p_numbers)
    position = np.full(int(keys.max(initial=-1)) + 1, -1, np.int32)
    position[keys] = np.arange(boxes)
    windows = [store.l_windows, store.c_windows, store.p_windows]
    if len(store.c_windows):
        kept = (c_numbers[:c_count], c_numbers[:c_count], p_numbers)
        windows = [window[numbers] for window, numbers in zip(windows, kept, strict=True)]
    return {
        "c_nodes": c_nodes[:c_count].copy(),
        "p_nodes": p_nodes,
        "start": start,
        "predicates": predicates[: start[-1]].copy(),
        "position": position,
        "windows": np.concatenate([np.stack([w[name] for name in _CLOCKED], axis=1) for w in windows]),
        "losses": np.concatenate([w["loss"] for w in windows]),
        "clocks": store.scalars[[OPERATIONS, EVENTS]],
        "parameters": np.array(parameters_of(store), np.float64),
    }


def from_arrays(arrays: dict[str, np.ndarray], sizes: np.ndarray, spare: float = SPARE, words: int = 0) -> Store:
    """The tree with these arrays, laid out in their order. Raises `InvalidArraysError` if they are inconsistent.

    spare: room to grow, as a share of what is in use; words: further free words for expressions.
    """
    parameters = require_arrays(arrays, sizes)
    c_nodes, p_nodes, start = arrays["c_nodes"], arrays["p_nodes"], arrays["start"]
    used_words = 1 + HEADER * (len(start) - 1) + 3 * len(arrays["predicates"])
    c_room, p_room, room = (SMALLEST_POOL + int(x * (1 + spare)) for x in (len(c_nodes), len(p_nodes), used_words))
    store = empty_store(sizes, parameters, c_room, p_room, room + words, len(arrays["position"]))
    store.scalars[[OPERATIONS, EVENTS]] = arrays["clocks"]
    in_use = np.flatnonzero(arrays["position"] >= 0)
    keys = np.empty(len(start) - 1, np.int32)
    keys[arrays["position"][in_use]] = in_use
    require(_read(store, c_nodes, p_nodes, start, arrays["predicates"], keys), "predicates")
    if len(arrays["losses"]) == 0:
        return store
    store = with_windows(store)
    first = 0
    for windows, count in zip(
        (store.l_windows, store.c_windows, store.p_windows), (len(c_nodes), len(c_nodes), len(p_nodes)), strict=True
    ):
        for column, name in enumerate(_CLOCKED):
            windows[name][:count] = arrays["windows"][first : first + count, column]
        windows["loss"][:count] = arrays["losses"][first : first + count]
        first += count
    _sum_losses(store)
    return store


def laid_out(store: Store, spare: float = SPARE, words: int = 0) -> Store:
    """The same tree without the gaps of removed parts; what a search reads in sequence is contiguous."""
    return with_keys(from_arrays(to_arrays(store), store.sizes, spare, words), len(store.expressions) - 1)


_CLOCKED = ("discarded", "operations", "events")


@jit
def _write(
    store: Store, c_nodes: np.ndarray, p_nodes: np.ndarray, start: np.ndarray, predicates: np.ndarray,
    keys: np.ndarray, c_numbers: np.ndarray, p_numbers: np.ndarray,
) -> int:  # fmt: skip
    """Writes a tree in preorder; returns the number of c-nodes. `c_numbers` and `p_numbers` receive the store's
    numbers."""
    c_count, p_count = 0, 0
    box = 0
    stack = np.empty((len(c_nodes) + 1, 3), np.int32)
    top = _push(stack, 0, 0, NO_NODE, NO_NODE)
    while top > 0:
        top -= 1
        number, above, up = stack[top, 0], stack[top, 1], stack[top, 2]
        node = store.c_nodes[number]
        c_nodes[c_count, 0] = above
        c_nodes[c_count, 1] = up
        c_nodes[c_count, 2] = node.low
        c_nodes[c_count, 3] = node.high
        c_nodes[c_count, 4] = node.count
        c_numbers[c_count] = number
        box = _write_expressions(store.words, node.head, box, start, predicates, keys)
        # the p-directory is read from its end: loading enters each p-node at the front, which restores this order
        p_node = node.first
        for place in range(p_count + node.partitions - 1, p_count - 1, -1):
            p_nodes[place, 0] = store.p_nodes[p_node].attribute
            p_nodes[place, 1] = c_count
            p_numbers[place] = p_node
            top = _push(stack, top, store.p_nodes[p_node].top, place, NO_NODE)
            p_node = store.p_nodes[p_node].next
        p_count += node.partitions
        if node.left != NO_NODE:
            top = _push(stack, top, node.right, above, c_count)
            top = _push(stack, top, node.left, above, c_count)
        c_count += 1
    return c_count


@inner
def _push(stack: np.ndarray, top: int, c_node: int, above: int, up: int) -> int:
    """Pushes a c-node with its parents' numbers in the arrays; returns the new height of the stack."""
    stack[top, 0] = c_node
    stack[top, 1] = above
    stack[top, 2] = up
    return top + 1


@inner
def _write_expressions(
    words: np.ndarray, expression: int, box: int, start: np.ndarray, predicates: np.ndarray, keys: np.ndarray
) -> int:
    """Writes the expressions of an l-node as the boxes from number `box` on; returns the number behind the last."""
    while expression != NO_EXPRESSION:
        keys[box] = words[expression + KEY]
        count = words[expression + COUNT]
        for i in range(count):
            at = expression + HEADER + 3 * i
            for word in range(3):
                predicates[start[box] + i, word] = words[at + word]
        start[box + 1] = start[box] + count
        box += 1
        expression = words[expression + NEXT]
    return box


@jit
def _read(
    store: Store, c_nodes: np.ndarray, p_nodes: np.ndarray, start: np.ndarray, predicates: np.ndarray,
    keys: np.ndarray,
) -> bool:  # fmt: skip
    """Fills an empty store from valid links and bounds. Returns False if an attribute occurs twice on a path or in an
    expression, or if an expression or a node is not where the rules of `space_cutting` and `deletion` place it."""
    p_node = 0
    box = 0
    for number in range(len(c_nodes)):
        above, up, high, count = c_nodes[number, 0], c_nodes[number, 1], c_nodes[number, 3], c_nodes[number, 4]
        new_c_node(store, above, up, c_nodes[number, 2], high)
        if up != NO_NODE:
            half_of = store.c_nodes[up]
            if half_of.left == NO_NODE:
                half_of.left = number
                half_of.middle = high
            else:
                half_of.right = number
        elif above != NO_NODE:
            store.p_nodes[above].top = number
        mark_path(store.c_nodes, store.path, number)
        while p_node < len(p_nodes) and p_nodes[p_node, 1] == number:
            if store.path[p_nodes[p_node, 0], 0] >= 0:
                return False
            new_p_node(store, number, p_nodes[p_node, 0])
            store.uses[p_nodes[p_node, 0], 1] = number + 1
            p_node += 1
        for expression in range(box, box + count):
            begin, end = start[expression], start[expression + 1]
            inside = _count_inside(predicates, begin, end, store.path, store.uses, expression, number)
            if inside != store.c_nodes[number].depth:
                return False
        clear_path(store.c_nodes, store.path, number)
        _read_expressions(store, number, start, predicates, keys, box, count)
        box += count
    for attribute in range(len(store.uses)):
        store.uses[attribute, 0] = 0
        store.uses[attribute, 1] = 0
    return _follows_rules(store)


@inner
def _count_inside(
    predicates: np.ndarray, begin: int, end: int, path: np.ndarray, uses: np.ndarray, box: int, c_node: int
) -> int:
    """Returns how many predicates of a box are inside the buckets of the marked path; -1 if the box names an attribute
    twice, or one by which its c-node is partitioned.

    uses[:, 0]: the last box that named the attribute, plus 1; uses[:, 1]: the last c-node that is partitioned by it,
    plus 1.
    """
    inside = 0
    for i in range(begin, end):
        attribute = predicates[i, 0]
        if uses[attribute, 0] == box + 1 or uses[attribute, 1] == c_node + 1:
            return -1
        uses[attribute, 0] = box + 1
        low = path[attribute, 0]
        inside += low >= 0 and low <= predicates[i, 1] and predicates[i, 2] <= path[attribute, 1]
    return inside


@inner
def _follows_rules(store: Store) -> bool:
    """Whether no half of a bucket encloses an expression of the bucket's own l-node, no leaf bucket that can be halved
    is partitioned or overflows, and every p-node has at least min_size expressions."""
    words = store.words
    for number in range(1, store.scalars[C_USED]):
        node = store.c_nodes[number]
        if node.left == NO_NODE:
            if node.low < node.high and (node.partitions > 0 or node.count > store.max_cap):
                return False
            continue
        expression = node.head
        while expression != NO_EXPRESSION:
            at = find_predicate(words, expression, node.attribute)
            if words[at + 2] <= node.middle or words[at + 1] > node.middle:
                return False
            expression = words[expression + NEXT]
    enough = True
    for number in range(store.scalars[P_USED]):
        enough &= store.p_nodes[number].size >= max(1, store.min_size)
    return enough


@inner
def _read_expressions(
    store: Store, c_node: int, start: np.ndarray, predicates: np.ndarray, keys: np.ndarray, box: int, count: int
) -> None:
    """Puts `count` boxes, from number `box` on, into an l-node: first those with an attribute that is not on the path,
    then the others, as `push` does, and otherwise in their order."""
    node = store.c_nodes[c_node]
    words = store.words
    for exhausted in range(2):
        for i in range(box, box + count):
            if (start[i + 1] - start[i] <= node.depth) == exhausted:
                expression = new_expression(store, keys[i], predicates, start[i], start[i + 1])
                append(store.c_nodes, words, c_node, expression)
    add_above(store.c_nodes, store.p_nodes, c_node, count, count * node.depth)
    arrange_all(store.c_nodes, words, store.path, c_node)


@jit
def _sum_losses(store: Store) -> None:
    """Sums the Loss of the last whole windows upwards into the p-nodes."""
    c_nodes, p_nodes = store.c_nodes, store.p_nodes
    for number in range(store.scalars[C_USED]):
        loss = store.l_windows[number].loss + store.c_windows[number].loss
        add_loss(c_nodes, p_nodes, c_nodes[number].above, loss)
    for number in range(store.scalars[P_ALIVE]):
        add_loss(c_nodes, p_nodes, number, store.p_windows[number].loss)
