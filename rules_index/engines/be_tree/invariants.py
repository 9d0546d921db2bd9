"""Checks the invariants of a BE-Tree along its links in plain Python; for tests.

Each is an assertion that names what is violated: those of the paper (sections 4.1 to 4.3 and 5), and those of the links
and sums that the algorithms rely on.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from rules_index.engines.be_tree.store import (
    C_USED,
    COUNT,
    EVALUATED,
    HEADER,
    KEY,
    NEXT,
    NO_EXPRESSION,
    NO_NODE,
    NODE,
    P_ALIVE,
    P_USED,
    PENDING,
    PREVIOUS,
    SCHEDULED,
    WORDS_USED,
    Store,
    find_p_node,
)

Bucket = tuple[int, int]
Sums = tuple[int, int, float]
"""The expressions, Gain and Loss below a node."""


def check(store: Store) -> None:
    """Raises `AssertionError` naming an invariant that is violated."""
    assert store.scalars[PENDING] == NO_EXPRESSION and store.scalars[SCHEDULED] == 0, "no unfinished work"
    assert (store.path[:, 0] == -1).all() and (store.uses == 0).all(), "clean scratch"
    checker = _Checker(store)
    sums = checker.c_node(0, {}, NO_NODE, NO_NODE)
    assert sums[0] == len(checker.keys) == np.count_nonzero(store.expressions), "every key in one l-node"
    assert checker.p_count == store.scalars[P_ALIVE], "every p-node reachable"
    assert np.count_nonzero(store.directory != NO_NODE) == checker.p_count, "one directory entry a p-node"
    if not checker.keys:
        assert checker.c_count == 1 and checker.p_count == 0, "nothing but an empty root is left of an empty tree"
    if checker.halved:
        most = max(checker.lengths, default=0)
        halvings = (int(max(store.sizes, default=1)) - 1).bit_length()
        assert checker.height <= most * (1 + halvings) + 1, "height at most k (1 + ceil(log2 N)) + 1"


def _nodes(records: np.ndarray) -> list[SimpleNamespace]:
    names = records.dtype.names or ()
    return [SimpleNamespace(**dict(zip(names, record, strict=True))) for record in records.tolist()]


class _Checker:
    def __init__(self, store: Store) -> None:
        self.store = store
        self.c_nodes = _nodes(store.c_nodes[: store.scalars[C_USED]])
        self.p_nodes = _nodes(store.p_nodes[: store.scalars[P_USED]])
        self.words: list[int] = store.words[: store.scalars[WORDS_USED]].tolist()
        self.adapts = len(store.c_windows) > 0
        self.keys: set[int] = set()
        self.lengths: set[int] = set()
        self.halved = True
        self.height = self.c_count = self.p_count = 0

    def c_node(self, number: int, path: dict[int, Bucket], above: int, up: int, height: int = 1) -> Sums:
        """Checks a c-node and what is below its p-nodes."""
        node = self.c_nodes[number]
        self.c_count += 1
        self.height = max(self.height, height)
        assert (node.above, node.up, node.depth) == (above, up, len(path)), "links up"
        leaf = node.left == NO_NODE
        assert leaf == (node.right == NO_NODE), "a bucket has both halves or none"
        if above == NO_NODE:
            assert leaf, "the root has no bucket"
        else:
            assert path[node.attribute] == (node.low, node.high) and node.low <= node.high, "bucket"
            if leaf and node.low < node.high:
                assert node.partitions == 0, "the c-node of a non-atomic leaf bucket is never partitioned"
                assert node.count <= self.store.max_cap, "an overflowing bucket that can be halved is halved"
        partitions = self.p_directory(number, path, height)
        self.l_node(number, path, set(partitions))
        size = node.count + sum(sums[0] for sums in partitions.values())
        assert node.below == size, "expressions below a c-node"
        gain = node.count * len(path) + sum(sums[1] for sums in partitions.values())
        loss = sum(sums[2] for sums in partitions.values())
        if self.adapts:
            loss += float(self.store.l_windows[number]["loss"] + self.store.c_windows[number]["loss"])
        return size, gain, loss

    def p_directory(self, number: int, path: dict[int, Bucket], height: int) -> dict[int, Sums]:
        """Checks the p-nodes of a c-node; returns their sums by attribute."""
        node = self.c_nodes[number]
        found: dict[int, Sums] = {}
        p_node, previous = node.first, NO_NODE
        while p_node != NO_NODE:
            partition = self.p_nodes[p_node]
            assert (partition.above, partition.previous) == (number, previous), "links of p-nodes"
            attribute = partition.attribute
            assert attribute not in path and attribute not in found, "an attribute at most once on a path"
            assert find_p_node(self.store.directory, self.store.p_nodes, number, attribute) == p_node, "p-directory"
            top = self.c_nodes[partition.top]
            assert (top.low, top.high) == (0, self.store.sizes[attribute] - 1), "the first bucket is the whole domain"
            sums = self.bucket(partition.top, path, p_node, NO_NODE, height + 1, 0)
            if self.adapts:
                sums = (*sums[:2], sums[2] + float(self.store.p_windows[p_node]["loss"]))
            assert (partition.size, partition.gain, partition.loss) == sums, "size, Gain and Loss of a p-node"
            assert partition.size >= max(1, self.store.min_size), "a p-node has at least min_size expressions"
            found[attribute] = sums
            self.p_count += 1
            p_node, previous = partition.next, p_node
        assert node.partitions == len(found), "number of p-nodes"
        return found

    def bucket(self, number: int, path: dict[int, Bucket], above: int, up: int, height: int, level: int) -> Sums:
        """Checks a bucket with its halves; returns the sums over all their c-nodes."""
        node = self.c_nodes[number]
        own = self.c_node(number, {**path, node.attribute: (node.low, node.high)}, above, up, height)
        size = self.store.sizes[node.attribute]
        reached = 1 + level + (node.high - node.low).bit_length()
        if node.left == NO_NODE:
            limit = 1 + (int(size) - 1).bit_length()
            assert reached <= (limit if self.halved else 2 * limit), "depth of a c-directory"
            return own
        left, right = self.c_nodes[node.left], self.c_nodes[node.right]
        assert (left.low, left.high, right.low, right.high) == (node.low, node.middle, node.middle + 1, node.high), (
            "halves make up their bucket"
        )
        self.halved &= node.middle == (node.low + node.high) // 2
        if node.partitions == 0 and all(half.left == NO_NODE and half.partitions == 0 for half in (left, right)):
            assert node.count + left.count + right.count > self.store.max_cap, "halves that can be merged are merged"
        sums = own
        for half in (node.left, node.right):
            below = self.bucket(half, path, above, number, height + 1, level + 1)
            sums = (sums[0] + below[0], sums[1] + below[1], sums[2] + below[2])
        return sums

    def l_node(self, number: int, path: dict[int, Bucket], partitioned: set[int]) -> None:
        """Checks the expressions of an l-node."""
        node = self.c_nodes[number]
        count, previous = 0, NO_EXPRESSION
        exhausted = False
        expression = node.head
        while expression != NO_EXPRESSION:
            assert self.words[expression + NODE] == number, "an expression knows its l-node"
            assert self.words[expression + PREVIOUS] == previous, "links of expressions"
            self.expression(expression, node, path, partitioned)
            assert not exhausted or self.words[expression + COUNT] == len(path), "those to partition come first"
            exhausted = self.words[expression + COUNT] == len(path)
            count += 1
            previous, expression = expression, self.words[expression + NEXT]
        assert (node.count, node.tail) == (count, previous), "size of an l-node"

    def expression(
        self, expression: int, node: SimpleNamespace, path: dict[int, Bucket], partitioned: set[int]
    ) -> None:
        """Checks that an expression belongs in its l-node, and that its predicates are in the order of evaluation."""
        key, length = self.words[expression + KEY], self.words[expression + COUNT]
        assert key not in self.keys and self.store.expressions[key] == expression, "key to expression"
        self.keys.add(key)
        self.lengths.add(length)
        words = self.words[expression + HEADER : expression + HEADER + 3 * length]
        predicates = list(zip(words[::3], words[1::3], words[2::3], strict=True))
        intervals = {attribute: (low, high) for attribute, low, high in predicates}
        assert len(intervals) == length, "at most one predicate per attribute"
        assert not partitioned & intervals.keys(), "all expressions with a p-node's attribute are below it"
        for attribute, (low, high) in path.items():
            assert attribute in intervals, "an expression has a predicate on each attribute of its path"
            assert low <= intervals[attribute][0] and intervals[attribute][1] <= high, "enclosed by its bucket"
        if node.left != NO_NODE:
            low, high = intervals[node.attribute]
            assert low <= node.middle < high, "in the smallest bucket that encloses it"
        roles = [0 if a not in path else 2 if path[a] == (low, high) else 1 for a, low, high in predicates]
        order = [(role, a) for role, (a, _, _) in zip(roles, predicates, strict=True)]
        assert order == sorted(order), "predicates that the path subsumes come last, those it does not cover first"
        assert self.words[expression + EVALUATED] == length - roles.count(2), "all but the subsumed are evaluated"
