"""What runs leave behind: after very many small ones the tables have few files, the same rows, and all readers."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.transaction import AddAction

from pipelines.join import join_streams
from pipelines.lake.index_store import index_to_tag_with, load_planned
from pipelines.lake.runs import DONE, last_batch, record_done, record_plan
from pipelines.maintain import maintain, maintain_after, table_sizes
from pipelines.run import OpenGates, run_due
from pipelines.spark.delta_internals import TableLog
from pipelines.tag import tag_stream
from pipelines.upkeep import scope_tables
from pipelines.upkeep.small_files import LEAST_IN_RUN, files_of
from rules_index.workers import tagged_files
from rules_index.workers.delta_files import Layout

QUICK = bool(os.environ.get("DELTATAG_QUICK"))
RUNS, MATCHED = (100, 70) if QUICK else (1_000, 200)
BASE: dict[str, Any] = {"key": ["id"], "event_time": "t"}
STREAMS: dict[str, Any] = {"s": {**BASE, "source": "lake/source"}}
RULES = [("low", "s", "x < 20"), ("high", "s", "x >= 70"), ("named", "s", "name LIKE 'n%' AND x > 60")]
TABLES = ("s_tagged", "s_matches")
ROWS = (
    "id",
    "IF(id % 13 = 5, double('NaN'), double(id % 97)) AS x",
    "IF(id % 11 = 0, NULL, concat('n', id % 5)) AS name",
    "timestamp'2024-01-01 00:00:00' + make_interval(0, 0, 0, 0, 0, id) AS t",
    "named_struct('city', id % 3, 'seq', id) AS place",
    "int(id % 3) AS part",
)


def append(workspace, start: int, stop: int, partition: str | None = None, stream: str = "s") -> None:
    writer = workspace.spark.range(start, stop, 1, 1).selectExpr(*ROWS).write.format("delta").mode("append")
    writer = writer.partitionBy(partition) if partition else writer
    writer.save(workspace.configuration.stream(stream).source)


def read(workspace, name: str, version: int | None = None):
    reader = workspace.spark.read.format("delta")
    return (reader if version is None else reader.option("versionAsOf", version)).load(workspace.lake.uri(name))


def rows(workspace, name: str, version: int | None = None) -> Counter[str]:
    return Counter(repr(row.asDict(True)) for row in read(workspace, name, version).collect())


def files(workspace, name: str) -> int:
    return len(files_of(workspace.lake.delta(name)))


def age(folder: str, days: int = 20) -> None:
    """Have all that is in a folder look as old, its log too: by the clock of the file system and by its own words."""
    back = days * 86_400
    for path in Path(folder).rglob("*"):
        if path.is_file():
            moment = path.stat().st_mtime - back
            if path.suffix == ".json" and path.parent.name == "_delta_log":
                actions = [json.loads(line) for line in path.read_text().split("\n") if line]
                for action in actions:
                    for kind, field in (("commitInfo", "timestamp"), ("remove", "deletionTimestamp")):
                        if kind in action and field in action[kind]:
                            action[kind][field] -= back * 1000
                path.write_text("\n".join(map(json.dumps, actions)) + "\n")
            elif path.parent.name == "_delta_log":
                path.unlink()  # checkpoints and checksums repeat what the commits say
                continue
            os.utime(path, (moment, moment))


class Workers:
    """Micro-batches as a run writes them: by the function that Spark's workers run, and the commits of the driver."""

    def __init__(self, workspace) -> None:
        self.workspace, self.lake = workspace, workspace.lake
        self.stored = index_to_tag_with(self.lake, "s")
        _, self.compiled, _ = load_planned(self.lake, "s", self.stored.fingerprint, "")
        self.last = last_batch(self.lake, "s")
        self.columns = [field for field in read(workspace, "s_tagged").schema.names if field in COLUMNS]
        self.logs = {name: TableLog(workspace.spark, self.lake.uri(name)) for name in TABLES}

    def write(self, batch: pa.RecordBatch, moment: datetime, with_matches: bool = True, recorded: bool = True) -> None:
        plan = {**self.last.plan, "rows": len(batch), "files": 1}
        number = self.last.batch + 1
        planned = replace(self.last, batch=number, state="planned", plan=plan, started_at=moment)
        if recorded:
            record_plan(self.lake, planned)
        task = tagged_files.Task(
            pa.string(), tuple(self.columns), ("id", "t"),
            {"rules_version": pa.scalar(self.stored.rules_version, pa.int64()),
             "index_fingerprint": pa.scalar(self.stored.fingerprint),
             "tagged_at": pa.scalar(moment, pa.timestamp("us", "UTC"))},
            False, "snappy", {}, {"tagged": self.lake.uri("s_tagged"), "matches": self.lake.uri("s_matches")},
            {"matches": Layout(sort_by="rule_id")},
        )  # fmt: skip
        entries: dict[str, list[str]] = {"tagged": [], "matches": []}
        figures: dict[str, Any] = {}
        for result in tagged_files.write_files(self.compiled, task, iter([batch])):
            for row in result.to_pylist():
                if row["entry"]:
                    entries[row["name"]].append(row["entry"])
                else:
                    figures = json.loads(row["figures"])
        app = f"deltatag/{plan['series']}/"
        if with_matches:
            assert self.logs["s_matches"].append(entries["matches"], f"{app}s_matches", number)
        commit(self.lake.uri("s_tagged"), entries["tagged"], f"{app}s_tagged", number)
        done = replace(
            planned, state=DONE, rows=figures["rows"], matches=figures["matches"], quarantined=0, seconds=1.0
        )
        if recorded:
            record_done(self.lake, done)
        self.last = done


