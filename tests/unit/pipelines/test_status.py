"""Where a stream stands, as the record of its micro-batches and its source's log tell."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from datetime import UTC, date, datetime

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from pipelines.compile import compile_scopes
from pipelines.due import tag_is_due
from pipelines.errors import CheckError, SourceChangedError
from pipelines.lake.runs import DONE, PLANNED, MicroBatch, record_done, record_plan
from pipelines.status import status
from pipelines.tag import tag_stream
from pipelines.validate import validate_expression


def position(version: int, index: int = 0, snapshot: bool = False) -> dict:
    return {"version": version, "index": index, "snapshot": snapshot}


@pytest.mark.parametrize(
    ("start", "tagged"),
    [
        (position(2), 1),
        (position(2, 1), 2),
        (position(0), None),
        (position(2, 0, True), None),
        (position(2, 3, True), 2),
    ],
)
def test_what_is_tagged_is_shown_while_a_micro_batch_is_unfinished(new_workspace, start, tagged) -> None:
    workspace = new_workspace({"s": {"source": "lake/s"}}, spark=False)
    for _ in range(4):
        write_deltalake(workspace.configuration.streams["s"].source, pa.table({"x": [1]}), mode="append")
    plan = {"start": start, "end": position(4)}
    batch = MicroBatch("s", 0, PLANNED, plan, 3, "f", 3, datetime(2024, 1, 1, tzinfo=UTC))
    record_plan(workspace.lake, batch)
    assert status(workspace)[0].tagged_version == tagged
    record_done(workspace.lake, replace(batch, state=DONE, rows=1, matches=1, quarantined=0, seconds=1.0))
    assert status(workspace)[0].tagged_version == 3


@pytest.mark.parametrize(
    ("stream", "problem"),
    [
        ({"key": ["idd"]}, "The stream s has the key idd, but its source has no such column."),
        (
            {"key": ["Placd"]},
            "The stream s has the key Placd, but its source has no such column; did you mean 'place'?",
        ),
        (
            {"event_time": "palce"},
            "The stream s has the event_time palce, but its source has no such column; did you mean 'place'?",
        ),
        ({"event_time": "x"}, "The event_time x of the stream s is BIGINT; it must be TIMESTAMP, "),
    ],
)
def test_a_stream_that_was_never_compiled_has_a_problem_with_its_columns(new_workspace, stream, problem) -> None:
    workspace = new_workspace({"s": {"source": "lake/s", **stream}}, spark=False)
    write_deltalake(workspace.configuration.streams["s"].source, pa.table({"x": [1], "place": ["p"]}))
    (found,) = status(workspace)
    assert (found.problem or "").startswith(problem)
    assert (found.compile_due, found.lag_rows) == (True, 1)


@pytest.mark.parametrize(
    ("key", "ends"),
    [
        ("c.x", "no such column; a key cannot be a field of a STRUCT. Give the source a column."),
        ("d.x", "no such column."),
        ("xx", "no such column; did you mean 'x'?"),
    ],
)
def test_a_join_by_a_missing_column_has_a_problem(new_workspace, key: str, ends: str) -> None:
    joins = {"j": {"streams": ["s", "o"], "on": {"s": [key], "o": ["x"]}, "window": "1 hour"}}
    streams = {name: {"source": f"lake/{name}", "event_time": "t"} for name in ("s", "o")}
    workspace = new_workspace(streams, spark=False, joins=joins)
    rows = pa.table({"x": [1], "c": [{"x": 1}], "t": pa.array([0], pa.timestamp("us", "UTC"))})
    for name in ("s", "o"):
        write_deltalake(workspace.configuration.streams[name].source, rows)
    problem = next(each.problem for each in status(workspace) if each.scope == "j")
    assert problem == f"The join j joins on s.{key}, but the source of s has {ends}"


def test_a_stream_that_will_stop_at_its_source_has_a_problem(new_workspace) -> None:
    workspace = new_workspace({"s": {"source": "lake/s"}}, spark=False)
    source = workspace.configuration.streams["s"].source
    for number in range(3):
        write_deltalake(source, pa.table({"x": [number]}), mode="append")
    plan = {"start": position(0), "end": position(2), "table_id": str(DeltaTable(source).metadata().id)}
    batch = MicroBatch("s", 0, DONE, plan, 2, "f", 3, datetime(2024, 1, 1, tzinfo=UTC), rows=2)
    record_plan(workspace.lake, batch)
    write_deltalake(workspace.lake.uri("s_tagged"), pa.table({"x": [0, 1]}))
    assert (status(workspace)[0].problem, status(workspace)[0].lag_rows) == (None, 1)
    DeltaTable(source).delete("x = 1")
    problem = status(workspace)[0].problem
    assert problem is not None and problem.startswith("Version 3 of the source of the stream s at ")
    assert "--skip-changes" in problem


@pytest.mark.slow
def test_a_source_that_was_replaced_by_an_older_copy_of_it_stops_its_stream(new_workspace) -> None:
    workspace = new_workspace({"s": {"source": "lake/s"}}, spark=False)
    source = workspace.configuration.streams["s"].source
    write_deltalake(source, pa.table({"x": [0]}))
    shutil.copytree(source, f"{source}-copy")
    write_deltalake(source, pa.table({"x": [1]}), mode="append")
    compile_scopes(workspace)
    assert tag_stream(workspace, "s").rows == 2
    assert not tag_is_due(workspace, "s")
    shutil.rmtree(source)
    shutil.move(f"{source}-copy", source)
    problem = status(workspace)[0].problem
    assert problem is not None and "older copy" in problem
    assert tag_is_due(workspace, "s")
    with pytest.raises(SourceChangedError, match=r"older copy.*--restart"):
        tag_stream(workspace, "s")
    assert tag_stream(workspace, "s", restart=True).rows == 1


def test_a_check_that_no_run_can_use_is_a_problem(new_workspace) -> None:
    stream = {"source": "lake/s", "checks": {"fine": "x > 0", "odd": "amnt >= 0"}}
    workspace = new_workspace({"s": stream}, spark=False)
    write_deltalake(workspace.configuration.streams["s"].source, pa.table({"x": [1]}))
    problem = status(workspace)[0].problem
    assert problem is not None and problem.startswith("The check odd of the stream s cannot be used: ")
    assert "amnt" in problem
    assert validate_expression(workspace, "x > 1", "s").problems == (problem,)
    assert validate_expression(workspace, "y > 1", "s").problems == (problem,)
    compile_scopes(workspace)
    with pytest.raises(CheckError, match="amnt"):
        tag_stream(workspace, "s")


def test_a_start_beyond_the_newest_version_is_told(new_workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = new_workspace({"s": {"source": "lake/s", "start": 3}}, spark=False)
    source = workspace.configuration.streams["s"].source
    told: list[str] = []
    monkeypatch.setattr(workspace, "progress", told.append)
    write_deltalake(source, pa.table({"x": [1]}))
    compile_scopes(workspace)
    assert tag_stream(workspace, "s").batches == 0
    assert "s: its start is later than version 0, the newest of its source" in told
    assert (status(workspace)[0].lag_versions, status(workspace)[0].lag_rows) == (0, 0)
    for _ in range(3):
        write_deltalake(source, pa.table({"x": [1]}), mode="append")
    told.clear()
    assert (status(workspace)[0].lag_versions, status(workspace)[0].lag_rows) == (1, 1)
    assert tag_stream(workspace, "s").rows == 1
    assert not [text for text in told if "its start is later" in text]


@pytest.mark.parametrize(
    ("column", "problem"),
    [
        (pl.Series("valid_from", [date(2024, 1, 1)]), "valid_from of .* is DATE; it must be TIMESTAMP"),
        (pl.Series("rule_id", [1]), "was STRING when s was tagged, and is BIGINT now.* deltatag tag s --restart"),
    ],
)
def test_a_rules_column_of_another_type_is_a_problem(new_workspace, column: pl.Series, problem: str) -> None:
    workspace = new_workspace({"s": {"source": "lake/s"}}, spark=False)
    write_deltalake(workspace.configuration.streams["s"].source, pa.table({"x": [0]}))
    compile_scopes(workspace)
    tag_stream(workspace, "s")
    rules = pl.DataFrame({"rule_id": ["a"], "scope": ["s"], "expression": ["x > 0"]}).with_columns(column)
    rules.write_delta(workspace.lake.uri("rules"), mode="overwrite", delta_write_options={"schema_mode": "overwrite"})
    assert re.search(problem, str(status(workspace)[0].problem))
