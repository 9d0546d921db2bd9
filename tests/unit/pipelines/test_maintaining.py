"""Upkeep without Spark: what of `runs` and `rule_index` goes, and who still reads a table."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, exceptions, write_deltalake

import rules_index as ri
from pipelines.lake.index_store import newest_index, read_index, store_index
from pipelines.lake.merging import FileWriter
from pipelines.lake.runs import (
    DONE,
    FOLDED,
    PLANNED,
    RESET,
    MicroBatch,
    batches,
    compact,
    last_batch,
    newest_first,
    record_done,
    record_plan,
    to_rows,
)
from pipelines.maintain import maintain, maintain_after
from pipelines.maintaining import folding
from pipelines.maintaining.folding import KEPT_BATCHES, fold
from pipelines.maintaining.retention import Reader, readers_of, time_to_keep
from pipelines.maintaining.small_files import LEAST_IN_RUN, files_of
from pipelines.run import OpenGates, run_due
from pipelines.settings.configuration import parse_configuration
from pipelines.workspace import Workspace
from tests.cases import SOAK
from tests.lakes import make_tables, write_rules

NOW = datetime.now(UTC)
DAY = timedelta(days=1)


# runs


def batch(scope: str, number: int, state: str = DONE, age: timedelta = 200 * DAY, **more: Any) -> MicroBatch:
    plan = {
        "series": "one", "files": 1, "bytes": 10, "rows": 3, "quarantined": 0, "output": "all", "skipped": False,
        "start": {"version": number, "index": 0, "snapshot": False},
        "end": {"version": number + 1, "index": 0, "snapshot": False},
        **more.pop("plan", {}),
    }  # fmt: skip
    figures = {"rows": 3, "matches": 2, "quarantined": 1, "seconds": 0.5, "errors": {"r": 1}} if state == DONE else {}
    started = NOW - age + timedelta(seconds=number)
    return MicroBatch(**{
        "scope": scope, "batch": number, "state": state, "plan": plan, "rules_version": 3, "fingerprint": "f",
        "source_version": number, "started_at": started, **figures, **more,
    })  # fmt: skip


def put(lake: Any, *found: MicroBatch) -> None:
    write_deltalake(lake.uri("runs"), pa.concat_tables([to_rows(each) for each in found]), mode="append")


def totals(found: list[MicroBatch]) -> tuple[Any, ...]:
    return tuple(
        sum(getattr(each, name) or 0 for each in found) for name in ("rows", "matches", "quarantined", "seconds")
    )


@pytest.mark.slow
def test_old_micro_batches_become_one_row_for_each_index(new_workspace) -> None:
    lake = new_workspace(spark=False).lake
    first = [batch("a'b", n, fingerprint="f" if n < 200 else "g") for n in range(500)]
    other = [batch("z", n, age=DAY) for n in range(300)]
    short = [batch("short", n) for n in range(KEPT_BATCHES)]
    put(lake, *first, *other, *short)
    before = batches(lake)
    assert fold(lake, NOW - 90 * DAY) == 398
    after = batches(lake)
    assert [each for each in after if each.scope != "a'b"] == other[:0] + [e for e in before if e.scope != "a'b"]
    mine = batches(lake, "a'b")
    assert totals(mine) == totals(first) and mine[2:] == first[400:]
    assert sum(each.errors["r"] for each in mine) == 500
    assert [(each.batch, each.plan[FOLDED], each.fingerprint, each.plan["files"]) for each in mine[:2]] == [
        (199, 0, "f", 200),
        (399, 200, "g", 200),
    ]
    assert mine[1].plan["start"]["version"] == 200 and mine[1].plan["end"]["version"] == 400
    assert last_batch(lake, "a'b") == first[-1]
    # once more: nothing, then with newer ones it goes on from there
    version = lake.version("runs")
    assert fold(lake, NOW - 90 * DAY) == 0 and lake.version("runs") == version
    put(lake, *(batch("a'b", n, fingerprint="g") for n in range(500, 520)))
    assert fold(lake, NOW - 90 * DAY) == 20
    assert [(each.batch, each.plan.get(FOLDED)) for each in batches(lake, "a'b")[:3]] == [
        (199, 0),
        (419, 200),
        (420, None),
    ]


@pytest.mark.parametrize("state", (PLANNED, RESET))
def test_what_is_unfinished_and_what_stands_apart_is_not_folded(new_workspace, state: str) -> None:
    lake = new_workspace(spark=False).lake
    found = [batch("s", n) for n in range(KEPT_BATCHES + 60)]
    found[20] = batch("s", 20, plan={"reset": True})
    found[21:40] = [batch("s", n, plan={"series": "two"}) for n in range(21, 40)]
    found[40:50] = [batch("s", n, plan={"series": "two", "key": ["id"]}) for n in range(40, 50)]
    found[50] = batch("s", 50, state)
    put(lake, *found)
    fold(lake, NOW)
    left = [(each.batch, each.plan.get(FOLDED, each.batch)) for each in batches(lake, "s")]
    assert left[:4] == [(19, 0), (20, 20), (39, 21), (49, 40)] and left[4:] == [(n, n) for n in range(50, 160)]


@pytest.mark.slow
def test_a_micro_batch_and_folding_at_once(new_workspace) -> None:
    """Whoever is second repeats it, or puts it off: no row is lost, doubled or brought back."""
    lake = new_workspace(spark=False).lake
    put(lake, *(batch("s", n) for n in range(300)))

    def work(number: int) -> None:
        planned = batch("t", number, PLANNED, timedelta(0))
        record_plan(lake, planned)
        record_done(lake, replace(planned, state=DONE, rows=1, matches=1, quarantined=0, seconds=1.0))

    def upkeep(_: int) -> None:
        try:
            fold(lake, NOW - 90 * DAY)
            compact(lake)
        except exceptions.CommitFailedError:
            return

    with ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(work if n % 2 else upkeep, n) for n in range(12)]
        for job in jobs:
            job.result()
    fold(lake, NOW - 90 * DAY)
    assert [each.batch for each in batches(lake, "t")] == [1, 3, 5, 7, 9, 11]
    assert all(each.state == DONE for each in batches(lake, "t"))
    assert totals(batches(lake, "s")) == totals([batch("s", n) for n in range(300)])
    assert len(batches(lake, "s")) == KEPT_BATCHES + 1


def test_of_two_merges_at_once_one_is_put_off(new_workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of deltalake's own both succeed, and leave each row twice."""
    lake = new_workspace(spark=False).lake
    for number in range(6):
        put(lake, batch("s", number), batch("t", number, PLANNED))
    # deltalake writes the texts of what it merges as views, and maps of them
    record_done(lake, replace(batch("t", 3, PLANNED), state=DONE, rows=1, errors={"r": 3, "q'": 1}))
    before = batches(lake)
    merge, others = FileWriter.merge, []

    def meanwhile(writer: FileWriter, adds: Any) -> list[str]:
        written = merge(writer, adds)
        if not others:
            others.append(None)
            others.append(compact(lake))
        return written

    monkeypatch.setattr(FileWriter, "merge", meanwhile)
    assert compact(lake) == (0, 0) and others[1] == (6, 1)
    assert batches(lake) == before and len(files_of(lake.delta("runs"))) == 1
    assert len(list(Path(lake.uri("runs")).glob("*.parquet"))) == 6 + 1 + 1  # those before, and the one after


