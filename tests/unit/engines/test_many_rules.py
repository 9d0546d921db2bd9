"""Sets of hundreds to thousands of rules, beside NumPy: with so many, tables have many groups, and scanning goes by
summaries or in equality blocks."""

from __future__ import annotations

import numpy as np
import pytest

from rules_index.index.build import build
from tests.cases import cases
from tests.unit.engines.random_conjunctions import intervals_of
from tests.unit.engines.test_lists import conjunctions_of

Rules = list[tuple[int, dict[int, list[tuple[int, int]]]]]
SEEDS = range(cases(16, "DELTATAG_MANY_RULES_CASES"))


class Drawn:
    """Rules over attributes of up to 300 codes, low ones more frequent or all alike, and rows, some of which satisfy a
    rule for sure."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        attributes, most = int(self.random.integers(5, 30)), int(self.random.choice([120, 255, 300]))
        self.sizes = self.random.integers(12, most, attributes).tolist()
        self.skew = float(self.random.choice([1, 1, 1.5, 2.5]))
        self.rules = self._rules()
        self.rows = self._rows(int(self.random.choice([512, 600, 4096, 5000])))

    def _codes(self, size: int, count: int) -> np.ndarray:
        return (size * self.random.random(count) ** self.skew).astype(np.int32)

    def _rules(self) -> Rules:
        equalities = float(self.random.choice([1, 1, 1, 1, 0.97, 0.8]))
        longest = int(self.random.choice([4, 5, 5, 5, 6, 7]))
        rules = []
        for number in range(self.random.integers(300, 4000)):
            terms = {}
            length = min(len(self.sizes), self.random.integers(3, longest + 1) if self.random.random() < 0.95 else 2)
            for attribute in self.random.choice(len(self.sizes), length, replace=False).tolist():
                size = self.sizes[attribute]
                code, equality = int(self._codes(size, 1)[0]), self.random.random() < equalities
                terms[attribute] = intervals_of(self.random, code, size - 1, equality)
            rules.append((number // 2 if self.random.random() < 0.05 else number, terms))
        return sorted(rules, key=lambda rule: rule[0])

    def _rows(self, count: int) -> np.ndarray:
        codes = np.stack([self._codes(size, count) for size in self.sizes])
        for row in np.flatnonzero(self.random.random(count) < self.random.choice([0, 0.3, 1])).tolist():
            _, terms = self.rules[self.random.integers(len(self.rules))]
            for attribute, intervals in terms.items():
                codes[attribute, row] = intervals[0][0]
        return codes

    def lists(self) -> tuple[np.ndarray, np.ndarray]:
        """What NumPy finds: offsets and ordinals."""
        count = self.rows.shape[1]
        held = np.zeros((count, self.rules[-1][0] + 1), bool)
        for rule, terms in self.rules:
            passed = np.ones(count, bool)
            for attribute, intervals in terms.items():
                codes = self.rows[attribute]
                passed &= np.any([(codes >= low) & (codes <= high) for low, high in intervals], axis=0)
            held[:, rule] |= passed
        rows, ordinals = np.nonzero(held)
        return np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=count))]), ordinals


@pytest.mark.parametrize("seed", SEEDS)
def test_many_rules_match_as_numpy_finds(seed: int) -> None:
    drawn = Drawn(seed)
    c, expected = conjunctions_of(drawn.sizes, drawn.rules), drawn.lists()
    sample = np.ascontiguousarray(drawn.rows[:, ::8])
    for name in ("asc", "be_tree", "auto"):
        engine, _ = build(c, name, sample)
        for rows in (drawn.rows, drawn.rows.astype(np.uint8)) if max(drawn.sizes) <= 255 else (drawn.rows,):
            found = engine.match(rows)
            assert all(np.array_equal(*each) for each in zip(found, expected, strict=True)), name
