"""Near misses: the smallest change of a row that makes a rule match it."""

from __future__ import annotations

import math
import random
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import rules_index as ri
from rules_index.explaining import candidates, function_inputs, near_misses
from rules_index.explaining.truth import Truths
from tests.cases import cases
from tests.unit.explained import ROW, SCHEMA, explained

NEAR: list[tuple[str, dict[str, Any], Any]] = [
    ("i > 10", {}, {"i": 11}),
    ("i > 10 AND s = 'abc'", {}, {"i": 11}),
    ("i > 10 AND s = 'x'", {}, {"i": 11, "s": "x"}),
    ("i > 10 AND s = 'x' AND b", {}, None),
    ("i IN (7, 40, 1)", {}, {"i": 1}),
    ("i IS NULL", {}, {"i": None}),
    ("j IS NOT NULL", {}, {"j": 0}),
    ("m >= 10.0015", {}, {"m": Decimal("10.002")}),
    ("wide > 10.005", {}, {"wide": Decimal("10.01")}),
    ("f >= 2.5", {}, {"f": 2.5}),
    ("g > 0.75", {}, {"g": 0.76}),
    ("g > 3.4028234663852886e38", {}, {"g": float("inf")}),
    ("NOT b", {"b": True}, {"b": False}),
    ("d > DATE'2024-02-28'", {}, {"d": date(2024, 2, 29)}),
    ("coalesce(d, DATE'1970-01-01') > DATE'2024-02-28'", {}, {"d": date(2024, 2, 29)}),
    ("coalesce(d, DATE'1970-01-01') > DATE'2024-02-28'", {"d": None}, {"d": date(2024, 2, 29)}),
    (
        "coalesce(ts, TIMESTAMP'9999-12-31') = TIMESTAMP'2001-02-03 04:05:06'",
        {},
        {"ts": datetime(2001, 2, 3, 4, 5, 6, tzinfo=UTC)},
    ),
    ("i > i + 1", {}, None),
    ("i + 4 > st.x + 10", {}, {"i": 8}),
    ("i > 3 AND i < 3", {}, None),
    ("i > 5 AND (i < 3 OR b)", {}, {"i": 6, "b": True}),
    ("s LIKE 'q%'", {}, {"s": "q"}),
    ("s LIKE '%z_z%'", {}, {"s": "zxz"}),
    ("s < 'aaa'", {}, {"s": ""}),
    ("bin > X'02'", {}, {"bin": b"\x02\x00"}),
    ("st.x = 5", {}, {"st.x": 5}),
    ("st.x = 5", {"st": None}, {"st.x": 5}),
    ("st.x = 5 AND st IS NOT NULL", {}, None),
    ("unix_seconds(ts) % 10 = 3 AND i = 3", {}, None),
    ("(unix_seconds(ts) % 10 = 3 OR i = 4) AND d < DATE'2024-01-01'", {}, {"i": 4, "d": date(2023, 12, 31)}),
    ("upper(s) = 'ECOM'", {}, {"s": "ECOM"}),
    ("lower(trim(s)) IN ('visa', 'amex')", {"s": None}, {"s": "amex"}),
    ("s = upper(s)", {}, {"s": "ABC"}),
    ("upper(substring(s, 2, 2)) = 'DE'", {}, {"s": "aDE"}),
    ("left(s, 1) = 'X'", {}, {"s": "Xbc"}),
    ("right(s, 2) = 'xy' OR substring(s, -2) = 'xy'", {}, {"s": "axy"}),
    ("substring(s, 5) = 'xy'", {}, {"s": "abcaxy"}),
    ("length(s) > 4", {}, {"s": "abcaa"}),
    ("length(s) < 3", {}, {"s": "ab"}),
    ("concat('<', s, '>') = '<x>'", {}, {"s": "x"}),
    ("s || '-' = 'ac-'", {}, {"s": "ac"}),
    ("split_part(s, '-', 3) = 'DE'", {}, {"s": "abc--DE"}),
    ("instr(s, '@') > 2", {}, {"s": "aa@"}),
    ("reverse(s) LIKE 'xyz%'", {}, {"s": "zyx"}),
    ("CAST(s AS INT) >= 100", {}, {"s": "100"}),
    ("CAST(s AS DOUBLE) > 12.25", {}, {"s": "13"}),
    ("CAST(s AS DATE) > DATE'2024-02-28'", {}, {"s": "2024-02-29"}),
    ("CAST(s AS BOOLEAN)", {}, {"s": "true"}),
    ("hour(ts) >= 22", {}, {"ts": datetime(2024, 3, 30, 23, tzinfo=UTC)}),
    ("hour(ntz) = 5 AND dayofweek(ntz) = 7", {}, {"ntz": datetime(2024, 3, 30, 5)}),
    ("month(d) = 12 AND day(d) = 1", {}, {"d": date(2024, 12, 1)}),
    ("year(d) = 1999", {}, {"d": date(1999, 2, 28)}),
    ("datediff(d, DATE'2024-01-01') > 400", {}, {"d": date(2025, 2, 5)}),
    ("ntz - INTERVAL 2 MONTHS > TIMESTAMP_NTZ'2024-04-01 00:00:00'", {}, {"ntz": datetime(2024, 6, 1, 2, 30)}),
    ("datediff(d, DATE'2024-01-01') * 2 > i * 1000", {}, {"i": 0}),
    ("i = 2147483648", {}, None),
    ("i + 1 > 2147483646", {"i": 2**31 - 1}, {"i": 2**31 - 2}),
    ("FALSE", {}, None),
    ("i < 99999999999999999999 AND j > 1 AND b", {}, {"j": 2, "b": True}),
]


