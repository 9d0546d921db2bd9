"""What `auto` chooses, where one choice is plainly right, and tables in which rows find what they look for."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.kinds import KINDS
from rules_index.index.build import build
from rules_index.index.hybrid import Hybrid
from rules_index.index.layout import AccessPlan
from rules_index.index.planner.access_plan import expectations, sampled
from rules_index.index.planner.costs import measured_costs
from rules_index.index.planner.scan_costs import ScanCosts
from rules_index.kernels.equality_blocks import shuffles
from tests.unit.engines.test_lists import conjunctions_of

ROWS = 2048


@pytest.mark.slow
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
    assert engine.structure_counts == {"scanned": 20_000, "hashed": 0, "sorted": 0}, reason


def test_rules_of_values_that_few_rows_have_are_looked_up() -> None:
    draw = np.random.default_rng(2)
    pairs = draw.integers(0, 200, (5_000, 2)).tolist()
    rules = [(number, {0: [(a, a)], 1: [(b, b)], 2: [(0, 3)]}) for number, (a, b) in enumerate(pairs)]
    codes = np.stack([draw.integers(0, 200, ROWS), draw.integers(0, 200, ROWS), draw.integers(0, 6, ROWS)])
    engine, reason = build(conjunctions_of([202, 202, 8], rules), "auto", codes.astype(np.int32))
    assert engine.name == "hybrid" and engine.structure_counts["hashed"] == 5_000 and "tables" in reason


def test_a_way_to_scan_that_not_all_conjunctions_allow_is_replaced_by_bitmaps() -> None:
    draw = np.random.default_rng(4)
    rules = [(n, {a: [(v, v)] for a, v in enumerate(row)}) for n, row in enumerate(draw.integers(0, 99, (300, 3)))]
    c = conjunctions_of([102] * 3, rules)
    whole = conjunctions_of([102] * 3, [*rules, (300, {0: [(3, 90)]})])
    for scan_method in ("bitmaps", "summaries", "equality blocks"):
        given = [
            ScanCosts(expectations(each, np.arange(len(each.target)), None, True), measured_costs(), scan_method)
            for each in (c, whole)
        ]
        assert list(given[0].scan_methods) == (
            [scan_method] if scan_method != "equality blocks" or shuffles() else ["bitmaps"]
        )
        assert list(given[1].scan_methods) == ["bitmaps" if scan_method == "equality blocks" else scan_method]
        assert all(len(each.each) == each.expected.count and (each.each > 0).all() for each in given)


def test_very_many_equalities_are_expected_to_be_scanned_in_panels() -> None:
    given = KINDS["zipf"].make(100_000, 0.1, ROWS, 5)
    c, codes = given.coded()
    scanning = ScanCosts(expectations(c, sampled(c), codes.astype(np.int32), True), measured_costs())
    assert scanning.best == ("equality blocks" if shuffles() else "summaries")


def test_combinations_of_codes_are_spread_over_the_slots_of_a_table() -> None:
    draw = np.random.default_rng(3)
    values = draw.integers(0, 100, (20_000, 4)).tolist()
    rules = [(n, {a: [(v, v)] for a, v in enumerate(row)}) for n, row in enumerate(values)]
    count = len(rules)
    access_plan = AccessPlan(np.zeros(count, np.int32), np.full(count, -1, np.int32), ((0, 1, 2, 3),), ())
    arrays = Hybrid(conjunctions_of([102] * 4, rules), access_plan=access_plan).arrays
    groups = np.diff(arrays["kernel_slot_start"])
    # at random, 20,000 in 65,536 slots leave nearly three quarters of these empty
    assert len(groups) == 1 << 16 and (groups > 0).mean() > 0.2 and groups.max() < 10


def test_a_table_of_large_attributes_behind_one_of_small_ones_finds_its_entries() -> None:
    # the groups of small attributes have no codes of their own, so those of the next table begin below 0
    draw = np.random.default_rng(5)
    sizes = [102, 102, 102, 302, 252]
    small = [{a: [(int(draw.integers(100)),) * 2] for a in (0, 1, 2)} for _ in range(900)]
    large = [{a: [(int(draw.integers(sizes[a])),) * 2] for a in (3, 4)} for _ in range(300)]
    c = conjunctions_of(sizes, list(enumerate(small + large)))
    codes = np.stack([draw.integers(0, size, ROWS) for size in sizes]).astype(np.int32)
    for row, terms in enumerate(small + large):
        for attribute, ((code, _),) in terms.items():
            codes[attribute, row] = code
    table = np.repeat(np.array([0, 1], np.int32), [900, 300])
    access_plan = AccessPlan(table, np.full(1200, -1, np.int32), ((0, 1, 2), (3, 4)), ())
    engine = Hybrid(c, access_plan=access_plan)
    assert engine.arrays["kernel_group_code_at"].min() < 0 < engine.arrays["kernel_key_bits"].min()
    found, expected_lists = engine.match(codes), build(c, "scan")[0].match(codes)
    assert all(np.array_equal(*each) for each in zip(found, expected_lists, strict=True))
    assert len(found[1]) >= 1200