def commit(uri: str, entries: list[str], app: str, number: int) -> None:
    """Enter files into the log of a table as a driver does, through delta-rs, which takes no JVM and a moment."""
    adds = [json.loads(entry)["add"] for entry in entries]
    actions = [
        AddAction(add["path"], add["size"], add["partitionValues"], add["modificationTime"], True, add["stats"])
        for add in adds
    ]
    table = DeltaTable(uri)
    marked = CommitProperties(app_transactions=[Transaction(app, number)])
    table.create_write_transaction(actions, "append", table.schema(), commit_properties=marked)


COLUMNS = {"id", "x", "name", "t", "place", "part"}


def batch_of(workspace, start: int, stop: int) -> pa.RecordBatch:
    table = workspace.spark.range(start, stop, 1, 1).selectExpr(*ROWS).toArrow()
    table = table.append_column("source_version", pa.array([1] * len(table), pa.int64()))
    table = table.set_column(3, "t", table["t"].cast(pa.timestamp("us", "UTC")))
    return table.combine_chunks().to_batches()[0]


@pytest.fixture
def tagged(new_workspace, add_rules):
    """Makes a lake whose stream has tagged its first rows."""

    def make(streams: dict[str, Any] = STREAMS, partition: str | None = None, **more: Any):
        workspace = new_workspace(streams, **more)
        add_rules(workspace, *RULES)
        append(workspace, 0, 10, partition)
        assert not run_due(workspace, OpenGates()).failures
        return workspace

    return make


