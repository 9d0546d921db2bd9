"""Which patterns of dates and times are read without Spark, and what they read."""

from __future__ import annotations

from datetime import date, datetime

import pyarrow as pa
import pytest

import rules_index as ri

SCHEMA = pa.schema([("s", pa.string())])


@pytest.mark.parametrize(
    "pattern",
    [
        "yy-MM-dd",  # two digits of a year
        "dMM",  # a number without a fixed width beside another
        "yyyyM",
        "HH:mm:ss.SSSdd",
        "HH:mm:ss.SSSyyyy",
        "ssSSS",
        "mm:ss",  # a clock without hours
        "yyyy-MM-dd yyyy",
        "dd MMM yyyy",
        "hh:mm a",
        "yyyy-MM-dd'T'HH:mm:ssXXX",
        "yyyy[-MM]",
        "yyyy''MM",
        "yyyy1MM",
        "ü yyyy",
        "",
    ],
)
def test_patterns_that_are_left_to_spark(pattern: str) -> None:
    escaped = pattern.replace("'", "\\'")
    compiled = ri.compile_rules([(1, f"to_timestamp(s, '{escaped}') > TIMESTAMP'2024-01-01 00:00:00'")], SCHEMA)
    assert compiled.derived or len(compiled.rejects)


@pytest.mark.parametrize(
    ("rule", "text", "matches"),
    [
        ("to_date(s, 'dd.MM.yyyy') = DATE'2024-02-29'", "29.02.2024", True),
        ("to_date(s, 'd.M.yyyy') = DATE'2024-02-09'", "9.2.2024", True),
        ("to_date(s, 'yyyyMMdd') = DATE'2024-02-29'", "20240229", True),
        ("try_to_date(s, 'yyyyMMdd') > DATE'0001-01-01'", "20230229", False),
        ("to_timestamp(s, 'M/d/yyyy H:mm') = TIMESTAMP'2024-12-01 09:05:00'", "12/1/2024 9:05", True),
        (
            "to_timestamp(s, 'yyyy-MM-dd HH:mm:ss.SSS') = TIMESTAMP'2024-12-01 09:05:01.5'",
            "2024-12-01 09:05:01.5",
            True,
        ),
        ("to_date(s, 'yyyy') = DATE'2024-01-01'", "2024", True),
        ("to_date(s, 'dd.MM.yyyy') < DATE'9999-12-31' OR TRUE", "x", True),
    ],
)
def test_texts_that_fit(rule: str, text: str, matches: bool) -> None:
    compiled = ri.compile_rules([(1, rule)], SCHEMA)
    assert not compiled.derived and not len(compiled.rejects)
    assert (compiled.match_one({"s": text}) == [1]) == matches


@pytest.mark.parametrize(
    ("text", "is_time"),
    [
        ("12:30", True),
        ("T12:30", True),
        ("T8", True),
        ("T08 ", True),
        ("08", False),
        ("T", False),
        ("T24", False),
        ("T8Z", False),
        (" 8:00\n", True),
        (" T8:00", False),
        (" T8", False),
    ],
)
def test_times_of_the_current_day(text: str, is_time: bool) -> None:
    compiled = ri.compile_rules([(1, "CAST(s AS TIMESTAMP) > TIMESTAMP'2000-01-01'")], SCHEMA)
    assert not compiled.derived
    assert (compiled.match_one({"s": text}) == [1]) == is_time


def test_casts_between_dates_and_times_follow_the_zone() -> None:
    schema = pa.schema([("d", pa.date32()), ("ts", pa.timestamp("us", "UTC")), ("ntz", pa.timestamp("us"))])
    rules = [(1, "ts >= d"), (2, "ntz = ts"), (3, "last_day(ts) = d"), (4, "date_trunc('MONTH', d) = ts")]
    row = {"d": date(2024, 3, 31), "ts": datetime(2024, 3, 30, 23), "ntz": datetime(2024, 3, 31)}
    found = {zone: ri.compile_rules(rules, schema, time_zone=zone) for zone in ("UTC", "Europe/Berlin")}
    assert not any(compiled.derived for compiled in found.values())
    batch = pa.Table.from_pylist([row], schema)
    assert {zone: compiled.match(batch).to_pylist() for zone, compiled in found.items()} == {
        "UTC": [[3]],
        "Europe/Berlin": [[1, 2, 3]],
    }
