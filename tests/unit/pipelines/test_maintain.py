"""What runs leave behind: after very many small ones the tables have few files, the same rows, and all readers."""

from __future__ import annotations

import json
import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Field, write_deltalake

from pipelines.lake.folder_log import FolderLog
from pipelines.lake.runs import DONE, batches, last_batch
from pipelines.maintain import maintain, table_sizes
from pipelines.maintaining import scope_tables
from pipelines.maintaining.small_files import LEAST_IN_RUN, files_of
from pipelines.run import OpenGates, run_due
from pipelines.tag import tag_stream
from tests.cases import cases, quick_first

RUNS = cases(160, "DELTATAG_SMALL_RUNS")
"""Small runs one after the other; a thousand take some minutes."""
BASE: dict[str, Any] = {"key": ["id"], "event_time": "t"}
STREAMS: dict[str, Any] = {"s": {**BASE, "source": "lake/source"}}
RULES = [("low", "s", "x < 20"), ("high", "s", "x >= 70"), ("named", "s", "name LIKE 'n%' AND x > 60")]
TABLES = ("s_tagged", "s_matches")
NAN = float("nan")


def x_of(i: int) -> float:
    return NAN if i % 13 == 5 else float(i % 97)


def matched(i: int) -> list[str]:
    """The rules that a row satisfies, as Spark means them: NaN is the largest number."""
    x, high = x_of(i), i % 13 == 5
    found = {"low": not high and x < 20, "high": high or x >= 70, "named": i % 11 != 0 and (high or x > 60)}
    return sorted(rule for rule, holds in found.items() if holds)


def append(workspace, start: int, stop: int, partition: str | None = None, stream: str = "s") -> None:
    numbers = range(start, stop)
    times = [datetime(2024, 1, 1, tzinfo=UTC) + timedelta(seconds=i) for i in numbers]
    table = pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "x": pa.array(map(x_of, numbers), pa.float64()),
            "name": pa.array([None if i % 11 == 0 else f"n{i % 5}" for i in numbers], pa.string()),
            "t": pa.array(times, pa.timestamp("us", "UTC")),
            "place": pa.array(
                [{"city": i % 3, "seq": i} for i in numbers], pa.struct({"city": pa.int64(), "seq": pa.int64()})
            ),
            "part": pa.array([f"p {i % 3}/ü" for i in numbers], pa.string()),
        }
    )
    by = [partition] if partition else None
    write_deltalake(workspace.configuration.stream(stream).source, table, mode="append", partition_by=by)


def read(workspace, name: str, version: int | None = None) -> pl.DataFrame:
    return pl.DataFrame(pl.from_arrow(workspace.lake.arrow(name, version=version)))


def rows(workspace, name: str, version: int | None = None) -> Counter[str]:
    return Counter(map(repr, read(workspace, name, version).iter_rows()))


def files(workspace, name: str) -> int:
    return len(files_of(workspace.lake.delta(name)))


def check(workspace, stop: int, but: Any = ()) -> None:
    """Each row is tagged once, by the rules that it satisfies, and `s_matches` has just these pairs."""
    wanted = {i: matched(i) for i in range(stop) if i not in set(but)}
    tagged = read(workspace, "s_tagged").select("id", "rule_ids")
    assert tagged.height == len(wanted) and dict(tagged.iter_rows()) == wanted
    pairs = sorted(read(workspace, "s_matches").select("rule_id", "id").iter_rows())
    assert pairs == sorted((rule, i) for i, rules in wanted.items() for rule in rules)


def age(folder: str, days: int = 50) -> None:
    """Have all that is in a folder look as old, its log too: by the clock of the file system and by its own words."""
    back = days * 86_400
    for path in Path(folder).rglob("*"):
        if not path.is_file():
            continue
        moment = path.stat().st_mtime - back
        if path.parent.name == "_delta_log" and path.suffix == ".json" and path.name[0].isdigit():
            actions = [json.loads(line) for line in path.read_text().split("\n") if line]
            path.write_text("\n".join(json.dumps(aged(action, back)) for action in actions) + "\n")
        elif path.parent.name == "_delta_log" and path.suffix == ".parquet":
            table = pq.read_table(path)
            pq.write_table(pa.Table.from_pylist([aged(row, back) for row in table.to_pylist()], table.schema), path)
        os.utime(path, (moment, moment))