def test_a_thousand_small_runs(tagged) -> None:
    workspace = tagged()
    workers = Workers(workspace)
    begun, most = datetime.now(UTC) - timedelta(days=200), Counter[str]()
    all_rows = batch_of(workspace, 10, 10 + RUNS)
    seconds = []
    for number in range(RUNS):
        started = time.perf_counter()
        # a commit of Spark's takes longer than all else, and so does runs: that has tests of its own
        workers.write(all_rows.slice(number, 1), begun + timedelta(hours=number), number < MATCHED, number % 5 == 4)
        for done in maintain_after(workspace, ["s"]):
            assert done.error is None and not done.notes, done
        seconds.append(time.perf_counter() - started)
        if number % 10 == 9:
            for name in (*TABLES, "runs"):
                most[name] = max(most[name], files(workspace, name))
    assert max(most.values()) <= 3 * LEAST_IN_RUN, most
    # a run at the end takes no longer than one at the beginning, whatever else the machine does
    tenth = RUNS // 10
    assert sorted(seconds[-tenth:])[tenth // 2] < 3 * sorted(seconds[:tenth])[tenth // 2] + 0.2
    expected = workspace.spark.sql(
        f"SELECT id, array_sort(array_compact(array(IF(x < 20, 'low', NULL), IF(x >= 70, 'high', NULL),"
        f" IF(name LIKE 'n%' AND x > 60, 'named', NULL)))) AS rule_ids FROM (SELECT {', '.join(ROWS)} "
        f"FROM range({10 + RUNS}))"
    )
    found = read(workspace, "s_tagged").select("id", "rule_ids")
    assert found.exceptAll(expected).isEmpty() and expected.exceptAll(found).isEmpty()
    pairs = read(workspace, "s_matches").select("id", "rule_id")
    wanted = expected.filter(f"id < {10 + MATCHED}").selectExpr("id", "explode(rule_ids) AS rule_id")
    assert pairs.exceptAll(wanted).isEmpty() and wanted.exceptAll(pairs).isEmpty()
    # the statistics of merged files leave no NaN out, which is the largest number
    nan = read(workspace, "s_tagged").filter("x > 1e300").count()
    assert nan == sum(1 for i in range(10 + RUNS) if i % 13 == 5)
    # every version can still be read
    versions = [v for v in range(workspace.lake.version("s_tagged") + 1) if v % (RUNS // 5) == 7]
    counts = [read(workspace, "s_tagged", version).count() for version in versions]
    assert counts == sorted(counts) and counts[0] < counts[-1]
    before = {name: rows(workspace, name) for name in TABLES}
    sums = [sum(each) for each in zip(*figures(workspace), strict=True)]
    for done in maintain(workspace):
        assert done.error is None and not done.notes, done
    assert [files(workspace, name) for name in TABLES] == [1, 1]
    assert {name: rows(workspace, name) for name in TABLES} == before
    # old micro-batches are folded, and add up to the same
    kept = figures(workspace)
    assert [sum(each) for each in zip(*kept, strict=True)] == sums and len(kept) <= 102
    assert last_batch(workspace.lake, "s") == workers.last
    # when all that is older than the retention, nothing is left but what a reader sees
    for name in (*TABLES, "runs"):
        age(workspace.lake.uri(name))
    again = {each.table: each for each in maintain(workspace)}
    assert again["s_tagged"].removed >= RUNS and again["s_matches"].removed > 0 and again["runs"].removed > RUNS / 5
    for name in (*TABLES, "runs"):
        parquet = list(Path(workspace.lake.uri(name)).rglob("part-*.parquet"))
        assert len(parquet) == files(workspace, name) == 1
    assert len(list(Path(workspace.lake.uri("runs"), "_delta_log").glob("*.json"))) < 20
    assert {name: rows(workspace, name) for name in TABLES} == before
    # and the stream goes on
    append(workspace, 20_000, 20_003)
    assert tag_stream(workspace, "s").rows == 3
    assert read(workspace, "s_tagged").count() == RUNS + 13


def figures(workspace) -> list[tuple[int, int, int]]:
    return [tuple(row) for row in read(workspace, "runs").select("rows", "matches", "quarantined").collect()]


# real runs, and those who read their tables

READING: dict[str, Any] = {
    "s": {**BASE, "source": "lake/source", "checks": {"sane": "x IS NULL OR x > 1"}},
    "late": {**BASE, "source_stream": "s", "checks": {"sane": "x IS NULL OR x > 1"}},
    "path": {**BASE, "source": "lake/s_tagged"},
    "other": {**BASE, "source": "lake/other"},
}
JOINS = {"both": {"streams": ["path", "other"], "on": ["id"], "window": "1 hour"}}


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run merges four files already."""
    monkeypatch.setattr(scope_tables, "LEAST_IN_RUN", 4)


@pytest.mark.parametrize("partition", (None, "part"))
def test_runs_merge_what_they_leave_behind(tagged, few, partition: str | None) -> None:
    workspace = tagged(partition=partition)
    merged, seen = Counter[str](), rows(workspace, "s_tagged")
    for number in range(1, 9):
        append(workspace, number * 10, number * 10 + 10, partition)
        report = run_due(workspace, OpenGates())
        assert not report.failures and [each.stream for each in report.tagged] == ["s"]
        for each in report.maintained:
            assert each.error is None
            merged[each.table] += each.merged
        now = rows(workspace, "s_tagged")
        assert not seen - now
        seen = now
    assert merged["s_tagged"] and merged["s_matches"]
    parts = 3 if partition else 1
    assert files(workspace, "s_tagged") <= 4 * parts and files(workspace, "s_matches") <= 4
    table = workspace.lake.delta("s_tagged")
    assert table.metadata().partition_columns == ([partition] if partition else [])
    assert read(workspace, "s_tagged").count() == 90
    if partition:
        assert read(workspace, "s_tagged").filter("part = 1").count() == 30
        assert {file.partition for file in files_of(table)} == {(0,), (1,), (2,)}
    expected = workspace.spark.sql(f"SELECT {', '.join(ROWS)} FROM range(90)")
    for rule, _, text in RULES:
        pairs = read(workspace, "s_matches").filter(f"rule_id = '{rule}'").select("id")
        wanted = expected.filter(text).select("id")
        assert pairs.exceptAll(wanted).isEmpty() and wanted.exceptAll(pairs).isEmpty()
    maintain(workspace)
    (path,) = workspace.lake.delta("s_matches").file_uris()
    found = pq.read_table(path, columns=["rule_id"])["rule_id"].to_pylist()
    assert found == sorted(found)
    # nothing is left to be done, and nothing is done
    versions = {name: workspace.lake.version(name) for name in TABLES}
    assert table_sizes(workspace, "s").due == ()
    assert not any(each.merged for each in maintain(workspace))
    assert {name: workspace.lake.version(name) for name in TABLES} == versions


@pytest.fixture
def read_by_others(new_workspace, add_rules):
    """Makes a lake of which a stream and a join read what `s` has tagged; all have taken the first 20 rows."""

    def make(**path: Any):
        streams = {**READING, "path": {**READING["path"], **path}}
        workspace = new_workspace(streams, joins=JOINS)
        add_rules(workspace, *RULES, ("l", "late", "x < 20"), ("same", "both", "path.id = other.id"))
        for stream in ("s", "other"):
            append(workspace, 0, 20, stream=stream)
        run_due(workspace, OpenGates())  # what the join reads comes to be
        assert not run_due(workspace, OpenGates()).failures
        return workspace

    return make


def ids(workspace, name: str, column: str = "id") -> list[int]:
    return sorted(row["id"] for row in read(workspace, name).selectExpr(f"{column} AS id").collect())


def test_readers_go_on_over_merged_and_removed_files(read_by_others) -> None:
    """Who reads `s_tagged` finds each row once, however far behind it is when files go."""
    workspace, done = read_by_others(), 20
    lake = workspace.lake

    def sane() -> list[int]:
        return [i for i in range(done) if i % 13 == 5 or i % 97 > 1]

    for behind in (1, 4, 2):
        # the readers stay behind for some commits, which are then merged into one file
        for _ in range(behind):
            append(workspace, done, done + 5)
            tag_stream(workspace, "s")
            done += 5
        maintain(workspace)
        assert files(workspace, "s_tagged") == 1
        if behind == 4:
            # long after: what is waited for is still there
            age(lake.uri("s_tagged"))
            assert not [each.error or each.notes for each in maintain(workspace) if each.error or each.notes]
        append(workspace, done - 5 * behind, done, stream="other")
        assert tag_stream(workspace, "late").rows
        join_streams(workspace, "both")
        assert ids(workspace, "s_tagged") == ids(workspace, "late_tagged") == sane()
        assert ids(workspace, "both_tagged", "path.id") == sane()
    # readers that have come to the end need nothing of the past
    run_due(workspace, OpenGates())
    age(lake.uri("s_tagged"))
    assert {each.table: each.removed for each in maintain(workspace)}["s_tagged"] > 0
    for stream in ("s", "other"):
        append(workspace, done, done + 3, stream=stream)
    done += 3
    for _ in range(2):
        assert not run_due(workspace, OpenGates()).failures
    assert ids(workspace, "s_tagged") == ids(workspace, "late_tagged") == sane()
    assert ids(workspace, "both_tagged", "path.id") == sane()


def test_a_join_that_finds_rows_in_the_files_of_each_commit_keeps_them(read_by_others) -> None:
    workspace = read_by_others(start=0)
    for number in range(2, 5):
        append(workspace, number * 10, number * 10 + 10)
        tag_stream(workspace, "s")
    before = files(workspace, "s_tagged")
    done = {each.table: each for each in maintain(workspace)}
    assert files(workspace, "s_tagged") == before and done["s_tagged"].merged == 0
    assert done["s_matches"].merged > 1


def test_others_who_write_put_it_off(tagged, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = tagged()
    for number in range(1, 5):
        append(workspace, number * 10, number * 10 + 10)
        tag_stream(workspace, "s")
    before = rows(workspace, "s_tagged")
    merge, first = scope_tables.FileWriter.merge, []

    def meanwhile(writer, adds):
        """Another one merges the same files, and a run tags, before the commit."""
        written = merge(writer, adds)
        if not first:
            first.append(adds)
            assert all(each.error is None and not each.notes for each in maintain(workspace))
        return written

    monkeypatch.setattr(scope_tables.FileWriter, "merge", meanwhile)
    done = {each.table: each for each in maintain(workspace)}
    assert first and all(each.error is None for each in done.values())
    assert done["s_tagged"].merged == 0 and "another time" in done["s_tagged"].notes[0]
    assert rows(workspace, "s_tagged") == before and files(workspace, "s_tagged") == 1
    named = {os.path.basename(path) for path in workspace.lake.delta("s_tagged").file_uris()}
    loose = {path.name for path in Path(workspace.lake.uri("s_tagged")).glob("part-*.parquet")}
    # of the two mergers only one file is left, beside those that were merged
    assert named <= loose and len(loose) == 5 + 1


@pytest.mark.parametrize("where", ("written", "committed"))
def test_killed_anywhere_it_loses_nothing(tagged, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    class Killed(BaseException):
        pass

    workspace = tagged()
    for number in range(1, 4):
        append(workspace, number * 10, number * 10 + 10)
        tag_stream(workspace, "s")
    before = {name: rows(workspace, name) for name in TABLES}
    replace_files = TableLog.replace_files

    def dies(log, rewrite):
        if where == "written":

            def written(adds):
                rewrite(adds)
                raise Killed

            return replace_files(log, written)
        replace_files(log, rewrite)
        raise Killed

    monkeypatch.setattr(TableLog, "replace_files", dies)
    with pytest.raises(Killed):
        maintain(workspace)
    monkeypatch.undo()
    assert {name: rows(workspace, name) for name in TABLES} == before
    append(workspace, 40, 45)
    assert tag_stream(workspace, "s").rows == 5
    assert all(each.error is None and not each.notes for each in maintain(workspace))
    assert files(workspace, "s_tagged") == 1
    assert not before["s_tagged"] - rows(workspace, "s_tagged") and read(workspace, "s_tagged").count() == 45


def test_two_at_once_beside_a_tag(tagged) -> None:
    workspace = tagged()
    for number in range(1, 6):
        append(workspace, number * 10, number * 10 + 10)
        if number < 5:
            tag_stream(workspace, "s")
    with ThreadPoolExecutor(3) as pool:
        jobs = [
            pool.submit(maintain, workspace),
            pool.submit(maintain, workspace),
            pool.submit(tag_stream, workspace, "s"),
        ]
        found = [job.result() for job in jobs]
    assert all(each.error is None for done in found[:2] for each in done), found
    assert read(workspace, "s_tagged").select("id").distinct().count() == read(workspace, "s_tagged").count() == 60
    maintain(workspace)
    assert files(workspace, "s_tagged") == 1 and last_batch(workspace.lake, "s").state == DONE


def test_old_rows_leave_quarantine_where_it_is_configured(new_workspace, add_rules, tmp_path: Path) -> None:
    from pipelines.settings.configuration import parse_configuration
    from pipelines.workspace import Workspace

    made = new_workspace({"s": READING["s"]})
    add_rules(made, *RULES)
    append(made, 0, 10)
    assert not run_due(made, OpenGates()).failures
    assert sorted(row["id"] for row in read(made, "quarantine_s").collect()) == [0, 1]
    document = {"lake": {"root": "lake", "maintenance": {"quarantine": "1 hour"}}, "streams": {"s": READING["s"]}}
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
    before = rows(workspace, "s_tagged")
    done = {each.table: each for each in maintain(workspace)}
    assert all(each.error is None for each in done.values())
    assert done["s_tagged"].merged >= 3 and files(workspace, "s_tagged") == 1
    assert rows(workspace, "s_tagged") == before
