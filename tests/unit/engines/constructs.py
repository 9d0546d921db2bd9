"""Conjunctions of intervals for tests of attribute selection constructs: the ASC paper's example, and random ones."""

from __future__ import annotations

import numpy as np

from rules_index.engines.asc.constructs import SelectionConstructs
from rules_index.engines.asc.evaluate import Order
from rules_index.index.conjunction_arrays import Conjunctions

Sets = dict[int, list[tuple[int, int]]]


def conjunctions(sizes: np.ndarray, queries: list[Sets]) -> Conjunctions:
    """Conjunction i names, for each attribute of `queries[i]`, a set of closed intervals of codes."""
    sets = [intervals for query in queries for intervals in query.values()]
    terms = [attribute for query in queries for attribute in query]
    return Conjunctions(
        sizes=sizes,
        set_start=np.cumsum([0, *map(len, sets)]),
        intervals=np.array([pair for intervals in sets for pair in intervals], np.int32).reshape(-1, 2),
        start=np.cumsum([0, *map(len, queries)]),
        terms=np.stack([terms, np.arange(len(terms))], axis=1).astype(np.int32),
        target=np.arange(len(queries), dtype=np.int32),
        disjunction_start=np.zeros(1, np.int32),
    )


A1, A2, A3, A4 = range(4)
CONSTANTS = [(30, 50), (20, 60), (10, 40), (25, 75)]
# q1: A1 < 30 and A3 >= 40. q2: A2 <= 20 and A4 < 25. q3: A1 <= 50 and A3 < 10. q4: A2 >= 60 and A4 > 75.
QUERIES = [
    {A1: (0, 0), A3: (3, 4)},
    {A2: (0, 1), A4: (0, 0)},
    {A1: (0, 3), A3: (0, 0)},
    {A2: (3, 4), A4: (4, 4)},
]
TUPLES = [
    (40, 30, 50, 90),
    (70, 80, 50, 90),
    (10, 40, 20, 90),
    (70, 30, 20, 90),
    (70, 80, 20, 50),
    (70, 80, 20, 50),
    (70, 20, 20, 10),
]


def region(attribute: int, value: int) -> int:
    """0 for the values below the first constant, 1 for it, 2 between the two, .. (definition 1)."""
    constants = CONSTANTS[attribute]
    return 2 * sum(value > c for c in constants) + (value in constants)


CODES = np.array([[region(a, value) for a, value in enumerate(row)] for row in TUPLES], np.int32).T


def worked_example() -> SelectionConstructs:
    """The four queries under the keys 0 to 3."""
    queries: list[Sets] = [{a: [interval] for a, interval in query.items()} for query in QUERIES]
    return SelectionConstructs.build(conjunctions(np.full(4, 5, np.int32), queries))


def micro_arrows() -> np.ndarray:
    """A1.ra[5] -> A2, A2.ra[5] -> A4, A4.ra[5] -> A3 (example 7)."""
    arrows = np.full((4, 5), -1, np.int32)
    arrows[A1, 4], arrows[A2, 4], arrows[A4, 4] = A2, A4, A3
    return arrows.reshape(-1)


class Play:
    """Conjunctions that come and go, kept in a dictionary beside the constructs."""

    def __init__(self, seed: int, attributes: int = 8, least: int = 0) -> None:
        self.random = np.random.default_rng(seed)
        number = self.random.integers(1, attributes + 1)
        self.sizes = self.random.choice([2, 3, 5, 12, 64, 1000], number).astype(np.int32)
        self.least = least
        self.live: dict[int, Sets] = {}

    def query(self) -> Sets:
        number = int(self.random.integers(self.least, min(6, len(self.sizes)) + 1))
        attributes = sorted(self.random.choice(len(self.sizes), number, replace=False).tolist())
        return {attribute: self.intervals(int(self.sizes[attribute])) for attribute in attributes}

    def intervals(self, size: int) -> list[tuple[int, int]]:
        ends = np.unique(self.random.integers(0, size, 2 * self.random.choice([1, 1, 2, 3])))
        pairs = [(int(low), int(high)) for low, high in ends[: len(ends) // 2 * 2].reshape(-1, 2)]
        one = [(int(ends[0]), int(ends[0]))]
        kinds = [pairs, one, [(0, size - 1)], [(size - 1, size - 1)], []]
        return kinds[self.random.choice(5, p=[0.5, 0.2, 0.15, 0.13, 0.02])]

    def build(self, number: int) -> SelectionConstructs:
        self.live = {key: self.query() for key in range(number)}
        return SelectionConstructs.build(conjunctions(self.sizes, list(self.live.values())))

    def rows(self, number: int) -> np.ndarray:
        uniform = self.random.integers(0, self.sizes[:, None], (len(self.sizes), number))
        at_end = self.random.random(uniform.shape) < 0.2
        return np.where(at_end, self.sizes[:, None] - 1, uniform).astype(np.int32)

    def holding(self, row: np.ndarray) -> list[int]:
        return sorted(
            key
            for key, query in self.live.items()
            if all(any(low <= row[a] <= high for low, high in pairs) for a, pairs in query.items())
        )

    def order(self, constructs: SelectionConstructs) -> Order:
        """Any sequence with any micro-arrows."""
        attributes = constructs.attributes
        arrows = self.random.choice(np.append(attributes, -1), len(constructs.bitmaps.qrb)).astype(np.int32)
        return constructs.order(self.random.permutation(attributes), arrows)


def arrays_of(query: Sets) -> tuple[np.ndarray, list[np.ndarray]]:
    return np.array(list(query), np.int32), [np.array(pairs, np.int32).reshape(-1, 2) for pairs in query.values()]
