"""Files and rows that no rule can match are not read, and nothing that a rule matches is lost by it."""

from __future__ import annotations

import itertools
import shutil
from functools import reduce
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import DataFrame

import rules_index as ri
from pipelines.compile import compile_scopes
from pipelines.errors import SourceChangedError
from pipelines.lake.column_types import arrow_schema_of
from pipelines.sources.pushdown import Matchable
from pipelines.sources.slices import slice_schema
from pipelines.sources.source import open_source
from pipelines.tag import tag_stream
from pipelines.writing import spark_output
from tests.tables import columns_of

VALUES = """
    SELECT id, CAST(id % 7 AS INT) AS number, IF(id % 3 = 0, NULL, id / 4.0D) AS share,
        CASE id % 5 WHEN 0 THEN double('NaN') WHEN 1 THEN double('-Infinity') WHEN 2 THEN -0.0D ELSE id END AS odd,
        CAST(id / 7 AS DECIMAL(12, 3)) AS amount, IF(id % 4 = 0, NULL, concat('it''s ', id, ' \\\\ é')) AS text,
        timestamp'2024-03-10 01:30:00' + make_interval(0, 0, 0, 0, id) AS t,
        timestamp_ntz'2024-03-10 01:30:00' + make_interval(0, 0, 0, 0, id) AS wall,
        date'2024-02-27' + CAST(id AS INT) AS day, id % 2 = 0 AS even, CAST(concat('b', id) AS BINARY) AS raw,
        named_struct('city', IF(id % 3 = 0, 'bonn', NULL), 'a b', id) AS place
    FROM range(60)
"""
PREDICATES = (
    "number IN (1, 3)", "number <> 4", "NOT (share > 5)", "share IS NULL", "odd > 10", "odd = double('NaN')",
    "odd = 0", "odd <=> NULL", "amount BETWEEN 1.5 AND 3", "text LIKE 'it''s 1%'", "text = 'it''s 5 \\\\ é'",
    "text < 'it''s 3'", "t > timestamp'2024-03-10 20:00:00'", "wall < timestamp_ntz'2024-03-11 02:30:00'",
    "day >= date'2024-03-01'", "even", "NOT even", "raw = CAST('b7' AS BINARY)", "place.city = 'bonn'",
    "place.`a b` < 9", "number = 3 AND (share > 2 OR text IS NULL)", "hour(t) = 5 AND number = 2", "number < amount",
)  # fmt: skip


def test_what_is_left_out_satisfies_no_rule(spark) -> None:
    session = spark.newSession()
    for name, value in {"spark.sql.session.timeZone": "America/New_York", "spark.sql.ansi.enabled": "true"}.items():
        session.conf.set(name, value)
    rows = session.sql(VALUES).cache()
    schema = arrow_schema_of(rows.schema.jsonValue()["fields"])
    said: list[tuple[str, str]] = []
    for one, other in itertools.pairwise((*PREDICATES, PREDICATES[0])):
        for text in (one, f"({one}) AND ({other})", f"NOT ({one}) OR ({other})"):
            compiled = ri.compile_rules([("rule", text)], schema, time_zone="America/New_York")
            assert not compiled.rejects.num_rows
            condition = Matchable(session, None, compiled).condition
            if condition is not None:
                said.append((text, condition))
    for start in range(0, len(said), 24):
        part = said[start : start + 24]
        lost = [f"count_if(({text}) AND NOT coalesce(({condition}), false))" for text, condition in part]
        assert [each for each, count in zip(part, rows.selectExpr(*lost).first(), strict=True) if count] == []
    assert len(said) > 2 * len(PREDICATES)


def test_nothing_is_lost_by_what_files_say_of_their_values(spark, tmp_path) -> None:
    """Dictionaries of Parquet tell -0.0 from 0.0; statistics of delta-rs leave out NaN, and round long decimals."""
    session = spark.newSession()
    session.conf.set("spark.sql.ansi.enabled", "true")
    parts = [pa.array(values, pa.float64()) for values in ([-0.0, -1.0], [1.0, float("nan"), 3.0])]
    tables = [pa.table({"d": part, "f": part.cast(pa.float32())}) for part in parts]
    for number, table in enumerate(tables):
        long = pa.array([f"-123456789012345{number}.7899"] * len(table)).cast(pa.decimal128(20, 4))
        tables[number] = table.append_column("m", long)
    for table in tables:
        write_deltalake(str(tmp_path / "source"), table, mode="append")
    source, rows = session.read.format("delta").load(str(tmp_path / "source")), pa.concat_tables(tables)
    found, expected = [], {}
    said = [f"{c} {part}" for c in "df" for part in ("= 0", "IN (0, 7)", ">= 0", "<= 0", "> 5", "= double('NaN')")]
    for text in (*said, "d <> 0", "m < -1234567890123451.7898", "m = -1234567890123450.7899"):
        compiled = ri.compile_rules([(text, text)], rows.schema)
        found.append(source.filter(Matchable(session, None, compiled).condition).selectExpr(f'"{text}" AS text'))
        expected[text] = len(compiled.match(rows).flatten())
    counts = reduce(DataFrame.unionAll, found).groupBy("text").count().collect()
    assert {row["text"]: row["count"] for row in counts} == expected