@pytest.mark.parametrize(("text", "row", "change"), NEAR)
def test_the_smallest_change_is_told(text: str, row: dict[str, Any], change: dict[str, Any] | None) -> None:
    found = explained(text, row, derived=None)
    assert found.value is not True
    told = None if found.near_miss is None else {each.column: each.after for each in found.near_miss}
    assert told == change
    if told is not None:
        compiled = ri.compile_rules([("r", text)], SCHEMA)
        derived = {leaf.name: None for leaf in compiled.derived}
        assert compiled.match_one(ROW | row | derived | told) == ["r"]


def test_functions_around_functions_do_not_double_the_inputs_that_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    text, asked, inner = "s", [], function_inputs._inner
    for _ in range(12):
        text = f"substring({text}, 1, 50)"

    def counted(*arguments: Any) -> Any:
        asked.append(arguments)
        return inner(*arguments)

    monkeypatch.setattr(function_inputs, "_inner", counted)
    found = explained(f"{text} = 'xy'").near_miss
    assert [(each.column, each.after) for each in found] == [("s", "xy")]
    assert 0 < len(asked) < 1_000


def test_members_of_value_lists_are_near_misses_and_values_beside_them() -> None:
    schema = pa.schema(
        {"s": pa.string(), "i": pa.int32(), "d": pa.date32(), "m": pa.decimal128(10, 2), "g": pa.float64()}
    )
    values = {
        "s": pa.array([f"k{i:03}" for i in range(500)]),
        "i": pa.array(range(1000, 2000)),
        "d": pa.array([date(2024, 1, 1), date(2024, 1, 2)]),
        "m": pa.array([Decimal("1.50"), Decimal("9.00")], pa.decimal128(10, 2)),
        "g": pa.array([0.5, 2.5, 7.5]),
    }
    lists = [ri.value_list(f"{name}s", each) for name, each in values.items()]
    inside = {"s": "k250", "i": 1500, "d": date(2024, 1, 2), "m": Decimal("9.00"), "g": 2.5}
    beside = {"s": "zz", "i": 7, "d": date(2023, 1, 1), "m": Decimal("9.10"), "g": 2.6}
    wanted = {"s": "k499", "i": 1000, "d": date(2024, 1, 1), "m": Decimal("9.00"), "g": 2.5}
    for name in values:
        rules = [("in", f"{name} IN LIST('{name}s')"), ("not", f"{name} NOT IN LIST('{name}s') AND i IS NOT NULL")]
        compiled = ri.compile_rules(rules, schema, lists=lists)
        (change,) = compiled.explain(beside, "in").near_miss
        assert (change.column, change.after) == (name, wanted[name])
        (change,) = compiled.explain(inside, "not").near_miss
        assert compiled.match_one(inside | {name: change.after}) == ["not"]
        assert compiled.explain(beside | {name: None}, "in").near_miss is not None


def test_texts_of_near_misses_have_no_control_characters() -> None:
    schema = pa.schema({"s": pa.string()})
    for text, row, after in [
        ("s NOT IN ('DE', 'US')", "US", "USa"), ("s > 'DE'", "AT", "DEa"), ("s > 'a' AND s < 'ab'", "b", "aa"),
    ]:  # fmt: skip
        (change,) = ri.compile_rules([("r", text)], schema).explain({"s": row}, "r").near_miss
        assert change.after == after


