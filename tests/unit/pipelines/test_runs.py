"""The record of micro-batches: one row each, whoever writes it and however often."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from pipelines.errors import TableError
from pipelines.lake.reading import read_file
from pipelines.lake.runs import DONE, PLANNED, MicroBatch, batches, last_batch, record_done, record_plan
from pipelines.workspace import Workspace


def planned(scope: str, number: int, **plan: object) -> MicroBatch:
    return MicroBatch(scope, number, PLANNED, plan, 3, "f", 7, datetime(2024, 1, 1, tzinfo=UTC))


def test_a_plan_then_its_figures(new_workspace) -> None:
    lake = new_workspace(spark=False).lake
    assert last_batch(lake, "s") is None
    batch = planned("s", 0, files=2)
    assert record_plan(lake, batch) == batch
    assert last_batch(lake, "s") == batch
    done = replace(batch, state=DONE, rows=5, matches=9, quarantined=1, errors={"r'1": 2}, seconds=1.5)
    record_done(lake, done)
    record_done(lake, done)
    assert batches(lake) == [done]


def test_scopes_are_apart_and_numbers_sorted(new_workspace) -> None:
    lake = new_workspace(spark=False).lake
    for scope, number in (("b", 0), ("a", 1), ("a", 0)):
        record_plan(lake, planned(scope, number))
    assert [(batch.scope, batch.batch) for batch in batches(lake)] == [("a", 0), ("a", 1), ("b", 0)]
    assert last_batch(lake, "a") == planned("a", 1)
    assert last_batch(lake, "it's") is None


def test_of_two_plans_for_one_number_the_first_stays(new_workspace) -> None:
    lake = new_workspace(spark=False).lake
    first = record_plan(lake, planned("s", 0, by="one"))
    assert record_plan(lake, planned("s", 0, by="two")) == first


def test_concurrent_plans_agree(new_workspace) -> None:
    lake = new_workspace(spark=False).lake
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda n: record_plan(lake, planned("s", 0, by=n)), range(4)))
    assert found == [found[0]] * 4
    assert len(batches(lake)) == 1


@pytest.mark.slow
def test_the_last_one_is_found_in_the_newest_file_alone(new_workspace, monkeypatch) -> None:
    from deltalake import write_deltalake

    from pipelines.lake import runs

    lake = new_workspace(spark=False).lake
    read: list[int] = []
    rows_in = runs.rows_in
    monkeypatch.setattr(runs, "rows_in", lambda *arguments: read.append(1) or rows_in(*arguments))
    for first in range(0, 400, 20):
        rows = [runs.to_rows(planned(scope, n)) for n in range(first, first + 20) for scope in ("a", "z")]
        write_deltalake(lake.uri("runs"), pa.concat_tables(rows), mode="append")
    for number in (400, 401):
        record_plan(lake, planned("m", number))
    read.clear()
    assert last_batch(lake, "z") == planned("z", 399) and len(read) == 1
    assert [each.batch for each in runs.newest_first(lake, "a")] == list(range(399, -1, -1))
    assert last_batch(lake, "m") == planned("m", 401)
    # files of other numbers, merged in any order
    lake.delta("runs").optimize.compact()
    assert [each.batch for each in runs.newest_first(lake, "m")] == [401, 400]
    assert len(list(runs.newest_first(lake, "z"))) == 400


def test_a_plan_is_revised_once(new_workspace) -> None:
    from datetime import timedelta

    from pipelines.errors import RestartedError
    from pipelines.lake.runs import revise

    lake = new_workspace(spark=False).lake
    first = record_plan(lake, planned("s", 0, by="it's one", series="x"))
    counted = revise(lake, first, {**first.plan, "attempts": 2})
    anew = revise(lake, counted, {"by": "two", "series": "y"}, started_at=first.started_at + timedelta(seconds=1))
    assert last_batch(lake, "s") == anew
    for zombie in (first, counted):
        with pytest.raises(RestartedError, match="micro-batch 0 of s"):
            revise(lake, zombie, {"by": "three"})
        with pytest.raises(RestartedError, match="micro-batch 0 of s"):
            record_done(lake, replace(zombie, state=DONE, rows=7))
    assert last_batch(lake, "s") == anew
    record_done(lake, replace(anew, plan={**anew.plan, "attempts": 2, "search": {}}, rows=1))
    done = last_batch(lake, "s")
    assert done is not None and (done.state, done.plan, done.rows) == (DONE, anew.plan, 1)


def test_a_reset_of_a_plan_that_was_being_planned_anew_gives_up_both(new_workspace) -> None:
    from pipelines.lake.runs import given_up, plan_reset, revise

    lake = new_workspace(spark=False).lake
    first = record_plan(lake, planned("s", 0, series="x"))
    revise(lake, first, {"series": "y", "given_up": "x"}, started_at=datetime(2024, 1, 2, tzinfo=UTC))
    # as whoever saw the first plan finds it
    assert given_up(plan_reset(lake, first.scope, first).plan) == ["y", "x"]


def test_rows_that_were_merged_with_other_scopes_can_still_be_read(new_workspace) -> None:
    """Where an update rewrites a file of several scopes, delta-rs writes texts as views."""
    from deltalake import write_deltalake

    from pipelines.lake import runs

    lake = new_workspace(spark=False).lake
    rows = [runs.to_rows(planned(scope, n)) for n in range(3) for scope in ("a", "b")]
    write_deltalake(lake.uri("runs"), pa.concat_tables(rows), mode="append")
    record_done(lake, replace(planned("a", 2), state=DONE, rows=1, matches=1, quarantined=0, seconds=1.0))
    assert last_batch(lake, "a").state == DONE and last_batch(lake, "b") == planned("b", 2)
    assert [each.batch for each in batches(lake, "b")] == [0, 1, 2]


def test_arrow_reads_no_memory_of_python(tmp_path, monkeypatch) -> None:
    """Its threads let go of what they read at any time: at the end of Python, that aborts the process (status 134)."""
    write_deltalake(tmp_path / "t", pa.table({"a": [[{"b": 1}]], "c": [2]}))
    table, held = DeltaTable(tmp_path / "t"), [pa.total_allocated_bytes()]
    opened = pq.ParquetFile

    def noting(*given: object, **named: object) -> pq.ParquetFile:
        held.append(pa.total_allocated_bytes())
        return opened(*given, **named)

    monkeypatch.setattr(pq, "ParquetFile", noting)
    path = table.get_add_actions().to_struct_array().to_pylist()[0]["path"]
    read = read_file(table, path, pa.schema(table.schema().to_arrow()))
    assert read.to_pylist() == [{"a": [{"b": 1}], "c": 2}]
    assert held[1] - held[0] >= os.path.getsize(tmp_path / "t" / path)  # it is in Arrow's own memory


def test_a_damaged_file_of_runs_is_named(new_workspace) -> None:
    workspace = new_workspace(spark=False)
    lake = workspace.lake
    record_plan(lake, planned("s", 0))
    (file,) = Path(lake.uri("runs")).glob("*.parquet")
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(TableError, match=rf"runs at .* cannot be read: {file.name} is damaged"):
        last_batch(Workspace(workspace.configuration).lake, "s")
