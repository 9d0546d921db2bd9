"""Comparisons of cast dates and times with constants, where clocks change: Spark moves the cast to the constant."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

import rules_index as ri
from tests.cases import SOAK, soak_but
from tests.spark.tagged_rules import compared

CHANGES = {
    # clocks skip an hour, and repeat one
    "Europe/Berlin": [datetime(2024, 3, 31, 1), datetime(2024, 10, 27, 1)],
    # half an hour beside the hour; until 2011 a minute after midnight, so that a day begins twice
    "America/St_Johns": [datetime(2024, 3, 10, 5, 30), datetime(2009, 11, 1, 2, 31), datetime(2009, 3, 8, 3, 31)],
    # midnight is skipped, and repeated
    "America/Sao_Paulo": [datetime(2018, 11, 4, 3), datetime(2018, 2, 18, 2)],
    # a whole day is skipped
    "Pacific/Apia": [datetime(2011, 12, 30, 10)],
    "UTC": [datetime(2024, 3, 31, 1)],
}
"""Instants, in UTC, at which clocks of a zone change."""
OPERATORS = ("=", "<>", "<", "<=", ">", ">=", "<=>")
CASTS = [
    ("CAST(nt AS TIMESTAMP)", "TIMESTAMP"),
    ("nt", "TIMESTAMP"),
    ("to_timestamp(nt)", "TIMESTAMP"),
    ("CAST(ts AS TIMESTAMP_NTZ)", "TIMESTAMP_NTZ"),
    ("to_timestamp_ntz(ts)", "TIMESTAMP_NTZ"),
    ("CAST(ts AS DATE)", "DATE"),
    ("to_date(ts)", "DATE"),
    ("TRY_CAST(ts AS DATE)", "DATE"),
    ("CAST(dt AS TIMESTAMP)", "TIMESTAMP"),
    ("dt", "TIMESTAMP"),
    ("CAST(nt AS DATE)", "DATE"),
    ("CAST(CAST(nt AS TIMESTAMP) AS DATE)", "DATE"),
    ("CAST(CAST(ts AS DATE) AS TIMESTAMP)", "TIMESTAMP"),
    ("CAST(ts AS DATE)", "TIMESTAMP"),
    ("coalesce(CAST(ts AS DATE), dt)", "DATE"),
]
FORMS = [
    "{a} IN ({c})",
    "{a} IN ({c}, {c})",
    "{a} IN ({c}, {d})",
    "{a} NOT IN ({c}, NULL)",
    "{a} BETWEEN {c} AND {d}",
    "CASE {a} WHEN {c} THEN b ELSE NOT b END",
    "CASE WHEN {a} < {c} THEN b WHEN {a} IN ({d}) THEN NOT b END",
    "nullif({a}, {c}) IS NULL",
    "if({a} BETWEEN {c} AND {d}, b, NULL) <=> FALSE",
    "{a} IS DISTINCT FROM {c}",
    "NOT ({c} < {a})",
    "{a} >= ifnull({c}, {d})",
    "if(b, {c}, {c}) <=> {a}",
    "{a} IN (coalesce(NULL, {c}))",
]


def around(zone: str) -> list[datetime]:
    """Instants about the changes of a zone."""
    steps = (-1500, -1440, -90, -61, -60, -59, -31, -30, -29, -1, 0, 1, 29, 30, 31, 59, 60, 61, 90, 1440, 1500)
    return [change + timedelta(minutes=step) for change in CHANGES[zone] for step in steps]


def rows(zone: str) -> pa.Table:
    """Local times, instants and dates about the changes, those that clocks skip included, and NULL."""
    instants = around(zone)
    shown = [each.replace(tzinfo=UTC).astimezone(ZoneInfo(zone)).replace(tzinfo=None) for each in instants]
    local = [each + timedelta(hours=hours) for hours in (0, 1) for each in shown]
    days = sorted({each.date() + timedelta(days=step) for each in local for step in (-1, 0, 1)})
    height = max(len(local), len(days)) + 1

    def column(values: list, kind: pa.DataType) -> pa.Array:
        repeated = values * (height // len(values) + 1)
        return pa.array([*repeated[: height - 1], None], kind)

    return pa.table(
        {
            "pk": pa.array(range(height), pa.int64()),
            "nt": column(local, pa.timestamp("us")),
            "ts": column([each.replace(tzinfo=UTC) for each in instants], pa.timestamp("us", "UTC")),
            "dt": column(days, pa.date32()),
            "b": column([True, False, None], pa.bool_()),
        }
    )


def constants(zone: str, kind: str) -> list[str]:
    """Constants of a type about the changes."""
    instants = [each.replace(tzinfo=UTC) for each in around(zone)]
    local = [each.astimezone(ZoneInfo(zone)) for each in instants]
    if kind == "DATE":
        return [f"DATE'{day}'" for day in sorted({each.date() for each in local} | {date(1969, 7, 20)})]
    texts = [f"{kind}'{each.replace(tzinfo=None)}'" for each in local]
    texts += [f"{kind}'{each.replace(tzinfo=None) + timedelta(hours=1)}'" for each in local[::3]]
    if kind == "TIMESTAMP":
        texts += [f"TIMESTAMP'{each.replace(tzinfo=None)}Z'" for each in instants]
    return [*dict.fromkeys(texts), f"{kind}'1969-07-20 20:17:40'"]


def texts(zone: str) -> list[str]:
    """Each cast with each constant, in an operator and in another form; a quarter of them unless there is time."""
    found = []
    for number, (cast, kind) in enumerate(CASTS):
        known = constants(zone, kind)
        for place in range(number % 4, len(known), 1 if SOAK else 4):
            constant, other = known[place], known[(place + 3) % len(known)]
            found.append(f"{cast} {OPERATORS[(place + number) % len(OPERATORS)]} {constant}")
            found.append(FORMS[(place + number) % len(FORMS)].format(a=cast, c=constant, d=other))
    return found


@pytest.mark.parametrize("zone", soak_but(("America/St_Johns",), CHANGES))
def test_rows_are_those_that_spark_keeps(spark, tmp_path, zone: str) -> None:
    tally = compared(spark, tmp_path, rows(zone), texts(zone), zone)
    assert not tally.differences, "\n".join(map(str, tally.differences[:5])) + f"\n{tally}"
    assert tally.compared > 150 and tally.matches > 1_000


def test_spark_evaluates_casts_beside_what_it_may_know_as_a_constant() -> None:
    zone, constant, other = "Europe/Berlin", "TIMESTAMP'2024-03-31 03:30:00'", "TIMESTAMP'2020-01-01'"
    begun = f"coalesce(NULL, {constant}, ts)"
    known = [begun, f"if(b, {constant}, {begun})", f"nullif({constant}, {other})"]
    unknown = [f"coalesce(ts, {constant})", f"greatest(ts, {constant})", f"if(b, ts, {constant})"]
    unknown += [f"if(b, {constant}, {other})", f"nullif({constant}, ts)"]
    forms = ("nt = {}", "CAST(nt AS TIMESTAMP) = {}", "CAST(nt AS TIMESTAMP) IN ({})")
    computed = f"greatest({constant}, {other})"
    left = {
        value: [
            bool(ri.compile_rules([(1, form.format(value))], rows(zone).schema, time_zone=zone).derived)
            for form in forms
        ]
        for value in (*known, *unknown, constant, computed)
    }
    assert left.pop(computed) == left.pop(constant)
    assert left == {value: [value in known] * len(forms) for value in left}


def test_casts_of_columns_need_no_spark() -> None:
    zone = "Europe/Berlin"
    plain = [
        f"{cast} {operator} {constant}"
        for cast, kind in CASTS[:10]
        for operator in OPERATORS[:-1]
        for constant in constants(zone, kind)[1:2]
    ]
    assert ri.compile_rules(list(enumerate(plain)), rows(zone).schema, time_zone=zone).derived == ()