def test_fixed_columns_stay_as_they_are() -> None:
    compiled = ri.compile_rules([("r", "i > 10 OR f > 10")], SCHEMA)
    assert [each.column for each in compiled.explain(ROW, "r", fixed=["f"]).near_miss] == ["i"]
    assert [each.column for each in compiled.explain(ROW, "r", fixed=["i"]).near_miss] == ["f"]
    assert compiled.explain(ROW, "r", fixed=["i", "f"]).near_miss is None


@pytest.mark.parametrize("fixed", ["Delay", ["DELAY"], ["`delay`"], ["dep-delay", "St.X"], ["ST"], ["odd.name"]])
def test_fixed_columns_are_named_in_any_spelling(fixed: str | list[str]) -> None:
    schema = pa.schema(
        {"delay": pa.int32(), "dep-delay": pa.int32(), "st": pa.struct({"x": pa.int32()}), "odd.name": pa.int32()}
    )
    parts = {"delay": "delay", "dep-delay": "`dep-delay`", "st": "st.x", "odd.name": "`odd.name`"}
    row = dict.fromkeys(parts, 1) | {"st": {"x": 1}}
    for name, column in parts.items():
        names = [fixed] if isinstance(fixed, str) else fixed
        is_fixed = any(each.lower().strip("`").removesuffix(".x") == name for each in names)
        compiled = ri.compile_rules([("r", f"{column} > 5")], schema)
        assert (compiled.explain(row, "r", fixed=fixed).near_miss is None) == is_fixed


def test_predicates_that_alone_stand_in_the_way() -> None:
    for text, alone in [
        ("i > 5 AND s = 'abc'", ["i > 5"]),
        ("i > 5 AND s = 'x'", []),
        ("i > 5 OR s = 'x'", ["i > 5", "s = 'x'"]),
        ("NOT (i = 3 OR s = 'x') AND d IS NOT NULL", ["i = 3"]),
        ("i = 3 AND (j > 1 OR NOT s = 'abc')", ["j > 1", "s = 'abc'"]),
        ("i = 3", []),
    ]:
        assert [part.text for part in explained(text).predicates if part.stands_alone] == alone


def test_one_or_two_small_columns_are_searched_as_brute_force_does() -> None:
    """Over columns of few values: a near miss is told exactly where a change of one or two columns matches."""
    draw = random.Random(11)
    schema = pa.schema({name: pa.int8() for name in "abcd"})
    span = range(-1, 6)

    def predicate() -> str:
        name, other, value = draw.choice("abcd"), draw.choice("abcd"), draw.randrange(5)
        forms = [
            "{0} > {2}",
            "{0} = {2}",
            "{0} <> {2}",
            "{0} IN ({2}, 1)",
            "{0} IS NULL",
            "{0} < {1}",
            "{0} + {1} > {2}",
        ]
        return draw.choice(forms).format(name, other, value)

    def rule(depth: int) -> str:
        if depth == 0:
            return predicate()
        text = f"({rule(depth - 1)} {draw.choice(['AND', 'AND', 'OR'])} {rule(depth - 1)})"
        return f"NOT {text}" if draw.random() < 0.2 else text

    sizes, count = {0: 0, 1: 0, 2: 0}, cases(200)
    for _ in range(count):
        compiled = ri.compile_rules([("r", rule(draw.randrange(1, 4)))], schema)
        row = {name: draw.choice([*range(5), None]) for name in "abcd"}
        found = compiled.explain(row, "r")
        if found.matched:
            continue
        tried: list[dict[str, Any]] = [{name: value} for name in "abcd" for value in (*span, None)]
        tried += [one | other for one in tried for other in tried if [*one] < [*other]]
        table = pa.Table.from_pylist([row | change for change in tried], schema)
        matching = [len(change) for change, ids in zip(tried, compiled.match(table).to_pylist(), strict=True) if ids]
        told = 0 if found.near_miss is None else len(found.near_miss)
        sizes[told] += 1
        if told:
            assert compiled.match_one(row | {each.column: each.after for each in found.near_miss}) == ["r"]
        # what compares two columns may have no change told; one that is told is never larger than needed
        is_plain = all("<" not in part.text.replace("<>", "") and "+" not in part.text for part in found.predicates)
        if is_plain:
            assert told == min(matching, default=0), str(found)
    assert count < 50 or min(sizes[1], sizes[2]) > 3


