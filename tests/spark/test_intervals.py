"""Differences of dates and times that are compared with intervals, where clocks change."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pyarrow as pa
import pytest

import rules_index as ri
from tests.spark.tagged_rules import compared

CHANGE = datetime(2024, 3, 31, 1)
"""Clocks of Berlin skip an hour then."""
LENGTHS = ("1 HOUR", "0 SECONDS", "'-5' MINUTES", "1 DAY", "'2' HOURS", "-1 DAY", "25 HOURS 1 SECOND", "1 WEEK")
FORMS = [
    "{a} = INTERVAL {l}",
    "INTERVAL {l} <= {a}",
    "{a} <> INTERVAL {l}",
    "{a} BETWEEN INTERVAL {l} AND INTERVAL 90 MINUTES",
    "{a} IN (INTERVAL {l}, INTERVAL 2 HOURS, NULL)",
    "{a} NOT IN (INTERVAL {l})",
    "{a} <=> INTERVAL {l}",
    "{a} IS DISTINCT FROM INTERVAL {l}",
    "abs({a}) < INTERVAL {l}",
    "abs({a}) > abs(INTERVAL {l})",
    "CASE {a} WHEN INTERVAL {l} THEN TRUE ELSE d = e END",
    "CASE WHEN {a} > INTERVAL {l} THEN TRUE WHEN ts IS NULL THEN FALSE END",
    "nullif({a}, INTERVAL {l}) IS NULL",
    "coalesce({a}, INTERVAL {l}) > INTERVAL 1 HOUR",
    "{a} < later - TIMESTAMP'2024-03-31 00:00:00'",
    "{a} + INTERVAL {l} > INTERVAL 1 HOUR",
    "greatest({a}, INTERVAL {l}) = {a}",
    "{a} > INTERVAL '1 02:00:00' DAY TO SECOND",
    "({a}) IS NULL",
    "{a} <=> NULL",
    "{a} < NULL OR d = e",
    "NULL IN ({a}, INTERVAL {l})",
]
DIFFERENCES = (
    "later - ts",
    "(ts - later)",
    "d - e",
    "n - m",
    "ts - d",
    "n - later",
    "ts - TIMESTAMP'2024-03-31 04:00:00'",
)


def rows() -> pa.Table:
    instants = [CHANGE + timedelta(minutes=minutes) for minutes in (-1500, -120, -61, -60, -5, 0, 1, 59, 60, 125, 1600)]
    pairs = [(one, other) for one in instants for other in instants]
    local = [(one, other + timedelta(hours=2)) for one, other in pairs]
    days = [date(2024, 3, 31) + timedelta(days=place % 5) for place in range(len(pairs) - 1)]

    def column(values: list, kind: pa.DataType) -> pa.Array:
        return pa.array([*values[: len(pairs) - 1], None], kind)

    return pa.table(
        {
            "pk": pa.array(range(len(pairs)), pa.int64()),
            "ts": column([one.replace(tzinfo=UTC) for one, _ in pairs], pa.timestamp("us", "UTC")),
            "later": column([other.replace(tzinfo=UTC) for _, other in pairs], pa.timestamp("us", "UTC")),
            "n": column([one for one, _ in local], pa.timestamp("us")),
            "m": column([other for _, other in local], pa.timestamp("us")),
            "d": column(days, pa.date32()),
            "e": column(days[::-1], pa.date32()),
        }
    )


@pytest.mark.parametrize("zone", ["Europe/Berlin", pytest.param("UTC", marks=pytest.mark.soak)])
def test_rows_are_those_that_spark_keeps(spark, tmp_path, zone: str) -> None:
    texts = [
        form.format(a=difference, l=LENGTHS[(place + number) % len(LENGTHS)])
        for number, difference in enumerate(DIFFERENCES)
        for place, form in enumerate(FORMS)
    ]
    tally = compared(spark, tmp_path, rows(), texts, zone)
    assert not tally.differences, "\n".join(map(str, tally.differences[:5])) + f"\n{tally}"
    assert tally.compared > 100 and tally.matches > 2_000


def test_they_need_no_spark() -> None:
    texts = [form.format(a=a, l="1 HOUR") for a in DIFFERENCES[:4] for form in FORMS[:9]]
    compiled = ri.compile_rules(list(enumerate(texts)), rows().schema, time_zone="Europe/Berlin")
    assert compiled.derived == () and not len(compiled.rejects)
