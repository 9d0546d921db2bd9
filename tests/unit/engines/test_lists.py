"""Lists come out right by each of the ways in which the kernel makes them, whatever the rows satisfy."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

from rules_index.engines.asc.engine import Asc
from rules_index.engines.scan import Scan
from rules_index.index.conjunction_arrays import DISJUNCTION, Conjunctions
from rules_index.index.hybrid import Hybrid
from rules_index.index.layout import AccessPlan
from tests.cases import soak_rest

Interval = tuple[int, int]


def conjunctions_of(
    sizes: list[int], rules: Iterable[tuple[int, dict[int, list[Interval]]]], disjunctions: int = 0
) -> Conjunctions:
    """From (target, intervals of codes by attribute), those of shared disjunctions first; `DISJUNCTION: [(number,
    number)]` names a shared disjunction."""
    intervals: list[Interval] = []
    set_start, start, terms, target = [0], [0], [], []
    for of, named in rules:
        for attribute, ranges in named.items():
            if attribute == DISJUNCTION:
                terms.append((DISJUNCTION, ranges[0][0]))
                continue
            terms.append((attribute, len(set_start) - 1))
            intervals += ranges
            set_start.append(len(intervals))
        start.append(len(terms))
        target.append(of)
    return Conjunctions(
        sizes=np.array(sizes, np.int32),
        set_start=np.array(set_start, np.int64),
        intervals=np.array(intervals, np.int32).reshape(-1, 2),
        start=np.array(start, np.int64),
        terms=np.array(terms, np.int32).reshape(-1, 2),
        target=np.array(target, np.int32),
        disjunction_start=np.arange(disjunctions + 1, dtype=np.int32),
    )


def assert_matches(engine: Asc | Hybrid, conjunctions: Conjunctions, codes: np.ndarray) -> None:
    offsets, rules = Scan.build(conjunctions).match(codes)
    for _ in range(2):
        found = engine.match(codes)
        assert np.array_equal(found[0], offsets) and np.array_equal(found[1], rules)


@pytest.mark.parametrize("size", soak_rest(2, [40, 20_000, 600]))
def test_rows_that_satisfy_many_rules_have_all_of_them_in_order(size: int) -> None:
    draw = np.random.default_rng(size)

    def wide() -> list[Interval]:
        low = int(draw.integers(0, size // 2))
        return [(low, int(low + size // 3))]

    rules: list[tuple[int, dict[int, list[Interval]]]] = [(0, {0: wide()}), (1, {1: wide(), DISJUNCTION: [(0, 0)]})]
    # ordinals with gaps, rules of several conjunctions, sets of several intervals, terms that say nothing
    for rule in sorted(draw.integers(0, 400, 250).tolist()):
        named = {int(a): wide() for a in draw.choice(4, draw.integers(0, 4), replace=False)}
        if draw.random() < 0.2:
            named[3] = [(0, size // 4), (size // 2, size - 1)]
        if draw.random() < 0.1:
            named[DISJUNCTION] = [(1, 1)]
        rules.append((rule, named))
    conjunctions = conjunctions_of([size] * 4, rules, disjunctions=2)
    engine = Asc.build(conjunctions)
    for rows in (9000, 1, 64, 511, 0):
        assert_matches(engine, conjunctions, draw.integers(0, size, (4, rows)).astype(np.int32))
    assert engine._index is not None and engine._index.transposed


@pytest.mark.slow
def test_rules_that_a_table_tells_completely_are_copied_from_it() -> None:
    draw = np.random.default_rng(5)
    # 0 to 40 rules of the same two values, so that most rows satisfy none and some more than a vector holds
    pairs = [(int(a), int(b)) for a, b in draw.integers(0, 50, (60, 2)) for _ in range(draw.integers(0, 41))]
    rules = [(number, {0: [(a, a)], 1: [(b, b)]}) for number, (a, b) in enumerate(pairs)]
    conjunctions = conjunctions_of([52, 52, 7], rules)
    count = len(rules)
    table, sorted_by = np.zeros(count, np.int32), np.full(count, -1, np.int32)
    for names in ((0, 1), (1, 0)):
        engine = Hybrid(conjunctions, access_plan=AccessPlan(table, sorted_by, (names,), ()))
        assert engine.arrays["kernel_scalars"][-1] == 1
        for rows in (10_000, 0, 1, 63):
            assert_matches(engine, conjunctions, draw.integers(0, 50, (3, rows)).astype(np.int32))
        named = np.array(pairs).T[:, draw.integers(0, count, 5000)].astype(np.int32)
        assert_matches(engine, conjunctions, np.ascontiguousarray(np.concatenate([named, named[:1] % 7])))
    # beside rules that are elsewhere they are hits like all others
    table[::3] = -1
    engine = Hybrid(conjunctions, access_plan=AccessPlan(table, sorted_by, ((0, 1),), ()))
    assert engine.arrays["kernel_key_plain"].tolist() == [1]
    assert_matches(engine, conjunctions, draw.integers(0, 50, (3, 5000)).astype(np.int32))


def test_a_table_of_as_many_rules_for_every_value_needs_no_look_where_they_begin() -> None:
    draw = np.random.default_rng(6)
    values = 3000
    # two rules a value, but for some
    named = [value for value in range(values) for _ in range(2 - (value % 10 == 0))]
    rules = [(number, {0: [(value, value)], 1: [(2, 5)]}) for number, value in enumerate(named)]
    conjunctions = conjunctions_of([values + 2, 9], rules)
    table, sorted_by = np.zeros(len(rules), np.int32), np.full(len(rules), -1, np.int32)
    engine = Hybrid(conjunctions, access_plan=AccessPlan(table, sorted_by, ((0,),), ()))
    assert engine.arrays["kernel_key_bits"].tolist() == [-2]
    codes = np.stack([draw.integers(0, values + 2, 9000), draw.integers(0, 9, 9000)]).astype(np.int32)
    assert_matches(engine, conjunctions, codes)