@pytest.mark.slow
def test_deep_and_wide_rules() -> None:
    deep = "i > 5"
    for level in range(40):
        deep = f"NOT (NOT (s = 'x{level}' OR {deep}) AND f > 0)"
    wide = " OR ".join(f"i = {number} AND s <> 'v{number}'" for number in range(4, 1_004))
    flat = " AND ".join(f"i <> {number}" for number in range(1_000))
    for text in (deep, wide, flat):
        found = explained(text)
        compiled = ri.compile_rules([("r", text)], SCHEMA)
        assert found.matched == (compiled.match_one(ROW) == ["r"])
        assert str(found) and found.as_dict()["text"] == text
        if not found.matched:
            assert compiled.match_one(ROW | {each.column: each.after for each in found.near_miss}) == ["r"]


def test_what_spark_evaluates_whole_is_one_part() -> None:
    """A connective one part of which denies another, beside those that look alike."""
    schema = pa.schema([("i", pa.int32()), ("b", pa.bool_())])
    denied = "coalesce(1 / i, 0) > 1 OR NOT coalesce(1 / i, 0) > 1"
    compiled = ri.compile_rules(
        [(1, f"b AND ({denied})"), (2, "soundex(b) > 'A' OR CAST(soundex(i) AS BOOLEAN) <= NULL")], schema
    )
    texts = {leaf.text: leaf.name for leaf in compiled.derived}
    assert sorted(texts) == ["CAST(soundex(i) AS BOOLEAN)", denied, "soundex(b)"]
    row = {
        "i": 0,
        "b": True,
        texts[denied]: True,
        texts["soundex(b)"]: None,
        texts["CAST(soundex(i) AS BOOLEAN)"]: False,
    }
    assert [each.text for each in compiled.explain(row, 1).children] == ["b", denied]
    assert compiled.explain(row, 1).matched
    assert [each.value for each in compiled.explain(row, 2).children] == [None, None]


def test_two_that_may_be_texts_are_one_part() -> None:
    schema = pa.schema([("s", pa.string()), ("u", pa.string()), ("b", pa.bool_())])
    compiled = ri.compile_rules([(1, "b OR (elt(1, s, u) AND elt(2, s, u))"), (2, "elt(1, s, u) OR s OR u")], schema)
    row = {"s": "x", "u": "false", "b": False} | {leaf.name: leaf.text.count("2") == 1 for leaf in compiled.derived}
    assert [each.text for each in compiled.explain(row, 1).children] == ["b", "elt(1, s, u) AND elt(2, s, u)"]
    assert compiled.explain(row, 1).matched
    assert not compiled.explain(row, 2).matched


@pytest.mark.parametrize(
    ("text", "row", "changed"),
    [
        ("`a.b` > 5", {"a": {"b": 1}, "a.b": 1}, ("`a.b`", 6)),
        ("a.b > 5", {"a": {"b": 1}, "a.b": 1}, ("`a`.b", 6)),
        ("n / nullif(f, 0) > 100", {"n": 90.0, "f": 0.0}, ("f", 0.899)),
        ("n / f > 100", {"n": 90.0, "f": 4.0}, ("f", 0.8)),
    ],
)
def test_a_near_miss_is_a_value_that_a_row_may_have(text: str, row: dict[str, Any], changed: tuple[str, Any]) -> None:
    """Of columns named like a field, and of what is divided by: not the least number above 0."""
    kinds = {"a": pa.struct([("b", pa.int64())]), "a.b": pa.int64(), "n": pa.float64(), "f": pa.float64()}
    compiled = ri.compile_rules([("r", text)], pa.schema({name: kinds[name] for name in row}))
    (change,) = compiled.explain(row, "r").near_miss
    assert (change.column, change.after) == changed


FLOATS: list[tuple[str, float | None, float]] = [
    ("x > 0", 0.0, 1.0),
    ("x > 0", -1.5, 0.1),
    ("x > 0", None, 1.0),
    ("x > 0", -0.30000000000000004, 0.001),  # what a calculation left over
    ("x > 0 AND x < 1", 0.0, 0.1),
    ("x > 0 AND x < 1e-10", 0.0, 1e-11),
    ("x > 0 AND x < 1e-320", 0.0, 5e-324),
    ("x > 0 OR x < -5", 0.0, 1.0),
    ("x < 0 AND x > -1e-5", 3.25, -1e-6),
    ("x < 100.5", 250.0, 100.4),
    ("x < 900", 950.25, 899.99),
    ("x > 40.7127837", 40.0, 40.7127838),
    ("x <= 2.5", 3.0, 2.5),
    ("x > 1e300", 1.0, 1.00000000000001e300),
    ("x > 1e-300", 0.0, 2e-300),
    ("x > 1.7976931348623155e308", 1.0, 1.7976931348623157e308),
    ("x > 1.7976931348623157e308", 1.0, math.inf),
    ("x = 0.30000000000000004", 1.0, 0.30000000000000004),
    ("x > 5 AND x < 5.0001", 3.0, 5.00001),
    ("x > 5 AND x < 5.000000000000002", 3.0, 5.000000000000001),
    ("x * 3 = 1", 1.0, 0.3333333333333333),
    ("x < y", 2.5, 0.9),
]


