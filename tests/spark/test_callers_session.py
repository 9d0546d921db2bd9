"""A caller's session may have any settings: rules mean what they mean under deltatag's own, through tag and join."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from pipelines.compile import compile_scopes
from pipelines.errors import SessionError
from pipelines.join import join_streams
from pipelines.settings.configuration import parse_configuration
from pipelines.settings.semantic_settings import SEMANTIC_SETTINGS, TIME_ZONE
from pipelines.spark.session import open_session
from pipelines.tag import tag_stream
from pipelines.workspace import Workspace
from tests.java import INTERPRETED
from tests.lakes import make_tables, write_rules
from tests.random_expressions import Grammar
from tests.random_rows import rows
from tests.spark.callers_session import callers_session, other_settings
from tests.spark.tagged_rules import Lake, reference_session
from tests.spark_oracle import Oracle, Tally

SEED = int(os.environ.get("DELTATAG_TAGGED_SEED", "1"))
COUNT = int(os.environ.get("DELTATAG_TAGGED_RULES", "24"))
"""Random rules in each zone; many are interpreted, since Spark would take its time to compile code for each."""
ZONES = ("UTC", "Europe/Berlin", "America/St_Johns")


def zones(now: str) -> list[Any]:
    """One zone, and in `make soak` all."""
    return [zone if zone == now else pytest.param(zone, marks=pytest.mark.soak) for zone in ZONES]


IN_ONE_SET = 400
"""Rules in one rule set."""

pytestmark = pytest.mark.timeout(600 + COUNT)

MOMENTS = (
    *("1970-01-01 00:00:00", "2024-02-29 00:00:00", "2024-02-29 12:30:00", "2024-12-31 23:59:59.999999"),
    # what a clock in Berlin or St. John's skips, and what it shows twice
    *("2024-03-31 02:30:00", "2024-03-10 02:30:00", "2024-10-27 02:30:00", "2024-11-03 01:30:00"),
    *("0001-01-01 00:00:00", "9999-12-31 23:59:59.999999", "1890-01-01 00:00:00", "1582-10-10 12:00:00"),
)
CLOCK = [
    text.format(m=moment)
    for moment in MOMENTS
    for text in (
        "ts < TIMESTAMP'{m}'",
        "greatest(ts, TIMESTAMP'{m}') = ts",
        "least(nt, TIMESTAMP_NTZ'{m}') = nt",
        "coalesce(ts, TIMESTAMP'{m}') = TIMESTAMP_LTZ'{m}'",
        "dt < TIMESTAMP'{m}'",
        "dt >= '{m}'",
        "nt < TIMESTAMP'{m}'",
        "ts = CAST('{m}' AS TIMESTAMP)",
        "ts >= CAST(TIMESTAMP_NTZ'{m}' AS TIMESTAMP)",
        "CAST(ts AS STRING) < '{m}'",
        "date_trunc('DAY', TIMESTAMP'{m}') <= ts",
        "to_utc_timestamp(TIMESTAMP'{m}', 'Asia/Kolkata') > ts",
        "ts + INTERVAL '1' DAY > TIMESTAMP'{m}'",
        "hour(greatest(ts, TIMESTAMP'{m}')) = 2",
        "date_format(TIMESTAMP'{m}', 'yyyy-MM-dd HH:mm') < CAST(ts AS STRING)",
        "unix_timestamp(TIMESTAMP'{m}') < l",
    )
]
TEXTS = [*CLOCK, *(Path(__file__).parent / "session_texts.txt").read_text().splitlines()[1:]]


@pytest.fixture(scope="module")
def table() -> pa.Table:
    return rows(120, 2026)


@pytest.fixture(scope="module")
def frame(spark: SparkSession, table: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> Any:
    import pyarrow.parquet as pq

    path = tmp_path_factory.mktemp("rows") / "rows.parquet"
    pq.write_table(table, path)
    return table, str(path)


@pytest.fixture
def oracle(request: pytest.FixtureRequest, spark: SparkSession, frame: Any) -> Iterator[tuple[str, Oracle, pa.Table]]:
    """A zone, what Spark says there, interpreting the rules, and the rows."""
    table, path = frame
    reference = reference_session(spark, request.param)
    for name, value in INTERPRETED.items():
        reference.conf.set(name, value)
    yield request.param, Oracle(reference, reference.read.parquet(path)), table


def assert_same(tally: Tally) -> None:
    print(tally)
    assert "\n".join(map(str, tally.differences[:20])) == ""


@pytest.mark.parametrize("oracle", zones("America/St_Johns"), indirect=True)
def test_every_kind_of_text_through_tag(oracle: Any, spark: SparkSession, tmp_path: Path) -> None:
    zone, spark_says, table = oracle
    tally = Tally()
    with callers_session(spark) as caller:
        Lake(tmp_path, caller, spark_says, table, zone, **INTERPRETED).compare(TEXTS, tally)
    assert_same(tally)
    assert tally.compared > 0.9 * len(TEXTS)


@pytest.mark.parametrize("oracle", zones("Europe/Berlin"), indirect=True)
def test_random_rules_through_tag(oracle: Any, spark: SparkSession, tmp_path: Path) -> None:
    """DELTATAG_TAGGED_RULES=1000 DELTATAG_TAGGED_SEED=7 compares a thousand rules of that seed in each zone."""
    zone, spark_says, table = oracle
    grammar, tally = Grammar(1_000_003 * SEED + ZONES.index(zone)), Tally()
    with callers_session(spark) as caller:
        lake = Lake(tmp_path, caller, spark_says, table, zone, **(INTERPRETED if COUNT > IN_ONE_SET else {}))
        for start in range(0, COUNT, IN_ONE_SET):
            lake.compare([grammar.rule() for _ in range(min(IN_ONE_SET, COUNT - start))], tally)
    assert_same(tally)


JOINED = [
    ("local", "greatest(a.ts, TIMESTAMP'2024-02-29 00:00:00') = a.ts"),
    ("across", "greatest(a.ts, b.ts, TIMESTAMP'2024-02-29 00:00:00') = TIMESTAMP'2024-02-29 00:00:00'"),
    ("quoted", 'concat(a.s, b.s) = "xx"'),
    ("number", "a.k * 1e0 / 3 < b.k + 1.5 AND hour(greatest(b.ts, TIMESTAMP'2024-06-01 00:00:00')) = 0"),
]


@pytest.mark.parametrize("zone", zones("America/St_Johns"))
def test_joins_and_checks(spark: SparkSession, tmp_path: Path, zone: str) -> None:
    """Texts that belong to one stream, texts across streams, and a stream's checks."""
    moments = [f"2024-02-{day} {hour:02}:30:00+00:00" for day in (28, 29) for hour in range(24)]
    times = pa.array([i * 1_000_000 for i in range(len(moments))], pa.timestamp("us", "UTC"))
    values = pa.array(moments).cast(pa.timestamp("us", "UTC"))
    table = pa.table({"k": pa.array(range(len(moments))), "t": times, "ts": values, "s": ["x", "y"] * 24})
    check = "greatest(ts, TIMESTAMP'2024-02-28 06:00:00') = ts"
    stream = {"event_time": "t", "checks": {"late": check}}
    for name in ("a", "b"):
        write_deltalake(str(tmp_path / name), table)
    document = {
        "lake": {"root": str(tmp_path / "lake")},
        "rules": {"time_zone": zone},
        "streams": {name: {"source": str(tmp_path / name), **stream} for name in ("a", "b")},
        "joins": {"j": {"streams": ["a", "b"], "on": ["k"], "window": "1 s"}},
    }
    with callers_session(spark) as caller:
        workspace = Workspace(parse_configuration(document, tmp_path / "deltatag.toml"), caller)
        make_tables(workspace)
        write_rules(workspace, [(rule, "j", text) for rule, text in JOINED])
        assert [(each.error, each.rejects) for each in compile_scopes(workspace)] == [(None, 0)] * 3
        join_streams(workspace, "j")
        tag_stream(workspace, "a", restart=True)
    found = {
        (row["a"]["k"], rule)
        for row in DeltaTable(str(tmp_path / "lake" / "j_tagged")).to_pyarrow_table().to_pylist()
        for rule in row["rule_ids"]
    }
    reference = reference_session(spark, zone)
    for name in ("a", "b"):
        reference.read.format("delta").load(str(tmp_path / name)).createOrReplaceTempView(name)
    wanted = set()
    for rule, text in JOINED:
        query = f"SELECT a.k FROM a JOIN b USING (k) WHERE {text}"
        wanted |= {(row[0], rule) for row in reference.sql(query).collect()}
    assert found == wanted
    assert len(wanted) > 40
    # a stream's checks are for its own tables, not for the join's
    kept = {row[0] for row in reference.sql(f"SELECT k FROM a WHERE {check}").collect()}
    assert set(DeltaTable(str(tmp_path / "lake" / "a_tagged")).to_pyarrow_table()["k"].to_pylist()) == kept
    assert 0 < len(kept) < table.num_rows


