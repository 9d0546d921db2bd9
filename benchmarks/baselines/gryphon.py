"""Gryphon's matching tree (Aguilera and others): one attribute a level, an edge for each different predicate on it.

Attributes are tested in one order, those of most expressions first. A node has an edge for each different predicate
that its expressions have next, in groups by attribute: levels that all of a node's expressions do not care about are
left out (trivial test elimination), and so is the don't-care edge, which leads to what stands in the node's other
groups.
An event follows all edges that it satisfies: of equalities the one with its value, found by halving, of others those
that hold, one after the other. Where a single expression is left, the rest of it is verified (delayed branching). With
equalities alone this is the tree for equality only.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from benchmarks.baselines.expressions import (
    Events,
    Expressions,
    clear,
    is_equality,
    room,
    satisfies,
    spread,
)
from benchmarks.jit import inlined, jit


class Tree(NamedTuple):
    """Integers are int32.

    own    [nodes, 3] the expressions [from, to) that end at the node, and how many of their predicates were tested
    group  [nodes + 1] int64 into the groups
    groups [groups, 4] rank of the attribute; edges of equalities [from, to), and the end of the other edges
    edges  [edges, 2] a predicate, and the node that it leads to
    """

    own: np.ndarray
    group: np.ndarray
    groups: np.ndarray
    edges: np.ndarray


class Gryphon:
    """The tree; expressions in its order."""

    def __init__(self, given: Expressions) -> None:
        expressions = len(given.start) - 1
        lengths = np.diff(given.start)
        often = np.bincount(given.attribute, minlength=len(given.sizes))
        self._attribute = np.argsort(-often, kind="stable").astype(np.int32)
        self._rank = np.empty(len(given.sizes), np.int32)
        self._rank[self._attribute] = np.arange(len(given.sizes), dtype=np.int32)
        owner = np.repeat(np.arange(expressions), lengths)
        order = np.lexsort((self._rank[given.attribute], owner))
        same = _numbered(given, self._rank)
        matrix = np.full((expressions, int(lengths.max(initial=1))), -1, np.int64)
        column = np.arange(len(order)) - np.repeat(given.start[:-1], lengths)
        matrix[owner, column] = same[order]
        sorted_by = np.lexsort(matrix.T[::-1])
        places = np.full(matrix.shape, -1, np.int32)
        places[owner, column] = order
        self._given = given
        self._keys = sorted_by.astype(np.int32)
        self._matrix = places[sorted_by]
        self._tree = _grow(
            matrix[sorted_by], self._matrix, lengths[sorted_by].astype(np.int32), self._rank[given.attribute],
            is_equality(given), len(order),
        )  # fmt: skip

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return len(self._tree.own)

    def match(self, events: Events) -> tuple[np.ndarray, np.ndarray]:
        """(offsets, keys), the keys of an event in no order."""
        return _follow(events, self._given, self._tree, self._keys, self._matrix, self._rank, self._attribute)


def _numbered(given: Expressions, rank: np.ndarray) -> np.ndarray:
    """A number [predicates] int64 for each different predicate, ascending by rank, equalities first, then by value."""
    digest = np.zeros(len(given.attribute), np.int64)
    has = np.flatnonzero(given.which >= 0)
    if len(has):
        place = np.arange(len(given.intervals), dtype=np.uint64) - np.repeat(
            given.set_start[:-1], np.diff(given.set_start)
        ).astype(np.uint64)
        mixed = (given.intervals[:, 0].astype(np.uint64) << np.uint64(32)) ^ given.intervals[:, 1].astype(np.uint64)
        mixed = (mixed + place * np.uint64(0xD6E8FEB86659FD93)) * np.uint64(0x9E3779B97F4A7C15)
        # sums of what is not mixed further are equal for many sets
        mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed ^= mixed >> np.uint64(32)
        total = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mixed)])
        digest[has] = (total[given.set_start[1:]] - total[given.set_start[:-1]])[given.which[has]].view(np.int64)
    keys = (digest, given.high, given.low, ~is_equality(given), rank[given.attribute])
    order = np.lexsort(keys)
    new = np.zeros(len(order), bool)
    for key in keys:
        ordered = key[order]
        new[1:] |= ordered[1:] != ordered[:-1]
    number = np.empty(len(order), np.int64)
    number[order] = np.cumsum(new)
    return number


@jit
def _grow(
    matrix: np.ndarray, places: np.ndarray, lengths: np.ndarray, rank: np.ndarray, equal: np.ndarray, most: int
) -> Tree:
    """The tree of sorted expressions, breadth first, at most `most` edges."""
    own = np.zeros((most + 1, 3), np.int32)
    group = np.zeros(most + 2, np.int64)
    groups = np.zeros((most, 4), np.int32)
    edges = np.zeros((most, 2), np.int32)
    waiting = np.zeros((most + 1, 3), np.int32)
    waiting[0, 1] = len(matrix)
    nodes, edge_count, group_count, node = 1, 0, 0, 0
    while node < nodes:
        begin, end, depth = waiting[node]
        own[node, 0], own[node, 1], own[node, 2] = begin, begin, depth
        at = begin
        while at < end and (lengths[at] == depth or end - begin == 1):
            at += 1
        own[node, 1] = at
        last_rank = -1
        while at < end:
            upto = at + 1
            while upto < end and matrix[upto, depth] == matrix[at, depth]:
                upto += 1
            predicate = places[at, depth]
            if rank[predicate] != last_rank:
                last_rank = rank[predicate]
                groups[group_count, 0] = last_rank
                groups[group_count, 1:] = edge_count
                group_count += 1
            edges[edge_count, 0], edges[edge_count, 1] = predicate, nodes
            waiting[nodes, 0], waiting[nodes, 1], waiting[nodes, 2] = at, upto, depth + 1
            nodes += 1
            edge_count += 1
            if equal[predicate]:
                groups[group_count - 1, 2] = edge_count
            groups[group_count - 1, 3] = edge_count
            at = upto
        node += 1
        group[node] = group_count
    return Tree(own[:nodes].copy(), group[: nodes + 1].copy(), groups[:group_count].copy(), edges[:edge_count].copy())


@jit
def _follow(
    events: Events, given: Expressions, tree: Tree, keys: np.ndarray, places: np.ndarray, rank: np.ndarray,
    attribute: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    offsets = np.zeros(len(events.attribute) + 1, np.int64)
    found = np.empty(1024, np.int32)
    values = np.full(len(given.sizes), -1, np.int32)
    stack = np.empty(len(tree.own) + 1, np.int32)
    width = events.attribute.shape[1]
    count = 0
    for number in range(len(events.attribute)):
        spread(events, number, values)
        stack[0] = 0
        top = 1
        while top > 0:
            top -= 1
            node = stack[top]
            begin, end, tested = tree.own[node]
            found = room(found, count + end - begin)
            for place in range(begin, end):
                depth = tested
                while depth < places.shape[1] and places[place, depth] >= 0:
                    predicate = places[place, depth]
                    if not satisfies(values[given.attribute[predicate]], predicate, given):
                        break
                    depth += 1
                if depth == places.shape[1] or places[place, depth] < 0:
                    found[count] = keys[place]
                    count += 1
            first, last = tree.group[node], tree.group[node + 1]
            if last - first <= width:
                for at in range(first, last):
                    value = values[attribute[tree.groups[at, 0]]]
                    if value >= 0:
                        top = _branch(at, value, given, tree, stack, top)
            else:
                for place in range(width):
                    named = events.attribute[number, place]
                    if named >= 0:
                        at = _group(tree.groups, first, last, rank[named])
                        if at >= 0:
                            top = _branch(at, values[named], given, tree, stack, top)
        clear(events, number, values)
        offsets[number + 1] = count
    return offsets, found[:count]


@inlined
def _group(groups: np.ndarray, first: int, last: int, rank: int) -> int:
    end = last
    while first < last:
        middle = (first + last) // 2
        if groups[middle, 0] < rank:
            first = middle + 1
        else:
            last = middle
    return first if first < end and groups[first, 0] == rank else -1


@inlined
def _branch(at: int, value: int, given: Expressions, tree: Tree, stack: np.ndarray, top: int) -> int:
    """Pushes the nodes that the edges of a group lead to where the value satisfies them."""
    first, last = tree.groups[at, 1], tree.groups[at, 2]
    end = last
    while first < last:
        middle = (first + last) // 2
        if given.low[tree.edges[middle, 0]] < value:
            first = middle + 1
        else:
            last = middle
    if first < end and given.low[tree.edges[first, 0]] == value:
        stack[top] = tree.edges[first, 1]
        top += 1
    for edge in range(end, tree.groups[at, 3]):
        if satisfies(value, tree.edges[edge, 0], given):
            stack[top] = tree.edges[edge, 1]
            top += 1
    return top
