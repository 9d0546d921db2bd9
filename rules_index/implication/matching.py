"""Predicate matching (Kuntschke and Kemper, section 3): does p' imply p, and what must p become so that it does?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from rules_index.engines.r_tree import RTree
from rules_index.engines.r_tree.box_store import grown
from rules_index.implication.dimensions import APART, IMPLIED, OVERLAPS, check_quickly, relax
from rules_index.implication.exact import Budget, Strategy, cover, nearest, reading
from rules_index.implication.intervals import Disjunction

Method = Literal["hsr", "hcr", "em_bfs", "em_dfs", "em_mix"]
_STRATEGIES: dict[str, Strategy] = {"em_bfs": "bfs", "em_dfs": "dfs", "em_mix": "mix"}
_UNBOUNDED_EFFORT = Budget(1 << 62, float("inf"))


@dataclass(frozen=True)
class Matching:
    """The result of matching p' with p.

    implied   whether p' => p as far as the method sees: the heuristics miss some, exact matching none; None where
              the budget was spent before it was known
    relaxed   p, or what it was relaxed to so that p' implies it; p always does
    rest      what of p' exact matching found uncovered, as far as `exact.Coverage` tells
    splits    comparisons of a part with a box (runs of algorithm 9)
    most_parts  parts of one subpredicate that lived at once, at most
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
    index: RTree | None = None,
    budget: Budget = _UNBOUNDED_EFFORT,
) -> Matching:
    """Matches the query predicate p' with the stream predicate p, both over one space.

    method: "hsr" (algorithm 7), "hcr" (8), "em_bfs" (10), "em_dfs" (11), "em_mix" (12), each with or without the quick
    check (6). index: over the stream's boxes, by place (`Disjunction.index`); it serves the quick check and exact
    matching (3.6). budget: for each subpredicate of p' that exact matching is used on.

    A subpredicate that does not match is added whole (3.5), and so is one of which it is not known. Against the text
    of algorithms 10 to 12, one that overlaps nothing makes the match fail. Raises `ValueError` where the two
    predicates are not over one space.
    """
    if query.space is not stream.space:
        raise ValueError("both predicates must be encoded by one space")
    state = _Grown(stream, index)
    if method in _STRATEGIES:
        exact = _Exact(state, query, _STRATEGIES[method], quick_check, budget)
        answers = [exact.match(number) for number in range(len(query))]
        rest = Disjunction(query.space, np.concatenate([query.boxes[:0], *exact.rest]))
        return Matching(_all(answers), state.predicate(), rest, exact.splits, exact.most_parts)
    answers = []
    for number, box in enumerate(query.boxes):
        implied = quick_check and state.check(box) == IMPLIED
        if not implied:
            implied = state.relax(query, number) if method == "hcr" else state.add(query, number)
        answers.append(implied)
    return Matching(_all(answers), state.predicate(), Disjunction(query.space, query.boxes[:0]))


def _all(answers: Sequence[bool | None]) -> bool | None:
    if False in answers:
        return False
    return None if None in answers else True


class _Grown:
    """The stream predicate, as relaxed so far.

    What was added or widened stands beside the index, which is not changed: it is compared box by box.
    """

    def __init__(self, stream: Disjunction, index: RTree | None) -> None:
        self.stream = stream
        self.space = stream.space
        self.boxes = stream.boxes
        self.count = len(stream)
        measures = stream.measures
        self.unbounded, self.volume, self.rank = measures.unbounded, measures.volume, measures.rank
        self.order = measures.order
        self.tree = reading(index, np.empty(0, np.int64)) if index is not None else None
        self._stack = np.empty(0, np.int32)
        if self.tree is not None:
            levels = int(self.tree.level[self.tree.root]) + 1
            self._stack = np.empty(levels * self.tree.entries.shape[1] + 1, np.int32)

    def predicate(self) -> Disjunction:
        """As it is now."""
        return self.stream if self.boxes is self.stream.boxes else Disjunction(self.space, self.boxes[: self.count])

    def check(self, part: np.ndarray) -> int:
        """Algorithm 6, with the index where there is one."""
        if self.tree is None:
            return int(check_quickly(part, self.boxes, self.rank, self.order))
        return int(nearest(part, self.boxes, self.rank, self.places(), self.tree, self._stack)[0])

    def places(self) -> np.ndarray:
        """The place [boxes] int64 of each box in the order of work."""
        place = np.empty(self.count, np.int64)
        place[self.order] = np.arange(self.count)
        return place

    def add(self, query: Disjunction, number: int) -> bool:
        """Adds a subpredicate of the query, which did not match."""
        self._put(self.count, query, number)
        return False

    def relax(self, query: Disjunction, number: int) -> bool:
        """Algorithm 8 for one subpredicate of the query: whether it matched; else a box was widened to hold it."""
        if self.count == 0:
            return self.add(query, number)
        part, space = query.boxes[number], self.space
        relaxed = np.empty_like(part)
        box = relax(part, self.boxes, self.rank, self.order, space.sizes, space.lower, space.upper, relaxed)
        if box < 0:
            return True
        self._put(int(box), Disjunction(space, relaxed[None]), 0)
        return False

    def _put(self, place: int, source: Disjunction, number: int) -> None:
        """Writes a box to its place, a new one or that of the box that it replaces."""
        if self.boxes is self.stream.boxes:
            self.boxes, self.rank = self.boxes.copy(), self.rank.copy()
            self.unbounded, self.volume = self.unbounded.copy(), self.volume.copy()
        if place == len(self.boxes):
            self.boxes, self.rank, self.unbounded, self.volume = (
                grown(array, place + 1) for array in (self.boxes, self.rank, self.unbounded, self.volume)
            )
        measures = source.measures
        self.boxes[place], self.rank[place] = source.boxes[number], measures.rank[number]
        self.unbounded[place], self.volume[place] = measures.unbounded[number], measures.volume[number]
        self.count = max(self.count, place + 1)
        self.order = np.lexsort((-self.volume[: self.count], -self.unbounded[: self.count]))
        if self.tree is not None and place not in self.tree.beside:
            self.tree = self.tree._replace(beside=np.append(self.tree.beside, place))


class _Exact:
    """Algorithms 10 to 12, subpredicate by subpredicate."""

    def __init__(
        self, stream: _Grown, query: Disjunction, strategy: Strategy, quick_check: bool, budget: Budget
    ) -> None:
        self.rest: list[np.ndarray] = []
        self.splits = self.most_parts = 0
        self._stream = stream
        self._query = query
        self._strategy: Strategy = strategy
        self._quick_check = quick_check
        self._budget = budget

    def match(self, number: int) -> bool | None:
        """Whether the stream predicate covers a subpredicate, which is added unless it is known to."""
        stream, part = self._stream, self._query.boxes[number]
        checked = stream.check(part) if self._quick_check else OVERLAPS
        if checked == IMPLIED:
            return True
        if checked == APART:
            self.rest.append(part[None])
            return stream.add(self._query, number)
        found = cover(part, stream.boxes, stream.rank, stream.order, self._strategy, stream.tree, self._budget)
        self.splits += found.splits
        self.most_parts = max(self.most_parts, found.most_parts)
        if found.covered is not True:
            self.rest.append(found.rest)
            stream.add(self._query, number)
        return found.covered