def test_settings_that_spark_was_started_with_do_not_change_what_rules_mean(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Sessions begin with what Spark was started with, which a newSession() has as well."""
    shared: Any = spark._jsparkSession.sharedState().conf()
    configuration = parse_configuration({"lake": {"root": "lake"}}, tmp_path / "deltatag.toml")
    others = other_settings(spark)
    before = {name: shared.get(name, None) for name in others}
    try:
        for name, value in others.items():
            shared.set(name, value)
        raw = spark.newSession()
        assert raw.conf.get("spark.sql.ansi.enabled") == "false"
        own = open_session(configuration, spark)
        assert [name for name, value in others.items() if own.conf.get(name, None) == value] == []
    finally:
        for name, value in before.items():
            shared.remove(name) if value is None else shared.set(name, value)


def test_a_setting_that_was_changed_later_stops_the_work(spark: SparkSession, tmp_path: Path) -> None:
    document = {"lake": {"root": "lake"}, "streams": {"s": {"source": "source"}}}
    workspace = Workspace(parse_configuration(document, tmp_path / "deltatag.toml"), spark)
    for name, value in other_settings(spark).items():
        before = workspace.spark.conf.get(name, None)
        with workspace.active_session():
            workspace.spark.conf.set(name, value)
        with pytest.raises(SessionError, match=name.replace(".", r"\.")), workspace.active_session():
            pass
        if before is None or name not in (*SEMANTIC_SETTINGS, TIME_ZONE):
            workspace.spark.conf.unset(name)
        else:
            workspace.spark.conf.set(name, before)
