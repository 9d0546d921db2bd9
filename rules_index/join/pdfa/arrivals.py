"""Rows of several streams arrive by time: each probes the join buffer, and its joined rows are filtered by PDFA.

One kernel does figure 5's two steps for each arriving row. FIRST searches the index with the row's own dimensions,
once, however many rows it joins. SECOND takes the dimensions of the other streams, one stream after the other. With two
streams these are the paper's two steps; with more, they are what section 6 leaves to future work. Rows that several
joined rows have in common are checked once, and as soon as no query is left, no further row is joined. For the first of
the other streams SECOND reads the list of intermediate results (figure 6) if that is short, and follows the marked
paths (figure 7) if it is long. For each later stream it reads the list that the stream before has left.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rules_index.engines.box_store import BoxArrays
from rules_index.engines.r_tree.dimensions import Dimensions
from rules_index.engines.r_tree.nodes import Nodes
from rules_index.join.pdfa.filtering import Marks, collect_first, collect_marked
from rules_index.join.pdfa.join_buffer import StreamRows, insert_row, partners
from rules_index.join.pdfa.queries import QueryTerms
from rules_index.kernels.bisection import in_intervals
from rules_index.kernels.jit import inner, jit

NODES, ENTRIES, FIRST, SECOND, PROBES = range(5)
"""Indices into `Work.counters`: nodes visited and entries of leaves checked; FIRST searches; SECOND searches, one for
each row of another stream that extends a partial join result; rows that probed the buffer."""
LISTED = 64
"""Up to this many intermediate results are checked one by one; if there are more, the marked paths are followed
(*ours*)."""


class Arrivals(NamedTuple):
    """The rows in the order of their arrival, earliest first. Among rows of one time the last stream comes first, so
    that a joined row's anchor is the row that arrives last.

    windows   [streams] int64
    stream    [rows] int64
    key       [rows] int64, a number for each key, 0 or more
    time      [rows] int64
    new, owned  [rows] bool, see `join.window_partners.Side`
    position  [rows] int32, in `join.window_partners.OrderedRows`
    code_at   [rows] int64, the offset of the row's codes
    codes     [.] int32
    """

    windows: np.ndarray
    stream: np.ndarray
    key: np.ndarray
    time: np.ndarray
    new: np.ndarray
    owned: np.ndarray
    position: np.ndarray
    code_at: np.ndarray
    codes: np.ndarray


class QueryIndex(NamedTuple):
    """The index of all queries: the paper's tree over boxes, and the exact terms, which boxes may not express.

    first   [streams + 1] int64, the first dimension of each stream
    chosen  [streams, dimensions] bool, the dimensions of each stream
    """

    nodes: Nodes
    boxes: BoxArrays
    dimensions: Dimensions
    first: np.ndarray
    chosen: np.ndarray
    terms: QueryTerms


class Work(NamedTuple):
    """The working state of a batch of arrivals.

    buffer    the join buffer; the rows of a key and stream have the number key * streams + stream
    marks     the marks of FIRST
    partners  [streams, rows] int64, for each other stream the arrivals that the arriving row joins
    left      [streams, queries] int32, the list of intermediate results after each stream
    stack     [`filtering.stack_size`] int32, nodes still to visit in a search
    row       [dimensions] int32, the codes of the row that is searched with
    begin     [streams] int64, the partner at which to resume, by the order in which SECOND takes the streams; 0 for a
              row that has just arrived
    counters  [5] int64
    """

    buffer: StreamRows
    marks: Marks
    partners: np.ndarray
    left: np.ndarray
    stack: np.ndarray
    row: np.ndarray
    begin: np.ndarray
    counters: np.ndarray


class FoundQueries(NamedTuple):
    """Joined rows and the queries that each satisfies; the arrays have room for more.

    query   [pairs] int32, ascending for each joined row
    number  [pairs] int32, the number of the joined row
    rows    [joined rows, streams] int32, positions
    """

    query: np.ndarray
    number: np.ndarray
    rows: np.ndarray


@jit
def let_arrive(at: int, arriving: Arrivals, index: QueryIndex, work: Work, most: int) -> tuple[int, FoundQueries]:
    """Joins and keeps the rows from number `at` on, until `most` pairs of a query and a joined row are found.

    Returns the row at which to resume, which may be partly joined, and what was found: at most `most` pairs, unless a
    single joined row has more.
    """
    streams = len(arriving.windows)
    found = FoundQueries(np.empty(1024, np.int32), np.empty(1024, np.int32), np.empty((256, streams), np.int32))
    pairs, joined = 0, 0
    counts = np.empty(streams, np.int64)
    turns = np.empty(streams, np.int64)
    nothing = np.empty(0, np.int32)
    rows = len(arriving.time)
    while at < rows:
        stream = arriving.stream[at]
        if arriving.owned[at] and _probe(at, arriving, work, counts, turns):
            left = _search_first(at, arriving, index, work)
            if left > 0:
                found, pairs, joined, is_done = _search_second(
                    at, left, arriving, index, work, counts, turns, found, pairs, joined, most
                )
                if not is_done:
                    break
        insert_row(work.buffer, arriving.key[at] * streams + stream, arriving.time[at], nothing)
        at += 1
    return at, FoundQueries(found.query[:pairs].copy(), found.number[:pairs].copy(), found.rows[:joined].copy())


@inner
def _probe(at: int, arriving: Arrivals, work: Work, counts: np.ndarray, turns: np.ndarray) -> bool:
    """Writes the arriving row's partners to `work.partners`, their numbers to `counts` [streams], and the other
    streams, those with the fewest partners first, to `turns`. Returns whether there may be a joined row with a new row
    in it."""
    streams = len(arriving.windows)
    own_stream = arriving.stream[at]
    is_new = arriving.new[at]
    work.counters[PROBES] += 1
    others = 0
    for stream in range(streams):
        if stream == own_stream:
            continue
        count = partners(
            work.buffer,
            arriving.key[at] * streams + stream,
            arriving.time[at] - arriving.windows[stream],
            work.partners[stream],
        )
        if count == 0:
            return False
        counts[stream] = count
        for partner in work.partners[stream, :count]:
            is_new |= arriving.new[partner]
        to = others
        while to > 0 and counts[turns[to - 1]] > count:
            turns[to] = turns[to - 1]
            to -= 1
        turns[to] = stream
        others += 1
    return is_new


@inner
def _search_first(at: int, arriving: Arrivals, index: QueryIndex, work: Work) -> int:
    """FIRST: writes the queries that match the arriving row's own dimensions to `work.left[0]`; returns their number.

    The queries are marked. They ascend if there are at most `LISTED`.
    """
    stream = arriving.stream[at]
    left = work.left[0]
    _set_row(at, arriving, index, work)
    count = collect_first(
        work.row, index.chosen[stream], index.nodes, index.boxes, index.dimensions, work.marks, at + 1, work.counters,
        work.stack, left,
    )  # fmt: skip
    work.counters[FIRST] += 1
    held = 0
    for i in range(count):
        slot = left[i]
        left[held] = index.boxes.key[slot]
        if _holds(left[held], stream, arriving.code_at[at], arriving, index.terms):
            held += 1
        else:
            work.marks.entry[slot] = 0
    if held <= LISTED:
        left[:held].sort()
    return held


@inner
def _search_marked(at: int, partner: int, arriving: Arrivals, index: QueryIndex, work: Work) -> int:
    """SECOND along the paths that the arriving row has marked: writes the queries that match a partner's dimensions,
    ascending, to `work.left[1]`; returns their number."""
    stream = arriving.stream[partner]
    left = work.left[1]
    _set_row(partner, arriving, index, work)
    count = collect_marked(
        work.row, index.chosen[stream], index.nodes, index.boxes, index.dimensions, work.marks, at + 1, work.counters,
        work.stack, left,
    )  # fmt: skip
    held = 0
    for i in range(count):
        left[held] = index.boxes.key[left[i]]
        held += _holds(left[held], stream, arriving.code_at[partner], arriving, index.terms)
    left[:held].sort()
    return held


@inner
def _set_row(at: int, arriving: Arrivals, index: QueryIndex, work: Work) -> None:
    """Writes a row's codes to its dimensions of `work.row`."""
    first = index.first[arriving.stream[at]]
    begin = arriving.code_at[at] - first
    for dimension in range(first, index.first[arriving.stream[at] + 1]):
        work.row[dimension] = arriving.codes[begin + dimension]


