"""Tagging through Spark what a source became: new rows and columns, changed rows, other files, a start, a time zone."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from pyspark.sql import functions

from pipelines.compile import compile_scopes
from pipelines.due import tag_is_due
from pipelines.errors import (
    IndexOutdatedError,
    SourceChangedError,
)
from pipelines.retag import retag
from pipelines.status import status
from pipelines.tag import tag_stream
from tests.cases import SOAK
from tests.java import AS_IN_PRODUCTION, INTERPRETED
from tests.spark.tagging.rows import (
    LOCALLY,
    RULES,
    STREAM,
    WORKERS,
    append,
    assert_exact,
    columns,
    read,
    source_rows,
    tagged_ids,
)
from tests.tables import columns_of


@pytest.fixture
def spark_settings() -> Mapping[str, str]:
    """What is compiled is not the subject, but what is taken of a source; in `make soak` it is as in production."""
    return AS_IN_PRODUCTION if SOAK else INTERPRETED


@LOCALLY
def test_only_what_is_new_is_tagged_and_with_the_newest_rules(prepared, add_rules, spark) -> None:
    workspace = prepared()
    tag_stream(workspace, "s")
    assert not tag_is_due(workspace, "s")
    assert tag_stream(workspace, "s").batches == 0
    append(spark, workspace, 200, 260)
    add_rules(workspace, ("late", "s", "x >= 0"))
    compile_scopes(workspace)
    assert tag_is_due(workspace, "s")
    result = tag_stream(workspace, "s")
    assert (result.rows, result.rules_version) == (60, 2)
    tagged = columns(workspace, "s_tagged", "id", "rule_ids", "rules_version")
    assert min(id for id, ids, _ in tagged if "late" in ids) == 200
    assert {(id >= 200, version) for id, _, version in tagged} == {(False, 1), (True, 2)}


@pytest.mark.parametrize("max_bytes", ["1", pytest.param("1g", marks=pytest.mark.soak)])
def test_micro_batches_are_bounded(prepared, max_bytes: str) -> None:
    workspace = prepared(max_bytes_per_batch=max_bytes)
    result = tag_stream(workspace, "s")
    files = workspace.spark.read.format("delta").load(workspace.configuration.streams["s"].source).inputFiles()
    assert result.batches == (len(files) if max_bytes == "1" else 1)
    assert_exact(workspace)


@LOCALLY
def test_optimize_between_runs_adds_no_row(prepared, spark) -> None:
    workspace = prepared()
    tag_stream(workspace, "s")
    spark.sql(f"OPTIMIZE delta.`{workspace.configuration.streams['s'].source}`")
    append(spark, workspace, 200, 220)
    assert tag_stream(workspace, "s").rows == 20
    assert_exact(workspace)


@pytest.mark.parametrize(
    ("way", "statement"),
    [
        ("local", "UPDATE {0} SET x = 1 WHERE id = 5"),
        pytest.param("workers", "UPDATE {0} SET x = 1 WHERE id = 5", marks=pytest.mark.soak),
        pytest.param("local", "DELETE FROM {0} WHERE id = 5", marks=pytest.mark.soak),
        pytest.param("workers", "DELETE FROM {0} WHERE id = 5", marks=pytest.mark.soak),
        ("local", "DELETE FROM {0} WHERE id > 150"),
        pytest.param("workers", "DELETE FROM {0} WHERE id > 150", marks=pytest.mark.soak),
    ],
    indirect=["way"],
)
def test_a_changed_source_stops_the_stream_and_says_the_way_out(prepared, spark, statement: str) -> None:
    workspace = prepared()
    tag_stream(workspace, "s")
    spark.sql(statement.format(f"delta.`{workspace.configuration.streams['s'].source}`"))
    append(spark, workspace, 300, 320)
    with pytest.raises(SourceChangedError, match="--restart"):
        tag_stream(workspace, "s")
    result = tag_stream(workspace, "s", skip_changes=True)
    assert result.rows == 20
    tag_stream(workspace, "s", restart=True)
    assert_exact(workspace)
    assert not tag_is_due(workspace, "s")


@LOCALLY
def test_a_source_made_again_stops_the_stream(prepared, spark) -> None:
    workspace = prepared()
    tag_stream(workspace, "s")
    shutil.rmtree(workspace.configuration.streams["s"].source)
    append(spark, workspace, 0, 20)
    assert tag_is_due(workspace, "s")
    (standing,) = status(workspace)
    assert "made again" in str(standing.problem) and standing.lag_versions is None
    with pytest.raises(SourceChangedError, match="made again"):
        tag_stream(workspace, "s")
    tag_stream(workspace, "s", restart=True)
    assert_exact(workspace)


@WORKERS
def test_a_new_source_column_appears_and_a_changed_type_is_an_error(prepared, spark) -> None:
    workspace = prepared()
    tag_stream(workspace, "s")
    source = workspace.configuration.streams["s"].source
    wider = source_rows(spark, 200, 210).filter("id IS NOT NULL").withColumn("extra", functions.lit("new"))
    wider.write.format("delta").mode("append").option("mergeSchema", "true").save(source)
    assert tag_stream(workspace, "s").quarantined == 0
    assert {row.extra for row in read(workspace, "quarantine_s").select("extra").collect()} == {None}
    counts = read(workspace, "s_tagged").groupBy("extra").count().collect()
    assert {tuple(row) for row in counts} == {(None, 190), ("new", 9)}
    spark.sql(f"ALTER TABLE delta.`{source}` SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')")
    spark.sql(f"ALTER TABLE delta.`{source}` ALTER COLUMN amount TYPE DECIMAL(20, 3)")
    source_rows(spark, 210, 220).withColumn("amount", functions.expr("CAST(amount AS DECIMAL(20, 3))")).write.format(
        "delta"
    ).mode("append").save(source)
    with pytest.raises((SourceChangedError, IndexOutdatedError), match="amount"):
        tag_stream(workspace, "s")
    compile_scopes(workspace)
    with pytest.raises(
        SourceChangedError, match=r"amount is decimal\(12,3\) there and decimal\(20,3\) in the source. Give"
    ):
        tag_stream(workspace, "s")
    assert tag_stream(workspace, "s", restart=True).rows == 219


@LOCALLY
@pytest.mark.parametrize(("start", "rows"), [("earliest", 200), (1, 80), (5, 0), ("2001-01-01", 200)])
def test_start(prepared, start: Any, rows: int) -> None:
    workspace = prepared(start=start)
    assert tag_stream(workspace, "s").rows == rows


@pytest.mark.parametrize(
    ("way", "versions"),
    [
        ("workers", 2),
        *(pytest.param(*each, marks=pytest.mark.soak) for each in (("spark", 1), ("workers", 1), ("spark", 2))),
    ],
    indirect=["way"],
)
def test_hours_and_literals_are_those_of_the_rules_time_zone(new_workspace, add_rules, spark, versions: int) -> None:
    zone = {"time_zone": "America/New_York"}
    workspace = new_workspace({"s": STREAM}, zone)
    rules = [("night", "s", "hour(t) >= 20"), ("day", "s", "t < TIMESTAMP '2023-12-31 19:01:00'")]
    step = 120 // versions
    for start in range(0, 120, step):
        append(spark, workspace, start, start + step)
    add_rules(workspace, *rules)
    assert not [r.error for r in compile_scopes(workspace) if r.error]
    tag_stream(workspace, "s")
    assert_exact(workspace, rules)
    assert Counter(rule for _, rule in tagged_ids(workspace).elements()) == {"day": 1, "night": 57}


def test_deletion_vectors_and_checkpoints_of_spark_are_read_without_it(new_workspace, add_rules, spark) -> None:
    workspace = new_workspace({"s": {"source": "lake/source"}}, spark=False, runner="local")
    source = f"delta.`{workspace.configuration.streams['s'].source}`"
    spark.sql(
        f"CREATE TABLE {source} (id BIGINT, name STRING) USING DELTA CLUSTER BY (id) TBLPROPERTIES "
        "('delta.enableDeletionVectors' = 'true', 'delta.checkpointPolicy' = 'v2', 'delta.checkpointInterval' = '2')"
    )
    for start in (0, 200_000):
        spark.sql(f"INSERT INTO {source} SELECT id, concat('é', id) FROM range({start}, {start} + 200000, 1, 1)")
        spark.sql(f"DELETE FROM {source} WHERE id % 3 = 1 OR id % 65536 < 5000 AND id > 65536")
    add_rules(workspace, ("few", "s", "id % 1000 = 0 AND name > 'é2'"))
    assert compile_scopes(workspace)[0].rejects == 0
    rows = sorted(columns_of(workspace, "s_tagged", "id")) if tag_stream(workspace, "s").rows else []
    assert rows == sorted((row["id"],) for row in spark.sql(f"SELECT id FROM {source}").collect())
    matched = spark.sql(f"SELECT id FROM {source} WHERE id % 1000 = 0 AND name > 'é2'").collect()
    found = columns_of(workspace, "s_tagged", "id", "rule_ids")
    assert {number for number, ids in found if ids} == {row["id"] for row in matched}


def test_a_partitioned_source_with_deletion_vectors_and_char_columns(new_workspace, add_rules, spark) -> None:
    workspace = new_workspace({"s": {"source": "lake/source"}})
    source = f"delta.`{workspace.configuration.streams['s'].source}`"
    spark.sql(
        f"CREATE TABLE {source} (id BIGINT, p STRING, c CHAR(5), v VARCHAR(9), t STRUCT<c: CHAR(5)>) USING DELTA "
        "PARTITIONED BY (p) TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    )
    values = "IF(id % 2 = 0, 'a b', NULL), 'abc', 'vw', named_struct('c', 'abc')"
    spark.sql(f"INSERT INTO {source} SELECT id, {values} FROM range(0, 50, 1, 1)")
    spark.sql(f"DELETE FROM {source} WHERE id IN (3, 4)")
    rules = {"p": "p = 'a b'", "v": "v = 'vw' AND id < 10", "c": "c = 'abc'", "t": "t.c = 'abc'", "u": "t.c = 'abc  '"}
    add_rules(workspace, *((rule, "s", condition) for rule, condition in rules.items()))
    assert compile_scopes(workspace)[0].rejects == 0
    assert tag_stream(workspace, "s").rows == 48
    tagged = read(workspace, "s_tagged")
    for rule, condition in rules.items():
        expected = {row["id"] for row in spark.sql(f"SELECT id FROM {source} WHERE {condition}").collect()}
        found = {row["id"] for row in tagged.filter(functions.array_contains("rule_ids", rule)).collect()}
        assert found == expected, rule


def test_a_tagged_table_that_somebody_has_widened_is_named(prepared, spark, add_rules) -> None:
    workspace = prepared()
    tag_stream(workspace, "s")
    tagged, version = f"delta.`{workspace.lake.uri('s_tagged')}`", workspace.lake.version("s_tagged")
    spark.sql(f"ALTER TABLE {tagged} SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')")
    spark.sql(f"ALTER TABLE {tagged} ALTER COLUMN amount TYPE DECIMAL(14, 3)")
    append(spark, workspace, 200, 210)
    told = r"amount is decimal\(14,3\) there .*The column amount of s_tagged itself was widened.*RESTORE TABLE s_tagged"
    with pytest.raises(SourceChangedError, match=told):
        tag_stream(workspace, "s")
    more = ("more", "s", "amount > 1")
    add_rules(workspace, more)
    compile_scopes(workspace)
    with pytest.raises(SourceChangedError, match=r"DECIMAL\(14,3\) in s_tagged.*The column amount of s_tagged itself"):
        retag(workspace, "s")
    spark.sql(f"RESTORE TABLE {tagged} TO VERSION AS OF {version}")
    assert tag_stream(workspace, "s").rows == 10
    retag(workspace, "s")
    assert_exact(workspace, [*RULES, more])
