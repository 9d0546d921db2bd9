"""Calls and operations on constants are computed while a rule is compiled."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest

import rules_index as ri

SCHEMA = pa.schema(
    {
        "i": pa.int32(),
        "x": pa.float64(),
        "s": pa.string(),
        "d": pa.date32(),
        "t": pa.timestamp("us", "UTC"),
        "part": pa.struct({"ab": pa.int32()}),
    }
)


def compiled(text: str) -> ri.CompiledRules:
    return ri.compile_rules([("r", text)], SCHEMA)


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("t >= to_timestamp('2026-01-01')", "t >= TIMESTAMP'2026-01-01 00:00:00'"),
        ("d > to_date('31.01.2026', 'dd.MM.yyyy')", "d > DATE'2026-01-31'"),
        ("d > DATE'2026-01-31' - 30", "d > DATE'2026-01-01'"),
        ("t < TIMESTAMP'2026-01-01 00:00:00' + INTERVAL 5 HOURS", "t < TIMESTAMP'2026-01-01 05:00:00'"),
        ("d IN (date_add('2026-01-01', 1), last_day(DATE'2026-02-01'))", "d IN (DATE'2026-01-02', DATE'2026-02-28')"),
        ("x > 10 / 4", "x > 2.5D"),
        ("x > 0.5D + 0.25D * sqrt(4)", "x > 1.0D"),
        ("i = 7 DIV 2 + abs(-3)", "i = 6"),
        ("s = lower(concat('A', 'b'))", "s = 'ab'"),
        ("s LIKE concat('%', upper('a'))", "s LIKE '%A'"),
        ("s = concat_ws('-', 'a', 1)", "s = 'a-1'"),
        ("i = greatest(1, least(7, 6))", "i = 6"),
        ("i > try_divide(1, 0)", "i > CAST(NULL AS INT)"),
        ("i > TRY_CAST('x' AS INT)", "i > CAST(NULL AS INT)"),
    ],
)
def test_a_computed_constant_is_like_a_written_one(text: str, plain: str) -> None:
    one, other = compiled(text), compiled(plain)
    assert not one.rejects.num_rows and not one.derived
    assert one.attributes == other.attributes
    times = [datetime(2025, 12, 31, tzinfo=UTC), datetime(2026, 1, 1, 5, tzinfo=UTC)]
    days = [date(2026, 1, 1), date(2026, 1, 2), date(2026, 2, 1), date(2026, 2, 28)]
    rows: list[dict[str, Any]] = [{"t": each} for each in times] + [{"d": each} for each in days]
    rows += [{"x": each} for each in (1.0, 2.5, 3.0)] + [{"i": each} for each in (5, 6, 7)]
    rows += [{"s": each} for each in ("ab", "bA", "b")]
    table = pa.Table.from_pylist(rows, SCHEMA)
    assert one.match(table).to_pylist() == other.match(table).to_pylist()


@pytest.mark.parametrize("text", ["x > 1 / 0", "d > to_date('31.12.2026')", "i = CAST('x' AS INT)", "i > mod(5, 0)"])
def test_constants_that_raise_are_errors_of_the_rows(text: str) -> None:
    found = compiled(text)
    assert not found.rejects.num_rows and not found.derived
    table = pa.Table.from_pylist([{"x": 1.0, "d": date(2026, 1, 1), "i": 1}], SCHEMA)
    assert found.match(table).to_pylist() == [[]]
    assert found.errors == {"r": 1}


@pytest.mark.parametrize(
    "text", ["t > to_timestamp('10:00')", "t < try_to_timestamp('T23:59')", "t > timestamp('1:00')"]
)
def test_a_time_of_the_current_day_is_refused(text: str) -> None:
    assert compiled(text).rejects["error"].to_pylist() == ["NOT_REPEATABLE"]


@pytest.mark.parametrize(
    "text",
    [
        "d > to_date('today')",
        "d > date_add('tomorrow', 1)",
        "t > date_trunc('DAY', 'now')",
        f"i > levenshtein('{'ab' * 400}', '{'ba' * 400}')",
        "part[concat('a', 'b')] = 1",
    ],
)
def test_spark_computes_what_depends_on_the_day_or_is_long(text: str) -> None:
    assert compiled(text).derived


@pytest.mark.parametrize("zone", ["UTC", "America/St_Johns"])
def test_constants_at_the_edges_of_their_types_are_no_defect(zone: str) -> None:
    """Their values may have no Python object, and the functions of Arrow and Polars may refuse them."""
    last, first = "timestamp_micros(9223372036854775807)", "timestamp_micros(-9223372036854775808)"
    texts = [
        *(f"t > {moment} {sign} INTERVAL 1 DAY" for moment in (last, first) for sign in "+-"),
        *(f"t > date_trunc('{unit}', {moment})" for moment in (last, first) for unit in ("YEAR", "DAY")),
        *(f"d > CAST({moment} AS DATE)" for moment in (last, first)),
        *(f"s > CAST({moment} AS STRING)" for moment in (last, first)),
        *(f"t > from_utc_timestamp({moment}, 'America/New_York')" for moment in (last, first)),
        *(f"d > {call}(DATE'9999-12-31', 2147483647)" for call in ("date_add", "date_sub", "add_months")),
        *(
            "d > make_date(2147483647, 1, 1)",
            "d > to_date('+9999999-01-01')",
            "i = year(date_add('9999-12-31', 2000000000))",
        ),
        *("s = substring('abc', -2147483648, 2147483647)", "s = right('a', -2147483648)", "x > round(1e308D, 12)"),
        *("x > ceil(1e300D)", "i = shiftleft(1, 2147483647)", "x > abs(-9223372036854775808L)", "x > power(1e200D, 2)"),
    ]
    rejects = ri.compile_rules(list(enumerate(texts)), SCHEMA, time_zone=zone).rejects
    assert "INTERNAL" not in rejects["error"].to_pylist()