@inner
def _search_second(
    at: int, left: int, arriving: Arrivals, index: QueryIndex, work: Work, counts: np.ndarray, turns: np.ndarray,
    found: FoundQueries, pairs: int, joined: int, most: int,
) -> tuple[FoundQueries, int, int, bool]:  # fmt: skip
    """SECOND: appends the arriving row's joined rows and their queries to `found`, which has `pairs` and `joined` of
    them.

    turns: the order in which it takes the other streams. Returns `found`, the new `pairs` and `joined`, and whether
    that is all; if not, `work.begin` says where to resume.
    """
    streams = len(turns)
    last = streams - 2
    choice = np.zeros(streams, np.int64)
    lefts = np.zeros(streams, np.int64)
    is_new = np.zeros(streams, np.bool_)
    joining = np.zeros(streams, np.int32)
    lefts[0] = left
    is_new[0] = arriving.new[at]
    joining[arriving.stream[at]] = arriving.position[at]
    choice[0] = work.begin[0]
    turn = 0
    while turn >= 0:
        stream = turns[turn]
        if choice[turn] == counts[stream]:
            turn -= 1
            if turn >= 0:
                choice[turn] += 1
            continue
        partner = work.partners[stream, choice[turn]]
        is_new[turn + 1] = is_new[turn] or arriving.new[partner]
        if turn == last and not is_new[turn + 1]:
            choice[turn] += 1
            continue
        work.counters[SECOND] += 1
        if turn == 0 and left > LISTED:
            lefts[1] = _search_marked(at, partner, arriving, index, work)
        else:
            lefts[turn + 1] = _sift(
                work.left[turn, : lefts[turn]], stream, arriving.code_at[partner], arriving, index.terms,
                work.left[turn + 1],
            )  # fmt: skip
        if lefts[turn + 1] == 0:
            choice[turn] += 1
            continue
        joining[stream] = arriving.position[partner]
        if turn < last:
            turn += 1
            choice[turn] = work.begin[turn]
            work.begin[turn] = 0
            continue
        count = lefts[turn + 1]
        if pairs > 0 and pairs + count > most:
            work.begin[:] = choice
            return found, pairs, joined, False
        found = _with_room(found, pairs + count, joined + 1)
        found.query[pairs : pairs + count] = work.left[turn + 1, :count]
        found.number[pairs : pairs + count] = joined
        found.rows[joined] = joining
        pairs += count
        joined += 1
        choice[turn] += 1
    work.begin[:] = 0
    return found, pairs, joined, True


