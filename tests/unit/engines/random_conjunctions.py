"""Random conjunctions, rows and access plans, for the tests of the engines."""

from __future__ import annotations

import numpy as np

from rules_index.index.conjunction_arrays import DISJUNCTION, Conjunctions
from rules_index.index.layout import AccessPlan, set_widths

Term = tuple[int, np.ndarray]
"""(attribute, intervals [., 2] of codes), or (`DISJUNCTION`, the shared disjunction's number as [1, 1])."""
SIZES = {"few codes": [2, 3, 5, 12], "many codes": [2, 3, 103, 255, 256, 600, 20_000]}
RULES = 60
"""More rules than are ever drawn."""


class Draw:
    """Random conjunctions, with shared disjunctions, sets of several intervals and values that few rules name."""

    def __init__(self, seed: int, sizes: list[int]) -> None:
        self.random = np.random.default_rng(seed)
        self.sizes = self.random.choice(sizes, self.random.integers(1, 8)).astype(np.int32)
        self._intervals: list[tuple[int, int]] = []
        self._set_start, self._start, self._target = [0], [0], []
        self._terms: list[tuple[int, int]] = []
        self._disjunction_start = [0]

    def conjunctions(self) -> Conjunctions:
        """Up to 40 rules of up to three conjunctions, some of which name shared disjunctions."""
        for disjunction in range(self.random.integers(0, 4)):
            for _ in range(self.random.integers(1, 4)):
                self._add_conjunction(disjunction, disjunction)
            self._disjunction_start.append(len(self._target))
        for rule in range(self.random.integers(1, 40)):
            for _ in range(self.random.choice([0, 1, 1, 2, 3])):
                self._add_conjunction(rule, len(self._disjunction_start) - 1)
        return Conjunctions(
            sizes=self.sizes,
            set_start=np.array(self._set_start, np.int64),
            intervals=np.array(self._intervals, np.int32).reshape(-1, 2),
            start=np.array(self._start, np.int64),
            terms=np.array(self._terms, np.int32).reshape(-1, 2),
            target=np.array(self._target, np.int32),
            disjunction_start=np.array(self._disjunction_start, np.int32),
        )

    def _add_conjunction(self, target: int, disjunctions: int) -> None:
        for attribute, intervals in self.terms(disjunctions):
            if attribute == DISJUNCTION:
                self._terms.append((DISJUNCTION, int(intervals[0, 0])))
                continue
            self._terms.append((attribute, len(self._set_start) - 1))
            self._intervals += [(int(low), int(high)) for low, high in intervals]
            self._set_start.append(len(self._intervals))
        self._start.append(len(self._terms))
        self._target.append(target)

    def terms(self, disjunctions: int) -> list[Term]:
        """A conjunction: up to five attributes, mostly one interval each."""
        count = self.random.integers(0, min(len(self.sizes), 5) + 1)
        chosen = self.random.choice(len(self.sizes), count, replace=False).tolist()
        terms = [(attribute, self._set(int(self.sizes[attribute]))) for attribute in chosen]
        if disjunctions and self.random.random() < 0.3:
            terms.append((DISJUNCTION, np.array([[self.random.integers(0, disjunctions)]], np.int32)))
        return terms

    def _set(self, size: int) -> np.ndarray:
        ends = np.unique(self.random.integers(0, size - 1, 2 * self.random.choice([1, 1, 1, 2, 3])))
        if len(ends) == 1 or self.random.random() < 0.4:
            return np.array([[ends[0], ends[0]]], np.int32)
        pairs = ends[: len(ends) // 2 * 2].reshape(-1, 2)
        return pairs.astype(np.int32)

    def codes(self, rows: int) -> np.ndarray:
        """A code matrix [attributes, rows], some attributes skewed."""
        uniform = [self.random.integers(0, size, rows) for size in self.sizes]
        skewed = [np.minimum(self.random.geometric(0.3, rows) - 1, size - 1) for size in self.sizes]
        columns = [u if self.random.random() < 0.5 else s for u, s in zip(uniform, skewed, strict=True)]
        return np.stack(columns).astype(np.int32)

    def access_plan(self, c: Conjunctions) -> AccessPlan:
        """Conjunctions in hash tables, in sorted runs or scanned, at random."""
        first = int(c.disjunction_start[-1])
        count, attributes = len(c.target) - first, len(c.sizes)
        tables = [
            tuple(
                self.random.choice(attributes, self.random.integers(1, min(4, attributes) + 1), replace=False).tolist()
            )
            for _ in range(self.random.integers(0, 5))
        ]
        sort_attributes = sorted(
            self.random.choice(attributes, self.random.integers(0, attributes + 1), replace=False).tolist()
        )
        table, sorted_by = np.full(count, -1, np.int32), np.full(count, -1, np.int32)
        widths = set_widths(c)
        for number in range(count):
            pairs = c.terms[c.start[first + number] : c.start[first + number + 1]].tolist()
            named = {attribute: widths[which] for attribute, which in pairs if attribute != DISJUNCTION}
            for place, names in enumerate(tables):
                able = all(name in named for name in names) and np.prod([float(named[n]) for n in names]) < 3_000
                if able and self.random.random() < 0.6:
                    table[number] = place
            able_to = [attribute for attribute in sort_attributes if attribute in named]
            if able_to and self.random.random() < 0.7:
                sorted_by[number] = self.random.choice(able_to)
        return AccessPlan(table, sorted_by, tables, sort_attributes, int(self.random.choice([4096, 8192, 65_536])))


def intervals_of(choice: np.random.Generator, code: int, most: int, equality: bool) -> list[tuple[int, int]]:
    """The intervals of a term about a code, the highest being `most`: of an equality, else two of a set or a range."""
    if equality:
        return [(code, code)]
    if choice.random() < 0.5 and code + 2 < most:
        return [(code, code), (code + 2, most)]
    return [(code // 2, min(most, code + 20))]
