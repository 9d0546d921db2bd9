"""Matches the subpredicates of query predicates one after the other; one that fails relaxes the stream predicate.

Kuntschke and Kemper, algorithms 7, 8 and 10 to 12, which have the same loop over subpredicates.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from benchmarks.jit import bare, inlined, jit
from benchmarks.papers.systems.disjunctive.box_bitmaps import BoxBitmaps, find_held, look_up
from benchmarks.papers.systems.disjunctive.box_trees import BoxTrees, overlapping
from benchmarks.papers.systems.disjunctive.dimensions import (
    APART,
    IMPLIED,
    OVERLAPS,
    Lines,
    SortedBoxes,
    relation,
    relax,
)
from benchmarks.papers.systems.disjunctive.exact import (
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
from benchmarks.papers.systems.disjunctive.streams import NEAR, ORDERED, Stream, Streams, add, copy, replace, reset

HSR, HCR = 3, 4
"""The methods other than the strategies of exact matching."""
SPENT, DONE = 4, 5
"""Further results: a subpredicate was given up because the budget was spent; all are done."""
YES, NO, UNDECIDED = 1, 0, -1
STATE = 9
STREAM, QUERY, SUBPREDICATE, STARTED, GIVEN_UP, QUICK_CHECK, KEEPS_RELAXED, KEEPS_REST, KNOWS_HELD = range(STATE)
"""Indices into the state: the current stream predicate, query and subpredicate; whether the parts of this subpredicate
are being compared; whether to give it up; whether to begin with algorithm 6; whether to add even the last subpredicate
of a query, for the relaxed predicate; whether to stop at each rest, for the caller to read; whether `held` is filled.
"""
SCAN, TREES, BITMAPS = range(3)
"""The kinds of index; a scan uses none."""


class BoxIndex(NamedTuple):
    """An index over the stream predicates; the fields that it does not use are empty."""

    kind: int
    trees: BoxTrees
    bitmaps: BoxBitmaps


@jit
def match_in_turn(
    method: int,
    queries: SortedBoxes,
    query_start: np.ndarray,
    streams: Streams,
    stream: Stream,
    index: BoxIndex,
    lines: Lines,
    held: np.ndarray,
    parts: Parts,
    state: np.ndarray,
    results: tuple[np.ndarray, np.ndarray, np.ndarray],
    most: int,
    steps: int,
) -> int:
    """Runs until all queries are matched with all stream predicates (`DONE`). It returns earlier with `FULL` if parts
    need room, with `PAUSED` after so many `steps` on one subpredicate, and with `REST` after one that is not covered,
    if `state` asks for it; call it again to go on.

    Each query begins with the stream predicate as it was given. held: [subpredicates, streams] bool, filled here if the
    index is bitmaps and no rest is asked for: a subpredicate with a corner that no box contains is not implied.
    results: verdicts, splits and most_parts as in `predicate_matching.Matchings`, initially zeros. most: the
    comparisons after which a subpredicate is given up.
    """
    verdicts, splits, most_parts = results
    wide = np.empty((2, queries.boxes.shape[1], 2), np.int32)
    # corners are no use if the relaxed predicate is returned: a corner gives no rest, and HCR's widened boxes may come
    # to contain it
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
                # no subpredicate is implied, and the boxes that they would add are not for other queries
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
                verdicts[at, query] = YES if how == COVERED else NO if how == REST else UNDECIDED
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
    queries: SortedBoxes,
    query: int,
    streams: Streams,
    stream: Stream,
    index: BoxIndex,
    lines: Lines,
    corners: bool,
    parts: Parts,
    state: np.ndarray,
    wide: np.ndarray,
    most: int,
    steps: int,
) -> int:
    """Matches one subpredicate and returns the result; HCR may widen a box to contain it."""
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
    """Algorithm 6 (QC): `IMPLIED` if a box contains the subpredicate, else `OVERLAPS` if one shares a row with it, else
    `APART`."""
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
def _find(
    queries: np.ndarray, query: int, streams: Streams, stream: Stream, at: int, index: BoxIndex
) -> tuple[int, int]:
    """Algorithm 6 by an index, and the position of the first box to compare with."""
    if index.kind == BITMAPS:
        return look_up(queries, query, stream, streams, at, index.bitmaps, False)
    checked, stream.counts[NEAR] = overlapping(queries, query, stream, streams, at, index.trees)
    return checked, 0


@bare
def _widen(stream: Stream, streams: Streams, queries: SortedBoxes, query: int, lines: Lines, wide: np.ndarray) -> int:
    """Algorithm 8 for a subpredicate, which is added if there is no box to widen."""
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
