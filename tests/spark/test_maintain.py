"""Upkeep under Spark: what was merged without it Spark reads alike, and it merges what nobody else can."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pipelines.maintain import maintain
from pipelines.maintaining.small_files import files_of
from pipelines.run import OpenGates, run_due
from pipelines.tag import tag_stream
from tests.cases import soak_rest

BASE: dict[str, Any] = {"key": ["id"], "event_time": "t"}
RULES = [("low", "s", "x < 20"), ("high", "s", "x >= 70"), ("named", "s", "name LIKE 'n%' AND x > 60")]
SANE = {"sane": "x IS NULL OR x > 1"}
READING: dict[str, Any] = {
    "s": {**BASE, "source": "lake/source", "checks": SANE},
    "late": {**BASE, "source_stream": "s", "checks": SANE},
}
ROWS = (
    "id",
    "IF(id % 13 = 5, double('NaN'), double(id % 97)) AS x",
    "IF(id % 11 = 0, NULL, concat('n', id % 5)) AS name",
    "timestamp'2024-01-01 00:00:00' + make_interval(0, 0, 0, 0, 0, id) AS t",
    "named_struct('city', id % 3, 'seq', id) AS place",
    "date_add(date'2024-02-28', int(id % 3)) AS day",
)


def append(workspace, start: int, stop: int, partition: str | None = None, stream: str = "s") -> None:
    writer = workspace.spark.range(start, stop, 1, 1).selectExpr(*ROWS).write.format("delta").mode("append")
    writer = writer.partitionBy(partition) if partition else writer
    writer.save(workspace.configuration.stream(stream).source)


def read(workspace, name: str, version: int | None = None):
    reader = workspace.spark.read.format("delta")
    return (reader if version is None else reader.option("versionAsOf", version)).load(workspace.lake.uri(name))


def ids(workspace, name: str, column: str = "id") -> list[int]:
    return sorted(row["id"] for row in read(workspace, name).selectExpr(f"{column} AS id").collect())


def files(workspace, name: str) -> int:
    return len(files_of(workspace.lake.delta(name)))


@pytest.mark.parametrize("partition", soak_rest(1, ("day", None)))
def test_spark_reads_what_was_merged_and_goes_on(new_workspace, add_rules, partition: str | None) -> None:
    streams = {"s": {**BASE, "source": "lake/source"}}
    workspace, local = new_workspace(streams), new_workspace(streams, spark=False, runner="local")
    add_rules(workspace, *RULES)
    for number in range(6):  # most micro-batches without Spark, which writes the same files more slowly
        append(workspace, number * 20, number * 20 + 20, partition)
        assert not run_due(workspace if number == 3 else local, OpenGates()).failures
    versions = {name: workspace.lake.version(name) for name in ("s_tagged", "s_matches")}
    done = {each.table: each for each in maintain(workspace)}
    assert not [each for each in done.values() if each.error or each.notes]
    assert done["s_tagged"].merged >= 6 and done["s_matches"].merged >= 6
    assert files(workspace, "s_tagged") == (3 if partition else 1) and files(workspace, "s_matches") == 1
    for name in versions:
        now, then = read(workspace, name), read(workspace, name, versions[name])
        assert Counter(map(repr, now.collect())) == Counter(map(repr, then.collect())) != Counter()
        history = workspace.spark.sql(f"DESCRIBE HISTORY {workspace.lake.sql_name(name)}").collect()
        assert "OPTIMIZE" in {row["operation"] for row in history}
    # bounds leave no NaN out, which is Spark's largest number
    nan = sum(i % 13 == 5 for i in range(120))
    assert read(workspace, "s_tagged").filter("x > 1e300").count() == nan
    assert read(workspace, "s_matches").filter("rule_id = 'high'").count() == nan + sum(
        i % 13 != 5 and i % 97 >= 70 for i in range(120)
    )
    if partition:
        assert read(workspace, "s_tagged").filter("day = date'2024-02-29'").count() == 40
    # neither a micro-batch is written twice, nor one that comes is passed over, also behind Spark's own OPTIMIZE
    append(workspace, 120, 130, partition)
    assert tag_stream(workspace, "s").rows == 10
    workspace.spark.sql(f"OPTIMIZE {workspace.lake.sql_name('s_matches')}").collect()
    append(workspace, 130, 140, partition)
    assert tag_stream(workspace, "s").rows == 10
    maintain(workspace)
    assert ids(workspace, "s_tagged") == list(range(140))


# tests/unit/pipelines/test_maintain.py::test_a_reader_goes_on_over_merged_and_removed_files has it without a JVM
@pytest.mark.soak
def test_a_stream_that_reads_what_another_has_tagged_goes_on_over_merged_files(new_workspace, add_rules) -> None:
    """It finds each row once, however far behind it is."""
    workspace, done = new_workspace(READING), 20
    add_rules(workspace, *RULES, ("l", "late", "x < 20"))
    append(workspace, 0, done)
    assert not run_due(workspace, OpenGates()).failures
    for behind in (1, 4, 2):
        # the reader stays behind for some commits, which are then merged into one file
        for _ in range(behind):
            append(workspace, done, done + 5)
            tag_stream(workspace, "s")
            done += 5
        assert not [each for each in maintain(workspace) if each.error or each.notes]
        assert files(workspace, "s_tagged") == 1
        assert tag_stream(workspace, "late").rows
        sane = [i for i in range(done) if i % 13 == 5 or i % 97 > 1]
        assert ids(workspace, "s_tagged") == ids(workspace, "late_tagged") == sane


def test_old_rows_leave_quarantine_where_it_is_configured(new_workspace, add_rules, tmp_path: Path) -> None:
    from pipelines.settings.configuration import parse_configuration
    from pipelines.workspace import Workspace

    made = new_workspace({"s": READING["s"]}, runner="local")
    add_rules(made, *RULES)
    append(made, 0, 10)
    assert not run_due(made, OpenGates()).failures
    assert sorted(row["id"] for row in read(made, "quarantine_s").collect()) == [0, 1]
    document = {
        "lake": {"root": "lake", "runner": "local", "maintenance": {"quarantine": "1 hour"}},
        "streams": {"s": READING["s"]},
    }
    workspace = Workspace(parse_configuration(document, tmp_path / "deltatag.toml"), made.spark)
    maintain(workspace)
    assert read(workspace, "quarantine_s").count() == 2
    # an hour and more later
    table = workspace.lake.delta("runs")
    table.update(updates={"started_at": "started_at - INTERVAL '2 hours'"})
    append(workspace, 97, 99)
    assert not run_due(workspace, OpenGates()).failures
    (done,) = [each for each in maintain(workspace) if each.table == "quarantine_s"]
    assert done.rows == 2 and [row["id"] for row in read(workspace, "quarantine_s").collect()] == [97, 98]


def test_what_only_spark_can_write_is_merged_by_spark(new_workspace, add_rules) -> None:
    """A table with column mapping, for the blank in a column's name."""
    workspace = new_workspace({"s": {"source": "lake/source", "key": ["the id"]}})
    add_rules(workspace, ("low", "s", "x < 20"))
    for number in range(3):
        frame = workspace.spark.range(number * 10, number * 10 + 10).selectExpr("id AS `the id`", "id AS x")
        frame.write.format("delta").mode("append").option("delta.columnMapping.mode", "name").save(
            workspace.configuration.stream("s").source
        )
        assert not run_due(workspace, OpenGates()).failures
    before = workspace.lake.version("s_tagged")
    done = {each.table: each for each in maintain(workspace)}
    assert all(each.error is None for each in done.values())
    assert done["s_tagged"].merged >= 3 and files(workspace, "s_tagged") == 1
    now, then = read(workspace, "s_tagged"), read(workspace, "s_tagged", before)
    merged = Counter(map(repr, now.collect()))
    assert merged.total() == 30 and merged == Counter(map(repr, then.collect()))
