"""Comparisons with texts that spell no value of the other side's type: they raise wherever they are evaluated."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

import rules_index as ri
from tests.cases import SOAK
from tests.spark.tagged_rules import compared

COLUMNS = ("t", "n", "k", "amount", "x", "f", "day", "ts", "nt", "flag")
MISTAKES = ["high", "01.10.2026", "10/01/2026", "2026-13-01", "1,000", "12 EUR", "", " ", "n/a", "Jan 2026", "-"]
TEXTS = [
    *MISTAKES,
    *("1", " 7 ", "+3", "-0", "00", "1.5", ".5", "5.", "1e3", "1e", "e3", "0x1p3", "0x1", "1d", "1.5F", "1L", "--1"),
    *("NaN", "nan", "+NaN", "inf", "-Infinity", "infinit", "1e400", "1e-400", "1e99", "127", "128", "32768", "-32769"),
    *("2147483648", "9223372036854775808", "-9223372036854775808", "123456789012.5", "12345678901", "1" * 50),
    *("2026", "2026-1", "2026-1-1", "2026-10-01 25:00:00", "2026-10-01T", "2026-10-01 x", "20261001", "+2026-10-01"),
    *("2026-10-01 10:00", "2026-10-01 10:00:00Z", "2026-10-01 10:00:00 Mars/Base", "2026-10-01 10:00Z", "202610-01"),
    *("2026-10-01 10:00:60", "2026-02-29", "12345678-01-01", "99999999", "T10", "10", "1:2", "today", "epoch", "then"),
    *("y", "Yes", "tru", "TRUE ", "f", "0", "no!", "oui", "\u0661\u0662", "\x7f1", "1\x7f", "\u00a01", "\x00", "\n2\t"),
]  # fmt: skip
FORMS = [
    "{c} = '{t}'",
    "'{t}' < {c}",
    "{c} <> '{t}'",
    "{c} >= '{t}' OR n > 3",
    "{c} IN ('{t}', {d})",
    "{c} NOT IN ({d}, '{t}')",
    "{c} BETWEEN {d} AND '{t}'",
    "{c} <=> '{t}'",
    "NOT ('{t}' >= {c}) AND k IS NOT NULL",
    "CASE {c} WHEN {d} THEN TRUE WHEN '{t}' THEN FALSE END",
    "if({c} IS NULL, n = 1, {c} = '{t}')",
    "nullif({c}, '{t}') IS NULL",
    "{c} IS DISTINCT FROM '{t}'",
    "coalesce({c} < '{t}', TRUE)",
]
KNOWN = {
    **dict.fromkeys(("t", "n", "k"), "7"),
    **dict.fromkeys(("amount", "x", "f"), "1.5"),
    "day": "DATE'2026-10-01'",
    "ts": "TIMESTAMP'2026-10-01 10:00:00'",
    "nt": "TIMESTAMP_NTZ'2026-10-01 10:00:00'",
    "flag": "TRUE",
}


def rows() -> pa.Table:
    moment = datetime(2026, 10, 1, 10)
    return pa.table(
        {
            "pk": pa.array(range(4), pa.int64()),
            "t": pa.array([1, 7, None, -3], pa.int8()),
            "n": pa.array([1, 7, None, 2026], pa.int32()),
            "k": pa.array([None, 7, 1000, 5], pa.int64()),
            "amount": pa.array([Decimal("1.50"), Decimal("-3.00"), None, Decimal("1000.00")], pa.decimal128(12, 2)),
            "x": pa.array([1.5, float("nan"), None, float("inf")]),
            "f": pa.array([None, 1.5, 0.0, 7.0], pa.float32()),
            "day": pa.array([date(2026, 10, 1), None, date(2026, 1, 1), date(1970, 1, 1)]),
            "ts": pa.array([moment.replace(tzinfo=UTC), None, datetime(2026, 1, 1, tzinfo=UTC), None],
                           pa.timestamp("us", "UTC")),
            "nt": pa.array([moment, None, datetime(2026, 1, 1), None], pa.timestamp("us")),
            "flag": pa.array([True, False, None, None]),
        }
    )  # fmt: skip


def rules() -> list[str]:
    """Each column with each text, in an equality or another form; in both if there is time, else half of the texts."""
    found = []
    for number, column in enumerate(COLUMNS):
        for place, text in enumerate(TEXTS):
            forms = [FORMS[0], FORMS[(place + 5 * number) % len(FORMS)]]
            if not SOAK and (place + number) % 2 and text not in MISTAKES:
                continue
            if (column, text) == ("ts", "1:2"):  # a time of the current day, which is refused
                continue
            chosen = forms if SOAK else forms[(place // 2 + number) % 2 :][:1]
            found += [form.format(c=column, t=text, d=KNOWN[column]) for form in chosen]
    return [*dict.fromkeys(found)]


@pytest.mark.parametrize("zone", ["Europe/Berlin", pytest.param("UTC", marks=pytest.mark.soak)])
def test_rows_and_errors_are_those_of_spark(spark, tmp_path, zone: str) -> None:
    tally = compared(spark, tmp_path, rows(), rules(), zone)
    assert not tally.differences, "\n".join(map(str, tally.differences[:9])) + f"\n{tally}"
    assert tally.compared > (600 if SOAK else 300) and tally.raised_rows > (600 if SOAK else 300)


def test_spark_decides_by_calls_of_constants_without_what_raises(spark, tmp_path) -> None:
    texts = [
        "coalesce(t + 125Y, 0Y) < ifnull(300, 5)",
        "coalesce(n + 2147483000, 0) < greatest(5, NULL) * 1000000000L",
        "if(coalesce(t + 125Y, 0Y) >= if(flag, 300, 300), 1, 2) = 2",
        "coalesce(n / (n - 7) > 1 OR coalesce(TRUE, flag), FALSE)",
        "(1 / (n - 7) > 0 AND NOT if(flag, TRUE, TRUE)) IS FALSE",
        "(CASE WHEN flag THEN TRUE ELSE TRUE END OR n / (n - 7) > 1) IS TRUE",
        "if(n / (n - 7) > 1 AND n NOT IN (1, NULL), 1, 2) = 2",
        "CASE WHEN NOT (n / (n - 7) > 1 OR n IN (1, NULL)) THEN 1 ELSE 2 END = 2",
        "if(n / (n - 7) > 1 AND n <> NULL, 1, 2) = 2",
        "if(n / (n - 7) NOT IN (1, NULL), 1, 2) = 2",
        "coalesce(n / (n - 7) > NULL, TRUE)",
        "if(n / (n - 7) > 1, 1, 2) <> 3",
        "NOT (CASE WHEN n / (n - 7) > 1 THEN 'a' WHEN flag THEN 'b' ELSE 'c' END = 'z')",
    ]
    tally = compared(spark, tmp_path, rows(), texts, "UTC")
    assert not tally.differences, "\n".join(map(str, tally.differences))
    assert (tally.compared, tally.raised_rows, tally.matches) == (len(texts), 0, 4 * len(texts))


def test_mistakes_need_no_spark() -> None:
    texts = [f"{column} {operator} '{text}'" for column in COLUMNS for operator in ("=", "<", "<=>")
             for text in MISTAKES]  # fmt: skip
    texts += [f"{column} IN ({KNOWN[column]}, 'high')" for column in COLUMNS]
    texts += ["n + 1 > 'high'", "n + 1 IN (3, 'high')", "coalesce(amount * 2 > 'high' OR flag, FALSE)"]
    compiled = ri.compile_rules(list(enumerate(texts)), rows().schema, time_zone="Europe/Berlin")
    assert compiled.derived == () and len(compiled.rejects) == 0
