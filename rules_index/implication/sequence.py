"""All subpredicates of query predicates one after the other, the stream predicate being relaxed by those that fail.

Kuntschke and Kemper, algorithms 7, 8 and 10 to 12, whose loops over the subpredicates are alike.
"""

from __future__ import annotations

import numpy as np

from rules_index.implication.dimensions import (
    APART,
    IMPLIED,
    OVERLAPS,
    Lines,
    Sorted,
    copy_box,
    measure,
    relation,
    relax,
)
from rules_index.implication.exact import (
    COVERED,
    FULL,
    MOST,
    PAUSED,
    REST,
    SPLITS,
    Nodes,
    Parts,
    Stream,
    compare,
    overlapping,
    start,
)
from rules_index.kernels.jit import bare, jit

HSR, HCR = 3, 4
"""Methods beside the strategies of exact matching."""
SPENT, DONE = 4, 5
"""What else becomes of a subpredicate: given up; and of all of them."""
YES, NO, UNDECIDED = 1, 0, -1
STATE = 7
QUERY, SUBPREDICATE, STARTED, GIVEN_UP, QUICK_CHECK, KEEPS_RELAXED, KEEPS_REST = range(STATE)
"""Places in the state: the query and the subpredicate at hand; whether that one's parts are being compared, and whether
they are to be no longer; whether algorithm 6 comes first; whether each query's last subpredicate is to be added, too,
and whether to stop for each rest."""


@jit
def match_in_turn(
    method: int,
    queries: Sorted,
    query_start: np.ndarray,
    stream: Stream,
    fresh: Stream,
    nodes: Nodes,
    lines: Lines,
    parts: Parts,
    state: np.ndarray,
    results: tuple[np.ndarray, np.ndarray, np.ndarray],
    most: int,
    steps: int,
) -> int:
    """Goes on until all is `DONE`; before that `FULL` where parts need room, `PAUSED` after so many `steps` on one
    subpredicate, and `REST` after one that is not covered, if `state` says so.

    fresh: the stream predicate as it was given, which each query begins with. results: known, splits and most_parts as
    in `matching.Matchings`. most: comparisons after which a subpredicate is given up.
    """
    known, splits, most_parts = results
    wide = np.empty((2, queries.boxes.shape[1], 2), np.int32)
    while state[QUERY] < len(query_start) - 1:
        if state[SUBPREDICATE] == query_start[state[QUERY]] and not state[STARTED]:
            _reset(stream, fresh, method == HCR)
        while state[SUBPREDICATE] < query_start[state[QUERY] + 1]:
            at = state[SUBPREDICATE]
            how = _one(method, queries, at, stream, nodes, lines, parts, state, wide, most, steps)
            if how in (FULL, PAUSED):
                return how
            is_last = at + 1 == query_start[state[QUERY] + 1]
            if how in (REST, SPENT) and method != HCR and (state[KEEPS_RELAXED] or not is_last):
                _add(stream, queries, at, len(nodes.end) > 0)
            if state[STARTED]:
                splits[at], most_parts[at] = parts.state[SPLITS], parts.state[MOST]
            known[at] = YES if how == COVERED else NO if how == REST else UNDECIDED
            state[STARTED] = state[GIVEN_UP] = 0
            state[SUBPREDICATE] = at + 1
            if how == REST and state[KEEPS_REST]:
                return REST
        state[QUERY] += 1
    return DONE


@bare
def _one(
    method: int,
    queries: Sorted,
    at: int,
    stream: Stream,
    nodes: Nodes,
    lines: Lines,
    parts: Parts,
    state: np.ndarray,
    wide: np.ndarray,
    most: int,
    steps: int,
) -> int:
    """What becomes of one subpredicate; a box is widened to hold it, if that is the method."""
    indexed = len(nodes.end) > 0
    counts = stream.counts
    if not state[STARTED]:
        checked = OVERLAPS
        if indexed and (state[QUICK_CHECK] or method < HSR):
            checked, counts[2] = overlapping(queries.boxes, at, stream, nodes)
        elif state[QUICK_CHECK]:
            checked = _check(queries.boxes, at, stream)
        if checked == IMPLIED:
            return COVERED
        if method == HCR:
            return _widen(stream, queries, at, indexed, lines, wide)
        start(parts, queries.boxes, at)
        if method == HSR or checked == APART:
            return REST
        state[STARTED] = 1
    how = PAUSED
    if not state[GIVEN_UP]:
        order, count = (stream.near, counts[2]) if indexed else (stream.order, counts[0])
        how = compare(method, parts, stream.given, order, count, indexed, min(steps, most - parts.state[SPLITS]))
    if how == PAUSED and (state[GIVEN_UP] or parts.state[SPLITS] >= most):
        return SPENT
    return how