def aged(action: dict[str, Any], back: int) -> dict[str, Any]:
    for kind, field in (("commitInfo", "timestamp"), ("remove", "deletionTimestamp")):
        if action.get(kind) and action[kind].get(field):
            action[kind][field] -= back * 1000
    return action


@pytest.fixture
def tagged(new_workspace, add_rules):
    """Makes a lake whose stream has tagged its first rows, without a JVM."""

    def make(streams: dict[str, Any] = STREAMS, partition: str | None = None, **more: Any):
        workspace = new_workspace(streams, spark=False, **more)
        add_rules(workspace, *RULES)
        append(workspace, 0, 10, partition)
        assert not run_due(workspace, OpenGates()).failures
        return workspace

    return make


def ended_well(done: list[Any]) -> dict[str, Any]:
    assert not [each for each in done if each.error or each.notes]
    return {each.table: each for each in done}


@pytest.mark.slow
def test_very_many_small_runs(tagged) -> None:
    workspace = tagged()
    most, merged = Counter[str](), Counter[str]()
    for number in range(RUNS):
        append(workspace, 10 + number, 11 + number)
        report = run_due(workspace, OpenGates())
        assert not report.failures and report.tagged[0].rows == 1
        merged.update({name: each.merged for name, each in ended_well(report.maintained).items()})
        for name in (*TABLES, "runs"):
            most[name] = max(most[name], files(workspace, name))
    assert max(most.values()) <= 2 * LEAST_IN_RUN, most
    # what merging writes does not grow with what is there
    assert merged["s_tagged"] <= 1.2 * RUNS and merged["s_matches"] <= 1.2 * RUNS, merged
    check(workspace, 10 + RUNS)
    # every version can still be read
    versions = range(3, workspace.lake.version("s_tagged") + 1, 17)
    counts = [read(workspace, "s_tagged", version).height for version in versions]
    assert counts == sorted(counts) and counts[-1] > counts[0]
    before, newest = {name: rows(workspace, name) for name in TABLES}, last_batch(workspace.lake, "s")
    ended_well(maintain(workspace))
    assert [files(workspace, name) for name in TABLES] == [1, 1]
    assert {name: rows(workspace, name) for name in TABLES} == before
    # when all that is older than any retention, nothing is left but what a reader sees
    for name in (*TABLES, "runs"):
        age(workspace.lake.uri(name))
    again = ended_well(maintain(workspace))
    assert (
        again["s_tagged"].removed >= RUNS
        and again["s_matches"].removed >= RUNS / 3 - 1
        and again["runs"].removed >= RUNS
    )
    for name in (*TABLES, "runs"):
        folder = Path(workspace.lake.uri(name))
        assert len(list(folder.rglob("*.parquet"))) - len(list(folder.glob("_delta_log/*.parquet"))) == 1
        assert len(list(folder.glob("_delta_log/*"))) < 12
    assert {name: rows(workspace, name) for name in TABLES} == before
    assert last_batch(workspace.lake, "s") == newest
    assert sum(batch.rows or 0 for batch in batches(workspace.lake, "s")) == 10 + RUNS
    # and the stream goes on
    append(workspace, 10 + RUNS, 13 + RUNS)
    assert tag_stream(workspace, "s").rows == 3
    check(workspace, 13 + RUNS)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run merges four files already."""
    monkeypatch.setattr(scope_tables, "LEAST_IN_RUN", 4)


@pytest.mark.parametrize("partition", quick_first(0, ("part", None), 1))
def test_runs_merge_what_they_leave_behind(tagged, few, partition: str | None) -> None:
    workspace = tagged(partition=partition)
    merged, seen = Counter[str](), rows(workspace, "s_tagged")
    for number in range(1, 9):
        append(workspace, number * 10, number * 10 + 10, partition)
        report = run_due(workspace, OpenGates())
        assert not report.failures
        for each in ended_well(report.maintained).values():
            merged[each.table] += each.merged
        now = rows(workspace, "s_tagged")
        assert not seen - now
        seen = now
    assert merged["s_tagged"] and merged["s_matches"]
    assert files(workspace, "s_tagged") <= 4 * (3 if partition else 1) and files(workspace, "s_matches") <= 4
    table = workspace.lake.delta("s_tagged")
    assert table.metadata().partition_columns == ([partition] if partition else [])
    if partition:
        assert {file.partition for file in files_of(table)} == {(f"p {n}/ü",) for n in range(3)}
    check(workspace, 90)
    ended_well(maintain(workspace))
    (path,) = workspace.lake.delta("s_matches").file_uris()
    found = pq.read_table(path, columns=["rule_id"])["rule_id"].to_pylist()
    assert found == sorted(found)
    check(workspace, 90)
    # nothing is left to be done, and nothing is done
    versions = {name: workspace.lake.version(name) for name in TABLES}
    assert table_sizes(workspace, "s").due == ()
    assert not any(each.merged for each in maintain(workspace))
    assert {name: workspace.lake.version(name) for name in TABLES} == versions


@pytest.mark.slow
def test_the_log_tells_no_bounds_that_a_nan_would_break(tagged) -> None:
    workspace = tagged()
    for number in range(1, 4):
        append(workspace, number * 10, number * 10 + 10)
        tag_stream(workspace, "s")
    ended_well(maintain(workspace))
    log = FolderLog(workspace.lake.uri("s_tagged"))
    (add,) = [action["add"] for action in log.commit(log.latest().number) or () if "add" in action]
    stats = json.loads(add["stats"])
    assert "x" in stats["minValues"] and "x" not in stats["maxValues"] and stats["maxValues"]["id"] == 39
    assert add["dataChange"] is False and stats["numRecords"] == 40


def test_a_table_that_asks_for_more_is_left_to_spark(tagged) -> None:
    workspace = tagged()
    assert scope_tables.writer_of(workspace, "s_tagged") is not None
    table = workspace.lake.delta("s_tagged")
    table.alter.set_table_properties({"delta.enableInCommitTimestamps": "true"}, raise_if_not_exists=False)
    assert scope_tables.writer_of(workspace, "s_tagged") is None
    DeltaTable(workspace.lake.uri("runs")).alter.set_table_properties(
        {"delta.enableDeletionVectors": "true"}, raise_if_not_exists=False
    )
    assert scope_tables.writer_of(workspace, "runs") is None


@pytest.mark.slow
def test_files_that_are_older_than_a_column_have_none_of_it(tagged) -> None:
    workspace = tagged()
    append(workspace, 10, 20)
    tag_stream(workspace, "s")
    DeltaTable(workspace.lake.uri("s_tagged")).alter.add_columns([Field("extra", "long")])
    before = rows(workspace, "s_tagged")
    assert ended_well(maintain(workspace))["s_tagged"].merged == 2
    assert rows(workspace, "s_tagged") == before and read(workspace, "s_tagged")["extra"].null_count() == 20


READING: dict[str, Any] = {
    "s": {**BASE, "source": "lake/source", "checks": {"sane": "x IS NULL OR x > 1"}},
    "late": {**BASE, "source_stream": "s", "checks": {"sane": "x IS NULL OR x > 1"}},
}


def ids(workspace, name: str) -> list[int]:
    return sorted(read(workspace, name)["id"])


@pytest.mark.slow
def test_a_reader_goes_on_over_merged_and_removed_files(tagged) -> None:
    """The stream that reads `s_tagged` finds each row once, however far behind it is when files go."""
    workspace, done = tagged(READING), 10
    for behind in (1, 4, 2):
        # the reader stays behind for some commits, which are then merged into one file
        for _ in range(behind):
            append(workspace, done, done + 5)
            tag_stream(workspace, "s")
            done += 5
        ended_well(maintain(workspace))
        assert files(workspace, "s_tagged") == 1
        if behind == 4:
            # long after: what is waited for is still there, and so are its commits
            age(workspace.lake.uri("s_tagged"))
            assert ended_well(maintain(workspace))["s_tagged"].removed < 8
        assert tag_stream(workspace, "late").rows
        sane = [i for i in range(done) if i % 13 == 5 or i % 97 > 1]
        assert ids(workspace, "s_tagged") == ids(workspace, "late_tagged") == sane
    # one that has come to the end needs nothing of the past
    tag_stream(workspace, "late")
    age(workspace.lake.uri("s_tagged"))
    assert ended_well(maintain(workspace))["s_tagged"].removed > 0
    append(workspace, done, done + 3)
    for _ in range(2):
        assert not run_due(workspace, OpenGates()).failures
    assert ids(workspace, "s_tagged") == ids(workspace, "late_tagged") == [*sane, *range(done, done + 3)]


@pytest.mark.slow
def test_others_who_write_put_it_off(tagged, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = tagged()
    for number in range(1, 5):
        append(workspace, number * 10, number * 10 + 10)
        tag_stream(workspace, "s")
    append(workspace, 50, 60)
    before, merge, first = rows(workspace, "s_tagged"), scope_tables.FileWriter.merge, []

    def meanwhile(writer, adds):
        """Another one merges the same files, and a run tags, before the commit."""
        written = merge(writer, adds)
        if not first and writer.log.folder.name == "s_tagged":
            first.append(adds)
            ended_well(maintain(workspace))
            tag_stream(workspace, "s")
        return written

    monkeypatch.setattr(scope_tables.FileWriter, "merge", meanwhile)
    done = {each.table: each for each in maintain(workspace)}
    assert first and all(each.error is None for each in done.values())
    notes = [note for each in done.values() for note in each.notes]
    assert len(notes) == 1 and "next time" in notes[0]
    check(workspace, 60)
    assert not before - rows(workspace, "s_tagged")
    # what was merged in vain is gone
    for name in TABLES:
        log = FolderLog(workspace.lake.uri(name))
        held = {
            os.path.basename(action["add"]["path"])
            for version in log.commits() for action in log.commit(version) or () if "add" in action
        }  # fmt: skip
        assert {path.name for path in log.folder.glob("*.parquet")} == held


@pytest.mark.slow
def test_an_append_meanwhile_is_no_conflict(tagged, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = tagged()
    for number in range(1, 4):
        append(workspace, number * 10, number * 10 + 10)
        tag_stream(workspace, "s")
    append(workspace, 40, 50)
    merge, first = scope_tables.FileWriter.merge, []

    def meanwhile(writer, adds):
        written = merge(writer, adds)
        if not first and writer.log.folder.name == "s_tagged":
            first.append(adds)
            tag_stream(workspace, "s")
        return written

    monkeypatch.setattr(scope_tables.FileWriter, "merge", meanwhile)
    done = ended_well(maintain(workspace))
    assert first and done["s_tagged"].merged >= 4 and done["s_matches"].merged >= 4
    check(workspace, 50)


@pytest.mark.parametrize("where", quick_first(1, ("written", "committed")))
@pytest.mark.slow
def test_killed_anywhere_it_loses_nothing(tagged, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    class Killed(BaseException):
        pass

    workspace = tagged()
    for number in range(1, 4):
        append(workspace, number * 10, number * 10 + 10)
        tag_stream(workspace, "s")
    replace_files = FolderLog.replace_files

    def dies(log, *arguments):
        if where == "committed":
            assert replace_files(log, *arguments)
        raise Killed

    monkeypatch.setattr(FolderLog, "replace_files", dies)
    with pytest.raises(Killed):
        maintain(workspace)
    monkeypatch.undo()
    check(workspace, 40)
    append(workspace, 40, 45)
    assert tag_stream(workspace, "s").rows == 5
    ended_well(maintain(workspace))
    assert files(workspace, "s_tagged") == 1
    check(workspace, 45)
    # files that no log knows go in time
    for name in TABLES:
        age(workspace.lake.uri(name))
    ended_well(maintain(workspace))
    assert len(list(Path(workspace.lake.uri("s_tagged")).glob("*.parquet"))) == 1
    check(workspace, 45)


@pytest.mark.slow
def test_two_at_once_beside_a_tag(tagged) -> None:
    workspace = tagged()
    for number in range(1, 6):
        append(workspace, number * 10, number * 10 + 10)
        if number < 5:
            tag_stream(workspace, "s")
    with ThreadPoolExecutor(3) as pool:
        jobs = [pool.submit(maintain, workspace) for _ in range(2)]
        tagging = pool.submit(tag_stream, workspace, "s")
        assert tagging.result().rows == 10
        found = [each for job in jobs for each in job.result()]
    assert not [each.error for each in found if each.error]
    check(workspace, 60)
    ended_well(maintain(workspace))
    assert files(workspace, "s_tagged") == 1 and last_batch(workspace.lake, "s").state == DONE
    check(workspace, 60)