@pytest.mark.slow
def test_runs_stay_few_files_whatever_the_number_of_runs(new_workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = new_workspace({"s": {"source": "nowhere"}}, spark=False)
    lake, most = workspace.lake, 0
    kept, count = (KEPT_BATCHES, 120) if SOAK else (30, 50)
    monkeypatch.setattr(folding, "KEPT_BATCHES", kept)
    for number in range(count):
        planned = batch("s", number, PLANNED)
        record_plan(lake, planned)
        record_done(lake, replace(planned, state=DONE, rows=1, matches=1, quarantined=0, seconds=1.0))
        assert all(each.error is None for each in maintain_after(workspace, ["s"]))
        most = max(most, len(files_of(lake.delta("runs"))))
    assert most <= LEAST_IN_RUN
    assert [each.error for each in maintain(workspace)] == [None] * 4
    assert len(batches(lake, "s")) == kept + 1 and sum(each.rows or 0 for each in batches(lake)) == count
    assert [each.batch for each in newest_first(lake, "s")][:3] == [count - 1, count - 2, count - 3]


@pytest.mark.slow
def test_never_is_never(tmp_path: Path) -> None:

    document = {"lake": {"root": "lake", "maintenance": "never"}, "streams": {"s": {"source": "nowhere"}}}
    workspace = Workspace(parse_configuration(document, tmp_path / "deltatag.toml"))
    workspace.lake.create("runs")
    for number in range(40):
        put(workspace.lake, batch("s", number))
    assert maintain_after(workspace, ["s"]) == [] and len(files_of(workspace.lake.delta("runs"))) == 40


# quarantine


@pytest.mark.slow
def test_the_tagged_table_of_a_stream_whose_name_begins_like_a_quarantine_is_maintained(tmp_path: Path) -> None:
    document = {
        "lake": {"root": "lake", "runner": "local", "maintenance": {"quarantine": "1 hour"}},
        "streams": {"quarantine_x": {"source": "source", "key": ["id"]}},
    }
    workspace = Workspace(parse_configuration(document, tmp_path / "deltatag.toml"))
    make_tables(workspace)
    write_rules(workspace, [("r", "quarantine_x", "id < 2")])
    for number in range(2):
        write_deltalake(tmp_path / "source", pa.table({"id": [number]}), mode="append")
        assert not run_due(workspace, OpenGates()).failures
        workspace.lake.delta("runs").update(updates={"started_at": "started_at - INTERVAL '2 hours'"})
    assert [each.error for each in maintain(workspace) if each.error] == []
    assert workspace.lake.arrow("quarantine_x_tagged", ["id"])["id"].to_pylist() == [0, 1]


# rule_index


def store(lake: Any, scope: str, bound: int, tmp_path: Path, age: timedelta) -> str:
    """An index that was stored so long ago."""
    compiled = ri.compile_rules([("r", f"x > {bound}")], pa.schema([("x", pa.int64())]))
    path = tmp_path / "index"
    compiled.save(path)
    stored = store_index(lake, scope, bound, compiled.fingerprint, "hybrid", path, dict(compiled.stats))
    moment = (NOW - age).isoformat()
    lake.delta("rule_index").update(
        updates={"created_at": f"CAST('{moment}' AS TIMESTAMP)"},
        predicate=f"scope = '{scope}' AND created_at = '{stored.created_at.isoformat()}'",
    )
    return compiled.fingerprint


@pytest.mark.slow
def test_indexes_that_nobody_asks_for_go(new_workspace, tmp_path: Path) -> None:
    streams = {"s": {"source": "a"}, "o": {"source": "b", "output": "matched"}}
    streams["reader"] = {"source_stream": "o", "output": "matched"}
    streams["n"] = {"source": "c", "retag": "new_rules"}
    workspace = new_workspace(streams, spark=False)
    lake = workspace.lake
    ages = [30 * DAY, 20 * DAY, 9 * DAY, 2 * DAY, DAY]
    found = {scope: [store(lake, scope, n, tmp_path, age) for n, age in enumerate(ages)] for scope in ("s", "o", "n")}
    # an unfinished micro-batch of s is to be repeated with its second index; all that tagged rows of o are asked about
    put(lake, batch("s", 0, fingerprint=found["s"][0]), batch("s", 1, PLANNED, fingerprint=found["s"][1]))
    put(lake, batch("o", 0, fingerprint=found["o"][0]), batch("o", 1, fingerprint=found["o"][4]))
    # to know which rules are new, runs compare with the indexes that tagged rows of n
    put(lake, batch("n", 0, fingerprint=found["n"][1]), batch("n", 1, fingerprint=found["n"][4]))
    whole = {name: read_index(lake, newest_index(lake, "s", name)) for name in found["s"]}
    done = {each.table: each for each in maintain(workspace)}
    assert done["rule_index"].error is None and done["rule_index"].rows == 3
    # one stays for seven days after another took its place: a run may have begun with it
    kept = {
        scope: [n for n, name in enumerate(names) if newest_index(lake, scope, name)] for scope, names in found.items()
    }
    assert kept == {"s": [1, 2, 3, 4], "o": [0, 2, 3, 4], "n": [1, 2, 3, 4]}
    for n in kept["s"]:
        assert read_index(lake, newest_index(lake, "s", found["s"][n])) == whole[found["s"][n]]
    assert newest_index(lake, "s").fingerprint == found["s"][4]


# who reads a table


def reader_of(workspace: Any, table: str = "s_tagged") -> list[Reader]:
    return readers_of(workspace, table)


def position(version: int, index: int = 0, snapshot: bool = False) -> dict[str, Any]:
    return {"version": version, "index": index, "snapshot": snapshot}


def test_readers_by_whatever_name_and_where_they_are(new_workspace) -> None:
    late = {"event_time": "t"}
    streams: dict[str, Any] = {
        "s": {"source": "elsewhere"},
        "late": {"source_stream": "s"},
        "path": {"source": "./lake/../lake/s_tagged", "start": 3, **late},
        "other": {"source": "another", **late},
    }
    joins = {"j": {"streams": ["path", "other"], "on": ["id"], "window": "1 s"}}
    workspace = new_workspace(streams, joins=joins, spark=False)
    lake = workspace.lake
    # nothing was taken yet: from the newest version on, or from a start that they are given
    assert reader_of(workspace) == [Reader("late", None), Reader("path", 3), Reader("j", 3, True)]
    put(lake, batch("late", 0, plan={"start": position(4), "end": position(7)}))
    put(lake, batch("path", 0, PLANNED, plan={"start": position(4, 2), "end": position(7)}))
    side = {"first": position(3), "position": position(5), "end": position(6)}
    put(lake, batch("j", 0, PLANNED, plan={"sides": {"path": side, "other": side}}))
    assert reader_of(workspace) == [Reader("late", 7), Reader("path", 4), Reader("j", 3, True)]
    side["first"] = position(2, 0, True)
    put(lake, batch("j", 1, PLANNED, plan={"sides": {"path": side}}), batch("late", 1, RESET, plan={"reset": True}))
    assert reader_of(workspace) == [Reader("late", None), Reader("path", 4), Reader("j", 4)]
    put(lake, batch("j", 2, plan={"sides": {"path": side}}))
    assert reader_of(workspace)[2] == Reader("j", 5)
    side["end"] = position(9, 3, True)
    put(lake, batch("j", 3, plan={"sides": {"path": side}}))
    assert reader_of(workspace)[2] == Reader("j", 9)
    assert reader_of(workspace, "s_matches") == []


def test_what_readers_that_are_behind_need_is_kept_longer(new_workspace) -> None:
    workspace = new_workspace(spark=False)
    lake = workspace.lake
    for number in range(5):
        put(lake, batch("s", number))
    table = DeltaTable(lake.uri("runs"))
    assert time_to_keep(workspace, table, []) == 7 * DAY
    assert time_to_keep(workspace, table, [Reader("r", None), Reader("r", 99)]) == 7 * DAY
    log = Path(lake.uri("runs"), "_delta_log", f"{2:020d}.json")
    old = int((NOW - 30 * DAY).timestamp() * 1000)
    import json

    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        if "commitInfo" in line:
            line["commitInfo"]["timestamp"] = old
    log.write_text("\n".join(map(json.dumps, lines)))
    kept = time_to_keep(workspace, DeltaTable(lake.uri("runs")), [Reader("r", 2), Reader("q", 4)])
    assert kept is not None and 30 * DAY < kept < 32 * DAY
    for text, days in (("interval 9 weeks", 63), ("INTERVAL 1 week 2 days", 9), ("interval 5 days", 7)):
        table.alter.set_table_properties({"delta.deletedFileRetentionDuration": text})
        assert time_to_keep(workspace, DeltaTable(lake.uri("runs")), []) == days * DAY


# the configuration


# the verb


def aged(folder: str, days: int) -> list[str]:
    """Has the log of a table look as old by the clock of its files; gives the names of its commits."""
    import os

    files = sorted(Path(folder, "_delta_log").glob("*.*"))
    for path in files:
        moment = path.stat().st_mtime - days * 86_400
        os.utime(path, (moment, moment))
    return [path.name for path in files if path.suffix == ".json"]


@pytest.mark.slow
def test_the_command_keeps_the_history_of_rules_and_shortens_other_logs(
    new_workspace, add_rules, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import json

    from deltatag.__main__ import main

    workspace = new_workspace(spark=False)
    lake = workspace.lake
    (tmp_path / "deltatag.toml").write_text('[lake]\nroot = "lake"\n')
    for number in range(110):
        add_rules(workspace, (f"r{number}", "s", f"x > {number}"))
    for number in range(40):
        put(lake, batch("s", number, age=DAY))
    commits = aged(lake.uri("rules"), 3_000)
    aged(lake.uri("runs"), 30)
    before = {version: lake.arrow("rules", version=version).num_rows for version in (1, 60, 110)}
    assert main(["--config", str(tmp_path), "maintain", "--json"]) == 0
    done = {each["table"]: each for each in json.loads(capsys.readouterr().out)}
    assert done["rules"]["merged"] == 110 and done["rules"]["into"] == 1 and done["runs"]["merged"] == 40
    assert not any(each["error"] for each in done.values())
    assert lake.arrow("rules").num_rows == 110
    log = {path.name for path in Path(lake.uri("rules"), "_delta_log").glob("*.json")}
    assert set(commits) <= log
    assert {version: lake.arrow("rules", version=version).num_rows for version in before} == before
    assert len(list(Path(lake.uri("runs"), "_delta_log").glob("*.json"))) <= 3
    assert len(batches(lake, "s")) == 40
    assert main(["--config", str(tmp_path), "maintain"]) == 0
    assert "rules: 1 file, " in capsys.readouterr().out


def test_a_table_that_is_missing_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from deltatag.__main__ import main

    (tmp_path / "deltatag.toml").write_text('[lake]\nroot = "lake"\n')
    assert main(["--config", str(tmp_path), "maintain"]) == 1
    assert "deltatag init" in capsys.readouterr().err
