"""Predicate matching (Kuntschke and Kemper, section 3): does p' imply p, and what must p become so that it does?"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Literal

import numpy as np

from rules_index.csr import offsets_of
from rules_index.engines.boxes import Tree
from rules_index.implication.dimensions import Sorted
from rules_index.implication.exact import (
    BFS,
    DFS,
    FULL,
    MIX,
    REST,
    REST_BEGIN,
    TAIL,
    Nodes,
    Stream,
    make_parts,
    with_room,
)
from rules_index.implication.intervals import Disjunction
from rules_index.implication.sequence import (
    DONE,
    GIVEN_UP,
    HCR,
    HSR,
    KEEPS_RELAXED,
    KEEPS_REST,
    QUICK_CHECK,
    STATE,
    SUBPREDICATE,
    UNDECIDED,
    match_in_turn,
)

Method = Literal["hsr", "hcr", "em_bfs", "em_dfs", "em_mix"]
_METHODS: dict[Method, int] = {"em_bfs": BFS, "em_dfs": DFS, "em_mix": MIX, "hsr": HSR, "hcr": HCR}
_STEPS = 1 << 14
"""Comparisons after which the clock is looked at."""


@dataclass(frozen=True)
class Budget:
    """How much may be spent on a subpredicate before the answer is left open.

    splits: comparisons of a part with a box (runs of algorithm 9), but for the parts that were taken up together with
    the last one; seconds: about how long.
    """

    splits: int = 1_000_000
    seconds: float = 10.0


_UNBOUNDED_EFFORT = Budget(1 << 62, float("inf"))


@dataclass(frozen=True)
class Queries:
    """Several predicates, each a p': their subpredicates one behind the other, and the first of each.

    start: [predicates + 1] int64
    """

    subpredicates: Disjunction
    start: np.ndarray

    @classmethod
    def of(cls, predicates: Sequence[Disjunction]) -> Queries:
        """One or more predicates; `ValueError` where they are not over one space."""
        space = predicates[0].space
        if any(each.space is not space for each in predicates):
            raise ValueError("all predicates must be encoded by one space")
        boxes = np.concatenate([each.boxes for each in predicates])
        return cls(Disjunction(space, boxes), offsets_of(np.array([len(each) for each in predicates], np.int64)))


@dataclass(frozen=True)
class Matchings:
    """The results of matching several predicates with p, each with p as it was given.

    start       [predicates + 1] int64, the first subpredicate of each
    known       [subpredicates] int8: 1 where it implies p as relaxed so far, as far as the method sees, 0 where not, -1
                where the budget was spent before it was known
    splits      [subpredicates] int64, comparisons of a part with a box (runs of algorithm 9)
    most_parts  [subpredicates] int64, parts that lived at once, at most
    """

    start: np.ndarray
    known: np.ndarray
    splits: np.ndarray
    most_parts: np.ndarray

    @cached_property
    def implied(self) -> list[bool | None]:
        """Whether each predicate implies p, as `Matching.implied`."""
        return [_all(self.known[begin:end].tolist()) for begin, end in pairwise(self.start.tolist())]


@dataclass(frozen=True)
class Matching:
    """The result of matching p' with p.

    implied   whether p' => p as far as the method sees: the heuristics miss some, exact matching none; None where
              the budget was spent before it was known
    relaxed   p, or what it was relaxed to so that p' implies it; p always does
    rest      what of p' exact matching found uncovered: with "em_bfs" and no index all of a subpredicate's, else the
              first part that was met
    splits, most_parts  of all subpredicates together, and of one at most, as in `Matchings`
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
    index: Tree | None = None,
    budget: Budget = _UNBOUNDED_EFFORT,
) -> Matching:
    """Matches the query predicate p' with the stream predicate p, both over one space.

    method: "hsr" (algorithm 7), "hcr" (8), "em_bfs" (10), "em_dfs" (11), "em_mix" (12), each with or without the quick
    check (6). index: over the stream's boxes, by place (`Disjunction.index`, or an R-tree's `tree()`); it serves the
    quick check and exact matching (3.6). budget: for each subpredicate of p' that exact matching is used on.

    A subpredicate that does not match is added whole (3.5), and so is one of which it is not known. Against the text
    of algorithms 10 to 12, one that overlaps nothing makes the match fail. Raises `ValueError` where the two
    predicates are not over one space.
    """
    run = _Run(Queries.of([query]), stream, method, quick_check, index, keeps=True)
    rest = list(run.rests(budget))
    found = run.found
    return Matching(
        found.implied[0],
        run.relaxed(),
        Disjunction(query.space, np.concatenate([query.boxes[:0], *rest])),
        int(found.splits.sum()),
        int(found.most_parts.max(initial=0)),
    )


