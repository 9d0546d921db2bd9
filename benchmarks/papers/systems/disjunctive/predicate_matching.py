"""Predicate matching (Kuntschke and Kemper, section 3): does p' imply p, and how must p be relaxed so that it does?"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Literal

import numpy as np

from benchmarks.papers.systems.disjunctive.box_bitmaps import BoxBitmaps
from benchmarks.papers.systems.disjunctive.box_trees import BoxTrees
from benchmarks.papers.systems.disjunctive.exact import (
    BFS,
    DFS,
    FULL,
    MIX,
    REST,
    REST_BEGIN,
    TAIL,
    make_parts,
    with_room,
)
from benchmarks.papers.systems.disjunctive.intervals import Disjunction, Predicates
from benchmarks.papers.systems.disjunctive.sequence import (
    BITMAPS,
    DONE,
    GIVEN_UP,
    HCR,
    HSR,
    KEEPS_RELAXED,
    KEEPS_REST,
    QUICK_CHECK,
    SCAN,
    STATE,
    STREAM,
    SUBPREDICATE,
    TREES,
    UNDECIDED,
    BoxIndex,
    match_in_turn,
)
from benchmarks.papers.systems.disjunctive.streams import ADDED, no_stream
from rules_index.implication.search_limits import Budget
from rules_index.index.boxes import Tree

Method = Literal["hsr", "hcr", "em_bfs", "em_dfs", "em_mix"]
_METHODS: dict[Method, int] = {"em_bfs": BFS, "em_dfs": DFS, "em_mix": MIX, "hsr": HSR, "hcr": HCR}
_STEPS = 1 << 14
"""The comparisons after which the time is checked."""


_UNBOUNDED_EFFORT = Budget(1 << 62, float("inf"))


@dataclass(frozen=True)
class Matchings:
    """The results of matching each of several query predicates with each of several stream predicates p as given.

    start       [queries + 1] int64, the first subpredicate of each query
    verdicts    [streams, subpredicates] int8: 1 if the method shows that the subpredicate implies p as the ones before
                it in the query have relaxed it, 0 if it does not, -1 if the budget was spent before
    splits      [streams, subpredicates] int64, comparisons of a part with a box (runs of algorithm 9)
    most_parts  [streams, subpredicates] int64, the most parts at once
    """

    start: np.ndarray
    verdicts: np.ndarray
    splits: np.ndarray
    most_parts: np.ndarray

    @cached_property
    def implied(self) -> list[bool | None]:
        """Whether each query implies p, as `Matching.implied`; the results for the first p come first."""
        ends = list(pairwise(self.start.tolist()))
        return [_all(verdicts[begin:end]) for verdicts in self.verdicts.tolist() for begin, end in ends]


@dataclass(frozen=True)
class Matching:
    """The result of matching p' with p.

    implied   whether p' => p as far as the method can show: the heuristics miss some cases, exact matching none; None
              if the budget was spent before it was known
    relaxed   p, or its relaxation that p' implies; p always implies it
    rest      parts of p' that exact matching found uncovered: of each subpredicate all such parts with "em_bfs" and no
              index, else the first one that was found
    splits, most_parts  summed over all subpredicates, and the largest of one, as in `Matchings`
    """

    implied: bool | None
    relaxed: Disjunction
    rest: Disjunction
    splits: int = 0
    most_parts: int = 0


def match(
    query: Disjunction,
    stream: Disjunction,
    method: Method = "em_dfs",
    *,
    quick_check: bool = True,
    index: Tree | BoxBitmaps | None = None,
    budget: Budget = _UNBOUNDED_EFFORT,
) -> Matching:
    """Matches the query predicate p' with the stream predicate p, both over one space.

    method: "hsr" (algorithm 7), "hcr" (8), "em_bfs" (10), "em_dfs" (11), "em_mix" (12), each with or without the quick
    check (6). index: over the stream's boxes, by number (`Disjunction.index`, or an R-tree's `tree()`), for the quick
    check and exact matching (3.6). budget: for each subpredicate of p' that exact matching is used on. A subpredicate
    that does not match, or is undecided, is added whole (3.5). A subpredicate that overlaps no box makes the match
    fail, which algorithms 10 to 12 as printed miss. Raises `ValueError` if the two predicates are not over the same
    space.
    """
    given = stream.alone
    over_all = BoxTrees.of([index], given.start) if isinstance(index, Tree) else index
    run = _Run(query.alone, given, method, quick_check, over_all, keeps=True)
    rest = list(run.uncovered_parts(budget))
    found = run.found
    return Matching(
        found.implied[0],
        run.relaxed(),
        Disjunction(query.space, np.concatenate([query.boxes[:0], *rest])),
        int(found.splits.sum()),
        int(found.most_parts.max(initial=0)),
    )


def match_each(
    queries: Predicates,
    streams: Predicates,
    method: Method = "em_dfs",
    *,
    quick_check: bool = True,
    index: BoxTrees | BoxBitmaps | None = None,
    budget: Budget = _UNBOUNDED_EFFORT,
) -> Matchings:
    """Matches each of several query predicates with each of several stream predicates, as `match` does, in one call.

    index: over the boxes of all stream predicates (`Predicates.index`, or one tree for each). No rest is returned. So
    bitmaps can decide that a part is uncovered by a corner that is in no box, without a comparison.
    """
    run = _Run(queries, streams, method, quick_check, index, keeps=False)
    for _ in run.uncovered_parts(budget):
        pass
    return run.found


def _all(verdicts: Sequence[int]) -> bool | None:
    if 0 in verdicts:
        return False
    return None if UNDECIDED in verdicts else True


class _Run:
    """One method over some queries and stream predicates."""

    def __init__(
        self,
        queries: Predicates,
        streams: Predicates,
        method: Method,
        quick_check: bool,
        index: BoxTrees | BoxBitmaps | None,
        keeps: bool,
    ) -> None:
        if queries.subpredicates.space is not streams.subpredicates.space:
            raise ValueError("all predicates must be encoded by one space")
        self._given = streams.subpredicates
        self._method = _METHODS[method]
        self._queries, self._start = queries.subpredicates.measures, queries.start
        self._streams = streams.streams
        self._stream = no_stream(self._streams, self._queries, streams.longest + queries.longest)
        self._index = _index(index)
        self._parts = make_parts(len(self._given.space.names))
        self._state = np.zeros(STATE, np.int64)
        self._state[QUICK_CHECK], self._state[KEEPS_RELAXED] = quick_check, keeps
        self._state[KEEPS_REST] = keeps and method.startswith("em")
        shape = len(streams.start) - 1, len(queries.subpredicates)
        self._held = np.empty(shape[::-1], np.bool_)
        self._results = np.zeros(shape, np.int8), np.zeros(shape, np.int64), np.zeros(shape, np.int64)

    @property
    def found(self) -> Matchings:
        """The results."""
        return Matchings(self._start, *self._results)

    def relaxed(self) -> Disjunction:
        """The stream predicate, which must be the only one, as relaxed by the last query."""
        if self.found.implied[-1] is True:
            return self._given
        boxes, added_boxes = self._stream.given.boxes, self._stream.added_boxes[: self._stream.counts[ADDED]]
        count = len(self._given)
        added = boxes[added_boxes[added_boxes >= count]]
        return Disjunction(self._given.space, np.concatenate([boxes[:count], added]))

    def uncovered_parts(self, budget: Budget) -> Iterator[np.ndarray]:
        """Matches all subpredicates; yields the uncovered parts [parts, d, 2] int32 of each that has some, if they are
        kept."""
        watched, ends = [-1, -1], 0.0
        while (how := self._go_on(budget.splits)) != DONE:
            if how == FULL:
                self._parts = with_room(self._parts)
            elif how == REST:
                begin, end = self._parts.state[[REST_BEGIN, TAIL]].tolist()
                yield self._parts.boxes[begin:end].copy()
            elif watched != (at_hand := self._state[[STREAM, SUBPREDICATE]].tolist()):
                watched, ends = at_hand, time.monotonic() + budget.seconds
            else:
                self._state[GIVEN_UP] = time.monotonic() > ends

    def _go_on(self, most: int) -> int:
        return int(
            match_in_turn(
                self._method,
                self._queries,
                self._start,
                self._streams,
                self._stream,
                self._index,
                self._given.space.lines,
                self._held,
                self._parts,
                self._state,
                self._results,
                most,
                _STEPS,
            )
        )


def _index(given: BoxTrees | BoxBitmaps | None) -> BoxIndex:
    if isinstance(given, BoxBitmaps):
        return BoxIndex(BITMAPS, _NO_TREES, given)
    return BoxIndex(SCAN, _NO_TREES, _NO_BITMAPS) if given is None else BoxIndex(TREES, given, _NO_BITMAPS)


_NO_TREES = BoxTrees.of([], np.zeros(1, np.int64))
_NO_BITMAPS = BoxBitmaps(np.zeros((0, 0, 0, 0, 0), np.uint64), np.zeros((0, 0, 0, 0), np.uint64))
