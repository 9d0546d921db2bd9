"""The conjunctions of an engine under edits: the set it was built from, what was added and what was removed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from rules_index.index.boxes import Boxes
from rules_index.index.conjunction_arrays import DISJUNCTION, Conjunctions
from rules_index.index.events import met, offered_event, offered_row, terms_of
from rules_index.index.term_sets import TermSets, extended, has_gaps, sets_of
from rules_index.single_events.exact import Terms

Term = tuple[int, np.ndarray]
"""(attribute, intervals [., 2] of codes: closed, ascending, disjoint), or (`DISJUNCTION`, the shared disjunction's
number as [1, 1])."""


@dataclass(frozen=True)
class _Added:
    rule: int
    terms: tuple[Term, ...]


class EditableConjunctions:
    """Conjunctions of rules by key: those of the built set have the keys 0, 1, ..., added ones the keys that follow."""

    def __init__(self, conjunctions: Conjunctions) -> None:
        self._built = conjunctions
        self._first = int(conjunctions.disjunction_start[-1])
        self._alive = np.ones(len(conjunctions.target) - self._first, bool)
        self._added: dict[int, _Added] = {}
        self._next = len(self._alive)
        self._sets: TermSets | None = None
        self._terms_built: Terms | None = None

    @property
    def sizes(self) -> np.ndarray:
        """Number of codes [attributes] int32 of each attribute."""
        return self._built.sizes

    def insert(self, rule: int, terms: Sequence[Term]) -> int:
        """Adds a conjunction of a rule; returns its key."""
        named = [attribute for attribute, _ in terms if attribute != DISJUNCTION]
        if len(set(named)) < len(named) or not all(0 <= a < len(self.sizes) for a in named):
            raise ValueError("a conjunction names each attribute once, and only attributes of the index")
        for attribute, intervals in terms:
            self._require_sound(attribute, intervals)
        key = self._next
        self._added[key] = _Added(
            rule, tuple((a, np.asarray(i, np.int32).reshape(-1, 2 - (a == DISJUNCTION))) for a, i in terms)
        )
        self._next += 1
        self._sets = None
        return key

    def _require_sound(self, attribute: int, intervals: np.ndarray) -> None:
        if attribute == DISJUNCTION:
            if not 0 <= int(np.asarray(intervals).reshape(-1)[0]) < self._built.disjunctions:
                raise ValueError("the index has no shared disjunction of this number")
            return
        ends = np.asarray(intervals).reshape(-1)
        ascending = len(ends) > 0 and bool((np.diff(ends)[1::2] > 0).all() and (np.diff(ends)[::2] >= 0).all())
        if not ascending or ends[0] < 0 or ends[-1] >= self.sizes[attribute]:
            raise ValueError("intervals are closed, ascending and disjoint, and of codes that the attribute has")

    def delete(self, rule: int) -> list[int]:
        """Removes all conjunctions of a rule; returns their keys."""
        built = np.flatnonzero(self._alive & (self._built.target[self._first :] == rule)).tolist()
        self._alive[built] = False
        added = [key for key, each in self._added.items() if each.rule == rule]
        for key in added:
            del self._added[key]
        return built + added

    def has(self, keys: np.ndarray) -> bool:
        """Whether each of these keys has a conjunction."""
        if not len(keys):
            return True
        built = keys[keys < len(self._alive)]
        in_use = not len(built) or (int(built.min()) >= 0 and bool(self._alive[built].all()))
        return in_use and all(int(key) in self._added for key in keys[keys >= len(self._alive)])

    def rules(self, keys: np.ndarray) -> np.ndarray:
        """The rules' ordinals [keys] int32."""
        if not self._added:
            return self._built.target[self._first + keys]
        of = np.empty(len(keys), np.int32)
        built = keys < len(self._alive)
        of[built] = self._built.target[self._first + keys[built]]
        of[~built] = [self._added[int(key)].rule for key in keys[~built]]
        return of

    def terms(self, key: int) -> list[Term]:
        """The terms of a conjunction."""
        if key in self._added:
            return list(self._added[key].terms)
        return _terms(self._built, self._first + key)

    @property
    def sets(self) -> TermSets:
        """The terms that are not intervals and so are not expressed by a conjunction's box, without shared
        disjunctions, for all keys ever used."""
        if self._sets is None:
            added = {
                key: [(a, i) for a, i in each.terms if a != DISJUNCTION and has_gaps(i)]
                for key, each in self._added.items()
            }
            self._sets = extended(self._sets_built, added)
        return self._sets

    @cached_property
    def _sets_built(self) -> TermSets:
        return sets_of(self._built)

    @cached_property
    def _built_with_disjunction(self) -> np.ndarray:
        """Which of the built conjunctions [keys] bool name a shared disjunction."""
        c, first = self._built, self._first
        owner = np.repeat(np.arange(len(c.target) - first), np.diff(c.start)[first:])
        named = owner[c.terms[c.start[first] :, 0] == DISJUNCTION]
        return np.bincount(named, minlength=len(c.target) - first) > 0

    def _with_disjunction(self, keys: np.ndarray) -> np.ndarray:
        """Which conjunctions [keys] bool name a shared disjunction."""
        with_disjunction = np.zeros(len(keys), bool)
        if self._built.disjunctions:
            built = keys < len(self._alive)
            with_disjunction[built] = self._built_with_disjunction[keys[built]]
            with_disjunction[~built] = [
                any(a == DISJUNCTION for a, _ in self._added[int(key)].terms) for key in keys[~built]
            ]
        return with_disjunction

    def passes_disjunctions(self, keys: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """Which conjunctions [keys] bool match a row of codes [attributes] that satisfies all their other terms."""
        held, with_disjunction = np.ones(len(keys), bool), self._with_disjunction(keys)
        held[with_disjunction] = self.passes(keys[with_disjunction], codes)
        return held

    def meets_disjunctions(self, keys: np.ndarray, event: Mapping[int, np.ndarray]) -> np.ndarray:
        """Which conjunctions [keys] bool an event matches, as in `meets`, given that it matches all their other
        terms."""
        held, with_disjunction = np.ones(len(keys), bool), self._with_disjunction(keys)
        held[with_disjunction] = self.meets(keys[with_disjunction], event)
        return held

    def passes(self, keys: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """Which conjunctions [keys] bool match a row of codes [attributes]."""
        if not len(keys):
            return np.empty(0, bool)
        if keys.max(initial=-1) < len(self._alive):
            return met(self._built_terms(), self._first + keys, offered_row(codes))
        disjunctions: dict[int, bool] = {}
        return np.fromiter((self._holds(self.terms(int(key)), codes, disjunctions) for key in keys), bool, len(keys))

    def meets(self, keys: np.ndarray, event: Mapping[int, np.ndarray]) -> np.ndarray:
        """Which conjunctions [keys] bool an event matches. event: attribute -> intervals [., 2] of the codes it offers.

        An event matches a term if it offers one of its codes; it matches no term on an attribute that it does not have.
        """
        if keys.max(initial=-1) < len(self._alive):
            start = np.cumsum([0, *map(len, event.values())], dtype=np.int64)
            intervals = np.concatenate([np.empty((0, 2), np.int32), *event.values()])
            offered = offered_event((np.fromiter(event, np.int32, len(event)), start, intervals), len(self.sizes))
            return met(self._built_terms(), self._first + keys, offered)
        disjunctions: dict[int, bool] = {}
        return np.fromiter((self._is_met(self.terms(int(key)), event, disjunctions) for key in keys), bool, len(keys))

    def _built_terms(self) -> Terms:
        if self._terms_built is None:
            self._terms_built = terms_of(self._built)
        return self._terms_built

    def _is_met(self, terms: Iterable[Term], event: Mapping[int, np.ndarray], disjunctions: dict[int, bool]) -> bool:
        for attribute, intervals in terms:
            if attribute == DISJUNCTION:
                disjunction = int(intervals[0, 0])
                if disjunction not in disjunctions:
                    of = range(
                        self._built.disjunction_start[disjunction], self._built.disjunction_start[disjunction + 1]
                    )
                    disjunctions[disjunction] = any(
                        self._is_met(_terms(self._built, number), event, disjunctions) for number in of
                    )
                if not disjunctions[disjunction]:
                    return False
                continue
            offered = event.get(attribute)
            if offered is None:
                return False
            low, high = offered[:, :1], offered[:, 1:]
            if not bool(((intervals[:, 0] <= high) & (low <= intervals[:, 1])).any()):
                return False
        return True

    def _holds(self, terms: Iterable[Term], codes: np.ndarray, disjunctions: dict[int, bool]) -> bool:
        for attribute, intervals in terms:
            if attribute == DISJUNCTION:
                if not self._disjunction_holds(int(intervals[0, 0]), codes, disjunctions):
                    return False
            elif not bool(((intervals[:, 0] <= codes[attribute]) & (codes[attribute] <= intervals[:, 1])).any()):
                return False
        return True

    def _disjunction_holds(self, disjunction: int, codes: np.ndarray, disjunctions: dict[int, bool]) -> bool:
        if disjunction not in disjunctions:
            of = range(self._built.disjunction_start[disjunction], self._built.disjunction_start[disjunction + 1])
            disjunctions[disjunction] = any(
                self._holds(_terms(self._built, number), codes, disjunctions) for number in of
            )
        return disjunctions[disjunction]

    def conjunctions(self) -> tuple[Conjunctions, np.ndarray]:
        """All current conjunctions, and the key [conjunctions] int64 of each conjunction of a rule."""
        if not self._added and self._alive.all():
            return self._built, np.arange(len(self._alive))
        c = self._built
        kept = np.concatenate([np.arange(self._first), self._first + np.flatnonzero(self._alive)])
        lengths = np.diff(c.start)[kept]
        gather = np.repeat(c.start[kept] - (np.cumsum(lengths) - lengths), lengths) + np.arange(lengths.sum())
        parts, targets, counts = [c.terms[gather]], [c.target[kept]], [lengths]
        sets = len(c.set_start) - 1
        intervals, pieces = [c.intervals], [np.diff(c.set_start)]
        for each in self._added.values():
            pairs = []
            for attribute, ranges in each.terms:
                if attribute == DISJUNCTION:
                    pairs.append((DISJUNCTION, int(ranges[0, 0])))
                    continue
                pairs.append((attribute, sets))
                sets += 1
                intervals.append(ranges)
                pieces.append(np.array([len(ranges)]))
            parts.append(np.array(pairs, np.int32).reshape(-1, 2))
            targets.append(np.array([each.rule], np.int32))
            counts.append(np.array([len(pairs)]))
        keys = np.concatenate([np.flatnonzero(self._alive), np.fromiter(self._added, np.int64, len(self._added))])
        return self._by_rule(parts, targets, counts, intervals, pieces, keys)

    def _by_rule(
        self,
        parts: list[np.ndarray],
        targets: list[np.ndarray],
        counts: list[np.ndarray],
        intervals: list[np.ndarray],
        pieces: list[np.ndarray],
        keys: np.ndarray,
    ) -> tuple[Conjunctions, np.ndarray]:
        """The collected conjunctions ordered by rule, and their keys in that order."""
        target, lengths, terms = np.concatenate(targets), np.concatenate(counts), np.concatenate(parts)
        by_rule = np.argsort(target[self._first :], kind="stable")
        order = np.concatenate([np.arange(self._first), self._first + by_rule])
        begin = np.cumsum(lengths) - lengths
        sorted_lengths = lengths[order]
        start = np.zeros(len(order) + 1, np.int64)
        np.cumsum(sorted_lengths, out=start[1:])
        gather = np.repeat(begin[order] - start[:-1], sorted_lengths) + np.arange(start[-1])
        set_start = np.zeros(sum(map(len, pieces)) + 1, np.int64)
        np.cumsum(np.concatenate(pieces), out=set_start[1:])
        changed = replace(
            self._built,
            set_start=set_start,
            intervals=np.concatenate(intervals).astype(np.int32).reshape(-1, 2),
            start=start,
            terms=terms[gather].astype(np.int32).reshape(-1, 2),
            target=target[order].astype(np.int32),
        )
        return changed, keys[by_rule]

    def renumber(self, sizes: np.ndarray, first: list[np.ndarray], last: list[np.ndarray]) -> None:
        """Renumbers codes after regions were split: per attribute, the old code c becomes the codes first[c] to
        last[c]."""
        c = self._built
        owner = np.full(len(c.set_start) - 1, -1)
        named = c.terms[:, 0] != DISJUNCTION
        owner[c.terms[named, 1]] = c.terms[named, 0]
        of = np.repeat(owner, np.diff(c.set_start))
        intervals = c.intervals.copy()
        for attribute in range(len(sizes)):
            at = of == attribute
            intervals[at, 0] = first[attribute][c.intervals[at, 0]]
            intervals[at, 1] = last[attribute][c.intervals[at, 1]]
        self._built = replace(c, sizes=np.asarray(sizes, np.int32), intervals=intervals)
        self._sets = None
        self.__dict__.pop("_sets_built", None)
        self._terms_built = None
        for key, each in self._added.items():
            terms = tuple(
                (a, i) if a == DISJUNCTION else (a, np.stack([first[a][i[:, 0]], last[a][i[:, 1]]], 1))
                for a, i in each.terms
            )
            self._added[key] = _Added(each.rule, terms)


def _terms(c: Conjunctions, number: int) -> list[Term]:
    terms: list[Term] = []
    for attribute, which in c.terms[c.start[number] : c.start[number + 1]].tolist():
        if attribute == DISJUNCTION:
            terms.append((DISJUNCTION, np.array([[which]], np.int32)))
        else:
            terms.append((attribute, c.intervals[c.set_start[which] : c.set_start[which + 1]]))
    return terms


def boxes_of(c: Conjunctions) -> Boxes:
    """The box of every conjunction of a rule: the interval from its lowest to its highest code of each attribute it
    names."""
    first = int(c.disjunction_start[-1])
    pairs = c.terms[c.start[first] :]
    owner = np.repeat(np.arange(len(c.target) - first), np.diff(c.start)[first:])
    at = np.flatnonzero(pairs[:, 0] != DISJUNCTION)
    at = at[np.lexsort((pairs[at, 0], owner[at]))]
    attributes, sets = pairs[at, 0], pairs[at, 1]
    start = np.zeros(len(c.target) - first + 1, np.int64)
    np.cumsum(np.bincount(owner[at], minlength=len(start) - 1), out=start[1:])
    low, high = c.intervals[c.set_start[sets], 0], c.intervals[c.set_start[sets + 1] - 1, 1]
    return Boxes(c.sizes, start, attributes, low, high)


def box_of(terms: Iterable[Term]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The box of one conjunction: attributes, ascending, low and high, each [.] int32."""
    named = sorted((attribute, int(i[0, 0]), int(i[-1, 1])) for attribute, i in terms if attribute != DISJUNCTION)
    columns = np.array(named, np.int32).reshape(-1, 3)
    return columns[:, 0].copy(), columns[:, 1].copy(), columns[:, 2].copy()


def is_box(c: Conjunctions) -> np.ndarray:
    """Which conjunctions of rules [conjunctions] bool their box expresses fully: they name no shared disjunction and no
    set of several intervals."""
    first = int(c.disjunction_start[-1])
    pairs = c.terms[c.start[first] :]
    more = pairs[:, 0] == DISJUNCTION
    more[~more] = np.diff(c.set_start)[pairs[~more, 1]] > 1
    owner = np.repeat(np.arange(len(c.target) - first), np.diff(c.start)[first:])
    return np.asarray(np.bincount(owner, weights=more, minlength=len(c.target) - first) == 0)
