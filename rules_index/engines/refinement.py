"""The refinement step of the papers' engines: a structure finds conjunctions by their boxes, and what a box does not
express is tested here."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from rules_index.index.conjunction_arrays import DISJUNCTION, Conjunctions
from rules_index.index.events import Event, met, offered_event, offered_row, terms_of
from rules_index.index.term_sets import TermSets, sets_of
from rules_index.single_events.exact import ExactTerms


class Refinement:
    """Tests conjunctions of rules by key, their number among these conjunctions."""

    def __init__(self, conjunctions: Conjunctions) -> None:
        self._conjunctions = conjunctions
        self._first = int(conjunctions.disjunction_start[-1])

    def has(self, keys: np.ndarray) -> bool:
        """Whether each of these keys has a conjunction."""
        count = len(self._conjunctions.target) - self._first
        return bool(((keys >= 0) & (keys < count)).all())

    def rules(self, keys: np.ndarray) -> np.ndarray:
        """The rules [.] int32, ascending, of these conjunctions."""
        return np.unique(self._conjunctions.target[self._first + keys])

    @cached_property
    def sets(self) -> TermSets:
        """The terms that are not intervals and so are not expressed by a conjunction's box, without shared
        disjunctions."""
        return sets_of(self._conjunctions)

    def passes(self, keys: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """Which conjunctions [keys] bool match a row of codes [attributes]."""
        return met(self._terms, self._first + keys, offered_row(codes))

    def meets(self, keys: np.ndarray, event: Event) -> np.ndarray:
        """Which conjunctions [keys] bool an event matches."""
        return met(self._terms, self._first + keys, offered_event(event, len(self._conjunctions.sizes)))

    def passes_disjunctions(self, keys: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """Which conjunctions [keys] bool match a row of codes [attributes] that satisfies all their other terms."""
        held, with_disjunction = np.ones(len(keys), bool), self._with_disjunction[keys]
        held[with_disjunction] = self.passes(keys[with_disjunction], codes)
        return held

    def meets_disjunctions(self, keys: np.ndarray, event: Event) -> np.ndarray:
        """Which conjunctions [keys] bool an event matches that matches all their other terms."""
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
