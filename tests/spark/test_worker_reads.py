"""Sources whose files Spark's workers read by themselves: the same tables as through Spark's own reader."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import functions

from pipelines.compile import compile_scopes
from pipelines.errors import TableError
from pipelines.lake.folder_log import FolderLog
from pipelines.runners.spark_runner import SparkRunner
from pipelines.tag import tag_stream
from pipelines.writing import worker_writes
from tests.cases import soak_rest
from tests.java import AS_IN_PRODUCTION

STREAM = {"source": "lake/source", "key": ["id"], "event_time": "at"}
ROWS = """
    SELECT id, IF(id % 9 = 0, NULL, concat('t', id % 5)) AS text, CAST(id % 7 AS DECIMAL(12, 3)) AS amount,
        IF(id % 11 = 0, double('NaN'), id / 3.0D) AS share,
        TIMESTAMP'2024-03-31 00:30:00Z' + make_dt_interval(id) AS at,
        date'2024-02-28' + CAST(id AS INT) AS day, named_struct('x', id, 'y', array(id, NULL)) AS both,
        map('k', id) AS named, map('s', concat('t', id % 3), 'n', NULL) AS labels,
        IF(id % 4 = 0, array(), array(concat('t', id % 5), 'x')) AS tags, CAST(id AS STRING) AS odd,
        CAST(id % 2 AS TINYINT) AS part
    FROM range({first}, {last})
