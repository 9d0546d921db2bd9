"""Engine `scan`: compares every conjunction with every row, in NumPy. The oracle for the other engines."""

from __future__ import annotations

from typing import ClassVar, Self

import numpy as np

from rules_index.index.conjunction_arrays import DISJUNCTION, Conjunctions
from rules_index.index.events import Event, rules_met
from rules_index.index.validate_conjunctions import validate_conjunctions


class Scan:
    """Brute force over the code matrix, without an index."""

    name: ClassVar[str] = "scan"

    def __init__(self, conjunctions: Conjunctions) -> None:
        self._conjunctions = conjunctions

    @classmethod
    def build(cls, conjunctions: Conjunctions, sample: np.ndarray | None = None) -> Self:
        """An engine over these conjunctions."""
        return cls(conjunctions)

    @classmethod
    def load(cls, arrays: dict[str, np.ndarray], attributes: int, rules: int) -> Self:
        """Loads stored arrays. Raises `InvalidArraysError` if they are inconsistent."""
        return cls(validate_conjunctions(arrays, attributes, rules))

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """The conjunctions' arrays."""
        return {name: getattr(self._conjunctions, name) for name in Conjunctions.__dataclass_fields__}

    def search(self, codes: np.ndarray) -> tuple[np.ndarray, dict[str, int]]:
        """The rules [.] int32, ascending, that a row of codes [attributes] satisfies, and the number of conjunctions
        compared."""
        _, rules = self.match(codes[:, None])
        return rules, {"expressions checked": len(self._conjunctions.target)}

    def search_event(self, event: Event) -> tuple[np.ndarray, dict[str, int]]:
        """The rules [.] int32, ascending, that an event given as an expression matches by some conjunction; compares
        one conjunction after the other."""
        c = self._conjunctions
        return rules_met(c, event), {"expressions checked": len(c.target) - int(c.disjunction_start[-1])}

    @property
    def structure_counts(self) -> dict[str, int]:
        """The number of conjunctions that are compared with each row."""
        return {"scanned": len(self._conjunctions.target)}

    def match(self, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Matches `codes` [attributes, rows] int32 or uint8. Returns (offsets [rows + 1] int64, rule ordinals [hits]
        int32)."""
        c = self._conjunctions
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
