"""Matching (algorithms 1 and 2): rows of codes, or events that are expressions.

A row is an event that names every attribute, with one code each. An expression matches if, for each of its predicates,
the event has a predicate on the same attribute and both have a code in common (section 3). A predicate on an attribute
that the event does not name fails.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rules_index.engines.be_tree.adaptation import Trace, new_trace, observe
from rules_index.engines.be_tree.nodes import find_predicate
from rules_index.engines.be_tree.store import (
    COUNT,
    EVALUATED,
    HEADER,
    KEY,
    NEXT,
    NO_EXPRESSION,
    NO_NODE,
    Store,
    find_p_node,
)
from rules_index.index.term_sets import TermSets, has_sets, set_shares
from rules_index.kernels.jit import bare, inlined, jit
from rules_index.kernels.lists import grown

C_NODES, EXPRESSIONS, PREDICATES, MATCHES, DISCARDED = range(5)
COUNTERS = ("c_nodes_visited", "expressions_checked", "predicates_evaluated", "matches")
"""The names of the first counters. Predicates are those evaluated in l-nodes, up to the first that fails; a set counts
as one. Subsumed predicates, which allow their whole bucket, are not evaluated."""
ABSENT = np.iinfo(np.int32).max
_FOUND_FULL, _STACK_FULL, _TRACE_FULL = -1, -2, -3


class Batch(NamedTuple):
    """Rows, or events.

    codes        [attributes, rows] int32, or [attributes, 0] for events
    event_start  [events + 1] int64 into `attributes`
    attributes   [.] int32, at most once in an event
    start        [attributes named + 1] int64 into `intervals`
    intervals    [., 2] int32, closed
    """

    codes: np.ndarray
    event_start: np.ndarray
    attributes: np.ndarray
    start: np.ndarray
    intervals: np.ndarray


class _Event(NamedTuple):
    """One event: for each attribute [attributes] the lowest and the highest code (`ABSENT` and -1 if it is not named)
    and the range of its intervals; the attributes named [.]; and whether one of them has several intervals
    (`scattered`)."""

    first: np.ndarray
    last: np.ndarray
    begin: np.ndarray
    end: np.ndarray
    named: np.ndarray
    intervals: np.ndarray
    scattered: bool


@jit
def match_batch(
    store: Store, batch: Batch, sets: TermSets, begin: int, offsets: np.ndarray, found: np.ndarray,
    counters: np.ndarray, adapt: bool,
) -> tuple[int, np.ndarray]:  # fmt: skip
    """Matches events from number `begin` on. Returns the number at which it stopped, and `found` [.] int32, reallocated
    if it had to grow.

    The keys that match event i are written to found[offsets[i] : offsets[i + 1]] in the order in which they are found,
    and the costs are added to `counters` [5] int64. With `adapt`, it stops after an event that recycled a node.
    """
    rows = batch.codes.shape[1]
    attributes = len(store.sizes)
    first = np.full(attributes, ABSENT, np.int32)
    last = np.full(attributes, -1, np.int32)
    ends = np.zeros((2, attributes), np.int64)
    named = np.arange(attributes).astype(np.int32)
    stack = np.empty((64, 2), np.int32)
    trace = new_trace(64)
    for number in range(begin, len(offsets) - 1):
        count, scattered = attributes, False
        if rows > 0:
            for attribute in range(attributes):
                first[attribute] = last[attribute] = batch.codes[attribute, number]
        else:
            count, scattered = _load(batch, number, first, last, ends, named)
        event = _Event(first, last, ends[0], ends[1], named[:count], batch.intervals, scattered)
        cost = np.zeros(len(counters), np.int64)
        matches = _match(store, event, sets, offsets[number], found, stack, cost, trace, adapt)
        while matches < 0:
            if matches == _FOUND_FULL:
                found = grown(found, 2 * len(found))
            elif matches == _STACK_FULL:
                stack = np.empty((2 * len(stack), 2), np.int32)
            else:
                trace = new_trace(2 * len(trace.discarded))
            cost[:] = 0
            matches = _match(store, event, sets, offsets[number], found, stack, cost, trace, adapt)
        offsets[number + 1] = matches
        for i in range(len(counters)):
            counters[i] += cost[i]
        for i in range(count):
            first[named[i]], last[named[i]] = ABSENT, -1
        if adapt and observe(store, trace, cost[C_NODES]):
            return number + 1, found
    return len(offsets) - 1, found


@bare
def _load(
    batch: Batch, number: int, first: np.ndarray, last: np.ndarray, ends: np.ndarray, named: np.ndarray
) -> tuple[int, bool]:
    """Writes an event to arrays by attribute. Returns how many attributes it names, and whether one has several
    intervals."""
    count = 0
    scattered = False
    for i in range(batch.event_start[number], batch.event_start[number + 1]):
        attribute = batch.attributes[i]
        named[count] = attribute
        count += 1
        ends[0, attribute] = batch.start[i]
        ends[1, attribute] = batch.start[i + 1]
        scattered |= batch.start[i + 1] > batch.start[i] + 1
        for at in range(batch.start[i], batch.start[i + 1]):
            first[attribute] = min(first[attribute], batch.intervals[at, 0])
            last[attribute] = max(last[attribute], batch.intervals[at, 1])
    return count, scattered


@inlined
def _shares(event: _Event, attribute: int, low: int, high: int) -> bool:
    """Whether the event has a code of the attribute in [low, high]."""
    if event.last[attribute] < low or event.first[attribute] > high:
        return False
    if not event.scattered:
        return True
    for at in range(event.begin[attribute], event.end[attribute]):
        if event.intervals[at, 0] <= high and event.intervals[at, 1] >= low:
            return True
    return False


@bare
def _match(
    store: Store, event: _Event, sets: TermSets, matches: int, found: np.ndarray, stack: np.ndarray, cost: np.ndarray,
    trace: Trace, adapt: bool,
) -> int:  # fmt: skip
    """MatchBETree. Returns the end of the keys in `found`, or the negative code of an array that is too small; the call
    must then be repeated with a larger one.

    A row of `stack` is a c-node and the visit that led to it (see `Trace`).
    """
    c_nodes, p_nodes, directory, words = store.c_nodes, store.p_nodes, store.directory, store.words
    cost[MATCHES] = -matches
    stack[0, 0] = 0
    stack[0, 1] = 0
    top = 1
    while top > 0:
        top -= 1
        c_node, led_by = stack[top, 0], stack[top, 1]
        node = c_nodes[c_node]
        visit = cost[C_NODES]
        cost[C_NODES] += 1
        if matches + node.count > len(found):
            return _FOUND_FULL
        if top + node.partitions + 2 > len(stack):
            return _STACK_FULL
        before = matches
        discarded = cost[DISCARDED]
        if node.count > 0:
            matches = _check(words, node.head, event, sets, matches, found, cost)
        if adapt:
            if visit == len(trace.discarded):
                return _TRACE_FULL
            trace.steps[visit, 0] = c_node
            trace.steps[visit, 1] = led_by
            trace.steps[visit, 2] = matches - before
            trace.discarded[visit] = cost[DISCARDED] - discarded
        if node.left != NO_NODE:
            # SearchCDir: the halves of the bucket in which the event has codes
            if _shares(event, node.attribute, node.low, node.middle):
                top = _push(stack, top, node.left, visit)
            if _shares(event, node.attribute, node.middle + 1, node.high):
                top = _push(stack, top, node.right, visit)
        if 0 < node.partitions <= len(event.named):
            top = _push_all(p_nodes, node.first, event.last, stack, top, visit)
        elif node.partitions > 0:
            top = _push_named(p_nodes, directory, c_node, event.named, event.last, stack, top, visit)
    cost[MATCHES] += matches
    return matches


@inlined
def _check(
    words: np.ndarray, expression: int, event: _Event, sets: TermSets, matches: int, found: np.ndarray, cost: np.ndarray
) -> int:
    """CheckSub: evaluates the expressions of an l-node, each up to the first predicate that fails."""
    while expression != NO_EXPRESSION:
        cost[EXPRESSIONS] += 1
        key = words[expression + KEY]
        begin = expression + HEADER
        end = begin + 3 * words[expression + EVALUATED]
        at = begin
        while at < end and _shares(event, words[at], words[at + 1], words[at + 2]):
            at += 3
        evaluated, holds = (at - begin) // 3, at == end
        if (holds or at > begin) and has_sets(sets, key):
            evaluated, holds = _check_sets(words, expression, event, sets, key, evaluated)
        elif not holds:
            evaluated += 1
        cost[PREDICATES] += evaluated
        if holds:
            found[matches] = key
            matches += 1
        else:
            cost[DISCARDED] += evaluated
        expression = words[expression + NEXT]
    return matches


@inlined
def _check_sets(
    words: np.ndarray, expression: int, event: _Event, sets: TermSets, key: int, met: int
) -> tuple[int, bool]:
    """Evaluates the sets with gaps of an expression. Returns the number of its predicates evaluated, up to the first
    that fails, and whether all hold.

    met: how many predicates, from the first on, have bounds that the event satisfies. A predicate with the bounds of
    its bucket is subsumed, and comes last; it is evaluated only if it has gaps.
    """
    due = words[expression + EVALUATED]
    fails, further, held = met, 0, True
    for number in range(sets.start[key], sets.start[key + 1]):
        attribute = sets.attributes[number]
        if met == words[expression + COUNT] and _shares_set(event, attribute, sets, number):
            continue
        place = (find_predicate(words, expression, attribute) - expression - HEADER) // 3
        if place < fails:
            if not _shares_set(event, attribute, sets, number):
                fails = place
        elif place >= due and met == due and held:
            further += 1
            held = _shares_set(event, attribute, sets, number)
    return (fails + 1, False) if fails < due else (due + further, held)


@inlined
def _shares_set(event: _Event, attribute: int, sets: TermSets, number: int) -> bool:
    """Whether the event has a code of the attribute in a set."""
    if not event.scattered:
        return set_shares(sets, number, event.first[attribute], event.last[attribute])
    for at in range(event.begin[attribute], event.end[attribute]):
        if set_shares(sets, number, event.intervals[at, 0], event.intervals[at, 1]):
            return True
    return False


@inlined
def _push_all(p_nodes: np.ndarray, p_node: int, last: np.ndarray, stack: np.ndarray, top: int, visit: int) -> int:
    """Pushes the first buckets of the p-nodes, from a given one on, whose attribute the event names."""
    while p_node != NO_NODE:
        if last[p_nodes[p_node].attribute] >= 0:
            top = _push(stack, top, p_nodes[p_node].top, visit)
        p_node = p_nodes[p_node].next
    return top


@inlined
def _push_named(
    p_nodes: np.ndarray, directory: np.ndarray, c_node: int, named: np.ndarray, last: np.ndarray, stack: np.ndarray,
    top: int, visit: int,
) -> int:  # fmt: skip
    """Like `_push_all`, but looks up each attribute that the event names: for a c-node with more p-nodes than that."""
    for i in range(len(named)):
        if last[named[i]] >= 0:
            p_node = find_p_node(directory, p_nodes, c_node, named[i])
            if p_node != NO_NODE:
                top = _push(stack, top, p_nodes[p_node].top, visit)
    return top


@inlined
def _push(stack: np.ndarray, top: int, c_node: int, visit: int) -> int:
    """Pushes a c-node and the visit that led to it; returns the new height of the stack."""
    stack[top, 0] = c_node
    stack[top, 1] = visit
    return top + 1
