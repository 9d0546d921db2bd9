"""A rule set widened to a few conjunctions: no matched row is lost, and few others are kept."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import rules_index as ri
from rules_index.implication.grouping import Shares, grouped
from rules_index.implication.widening import ColumnRange, Widened, widen
from tests import random_rows
from tests.cases import QUICK
from tests.random_expressions import Grammar
from tests.unit.implication.oracles import CASES, with_derived
from tests.unit.implication.random_pairs import Pairs

SCHEMA = pa.schema(
    [
        ("a", pa.int32()),
        ("f", pa.float32()),
        ("d", pa.float64()),
        ("s", pa.string()),
        ("x", pa.binary()),
        ("c", pa.bool_()),
        ("m", pa.decimal128(7, 2)),
        ("w", pa.decimal128(30, 3)),
        ("day", pa.date32()),
        ("t", pa.timestamp("us", tz="UTC")),
        ("u", pa.timestamp("us")),
        ("n", pa.struct([("odd name`", pa.int32())])),
        ("l", pa.list_(pa.int32())),
    ]
)


def widened(*rules: str, k: int = 1) -> Widened:
    compiled = ri.compile_rules(list(enumerate(rules)), SCHEMA)
    assert compiled.rejects.num_rows == 0, compiled.rejects.to_pylist()
    return widen(list(enumerate(rules)), SCHEMA, k)


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        (["a > 3"], "`a` >= 4"),
        (["a > 3 OR a IS NULL"], "(`a` >= 4 OR `a` IS NULL)"),
        (["a IS NULL"], "`a` IS NULL"),
        (["a IS NOT NULL"], "`a` IS NOT NULL"),
        (["a IS NULL OR a > 3 OR a <= 3"], "true"),
        (["a = 3", "a = 5"], "`a` IN (3, 5)"),
        (["a = 3", "a = 4"], "`a` BETWEEN 3 AND 4"),
        (["a > 3 AND a < 4"], "false"),
        ([], "false"),
        (["a = 3 AND s = 'x'", "a = 5"], "`a` IN (3, 5)"),
        (["a = 3", "s = 'x'"], "true"),
        (["a < 1 OR a BETWEEN 5 AND 9 OR a = 20"], "(`a` = 20 OR `a` <= 0 OR `a` BETWEEN 5 AND 9)"),
        (["a <> 3"], "(`a` <= 2 OR `a` >= 4)"),
        (["f > 0.5", "f = 0.25D"], "(`f` = 0.25D OR `f` > 0.5D OR isnan(`f`))"),
        (["f IN (0, 0.25D)"], "(`f` = 0.25D OR `f` BETWEEN -0.0D AND 0.0D)"),
        (["d >= 0"], "(`d` >= -0.0D OR isnan(`d`))"),
        (["d <= 0"], "`d` <= 0.0D"),
        (["d < 0.1D"], "`d` < 0.1D"),
        (["d <= 0.1D"], "`d` <= 0.1D"),
        (["d = double('NaN')"], "(`d` > double('Infinity') OR isnan(`d`))"),
        (["d >= double('Infinity')"], "(`d` >= double('Infinity') OR isnan(`d`))"),
        (["d < double('NaN')"], "`d` <= double('Infinity')"),
        (["s LIKE 'ab%'"], "(`s` >= 'ab' AND `s` < 'ac')"),
        (["s > 'ab'"], "`s` > 'ab'"),
        (["s <= 'it\\'s\\\\'"], "`s` <= 'it\\'s\\\\'"),
        (["s IN ('b', 'a', 'c')"], "`s` IN ('a', 'b', 'c')"),
        (["s <> 'b'"], "(`s` < 'b' OR `s` > 'b')"),
        (["x >= X'01ff'"], "`x` >= X'01FF'"),
        (["c"], "`c` = TRUE"),
        (["c IS NOT TRUE"], "(`c` = FALSE OR `c` IS NULL)"),
        (["m > -0.05 AND m <= 12.5"], "`m` BETWEEN -0.04BD AND 12.50BD"),
        (["w = -0.005"], "(`w` = -0.005BD OR isnan(CAST(`w` AS DOUBLE)))"),
        (["w > 123456789012345678901234.5"], "(`w` >= 123456789012345678901234.501BD OR isnan(CAST(`w` AS DOUBLE)))"),
        (["day > DATE'2024-02-28'"], "`day` >= DATE'2024-02-29'"),
        (["t < TIMESTAMP'2024-01-01 00:00:00Z'"], "`t` <= TIMESTAMP'2023-12-31 23:59:59.999999Z'"),
        (["u >= TIMESTAMP_NTZ'2024-01-01 10:00:00'"], "`u` >= TIMESTAMP_NTZ'2024-01-01 10:00:00'"),
        (["n.`odd name```  = 3"], "`n`.`odd name``` = 3"),
        (["l IS NULL"], "true"),
        (["l IS NOT NULL AND a = 1"], "`a` = 1"),
        (["a + 1 > 5"], "true"),
        (["unix_seconds(t) > 5 AND a = 1"], "`a` = 1"),
        (["s LIKE '%x' AND a < 0"], "`a` <= -1"),
        (["a = 3 AND NOT c", "a = 3 AND c IS NULL"], "`a` = 3 AND (`c` = FALSE OR `c` IS NULL)"),
    ],
)  # fmt: skip
def test_what_is_said_of_each_type(rules: list[str], expected: str) -> None:
    assert widened(*rules).sql == expected


def test_a_larger_k_keeps_apart_what_is_apart() -> None:
    rules = ["a = 1 AND s = 'x'", "a = 2 AND s = 'x'", "a = 90 AND s = 'y'", "a BETWEEN 95 AND 99 AND s = 'y'"]
    assert widened(*rules, k=2).sql == (
        "(`a` BETWEEN 1 AND 2 AND `s` = 'x') OR ((`a` = 90 OR `a` BETWEEN 95 AND 99) AND `s` = 'y')"
    )
    # three of them differ in one column alone, so that they are one conjunction of two ranges
    assert widened(*rules, k=100).sql == widened(*rules, k=2).sql
    assert len(widened(*rules, k=1).conjunctions) == 1
    with pytest.raises(ValueError, match="at least 1"):
        widened("a = 1", k=0)


def test_ranges_are_around_what_is_said() -> None:
    (found,) = widened("a IN (3, 9) AND s LIKE 'ab%' AND (d > 0.5D OR d IS NULL) AND f IS NULL").conjunctions
    assert set(found.ranges) == {
        ColumnRange("a", 3, 9, False),
        ColumnRange("d", 0.5, None, True),
        ColumnRange("f", None, None, True, holds_values=False),
        ColumnRange("s", "ab", "ac", False),
    }


def test_dates_that_no_literal_can_say_are_left_out() -> None:
    far = "DATE'+20000-01-01'"
    assert widened(f"day > {far}").sql == widened(f"day = {far}").sql == "`day` IS NOT NULL"
    assert widened(f"day = {far} OR day = DATE'2024-01-01'").sql == "`day` >= DATE'2024-01-01'"
    assert widened("day > DATE'9999-12-31'").sql == "`day` > DATE'9999-12-31'"


def test_validity_bounds_are_conditions_on_the_event_time() -> None:
    rules = pa.table(
        {"rule_id": [1], "expression": ["a = 1"], "valid_from": pa.array([0], pa.timestamp("us", tz="UTC"))}
    )
    assert widen(rules, SCHEMA, event_time="t").sql == "`a` = 1 AND `t` >= TIMESTAMP'1970-01-01 00:00:00Z'"


def test_rules_that_do_not_compile_match_nothing() -> None:
    assert widen([(1, "a = 1"), (2, "nonsense >")], SCHEMA).sql == "`a` = 1"


def assert_keeps(found: Widened, truth: np.ndarray, rows: pa.Table, k: int, seed: int) -> np.ndarray:
    """No row that a rule matches [rows] bool is lost; which rows are kept."""
    assert len(found.conjunctions) <= k, seed
    compiled = ri.compile_rules([(0, found.sql)], rows.schema)
    assert compiled.rejects.num_rows == 0 and not compiled.derived, (seed, found.sql, compiled.rejects.to_pylist())
    kept = np.diff(compiled.match_ordinals(rows)[0]) > 0
    assert not (truth & ~kept).any(), (seed, found.sql)
    inside = np.zeros(rows.num_rows, bool)
    for conjunction in found.conjunctions:
        inside |= np.logical_and.reduce(
            [np.ones(rows.num_rows, bool), *(within(each, rows) for each in conjunction.ranges)]
        )
    assert not (truth & ~inside).any(), (seed, found)
    return kept


def within(each: ColumnRange, rows: pa.Table) -> np.ndarray:
    column = rows
    names = each.column.split(".")
    values: list[Any] = column.column(names[0]).to_pylist()
    for name in names[1:]:
        values = [None if value is None else value[name] for value in values]
    return np.array([_inside(each, value) for value in values], bool)


def _inside(each: ColumnRange, value: Any) -> bool:
    if value is None:
        return each.null
    if isinstance(value, float) and math.isnan(value):
        return each.holds_values and each.high is None
    low = each.low is None or not value < each.low
    return each.holds_values and low and (each.high is None or not value > each.high)


@pytest.mark.slow
def test_no_row_of_plain_columns_is_lost() -> None:
    tight = total = 0
    for seed in range(CASES):
        pairs = Pairs(seed)
        rules = [rule for _ in range(pairs.choice.choice((1, 3, 8))) for rule in pairs.rules()]
        cells = pairs.cells()
        compiled = ri.compile_rules(list(enumerate(rules)), pairs.schema)
        truth = np.diff(compiled.match_ordinals(cells)[0]) > 0
        for k in (1, 2, 200):
            kept = assert_keeps(widen(list(enumerate(rules)), pairs.schema, k), truth, cells, k, seed)
        # as many conjunctions as rules have lose nothing, so that exactly the matched rows are kept
        assert (kept == truth).all(), seed
        tight += int(truth.sum())
        total += len(truth)
    assert QUICK or 0.1 < tight / total < 0.9


@pytest.mark.slow
def test_no_row_of_any_kind_of_rule_is_lost() -> None:
    table = random_rows.rows(300, seed=5)
    said = 0
    for seed in range(CASES):
        grammar = Grammar(seed, variety=0.1)
        rules = list(enumerate(grammar.rule() for _ in range(1 + seed % 4)))
        compiled = ri.compile_rules(rules, table.schema)
        truth = np.diff(compiled.match_ordinals(with_derived(table, compiled, table.schema, seed))[0]) > 0
        k = 1 + seed % 5
        found = widen(rules, table.schema, k)
        kept = assert_keeps(found, truth, table, k, seed)
        said += not kept.all()
    assert QUICK or said > CASES / 10


@pytest.mark.slow
def test_many_rules_are_grouped_as_they_lie() -> None:
    choice = np.random.default_rng(3)
    centres = choice.integers(0, 1_000_000, (12, 3))
    low = (centres[choice.integers(0, 12, 20_000)] + choice.integers(-2_000, 2_000, (20_000, 3))).tolist()
    schema = pa.schema([(name, pa.int64()) for name in "abc"])
    rules = [
        (i, " AND ".join(f"{name} BETWEEN {v} AND {v + 50}" for name, v in zip("abc", each, strict=True)))
        for i, each in enumerate(low)
    ]
    found = widen(rules, schema, 12)
    assert len(found.conjunctions) == 12
    spans = [each.high - each.low for conjunction in found.conjunctions for each in conjunction.ranges]
    assert len(spans) == 36 and max(spans) < 4_200
    for conjunction in found.conjunctions:
        middle = [(each.low + each.high) / 2 for each in conjunction.ranges]
        assert np.abs(centres - middle).max(axis=1).min() < 200


def test_of_very_many_values_the_widest_gaps_are_kept() -> None:
    values = [1_000 * i + j for i in range(10) for j in range(0, 40, 2)]
    found = widened(*(f"a = {value}" for value in values)).sql
    assert found.count(" BETWEEN ") + found.count(",") + 2 >= 64
    assert all(f"{1_000 * i + 38}" in found for i in range(10)), found


def test_rules_on_different_columns_are_grouped_by_column() -> None:
    rules = [f"{name} > {1_000 + i}" for i in range(50) for name in ("a", "f", "d", "m")]
    found = widened(*rules, k=4)
    assert sorted(each.ranges[0].column for each in found.conjunctions) == ["a", "d", "f", "m"]
    assert all(len(each.ranges) == 1 for each in found.conjunctions)
    assert widened(*rules, k=3).sql == "true"


def test_groups_of_no_and_of_equal_boxes() -> None:
    nothing = np.empty(0, np.int32)
    sizes = np.array([5], np.int32)
    assert len(grouped(Shares(sizes, np.zeros(1, np.int64), nothing, nothing, nothing), 3)) == 0
    alike = Shares(sizes, np.arange(4), np.zeros(3, np.int32), np.ones(3, np.int32), np.ones(3, np.int32))
    assert grouped(alike, 2).tolist() == [0, 0, 0]