@pytest.mark.parametrize(("text", "now", "changed"), FLOATS)
def test_a_near_miss_of_a_float_has_few_digits(text: str, now: float | None, changed: float) -> None:
    schema = pa.schema({"x": pa.float64(), "y": pa.float64()})
    compiled = ri.compile_rules([("r", text)], schema)
    row = {"x": now, "y": 1.0}
    (change,) = compiled.explain(row, "r", fixed=["y"]).near_miss
    assert (change.column, change.after) == ("x", changed)
    assert compiled.match(pa.Table.from_pylist([row | {"x": changed}], schema)).to_pylist() == [["r"]]


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()], ids=str)
def test_every_near_miss_of_floats_matches(kind: pa.DataType) -> None:
    """With constants that are near each other, in one column and in two, of all sizes."""
    draw = random.Random(3)
    schema, count = pa.schema({"x": kind, "y": kind}), cases(150)
    found = []

    def number() -> float:
        value = draw.choice([0.0, draw.uniform(-2, 2), draw.randrange(-300, 300) / 4, 10.0 ** draw.randrange(-30, 30)])
        return float(np.float32(value)) if kind == pa.float32() else value

    for _ in range(count):
        first, second = number(), number()
        close = first + draw.choice([1e-3, 1e-6, -1e-12, 0.5])
        text = draw.choice(
            ["x > {0} AND x < {2}", "x > {0} AND y < {1}", "x + y > {0} AND x < {1}", "x <> {0}", "x < y"]
        )
        compiled = ri.compile_rules([("r", text.format(f"{first!r}D", f"{second!r}D", f"{close!r}D"))], schema)
        row = {"x": draw.choice([None, number(), first]), "y": number()}
        miss = compiled.explain(row, "r").near_miss
        if miss is not None:
            changed = row | {each.column: each.after for each in miss}
            assert compiled.match_one(changed) == ["r"], (text, row, miss)
            assert compiled.match(pa.Table.from_pylist([changed], schema)).to_pylist() == [["r"]]
            found += [len(repr(each.after)) for each in miss if each.after is not None]
    assert len(found) > count / 2
    assert sorted(found)[len(found) // 2] <= 8


def test_a_rule_with_many_parts_is_evaluated_for_few_rows_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else its memory grows with the square of its parts: for 4,096 branches it took 900 MB."""
    branches = " ".join(f"WHEN i = {number} THEN s = 'x{number}'" for number in range(10, 90))
    rule = f"CASE {branches} ELSE i = 400 END"
    compiled = ri.compile_rules([("wide", rule)], SCHEMA)
    expected = compiled.explain(ROW, "wide").near_miss
    rows: list[int] = []

    class Counted(Truths):
        def __init__(self, *given: Any) -> None:
            rows.append(given[1])
            super().__init__(*given)

    monkeypatch.setattr(near_misses, "Truths", Counted)
    monkeypatch.setattr(near_misses, "AT_ONCE", 4_000)
    assert (
        compiled.explain(ROW, "wide").near_miss
        == expected
        == ri.compile_rules([("wide", rule)], SCHEMA).explain(ROW, "wide").near_miss
    )
    assert expected is not None and max(rows) < 20
    monkeypatch.setattr(near_misses, "MOST_COMPUTED", 4_000)
    rows.clear()
    compiled.explain(ROW, "wide").near_miss  # noqa: B018
    assert sum(rows) < 50


def test_values_for_a_comparison_are_sought_only_in_columns_that_it_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    numbers_at = candidates._numbers_at
    monkeypatch.setattr(candidates, "_numbers_at", lambda *given: read.append(1) or numbers_at(*given))
    branches = " ".join(f"WHEN i = {number} THEN j > {number}" for number in range(50))
    compiled = ri.compile_rules([("wide", f"CASE {branches} ELSE f > 5 END")], SCHEMA)
    assert compiled.explain(ROW, "wide").near_miss is not None
    assert len(read) <= 2 * 101
