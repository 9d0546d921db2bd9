"""All subpredicates of query predicates one after the other, the stream predicate being relaxed by those that fail.

Kuntschke and Kemper, algorithms 7, 8 and 10 to 12, whose loops over the subpredicates are alike.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rules_index.implication.dimensions import APART, IMPLIED, OVERLAPS, Lines, Sorted, relation, relax
from rules_index.implication.matching.box_bitmaps import BoxBitmaps, find_held, look_up
from rules_index.implication.matching.box_trees import BoxTrees, overlapping
from rules_index.implication.matching.exact import (
    COVERED,
    FULL,
    MOST,
    PAUSED,
    REST,
    SPLITS,
    Parts,
    compare,
    compare_found,
    start,
)
from rules_index.implication.matching.streams import NEAR, ORDERED, Stream, Streams, add, copy, replace, reset
from rules_index.kernels.jit import bare, inlined, jit

HSR, HCR = 3, 4
"""Methods beside the strategies of exact matching."""
SPENT, DONE = 4, 5
"""What else becomes of a subpredicate: given up; and of all of them."""
YES, NO, UNDECIDED = 1, 0, -1
STATE = 9
STREAM, QUERY, SUBPREDICATE, STARTED, GIVEN_UP, QUICK_CHECK, KEEPS_RELAXED, KEEPS_REST, KNOWS_HELD = range(STATE)
"""Places in the state: the stream predicate, the query and the subpredicate at hand; whether that one's parts are being
compared, and whether they are to be no longer; whether algorithm 6 comes first; whether each query's last subpredicate
is to be added, too, and whether to stop for each rest; whether `held` is filled."""
SCAN, TREES, BITMAPS = range(3)
"""Kinds of index; a scan is none."""


class Index(NamedTuple):
    """An index over the stream predicates: what there is not of it is empty."""

    kind: int
    trees: BoxTrees
    bitmaps: BoxBitmaps


@jit
def match_in_turn(
    method: int,
    queries: Sorted,
    query_start: np.ndarray,
    streams: Streams,
    stream: Stream,
    index: Index,
    lines: Lines,
    held: np.ndarray,
    parts: Parts,
    state: np.ndarray,
    results: tuple[np.ndarray, np.ndarray, np.ndarray],
    most: int,
    steps: int,
) -> int:
    """Goes on until all queries are matched with all stream predicates (`DONE`); before that `FULL` where parts need
    room, `PAUSED` after so many `steps` on one subpredicate, and `REST` after one that is not covered, if `state` says
    so.

    Each query begins with the stream predicate as it was given. held: [subpredicates, streams] bool, filled here where
    bitmaps are the index and no rest is asked for: a subpredicate with a corner that no box holds is not implied.
    results: known, splits and most_parts as in `matching.Matchings`, zeros at first. most: comparisons after which a
    subpredicate is given up.
    """
    known, splits, most_parts = results
    wide = np.empty((2, queries.boxes.shape[1], 2), np.int32)
    # corners are no rest, and a box that is widened may come to hold some
    corners = index.kind == BITMAPS and method != HCR and not state[KEEPS_RELAXED]
    if corners and not state[KNOWS_HELD]:
        find_held(queries.boxes, query_start, index.bitmaps, held)
        state[KNOWS_HELD] = 1
    ordered = index.kind == SCAN or method == HCR
    while state[STREAM] < len(streams.start) - 1:
        at = state[STREAM]
        while state[QUERY] < len(query_start) - 1:
            begin, end = query_start[state[QUERY]], query_start[state[QUERY] + 1]
            if corners and not held[begin:end, at].any():
                # none is implied, and what they would add concerns no other query
                state[QUERY] += 1
                state[SUBPREDICATE] = end
                continue
            if state[SUBPREDICATE] == begin and not state[STARTED]:
                reset(stream, streams, at, ordered, method == HCR)
            for query in range(state[SUBPREDICATE], end):
                state[SUBPREDICATE] = query
                if corners and not held[query, at]:
                    how = REST
                else:
                    how = _one(
                        method, queries, query, streams, stream, index, lines, corners, parts, state, wide, most, steps
                    )
                if how in (FULL, PAUSED):
                    return how
                if how in (REST, SPENT) and method != HCR and (state[KEEPS_RELAXED] or query + 1 < end):
                    add(stream, len(streams.order) + query, ordered)
                if state[STARTED]:
                    splits[at, query], most_parts[at, query] = parts.state[SPLITS], parts.state[MOST]
                    state[STARTED] = state[GIVEN_UP] = 0
                known[at, query] = YES if how == COVERED else NO if how == REST else UNDECIDED
                if how == REST and state[KEEPS_REST]:
                    state[SUBPREDICATE] = query + 1
                    return REST
            state[QUERY] += 1
            state[SUBPREDICATE] = end
        state[STREAM] += 1
        state[QUERY] = state[SUBPREDICATE] = 0
    return DONE


@inlined
def _one(
    method: int,
    queries: Sorted,
    query: int,
    streams: Streams,
    stream: Stream,
    index: Index,
    lines: Lines,
    corners: bool,
    parts: Parts,
    state: np.ndarray,
    wide: np.ndarray,
    most: int,
    steps: int,
) -> int:
    """What becomes of one subpredicate; a box is widened to hold it, if that is the method."""
    if not state[STARTED]:
        checked, first = OVERLAPS, np.int64(0)
        if index.kind == SCAN:
            if state[QUICK_CHECK]:
                checked = _check(queries.boxes, query, stream)
        elif state[QUICK_CHECK] or method < HSR:
            checked, first = _find(queries.boxes, query, streams, stream, state[STREAM], index)
        if checked == IMPLIED:
            return COVERED
        if method == HCR:
            return _widen(stream, streams, queries, query, lines, wide)
        if method == HSR or (checked == APART and not state[KEEPS_REST]):
            return REST
        start(parts, queries.boxes, query, first)
        if checked == APART:
            return REST
        state[STARTED] = 1
    how = PAUSED
    if not state[GIVEN_UP]:
        given, counts = stream.given, stream.counts
        steps = min(steps, most - parts.state[SPLITS])
        if index.kind == BITMAPS:
            how = compare_found(method, parts, stream, streams, state[STREAM], index.bitmaps, corners, steps)
        elif index.kind == TREES:
            how = compare(method, parts, given, stream.near, counts[NEAR], True, steps)
        else:
            how = compare(method, parts, given, stream.order, counts[ORDERED], False, steps)
    if how == PAUSED and (state[GIVEN_UP] or parts.state[SPLITS] >= most):
        return SPENT
    return how


@bare
def _check(queries: np.ndarray, query: int, stream: Stream) -> int:
    """Algorithm 6 (QC)."""
    found = APART
    boxes, rank, order = stream.given.boxes, stream.given.rank, stream.order
    for place in range(stream.counts[ORDERED]):
        how = relation(queries, query, boxes, order[place], rank)
        if how == IMPLIED:
            return IMPLIED
        if how == OVERLAPS:
            found = OVERLAPS
    return found


@inlined
def _find(queries: np.ndarray, query: int, streams: Streams, stream: Stream, at: int, index: Index) -> tuple[int, int]:
    """Algorithm 6 by an index, and the position of the first box to compare with."""
    if index.kind == BITMAPS:
        return look_up(queries, query, stream, streams, at, index.bitmaps, False)
    checked, stream.counts[NEAR] = overlapping(queries, query, stream, streams, at, index.trees)
    return checked, 0


@bare
def _widen(stream: Stream, streams: Streams, queries: Sorted, query: int, lines: Lines, wide: np.ndarray) -> int:
    """Algorithm 8 for a subpredicate, which is added where there is no box to widen."""
    if stream.counts[ORDERED] == 0:
        box = len(streams.order) + query
        copy(queries, query, stream.given, box)
        add(stream, box, True)
        return REST
    widened = relax(queries.boxes, query, stream.given, stream.order, stream.counts[ORDERED], lines, wide)
    if widened < 0:
        return COVERED
    replace(stream, widened, wide, lines)
    return REST
