"""What runs leave behind: after very many small ones the tables have few files, the same rows, and all readers."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pipelines.lake.index_store import index_to_tag_with, load_planned
from pipelines.lake.runs import DONE, last_batch, record_done, record_plan
from pipelines.maintain import maintain, maintain_after
from pipelines.run import OpenGates, run_due
from pipelines.spark.delta_internals import TableLog
from pipelines.tag import tag_stream
from pipelines.upkeep.small_files import LEAST_IN_RUN, files_of
from rules_index.workers import tagged_files
from rules_index.workers.delta_files import Layout

QUICK = bool(os.environ.get("DELTATAG_QUICK"))
RUNS = 100 if QUICK else 1_000
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

    def write(self, batch: pa.RecordBatch, moment: datetime) -> None:
        plan = {**self.last.plan, "rows": len(batch), "files": 1}
        number = self.last.batch + 1
        planned = replace(self.last, batch=number, state="planned", plan=plan, started_at=moment)
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
        for kind in ("matches", "tagged"):
            name = f"s_{kind}"
            assert self.logs[name].append(entries[kind], f"deltatag/{plan['series']}/{name}", number)
        done = replace(
            planned, state=DONE, rows=figures["rows"], matches=figures["matches"], quarantined=0, seconds=1.0
        )
        record_done(self.lake, done)
        self.last = done


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
        workers.write(all_rows.slice(number, 1), begun + timedelta(hours=number))
        for done in maintain_after(workspace, ["s"]):
            assert done.error is None and not done.notes, done
        seconds.append(time.perf_counter() - started)
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
    wanted = expected.selectExpr("id", "explode(rule_ids) AS rule_id")
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
    assert again["s_tagged"].removed >= RUNS and again["s_matches"].removed > 0 and again["runs"].removed >= RUNS
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
