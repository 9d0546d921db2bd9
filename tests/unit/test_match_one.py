"""One row at a time: the answers of `match` on a table of that row, from any thread."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from decimal import Decimal
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import rules_index as ri
from rules_index.index.compiled import dumps
from rules_index.index.registry import ENGINES
from tests.cases import cases

CASES = cases(200, "DELTATAG_EVENTS")
SCHEMA = pa.schema(
    {
        "i": pa.int32(),
        "f": pa.float64(),
        "m": pa.decimal128(12, 3),
        "s": pa.string(),
        "bin": pa.binary(),
        "b": pa.bool_(),
        "d": pa.date32(),
        "ts": pa.timestamp("us", "UTC"),
        "ntz": pa.timestamp("us"),
        "st": pa.struct({"x": pa.int64(), "y z": pa.string()}),
        "odd.name": pa.int32(),
        "l": pa.list_(pa.int32()),
        "map": pa.map_(pa.string(), pa.int32()),
        "legs": pa.list_(pa.struct({"x": pa.int64()})),
    }
)
TEXTS = [
    "i > 3", "i IS NULL OR f > 1.5", "f = double('NaN')", "f > 1e300", "m BETWEEN 1.5 AND 20", "m = 1.500", "s = 'a'",
    "s LIKE '%b%' AND i < 9", "s IN ('', 'ä', 'abc') OR b", "NOT b", "b IS NULL", "bin = X'00FF'",
    "d >= DATE'2024-02-29'",
    "ts < TIMESTAMP'2024-03-31 02:30:00'", "ntz = TIMESTAMP_NTZ'2024-03-31 02:30:00'", "st.x > 3", "st.`y z` = 'q'",
    "st IS NULL", "`odd.name` = 4", "i + 1 > 5 AND f - i < 2", "100 / i > 3 OR i = 7", "CAST(s AS INT) = 3 OR i = 2",
    "TRUE", "i <> 4 AND i NOT IN (5, 6)", "i = 2147483647 AND i + 1 > 0",
]  # fmt: skip


def draw_row(draw: random.Random) -> dict[str, object]:
    moment = draw.choice([datetime(2024, 3, 31, 0, 30), datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999_999)])
    values = {
        "i": draw.choice([0, 2, 3, 4, 7, -(2**31), 2**31 - 1]),
        "f": draw.choice([0.0, -0.0, 1.5, 2.5, float("nan"), float("inf"), 1e301]),
        "m": draw.choice([Decimal("1.5"), Decimal("20.000"), Decimal("-999999999.999")]),
        "s": draw.choice(["", "a", "abc", "ä", "3", "\0"]),
        "bin": draw.choice([b"", b"\x00\xff"]),
        "b": draw.choice([True, False]),
        "d": draw.choice([date(2024, 2, 29), date(2024, 2, 28), date(1, 1, 1)]),
        "ts": moment.replace(tzinfo=draw.choice([UTC, ZoneInfo("Asia/Tokyo")]) if 1 < moment.year < 9999 else UTC),
        "ntz": draw.choice([moment, datetime(2024, 3, 31, 2, 30)]),
        "st": draw.choice([{"x": 4, "y z": "q"}, {"x": None, "y z": None}, {"x": 1, "y z": ""}]),
        "odd.name": draw.choice([3, 4]),
    }
    return {name: None if draw.random() < 0.15 else value for name, value in values.items()}


@pytest.mark.parametrize("engine", ENGINES)
def test_one_row_matches_as_a_table_of_it(engine: str) -> None:
    draw = random.Random(engine)
    rules = [(f"r{number}", draw.choice(TEXTS)) for number in range(60)]
    rules += [(f"and{number}", f"({draw.choice(TEXTS)}) AND ({draw.choice(TEXTS)})") for number in range(60)]
    compiled = ri.compile_rules(rules, SCHEMA, engine=engine, time_zone="Europe/Berlin")
    assert compiled.rejects.num_rows == 0
    rows = [draw_row(draw) for _ in range(CASES if engine != "scan" else CASES // 10 + 1)]
    # what the library does not evaluate itself is given by the caller, here the same for all
    derived = {
        leaf.name: draw.choice([True, False, None]) for leaf in compiled.derived if pa.types.is_boolean(leaf.type)
    }
    derived |= {leaf.name: None for leaf in compiled.derived if leaf.name not in derived}
    table = pa.Table.from_pylist(rows, SCHEMA)
    for leaf in compiled.derived:
        table = table.append_column(leaf.name, pa.array([derived[leaf.name]] * len(rows), leaf.type))
    expected = compiled.match(table).to_pylist()
    loaded = ri.loads(dumps(compiled))
    for index in (compiled, loaded):
        assert [index.match_one(row | derived) for row in rows] == expected
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda row: loaded.match_one(row | derived), rows)) == expected


def test_a_naive_datetime_is_local_to_the_time_zone_of_the_rules() -> None:
    rules = [("summer", "ts = TIMESTAMP'2024-07-01 12:00:00'")]
    compiled = ri.compile_rules(rules, SCHEMA, time_zone="Europe/Berlin")
    assert compiled.match_one({"ts": datetime(2024, 7, 1, 12)}) == ["summer"]
    assert compiled.match_one({"ts": datetime(2024, 7, 1, 10, tzinfo=UTC)}) == ["summer"]
    assert compiled.match_one({"TS": datetime(2024, 7, 1, 12, tzinfo=UTC)}) == []
    assert compiled.match_one({"ts": pa.scalar(datetime(2024, 7, 1, 12))}) == ["summer"]


@pytest.mark.parametrize(
    ("text", "row", "message"),
    [
        ("i > 3", {"f": 1.0}, "lacks the column i, int32"),
        ("i > 3", {"i": "4"}, "i is '4'"),
        ("i > 3", {"i": 2**31}, "i is 2147483648"),
        ("i > 3", {"i": 1.5}, "i is 1.5"),
        ("i > 3", {"i": True}, "i is True"),
        ("m > 3", {"m": Decimal("1.23456")}, "m is Decimal"),
        ("s = 'a'", {"s": b"a\xff"}, "s is b"),
        ("st.x = 1", {"st": 5}, "has no field x"),
        ("ntz > TIMESTAMP_NTZ'2024-01-01'", {"ntz": datetime(2024, 1, 1, tzinfo=UTC)}, "has a time zone"),
        ("ntz > TIMESTAMP_NTZ'2024-01-01'", {"ntz": pa.scalar(0, pa.timestamp("us", "UTC"))}, "has a time zone"),
        ("d > DATE'2024-01-01'", {"d": pa.scalar(2**62, pa.date64())}, "d is a date64.ms. that Python cannot hold"),
        ("i > 3", {"i": Decimal("4.5")}, "i is Decimal"),
        ("i > 3", {"i": Decimal("Infinity")}, "i is Decimal"),
        ("i > 3", {"i": np.True_}, "i is np.True_"),
        ("d > DATE'2024-01-01'", {"d": 20000.5}, "d is 20000.5"),
        ("d > DATE'2024-01-01'", {"d": datetime(2024, 1, 1, 12)}, "d is datetime.datetime.2024, 1, 1, 12, 0.*date32"),
        ("ts > TIMESTAMP'2024-01-01'", {"ts": 1.5}, "ts is 1.5"),
        ("map['a'] > 1", {"map": [None]}, "map is"),
        ("map['a'] > 1", {"map": [(None, 2)]}, "map is"),
        ("map['a'] > 1", {"map": {"a": 2.5}}, "map is"),
        ("l[0] > 1", {"l": "ab"}, "l is 'ab'"),
        ("l[0] > 1", {"l": b"ab"}, "l is b'ab'"),
        ("l[0] > 1", {"l": [True]}, "l is"),
        ("exists(legs, leg -> leg.x > 1)", {"legs": [{"x": Decimal("1.5")}]}, "legs is"),
        ("st.x = 1", {"st": {1: 2}}, "has no field x"),
        ("i > 3", {5: 4}, "lacks the column i, int32"),
        ("i > 3", [4], "a mapping of columns to values, not list"),
    ],
)
def test_what_a_row_lacks_is_told(text: str, row: dict[str, object], message: str) -> None:
    compiled = ri.compile_rules([(1, text)], SCHEMA)
    with pytest.raises(ri.SchemaError, match=message):
        compiled.match_one(row)


@pytest.mark.parametrize(
    ("text", "row"),
    [
        ("i > 3", {"i": Decimal("4.00")}),
        ("i > 3", {"i": np.int8(4)}),
        ("d IS NULL", {"d": pd.NaT}),
        ("ts IS NULL", {"ts": pd.NaT}),
        ("ts > TIMESTAMP'2024-01-01'", {"ts": pd.Timestamp("2024-01-02")}),
        ("ts > TIMESTAMP'9999-12-31'", {"ts": pa.scalar(1 << 62, pa.timestamp("us", "UTC"))}),
        ("d > DATE'9999-12-31'", {"d": pa.scalar(2**31 - 1, pa.date32())}),
        ("i > 3", {"i": pa.scalar(4, pa.int64())}),
        ("map['a'] = 2", {"map": {"a": 2}}),
        ("map['a'] = 2", {"map": [("a", 2), ("b", None)]}),
        ("l[1] = 2", {"l": np.array([1, 2])}),
        ("exists(legs, leg -> leg.x > 1)", {"legs": [None, {}, {"X": 2}]}),
    ],
)
def test_values_that_fit_are_taken(text: str, row: dict[str, object]) -> None:
    compiled = ri.compile_rules([(1, text)], SCHEMA)
    assert compiled.match_one(row) == [1]
    assert compiled.explain(row, 1).matched


def test_truth_codes_of_what_only_spark_evaluates() -> None:
    compiled = ri.compile_rules([(1, "find_in_set(s, s) > i"), (2, "NOT find_in_set(s, s) > i")], SCHEMA)
    (leaf,) = compiled.derived
    assert pa.types.is_boolean(leaf.type)
    assert [compiled.match_one({leaf.name: code}) for code in range(4)] == [[2], [1], [], []]
    assert compiled.match_one({leaf.name: True}) == [1] and compiled.match_one({leaf.name: None}) == []
    with pytest.raises(ri.SchemaError, match="is 4"):
        compiled.match_one({leaf.name: 4})


def test_no_rules_match_nothing() -> None:
    assert ri.compile_rules([(1, "i > 3")], SCHEMA).match_one({"i": 4}) == [1]
    assert ri.compile_rules([(2, "TRUE")], SCHEMA).match_one({}) == [2]
    assert ri.compile_rules([], SCHEMA).match_one({}) == []
