"""The refinement step of the papers' engines: a structure finds candidate conjunctions by their boxes, and the terms
that a box does not express are tested here."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from rules_index.index.conjunction_arrays import DISJUNCTION, Conjunctions
from rules_index.index.events import Event, met, offered_event, offered_row, terms_of
from rules_index.index.term_sets import TermSets, sets_of
from rules_index.single_events.exact import ExactTerms


class Refinement:
    """Tests candidate conjunctions by key. A key is a conjunction's number among the conjunctions of rules, which are
    stored after those of shared disjunctions."""

    def __init__(self, conjunctions: Conjunctions) -> None:
        self._conjunctions = conjunctions
        self._first = int(conjunctions.disjunction_start[-1])

    def has(self, keys: np.ndarray) -> bool:
        """Whether every key is the number of a conjunction."""
        count = len(self._conjunctions.target) - self._first
        return bool(((keys >= 0) & (keys < count)).all())

    def rules(self, keys: np.ndarray) -> np.ndarray:
        """The rules [.] int32, ascending, of these conjunctions."""
        return np.unique(self._conjunctions.target[self._first + keys])

    @cached_property
    def sets(self) -> TermSets:
        """The terms that a conjunction's box does not express because they are sets with gaps; shared disjunctions are
        left out."""
        return sets_of(self._conjunctions)

    def passes(self, keys: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """Returns which conjunctions [keys] bool a row of codes [attributes] satisfies."""
        return met(self._terms, self._first + keys, offered_row(codes))

    def meets(self, keys: np.ndarray, event: Event) -> np.ndarray:
        """Returns which conjunctions [keys] bool an event matches."""
        return met(self._terms, self._first + keys, offered_event(event, len(self._conjunctions.sizes)))

    def passes_disjunctions(self, keys: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """Like `passes`, for conjunctions whose other terms the row is known to satisfy: tests only those that name a
        shared disjunction."""
        held, with_disjunction = np.ones(len(keys), bool), self._with_disjunction[keys]
        held[with_disjunction] = self.passes(keys[with_disjunction], codes)
        return held

    def meets_disjunctions(self, keys: np.ndarray, event: Event) -> np.ndarray:
        """Like `meets`, for conjunctions whose other terms the event is known to match: tests only those that name a
        shared disjunction."""
        held, with_disjunction = np.ones(len(keys), bool), self._with_disjunction[keys]
        held[with_disjunction] = self.meets(keys[with_disjunction], event)
        return held

    @cached_property
    def _terms(self) -> ExactTerms:
        return terms_of(self._conjunctions)

    @cached_property
    def _with_disjunction(self) -> np.ndarray:
        """Which conjunctions [keys] bool name a shared disjunction."""
        c, first = self._conjunctions, self._first
        owner = np.repeat(np.arange(len(c.target) - first), np.diff(c.start)[first:])
        named = owner[c.terms[c.start[first] :, 0] == DISJUNCTION]
        return np.bincount(named, minlength=len(c.target) - first) > 0
