"""Conjunctions as flat arrays of the numbers of literals and shared disjunctions."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from rules_index.arrays import gather_indices, offsets_of, segment_counts, segment_ids
from rules_index.compiling.literal_sets import NEVER


@dataclass(frozen=True)
class LiteralLists:
    """Conjunctions of rules, or of shared disjunctions.

    owner  [conjunctions] int32, the rule or shared disjunction of each
    start  [conjunctions + 1] int64 into terms
    terms  [.] int32, the number of a literal, or -1 minus the number of a shared disjunction
    """

    owner: np.ndarray
    start: np.ndarray
    terms: np.ndarray

    def only(self, kept: np.ndarray) -> LiteralLists:
        """The conjunctions that are kept [conjunctions] bool."""
        if kept.all():
            return self
        gather, start = gather_indices(self.start, np.flatnonzero(kept))
        return LiteralLists(self.owner[kept], start, self.terms[gather])

    def renumbered(self, number: np.ndarray) -> LiteralLists:
        """The conjunctions, with each literal renumbered by `number` [literals] int32."""
        literal = self.terms >= 0
        terms = self.terms.copy()
        terms[literal] = number[terms[literal]]
        return LiteralLists(self.owner, self.start, terms)

    def resolved(self) -> LiteralLists:
        """Leaves out conjunctions with a term that is `NEVER`, and of the others the terms that are `ALWAYS`. There
        must be no shared disjunctions, whose numbers are negative, too."""
        special = self.terms < 0
        if not special.any():
            return self
        start = offsets_of(segment_counts(~special, self.start))
        found = LiteralLists(self.owner, start, self.terms[~special])
        return found.only(segment_counts(self.terms == NEVER, self.start) == 0)

    def by_owner(self) -> LiteralLists:
        """The conjunctions sorted by owner; the sort is stable."""
        if bool((np.diff(self.owner) >= 0).all()):
            return self
        order = np.argsort(self.owner, kind="stable")
        gather, start = gather_indices(self.start, order)
        return LiteralLists(self.owner[order], start, self.terms[gather])


def join(parts: Sequence[LiteralLists]) -> LiteralLists:
    """The conjunctions of all parts, in order."""
    if len(parts) == 1:
        return parts[0]
    lengths = [np.diff(part.start) for part in parts]
    return LiteralLists(
        np.concatenate([np.empty(0, np.int32), *(part.owner for part in parts)]),
        offsets_of(np.concatenate([np.empty(0, np.int64), *lengths])),
        np.concatenate([np.empty(0, np.int32), *(part.terms for part in parts)]),
    )


class GrowingLists:
    """Conjunctions that are added one by one."""

    def __init__(self) -> None:
        self._owner = array("i")
        self._start = array("q", [0])
        self._terms = array("i")

    def add(self, owner: int, terms: Iterable[int]) -> None:
        """Adds a conjunction."""
        self._terms.extend(terms)
        self._owner.append(owner)
        self._start.append(len(self._terms))

    def terms(self) -> LiteralLists:
        """All conjunctions."""
        return LiteralLists(
            np.array(self._owner, np.int32), np.array(self._start, np.int64), np.array(self._terms, np.int32)
        )


def reached(disjunctions: LiteralLists, count: int, rules: LiteralLists) -> tuple[LiteralLists, LiteralLists]:
    """Leaves out shared disjunctions that no rule names, directly or through others, and renumbers the rest. Returns
    the conjunctions of the shared disjunctions and those of the rules.

    count: the number of shared disjunctions. Each names only earlier ones, and `disjunctions` are ordered by owner.
    """
    used = np.zeros(count, bool)
    used[-1 - rules.terms[rules.terms < 0]] = True
    named = disjunctions.terms < 0
    owner, inner = disjunctions.owner[segment_ids(disjunctions.start)[named]], -1 - disjunctions.terms[named]
    for disjunction in range(count - 1, -1, -1):
        if used[disjunction]:
            used[inner[np.searchsorted(owner, disjunction) : np.searchsorted(owner, disjunction, side="right")]] = True
    number = -np.cumsum(used, dtype=np.int32)
    disjunctions = disjunctions.only(used[disjunctions.owner])
    both = []
    for part in (disjunctions, rules):
        terms = part.terms.copy()
        terms[terms < 0] = number[-1 - terms[terms < 0]]
        both.append(LiteralLists(part.owner, part.start, terms))
    return LiteralLists(-1 - number[disjunctions.owner], both[0].start, both[0].terms), both[1]
