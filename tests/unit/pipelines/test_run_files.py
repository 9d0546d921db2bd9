"""Rows of `runs` that are inserted and replaced by commits of deltatag's own."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from pipelines.errors import TableError
from pipelines.lake import run_files, runs
from pipelines.lake.plain_tables import is_plain
from pipelines.lake.runs import DONE, PLANNED, MicroBatch, batches, last_batch, record_done, record_plan
from pipelines.table_definitions import RUNS

WRITERS, NUMBERS = 4, 3


@pytest.fixture
def lake(new_workspace) -> Any:
    return new_workspace(spark=False).lake


def planned(scope: str, number: int, **plan: object) -> MicroBatch:
    return MicroBatch(scope, number, PLANNED, plan, 3, "f", 7, datetime(2024, 1, 1, tzinfo=UTC))


def done(batch: MicroBatch) -> MicroBatch:
    return replace(batch, state=DONE, rows=5, matches=9, quarantined=0, errors={"r": 2}, seconds=1.5)


def files(lake: Any) -> set[str]:
    return set(DeltaTable(lake.uri("runs")).file_uris())


def test_no_other_row_is_changed(lake: Any) -> None:
    rows = [runs.to_rows(planned(scope, number)) for scope in ("a", "b") for number in range(3)]
    write_deltalake(lake.uri("runs"), pa.concat_tables(rows), mode="append")
    write_deltalake(lake.uri("runs"), runs.to_rows(planned("c", 0)), mode="append")
    before = files(lake)
    record_done(lake, done(planned("a", 1)))
    assert len(files(lake)) == 2 and len(files(lake) & before) == 1
    record_done(lake, replace(done(planned("a", 1)), rows=6))  # it is done already
    wanted = [planned(scope, number) for scope in ("a", "b") for number in range(3)] + [planned("c", 0)]
    assert batches(lake) == [done(each) if (each.scope, each.batch) == ("a", 1) else each for each in wanted]


def test_many_writers_at_once(new_workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    lakes = [new_workspace(spark=False).lake for _ in range(WRITERS)]
    monkeypatch.setattr(runs, "_ATTEMPTS", 200)

    def written_by(lake: Any) -> None:
        """Plans and ends numbers of a scope of its own, and plans those of a scope that all share."""
        for number in range(NUMBERS):
            record_done(lake, done(record_plan(lake, planned(f"own {id(lake)}", number))))
            record_plan(lake, planned("shared", number, by=id(lake)))

    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(written_by, lakes))
    found = batches(lakes[0])
    assert [each.batch for each in found if each.scope == "shared"] == [*range(NUMBERS)]
    for lake in lakes:
        mine = [each for each in found if each.scope == f"own {id(lake)}"]
        assert mine == [done(planned(f"own {id(lake)}", number)) for number in range(NUMBERS)]


def test_a_commit_of_delta_rs_in_between(lake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An older version of deltatag commits so, between the reading of the table and the commit."""
    write, others = run_files._written, [planned("s", 1, by="other"), planned("z", 0)]

    def second(*given: Any) -> dict[str, Any]:
        if others:
            assert runs._merge_by_delta_rs(lake, others.pop(0), None, None)
        return write(*given)

    record_plan(lake, planned("s", 0))
    monkeypatch.setattr(run_files, "_written", second)
    assert record_plan(lake, planned("s", 1)) == planned("s", 1, by="other")
    record_done(lake, done(planned("s", 0)))
    assert batches(lake) == [done(planned("s", 0)), planned("s", 1, by="other"), planned("z", 0)]


def test_columns_that_others_have_added_keep_their_values(lake: Any) -> None:
    rows = pa.concat_tables([runs.to_rows(planned("s", number)) for number in range(2)])
    noted = rows.append_column("note", pa.array(["first", "second"]))
    write_deltalake(lake.uri("runs"), noted, mode="append", schema_mode="merge")
    record_done(lake, done(planned("s", 1)))
    record_plan(lake, planned("s", 2))
    assert batches(lake) == [planned("s", 0), done(planned("s", 1)), planned("s", 2)]
    notes = lake.arrow("runs", ["batch", "note"]).sort_by("batch").to_pylist()
    assert [row["note"] for row in notes] == ["first", None, None]


def test_a_table_without_one_of_the_columns_is_left_to_delta_rs(lake: Any) -> None:
    fewer = runs.to_rows(planned("s", 0)).drop_columns(["seconds"])
    write_deltalake(lake.uri("runs"), fewer, mode="overwrite", schema_mode="overwrite")
    assert not is_plain(lake.delta("runs"), RUNS)
    assert last_batch(lake, "s") == planned("s", 0)


@pytest.mark.parametrize("appends_only", [True, False])
def test_a_table_that_asks_for_more_is_left_to_delta_rs(lake: Any, appends_only: bool) -> None:
    assert is_plain(lake.delta("runs"), RUNS)
    change = DeltaTable(lake.uri("runs")).alter
    if appends_only:
        change.set_table_properties({"delta.appendOnly": "true"})
    else:
        change.add_constraint({"known": "batch >= 0"})
    assert not is_plain(lake.delta("runs"), RUNS)
    assert record_plan(lake, planned("s", 0)) == last_batch(lake, "s") == planned("s", 0)


def test_what_was_committed_stays_if_the_process_is_stopped_then(lake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    linked = os.link

    def link(source: Any, target: Any) -> None:
        linked(source, target)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(KeyboardInterrupt):
        record_plan(lake, planned("s", 0))
    monkeypatch.undo()
    assert last_batch(lake, "s") == planned("s", 0)
    record_done(lake, done(planned("s", 0)))
    assert batches(lake) == [done(planned("s", 0))]


def test_a_file_that_cannot_be_written_leaves_nothing_behind(lake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    record_plan(lake, planned("s", 0))
    before = sorted(Path(lake.uri("runs")).rglob("*"))

    def fails(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("rules_index.workers.delta_file_writer.DeltaFile.close", fails)
        with pytest.raises(TableError, match=r"The table runs at .* cannot be written: .*space"):
            record_done(lake, done(planned("s", 0)))
    assert sorted(Path(lake.uri("runs")).rglob("*")) == before
    assert last_batch(lake, "s") == planned("s", 0)
