"""Engine `scan`: compares every conjunction with every row, in NumPy. The oracle for the other engines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Self

import numpy as np

from rules_index.index.conjunction_arrays import DISJUNCTION, Conjunctions
from rules_index.index.editable_conjunctions import EditableConjunctions, Term
from rules_index.index.events import Event, offered_by
from rules_index.index.validate_conjunctions import validate_conjunctions


class Scan:
    """Brute force over the code matrix, without an index."""

    name: ClassVar[str] = "scan"

    def __init__(self, conjunctions: Conjunctions) -> None:
        self._conjunctions = EditableConjunctions(conjunctions)

    @classmethod
    def build(cls, conjunctions: Conjunctions, sample: np.ndarray | None = None) -> Self:
        """An engine over these conjunctions."""
        return cls(conjunctions)

    @classmethod
    def load(cls, arrays: dict[str, np.ndarray], attributes: int, rules: int) -> Self:
        """Loads stored arrays. Raises `InvalidArraysError` where they are inconsistent."""
        return cls(validate_conjunctions(arrays, attributes, rules))

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """The conjunctions' arrays."""
        conjunctions, _ = self._conjunctions.conjunctions()
        return {name: getattr(conjunctions, name) for name in Conjunctions.__dataclass_fields__}

    def insert(self, rule: int, terms: Sequence[Term]) -> None:
        """Adds a conjunction of a rule, given by its ordinal; terms are (attribute, intervals [., 2] of codes)."""
        self._conjunctions.insert(rule, terms)

    def delete(self, rule: int) -> None:
        """Removes all conjunctions of a rule. Raises `KeyError` where it has none."""
        if not self._conjunctions.delete(rule):
            raise KeyError(rule)

    def renumber(self, sizes: np.ndarray, first: list[np.ndarray], last: list[np.ndarray]) -> None:
        """Renumbers codes after new constants have split regions: per attribute, the old code c becomes first[c] to
        last[c]."""
        self._conjunctions.renumber(sizes, first, last)

    def search(self, codes: np.ndarray) -> tuple[np.ndarray, dict[str, int]]:
        """The rules [.] int32, ascending, that a row of codes [attributes] satisfies, and the conjunctions compared."""
        conjunctions, _ = self._conjunctions.conjunctions()
        _, rules = self.match(codes[:, None])
        return rules, {"expressions checked": len(conjunctions.target)}

    def search_event(self, event: Event) -> tuple[np.ndarray, dict[str, int]]:
        """The rules [.] int32, ascending, that an event given as an expression matches by some conjunction; compares
        one conjunction after the other."""
        keys = self._conjunctions.conjunctions()[1]
        held = keys[self._conjunctions.meets(keys, offered_by(event))]
        return np.unique(self._conjunctions.rules(held)), {"expressions checked": len(keys)}

    @property
    def structure_counts(self) -> dict[str, int]:
        """The number of conjunctions that are compared with each row."""
        return {"scanned": len(self._conjunctions.conjunctions()[0].target)}

    def match(self, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Matches `codes` [attributes, rows] int32 or uint8. Returns (offsets [rows + 1] int64, rule ordinals [hits]
        int32)."""
        c, _ = self._conjunctions.conjunctions()
        rows = codes.shape[1]
        disjunctions = np.zeros((c.disjunctions, rows), bool)
        for disjunction in range(c.disjunctions):
            for number in range(c.disjunction_start[disjunction], c.disjunction_start[disjunction + 1]):
                disjunctions[disjunction] |= _holds(c, number, codes, disjunctions)
        hits: dict[int, np.ndarray] = {}
        for number in range(c.disjunction_start[-1], len(c.target)):
            found = _holds(c, number, codes, disjunctions)
            rule = int(c.target[number])
            hits[rule] = hits[rule] | found if rule in hits else found
        matched = [(np.flatnonzero(found), rule) for rule, found in sorted(hits.items())]
        where = np.concatenate([np.empty(0, np.int64), *(found for found, _ in matched)])
        rules = np.concatenate([np.empty(0, np.int32), *(np.full(len(f), r, np.int32) for f, r in matched)])
        order = np.argsort(where, kind="stable")
        offsets = np.zeros(rows + 1, np.int64)
        np.cumsum(np.bincount(where, minlength=rows), out=offsets[1:])
        return offsets, rules[order].astype(np.int32)


def _holds(c: Conjunctions, number: int, codes: np.ndarray, disjunctions: np.ndarray) -> np.ndarray:
    held = np.ones(codes.shape[1], bool)
    for attribute, which in c.terms[c.start[number] : c.start[number + 1]]:
        if attribute == DISJUNCTION:
            held &= disjunctions[which]
            continue
        inside = np.zeros(codes.shape[1], bool)
        for low, high in c.intervals[c.set_start[which] : c.set_start[which + 1]]:
            inside |= (codes[attribute] >= low) & (codes[attribute] <= high)
        held &= inside
    return held