@bare
def _check(queries: np.ndarray, query: int, stream: Stream) -> int:
    """Algorithm 6 (QC)."""
    found = APART
    boxes, rank, order = stream.given.boxes, stream.given.rank, stream.order
    for place in range(stream.counts[0]):
        how = relation(queries, query, boxes, order[place], rank)
        if how == IMPLIED:
            return IMPLIED
        if how == OVERLAPS:
            found = OVERLAPS
    return found


# The stream predicate


@bare
def _reset(stream: Stream, fresh: Stream, widened: bool) -> None:
    """Makes the stream predicate what it was."""
    count = fresh.counts[0]
    stream.counts[0], stream.counts[1] = count, 0
    for i in range(count):
        stream.order[i], stream.place[i] = fresh.order[i], fresh.place[i]
    if widened:
        for box in range(count):
            _copy(fresh.given, box, stream.given, box)


@bare
def _copy(source: Sorted, place: int, out: Sorted, at: int) -> None:
    copy_box(source.boxes, place, out.boxes, at)
    out.unbounded[at], out.volume[at] = source.unbounded[place], source.volume[place]
    for d in range(source.rank.shape[1]):
        out.rank[at, d] = source.rank[place, d]


@bare
def _add(stream: Stream, queries: Sorted, query: int, indexed: bool) -> None:
    """Adds a subpredicate to the stream predicate."""
    box = stream.counts[0]
    _copy(queries, query, stream.given, box)
    stream.counts[0] = box + 1
    _put_in_order(stream, box, box)
    if indexed:
        stream.beside[stream.counts[1]] = box
        stream.counts[1] += 1


@bare
def _widen(stream: Stream, queries: Sorted, query: int, indexed: bool, lines: Lines, wide: np.ndarray) -> int:
    """Algorithm 8 for a subpredicate, which is added where there is no box to widen."""
    if stream.counts[0] == 0:
        _add(stream, queries, query, indexed)
        return REST
    widened = relax(queries.boxes, query, stream.given, stream.order, stream.counts[0], lines, wide)
    if widened < 0:
        return COVERED
    _replace(stream, widened, wide, indexed, lines)
    return REST


@bare
def _replace(stream: Stream, box: int, wide: np.ndarray, indexed: bool, lines: Lines) -> None:
    """Makes a box the first one of `wide`."""
    copy_box(wide, 0, stream.given.boxes, box)
    measure(stream.given, box, lines)
    last = stream.counts[0] - 1
    for place in range(stream.place[box], last):
        stream.order[place] = stream.order[place + 1]
        stream.place[stream.order[place]] = place
    _put_in_order(stream, box, last)
    if indexed:
        for i in range(stream.counts[1]):
            if stream.beside[i] == box:
                return
        stream.beside[stream.counts[1]] = box
        stream.counts[1] += 1


@bare
def _put_in_order(stream: Stream, box: int, count: int) -> None:
    """Puts a box in its place among the first `count` of the order of work (6.1): larger ones first, then by place."""
    given, place = stream.given, count
    while place > 0:
        before = stream.order[place - 1]
        if given.unbounded[before] != given.unbounded[box]:
            stands = given.unbounded[before] > given.unbounded[box]
        elif given.volume[before] != given.volume[box]:
            stands = given.volume[before] > given.volume[box]
        else:
            stands = before < box
        if stands:
            break
        stream.order[place], stream.place[before] = before, place
        place -= 1
    stream.order[place], stream.place[box] = box, place