"""
RULES = [
    ("text", "s", "text IN ('t1', 't3') AND amount > 2.5"),
    ("not a number", "s", "share > 1e300"),
    ("nested", "s", "both.x % 4 = 1 OR size(both.y) = 3"),
    ("hour", "s", "hour(at) = 2 AND day > DATE'2024-03-01'"),
    ("part", "s", "part = 1 AND odd LIKE '%7'"),
    ("later", "s", "added > 3 OR added IS NULL AND id < 5"),
    ("raises", "s", "10 / (id - 3) > 1"),
    ("keys", "s", "labels.s = 't1' AND labels['n'] IS NULL AND named['k'] > 3"),
    ("items", "s", "get(tags, 0) IN ('t1', 't2') OR both.y[0] % 5 = 2 OR get(tags, 1) <> 'x'"),
    ("cut", "s", "date_trunc('DAY', at) < at - INTERVAL 3 HOURS AND amount / 3 > 1"),
]


def append(workspace, first: int, last: int, more: str = "") -> None:
    rows = workspace.spark.sql(f"SELECT *{more} FROM ({ROWS.format(first=first, last=last)})")
    path = workspace.configuration.streams["s"].source
    rows.repartition(2).write.format("delta").mode("append").option("mergeSchema", "true").partitionBy("part").save(
        path
    )


def read(workspace, name: str) -> Counter[str]:
    return texts(workspace.lake.frame(name).drop("tagged_at"))


def texts(rows) -> Counter[str]:
    """The rows as JSON, since Python has no years as far away as Spark."""
    return Counter(row["text"] for row in rows.select(functions.to_json(functions.struct("*")).alias("text")).collect())


@pytest.fixture
def spark_settings() -> dict[str, str]:
    """Code is compiled, as it is in production."""
    return AS_IN_PRODUCTION


@pytest.fixture
def through_the_jvm(monkeypatch) -> list[str]:
    """The tables of micro-batches whose rows came through the JVM."""
    seen: list[str] = []
    as_before = worker_writes.map_batches

    def noted(frame, function, schema):
        seen.extend(name for name in frame.columns if name == "source_version")
        return as_before(frame, function, schema)

    monkeypatch.setattr(worker_writes, "map_batches", noted)
    return seen


def tag(workspace):
    assert not [each.error for each in compile_scopes(workspace) if each.error]
    return tag_stream(workspace, "s", restart=True)


@pytest.mark.parametrize("output", soak_rest(1, ["matched", "all"]))
def test_tables_are_those_of_sparks_reader(new_workspace, add_rules, monkeypatch, through_the_jvm, output: str) -> None:
    workspace = new_workspace({"s": {**STREAM, "output": output, "matches": True}})
    append(workspace, 0, 30)
    append(workspace, 30, 60, ", CAST(id % 6 AS INT) AS added")
    add_rules(workspace, *RULES)
    found = tag(workspace)
    assert not through_the_jvm
    tables = {name: read(workspace, name) for name in ("s_tagged", "s_matches")}
    monkeypatch.setattr(SparkRunner, "_pieces", lambda self, job: None)
    again = tag(workspace)
    assert through_the_jvm and (found.rows, found.matches, found.errors) == (again.rows, again.matches, again.errors)
    assert found.errors == {"raises": 1}
    assert {name: read(workspace, name) for name in tables} == tables


def test_columns_that_are_copied_are_read_by_spark(new_workspace, add_rules, through_the_jvm) -> None:
    """Row groups are large enough for their columns to be copied as Spark wrote them; filters find rows in them."""
    workspace = new_workspace({"s": {**STREAM, "output": "all", "matches": True}})
    append(workspace, 0, 140_000)
    append(workspace, 140_000, 140_100, ", CAST(id % 6 AS INT) AS added")
    add_rules(workspace, *RULES)
    assert tag(workspace).rows == 140_100 and not through_the_jvm
    source = workspace.spark.read.format("delta").load(workspace.configuration.streams["s"].source)
    tagged = workspace.lake.frame("s_tagged")
    assert not differing(source, tagged.select(source.columns))
    for name, condition in (("not a number", "share > 1e300"), ("text", "text IN ('t1', 't3') AND amount > 2.5")):
        found = tagged.filter(f"array_contains(rule_ids, '{name}')").select("id")
        assert found.count() > 1000
        assert not differing(found, source.filter(condition).select("id"))
        assert not differing(found, tagged.filter(condition).select("id"))
    folder = Path(workspace.lake.uri("s_tagged").removeprefix("file://"))
    written = {pq.read_metadata(path).created_by for path in folder.rglob("*.parquet")}
    assert any(name.startswith("parquet-mr") for name in written)  # the writer of the columns that were copied


def differing(one, other) -> int:
    """How many rows are in one of the frames alone."""
    one, other = (each.select(functions.to_json(functions.struct("*")).alias("text")) for each in (one, other))
    return one.exceptAll(other).count() + other.exceptAll(one).count()


def test_a_file_that_only_spark_reads_leaves_nothing_behind(new_workspace, add_rules, through_the_jvm) -> None:
    workspace = new_workspace({"s": {**STREAM, "output": "all", "matches": True}})
    append(workspace, 0, 20)
    session = workspace.spark.newSession()
    session.conf.set("spark.sql.parquet.outputTimestampType", "INT96")
    path = workspace.configuration.streams["s"].source
    old = session.sql(ROWS.format(first=20, last=21)).withColumn("at", functions.expr("TIMESTAMP'-100000-01-01 00:00'"))
    old.write.format("delta").mode("append").save(path)
    add_rules(workspace, *RULES[:3])
    found = tag(workspace)
    assert through_the_jvm and found.rows == 21
    source = workspace.spark.read.format("delta").load(path)
    tagged = workspace.lake.frame("s_tagged").select(source.columns)
    assert texts(tagged) == texts(source)
    for name in ("s_tagged", "s_matches"):
        folder = Path(workspace.lake.uri(name).removeprefix("file://"))
        known = {Path(uri).name for uri in DeltaTable(str(folder)).file_uris()}
        assert {path.name for path in folder.glob("**/*.parquet")} == known


@pytest.mark.parametrize(
    "feature",
    soak_rest(2, ["deletion vectors", "new to delta-rs", "column mapping", "quarantine", "derived"]),
)
def test_what_goes_through_the_jvm(new_workspace, add_rules, monkeypatch, through_the_jvm, feature: str) -> None:
    checks = {"checks": {"sound": "id <> 3"}, "max_quarantine_share": 1.0} if feature == "quarantine" else {}
    workspace = new_workspace({"s": {**STREAM, **checks}})
    append(workspace, 0, 20)
    path = workspace.configuration.streams["s"].source
    if feature == "deletion vectors":
        workspace.spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
        workspace.spark.sql(f"DELETE FROM delta.`{path}` WHERE id = 3")
    elif feature == "column mapping":
        workspace.spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
        workspace.spark.sql(f"ALTER TABLE delta.`{path}` RENAME COLUMN odd TO even")
    elif feature == "new to delta-rs":

        def refuse(log: FolderLog, version: int) -> None:
            raise TableError(f"a table at {log.uri} cannot be opened: Feature 'somethingNew' is not supported")

        monkeypatch.setattr(FolderLog, "snapshot", refuse)
    add_rules(workspace, ("r", "s", "soundex(text) = 'T100'" if feature == "derived" else "text = 't1'"))
    assert tag(workspace).rows == 20 - (feature == "deletion vectors")
    assert through_the_jvm