def match_each(
    queries: Queries,
    stream: Disjunction,
    method: Method = "em_dfs",
    *,
    quick_check: bool = True,
    index: Tree | None = None,
    budget: Budget = _UNBOUNDED_EFFORT,
) -> Matchings:
    """Matches each of several query predicates with the stream predicate, as `match` does, all in one go."""
    run = _Run(queries, stream, method, quick_check, index, keeps=False)
    for _ in run.rests(budget):
        pass
    return run.found


def _all(known: Sequence[int]) -> bool | None:
    if 0 in known:
        return False
    return None if UNDECIDED in known else True


class _Run:
    """One method over some queries."""

    def __init__(
        self,
        queries: Queries,
        stream: Disjunction,
        method: Method,
        quick_check: bool,
        index: Tree | None,
        keeps: bool,
    ) -> None:
        if queries.subpredicates.space is not stream.space:
            raise ValueError("all predicates must be encoded by one space")
        self._given = stream
        self._method = _METHODS[method]
        self._queries, self._start = queries.subpredicates.measures, queries.start
        self._stream, self._fresh = _streams(stream, int(np.diff(self._start).max(initial=0)))
        self._nodes = _NO_INDEX
        if index is not None:
            self._nodes = Nodes(index.end, index.test_start, index.tests, index.key_start, index.keys)
        self._parts = make_parts(len(stream.space.names))
        self._state = np.zeros(STATE, np.int64)
        self._state[[QUICK_CHECK, KEEPS_RELAXED]] = quick_check, keeps
        self._state[KEEPS_REST] = keeps and method.startswith("em")
        count = int(self._start[-1])
        self._results = np.zeros(count, np.int8), np.zeros(count, np.int64), np.zeros(count, np.int64)

    @property
    def found(self) -> Matchings:
        """What was found."""
        return Matchings(self._start, *self._results)

    def relaxed(self) -> Disjunction:
        """The stream predicate as the last query relaxed it."""
        if self.found.implied[-1] is True:
            return self._given
        return Disjunction(self._given.space, self._stream.given.boxes[: self._stream.counts[0]].copy())

    def rests(self, budget: Budget) -> Iterator[np.ndarray]:
        """Goes through all subpredicates; what stays uncovered of each, if that is kept."""
        watched, ends = -1, 0.0
        while (how := self._go_on(budget.splits)) != DONE:
            if how == FULL:
                self._parts = with_room(self._parts)
            elif how == REST:
                begin, end = self._parts.state[[REST_BEGIN, TAIL]].tolist()
                yield self._parts.boxes[begin:end].copy()
            elif watched != self._state[SUBPREDICATE]:
                watched, ends = int(self._state[SUBPREDICATE]), time.monotonic() + budget.seconds
            else:
                self._state[GIVEN_UP] = time.monotonic() > ends

    def _go_on(self, most: int) -> int:
        return int(
            match_in_turn(
                self._method,
                self._queries,
                self._start,
                self._stream,
                self._fresh,
                self._nodes,
                self._given.space.lines,
                self._parts,
                self._state,
                self._results,
                most,
                _STEPS,
            )
        )


def _streams(given: Disjunction, more: int) -> tuple[Stream, Stream]:
    """A stream predicate with room for more boxes, and as it is."""
    count = len(given)
    place = np.empty(count, np.int64)
    place[given.order] = np.arange(count)
    nothing = np.empty(0, np.int64)
    fresh = Stream(given.measures, given.order, place, nothing, nothing, np.array([count, 0, 0]))
    wide = Sorted(*(np.concatenate([each, np.empty((more, *each.shape[1:]), each.dtype)]) for each in given.measures))
    order, place, beside, near = (np.empty(count + more, np.int64) for _ in range(4))
    return Stream(wide, order, place, beside, near, np.zeros(3, np.int64)), fresh


_NO_INDEX = Nodes(
    np.empty(0, np.int32),
    np.zeros(1, np.int64),
    np.empty((0, 3), np.int32),
    np.zeros(1, np.int64),
    np.empty(0, np.int32),
)
