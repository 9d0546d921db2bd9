"""What `auto` chooses, where one choice is plainly right, and tables in which rows find what they look for."""

from __future__ import annotations

import numpy as np

from rules_index.engines import BETree, build
from rules_index.engines.layout import Placement
from tests.unit.engines.test_lists import conjunctions_of

ROWS = 2048


def test_rules_that_rows_satisfy_by_the_dozen_are_scanned() -> None:
    # a part of them could be keyed; but then all matches of a row would have to be brought into order
    draw = np.random.default_rng(1)
    rules = []
    for number in range(20_000):
        first, second = draw.choice(10, 2, replace=False).tolist()
        value, low = int(draw.integers(0, 20)), int(draw.integers(0, 10))
        rules.append((number, {first: [(value, value)], second: [(low, low + 9)]}))
    codes = draw.integers(0, 20, (10, ROWS)).astype(np.int32)
    conjunctions = conjunctions_of([22] * 10, rules)
    engine, reason = build(conjunctions, "auto", codes)
    assert len(engine.match(codes)[1]) > 100 * ROWS
    assert engine.name == "asc", reason


def test_rules_of_values_that_few_rows_have_are_looked_up() -> None:
    draw = np.random.default_rng(2)
    pairs = draw.integers(0, 200, (5_000, 2)).tolist()
    rules = [(number, {0: [(a, a)], 1: [(b, b)], 2: [(0, 3)]}) for number, (a, b) in enumerate(pairs)]
    codes = np.stack([draw.integers(0, 200, ROWS), draw.integers(0, 200, ROWS), draw.integers(0, 6, ROWS)])
    engine, reason = build(conjunctions_of([202, 202, 8], rules), "auto", codes.astype(np.int32))
    assert engine.name == "be_tree" and "tables" in reason


def test_combinations_of_codes_are_spread_over_the_slots_of_a_table() -> None:
    draw = np.random.default_rng(3)
    values = draw.integers(0, 100, (20_000, 4)).tolist()
    rules = [(n, {a: [(v, v)] for a, v in enumerate(row)}) for n, row in enumerate(values)]
    count = len(rules)
    placement = Placement(np.zeros(count, np.int32), np.full(count, -1, np.int32), ((0, 1, 2, 3),), ())
    arrays = BETree(conjunctions_of([102] * 4, rules), placement=placement).arrays
    groups = np.diff(arrays["kernel_slot_start"])
    # at random, 20,000 in 65,536 slots leave nearly three quarters of these empty
    assert len(groups) == 1 << 16 and (groups > 0).mean() > 0.2 and groups.max() < 10
