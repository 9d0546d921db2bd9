"""Engines agree with brute force on rules of every shape, and refuse arrays that are not consistent."""

import numpy as np
import pytest

from rules_index.engines import Asc, Conjunctions, InvalidArraysError, Scan
from rules_index.engines.flat import GATE

SIZES = {"few codes": [2, 3, 5, 12], "many codes": [2, 3, 103, 600, 20_000]}


class Draw:
    """Random conjunctions, with gates, sets of several intervals and values that few rules name."""

    def __init__(self, seed: int, sizes: list[int]) -> None:
        self.random = np.random.default_rng(seed)
        self.sizes = self.random.choice(sizes, self.random.integers(1, 8)).astype(np.int32)
        self.intervals: list[tuple[int, int]] = []
        self.set_start, self.start, self.target = [0], [0], []
        self.terms: list[tuple[int, int]] = []
        self.gate_start = [0]

    def add_set(self, attribute: int) -> int:
        ends = np.unique(self.random.integers(0, self.sizes[attribute] - 1, 2 * self.random.choice([1, 1, 1, 2, 3])))
        if len(ends) == 1 or self.random.random() < 0.4:
            self.intervals.append((int(ends[0]), int(ends[0])))
        else:
            pairs = ends[: len(ends) // 2 * 2].reshape(-1, 2)
            self.intervals += [(int(low), int(high)) for low, high in pairs]
        self.set_start.append(len(self.intervals))
        return len(self.set_start) - 2

    def add_conjunction(self, target: int, gates: int) -> None:
        count = self.random.integers(0, min(len(self.sizes), 5) + 1)
        for attribute in self.random.choice(len(self.sizes), count, replace=False):
            self.terms.append((attribute, self.add_set(attribute)))
        if gates and self.random.random() < 0.5:
            self.terms.append((GATE, int(self.random.integers(0, gates))))
        self.start.append(len(self.terms))
        self.target.append(target)

    def conjunctions(self) -> Conjunctions:
        for gate in range(self.random.integers(0, 4)):
            for _ in range(self.random.integers(1, 4)):
                self.add_conjunction(gate, gate)
            self.gate_start.append(len(self.target))
        for rule in range(self.random.integers(1, 40)):
            for _ in range(self.random.choice([0, 1, 1, 2, 3])):
                self.add_conjunction(rule, len(self.gate_start) - 1)
        return Conjunctions(
            sizes=self.sizes,
            set_start=np.array(self.set_start, np.int64),
            intervals=np.array(self.intervals, np.int32).reshape(-1, 2),
            start=np.array(self.start, np.int64),
            terms=np.array(self.terms, np.int32).reshape(-1, 2),
            target=np.array(self.target, np.int32),
            gate_start=np.array(self.gate_start, np.int32),
        )

    def codes(self, rows: int) -> np.ndarray:
        uniform = [self.random.integers(0, size, rows) for size in self.sizes]
        skewed = [np.minimum(self.random.geometric(0.3, rows) - 1, size - 1) for size in self.sizes]
        return np.stack([u if self.random.random() < 0.5 else s for u, s in zip(uniform, skewed, strict=True)]).astype(
            np.int32
        )


@pytest.mark.parametrize("sizes", SIZES)
def test_asc_agrees_with_brute_force(sizes: str) -> None:
    for seed in range(120):
        draw = Draw(seed, SIZES[sizes])
        conjunctions = draw.conjunctions()
        codes = draw.codes(int(draw.random.choice([0, 1, 63, 64, 65, 500, 4096, 5000])))
        expected = Scan.build(conjunctions).match(codes)
        asc = Asc.build(conjunctions)
        loaded = Asc.load(asc.arrays, len(conjunctions.sizes), 40)
        for found in (asc.match(codes), loaded.match(codes)):
            assert np.array_equal(found[0], expected[0]) and np.array_equal(found[1], expected[1]), seed


def test_values_that_few_rules_name_are_posted() -> None:
    accounts = 50_000
    conjunctions = Conjunctions(
        sizes=np.array([accounts + 3, 5], np.int32),
        set_start=np.arange(accounts + 2),
        intervals=np.array([*((i, i) for i in range(1, accounts + 1)), (0, 1)], np.int32),
        start=np.arange(0, 2 * accounts + 1, 2),
        terms=np.array([t for i in range(accounts) for t in ((0, i), (1, accounts))], np.int32),
        target=np.arange(accounts, dtype=np.int32),
        gate_start=np.zeros(1, np.int32),
    )
    asc = Asc.build(conjunctions)
    assert len(asc.arrays["posted"]) == accounts
    random = np.random.default_rng(0)
    codes = np.stack([random.integers(0, accounts + 3, 9_000), random.integers(0, 5, 9_000)]).astype(np.int32)
    offsets, ordinals = asc.match(codes)
    named = (codes[0] >= 1) & (codes[0] <= accounts) & (codes[1] <= 1)
    assert np.array_equal(np.diff(offsets), named.astype(int))
    assert np.array_equal(ordinals, codes[0][named] - 1)


@pytest.mark.parametrize("engine", [Asc, Scan])
def test_arrays_out_of_bounds_are_refused_or_harmless(engine: type[Asc] | type[Scan]) -> None:
    refused = 0
    for seed in range(150):
        draw = Draw(seed, SIZES["many codes"])
        conjunctions = draw.conjunctions()
        built = engine.build(conjunctions)
        arrays = {name: array.copy() for name, array in built.arrays.items()}
        name = draw.random.choice([n for n in arrays if arrays[n].size])
        flat = arrays[name].reshape(-1)
        flat[draw.random.integers(0, len(flat))] = draw.random.choice([-1, -7, 10**6, 2**31 - 1, 3])
        try:
            engine.load(arrays, len(conjunctions.sizes), 40).match(draw.codes(200))
        except InvalidArraysError:
            refused += 1
    assert refused > 75