@inner
def _sift(given: np.ndarray, stream: int, begin: int, arriving: Arrivals, terms: QueryTerms, left: np.ndarray) -> int:
    """Writes to `left` the given queries whose terms on a stream a row satisfies; the row's codes begin at `begin`.
    Returns their number."""
    count = 0
    for query in given:
        left[count] = query
        count += _holds(query, stream, begin, arriving, terms)
    return count


@inner
def _holds(query: int, stream: int, begin: int, arriving: Arrivals, terms: QueryTerms) -> bool:
    """Whether a row, whose codes begin at `begin`, satisfies a query's terms on its stream."""
    segment = query * len(arriving.windows) + stream
    for term in range(terms.start[segment], terms.start[segment + 1]):
        code = arriving.codes[begin + terms.terms[term, 0]]
        set_index = terms.terms[term, 1]
        if not in_intervals(code, terms.set_start[set_index], terms.set_start[set_index + 1], terms.intervals):
            return False
    return True


@inner
def _with_room(found: FoundQueries, pairs: int, joined: int) -> FoundQueries:
    """Returns `found` if it has room for so many pairs and joined rows, else a copy with at least twice the room."""
    if pairs <= len(found.query) and joined <= len(found.rows):
        return found
    query = np.empty(max(pairs, 2 * len(found.query)), np.int32)
    number = np.empty(len(query), np.int32)
    rows = np.empty((max(joined, 2 * len(found.rows)), found.rows.shape[1]), np.int32)
    query[: len(found.query)] = found.query
    number[: len(found.number)] = found.number
    rows[: len(found.rows)] = found.rows
    return FoundQueries(query, number, rows)