@pytest.fixture(scope="module")
def flights(spark, tmp_path_factory) -> Path:
    """Forty files of flights, a day and an origin in each."""
    columns = (
        "id",
        "element_at(array('JFK', 'EWR', 'LGA', 'SEA'), CAST(id / 1000 AS INT) % 4 + 1) AS origin",
        "timestamp'2024-01-01' + make_interval(0, 0, 0, CAST(id / 4000 AS INT)) AS t",
        "id % 100 AS delay",
    )
    folder = tmp_path_factory.mktemp("flights") / "source"
    spark.range(0, 40_000, 1, 40).selectExpr(*columns).write.format("delta").save(str(folder))
    return folder


@pytest.fixture
def clustered(new_workspace, add_rules, flights):
    """A stream of those flights; rules can match rows of three of its files."""

    def prepare(**settings):
        workspace = new_workspace({"s": {"source": "lake/s", "event_time": "t", **settings}})
        shutil.copytree(flights, workspace.configuration.streams["s"].source)
        add_rules(
            workspace,
            ("late", "s", "origin = 'JFK' AND t < timestamp'2024-01-03' AND delay > 95"),
            ("sea", "s", "origin = 'SEA' AND t >= timestamp'2024-01-10' AND delay % 10 = 3"),
        )
        assert not [each.error for each in compile_scopes(workspace) if each.error]
        return workspace

    return prepare


def test_only_files_that_can_match_are_read(clustered) -> None:
    told: list[str] = []
    workspace = clustered(output="matched")
    workspace.progress = told.append
    result = tag_stream(workspace, "s")
    assert (result.rows, result.matches) == (40_000, 2 * 40 + 100)
    assert any("rows of 3 of 40 files" in line for line in told)
    tagged = workspace.spark.read.format("delta").load(workspace.lake.uri("s_tagged"))
    counts = tagged.selectExpr("explode(rule_ids) AS rule").groupBy("rule").count().collect()
    assert dict(map(tuple, counts)) == {"late": 80, "sea": 100}
    assert tag_stream(workspace, "s").batches == 0


def test_rows_in_quarantine_are_found_in_every_file(clustered) -> None:
    workspace = clustered(output="matched", checks={"sane": "delay <> 97"})
    result = tag_stream(workspace, "s")
    assert (result.rows, result.quarantined, result.matches) == (40_000, 400, 2 * 30 + 100)


def test_files_that_were_rewritten_since_are_read(clustered, spark) -> None:
    workspace = clustered(output="matched")
    source = workspace.configuration.streams["s"]
    before = open_source(workspace.spark, source)
    taken = before.take(before.first_position(source.start), None, 1 << 30)
    spark.sql(f"OPTIMIZE delta.`{source.source}`")
    now = open_source(workspace.spark, source)
    schema = arrow_schema_of(slice_schema(before, before.version).jsonValue()["fields"])
    compiled = ri.compile_rules([("early", "origin = 'JFK' AND t < timestamp'2024-01-03'")], schema)
    assert len(Matchable(workspace.spark, before, compiled).files(taken)) == 2
    assert len(Matchable(workspace.spark, now, compiled).files(taken)) == 40


def test_rules_of_no_column_alone_leave_nothing_out(clustered, add_rules) -> None:
    workspace = clustered(output="matched")
    add_rules(workspace, ("odd", "s", "delay % 50 = 1"))
    compile_scopes(workspace)
    assert tag_stream(workspace, "s").matches == 180 + 800


def test_a_repeated_micro_batch_is_filtered_by_the_names_that_it_was_planned_with(
    new_workspace, add_rules, monkeypatch
) -> None:
    workspace = new_workspace({"s": {"source": "lake/s", "output": "matched"}})
    source = workspace.configuration.streams["s"].source
    mapped = "USING delta TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    workspace.spark.sql(f"CREATE TABLE delta.`{source}` (a BIGINT, b BIGINT, c BIGINT) {mapped}")
    for a, b in ((1, 100), (100, 1)):
        workspace.spark.sql(f"INSERT INTO delta.`{source}` VALUES ({a}, {b}, 0)")
    add_rules(workspace, ("low", "s", "a < 50"))
    compile_scopes(workspace)
    monkeypatch.setattr(spark_output.Output, "_enter", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        tag_stream(workspace, "s")
    monkeypatch.undo()
    for old, new in (("a", "x"), ("b", "a"), ("x", "b")):
        workspace.spark.sql(f"ALTER TABLE delta.`{source}` RENAME COLUMN {old} TO {new}")
    with pytest.raises(SourceChangedError, match="`a` is `b` now"):  # it is repeated before that is told
        tag_stream(new_workspace({"s": {"source": "lake/s", "output": "matched"}}), "s")
    assert columns_of(workspace, "s_tagged", "a", "b", "rule_ids") == [(1, 100, ["low"])]
