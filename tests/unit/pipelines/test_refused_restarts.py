"""A restart that could not tag or join its first row is refused before it empties any table."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import pipelines.tag
from pipelines.compile import compile_scopes
from pipelines.errors import NeedsSparkError, PipelineError
from pipelines.join import join_streams
from pipelines.lake.runs import last_batch
from pipelines.runners.choice import runner_of
from pipelines.runners.local_runner import LocalRunner
from pipelines.sources.source import Source
from pipelines.tag import tag_stream
from pipelines.workspace import Workspace

pytestmark = pytest.mark.usefixtures("without_spark")

AT = pa.array([datetime(2026, 1, 1, tzinfo=UTC)], pa.timestamp("us", "UTC"))
STREAM: dict[str, Any] = {"key": ["k"], "event_time": "at", "checks": {"fine": "x > 0"}}
JOIN: dict[str, Any] = {"streams": ["s", "o"], "on": ["k"], "window": "1 hour"}


@pytest.fixture
def begin(new_workspace, add_rules):
    """A function that makes a lake with a tagged and a joined row, and returns it with another configuration."""

    def made(stream: dict[str, Any], join: dict[str, Any]) -> Workspace:
        def configured(**settings: Any) -> Workspace:
            streams = {"s": {**STREAM, "source": "lake/s", **settings}, "o": {"source": "lake/o", "event_time": "at"}}
            return new_workspace(streams, spark=False, joins={"j": {**JOIN, **(join if settings else {})}})

        workspace = configured()
        for name in ("s", "o"):
            rows = pa.table({"k": [1], "x": [1], "place": ["p"], "at": AT})
            write_deltalake(workspace.configuration.streams[name].source, rows)
        add_rules(workspace, ("a", "s", "place = 'p'"), ("b", "j", "s.place = o.place"))
        compile_scopes(workspace)
        tag_stream(workspace, "s")
        join_streams(workspace, "j")
        return configured(engine="scan", **stream)

    return made


def held(workspace: Workspace) -> list[int]:
    return [workspace.lake.arrow(name).num_rows for name in ("s_tagged", "s_matches", "j_tagged")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stream", "told"),
    [
        ({"checks": {"odd": "xx > 0"}}, "The check odd of the stream s cannot be used: There is no column 'xx'"),
        ({"key": ["kk"]}, "the key kk, but its source has no such column; did you mean 'k'"),
        ({"event_time": "att"}, "the event_time att, but its source has no such column; did you mean 'at'"),
        ({"partition_by": ["plac"]}, "the partition_by plac, but its source has no such column; did you mean 'place'"),
        ({"annotations": ["labels"]}, "compiled without labels, .*deltatag compile s"),
        (
            {"checks": {"never": "x > 1"}, "max_quarantine_share": 0.5},
            "1 of the next 1 rows of s .*quarantine_share = 0.5",
        ),
    ],
)
def test_a_stream_that_does_not_fit_its_configuration_is_not_emptied(begin, stream, told: str) -> None:
    workspace = begin(stream, {})
    before = last_batch(workspace.lake, "s")
    with pytest.raises(PipelineError, match=told):
        tag_stream(workspace, "s", restart=True)
    assert held(workspace) == [1, 1, 1] and last_batch(workspace.lake, "s") == before


@pytest.mark.parametrize(
    ("join", "told"),
    [
        ({"on": {"s": ["kk"], "o": ["k"]}}, "s.kk, but the source of s has no such column; did you mean 'k'"),
        ({"annotations": ["labels"]}, "compiled without labels, .*deltatag compile j"),
    ],
)
def test_a_join_that_does_not_fit_its_configuration_is_not_emptied(begin, join, told: str) -> None:
    workspace = begin({}, join)
    before = last_batch(workspace.lake, "j")
    with pytest.raises(PipelineError, match=told):
        join_streams(workspace, "j", restart=True)
    assert held(workspace) == [1, 1, 1] and last_batch(workspace.lake, "j") == before


@pytest.mark.slow
def test_an_outdated_index_is_told_before_anything_is_emptied(begin) -> None:
    workspace = begin({}, {})
    source = workspace.configuration.streams["s"].source
    write_deltalake(source, pa.table({"k": [1], "x": [1], "at": AT}), mode="overwrite", schema_mode="overwrite")
    with pytest.raises(PipelineError, match=r"column place was .*; it is gone.*deltatag compile s"):
        tag_stream(workspace, "s", restart=True)
    with pytest.raises(PipelineError, match=r"column s.place was .*; it is gone.*deltatag compile j"):
        join_streams(workspace, "j", restart=True)
    assert held(workspace) == [1, 1, 1]
    compile_scopes(workspace)
    tag_stream(workspace, "s", restart=True)
    join_streams(workspace, "j", restart=True)
    assert held(workspace) == [1, 0, 0]


@pytest.mark.slow
def test_files_that_are_gone_are_told_before_anything_is_emptied(begin) -> None:
    workspace = begin({"max_quarantine_share": 0.5}, {})
    (file,) = Path(workspace.configuration.streams["s"].source).glob("*.parquet")
    file.rename(file.with_suffix(".away"))
    with pytest.raises(PipelineError, match=r"no longer exist.*deltatag tag s --restart --skip-changes. No table was"):
        tag_stream(workspace, "s", restart=True)
    with pytest.raises(PipelineError, match=r"no longer exist.*DeltaTable.repair\). No table was emptied"):
        join_streams(workspace, "j", restart=True)
    assert held(workspace) == [1, 1, 1]
    assert tag_stream(workspace, "s", restart=True, skip_changes=True).rows == 0
    file.with_suffix(".away").rename(file)
    tag_stream(workspace, "s", restart=True)
    join_streams(workspace, "j", restart=True)
    assert held(workspace) == [1, 1, 1]


@pytest.mark.slow
@pytest.mark.parametrize("attempt", [1, 2])
def test_a_restart_goes_on_with_spark(begin, monkeypatch: pytest.MonkeyPatch, attempt: int) -> None:
    """Whether it was planned before or not; another runner of this process stands for Spark's."""
    workspace, calls, open_source = begin({}, {}), [], LocalRunner.open_source

    def open_or_fail(runner: LocalRunner) -> Source:
        calls.append(runner)
        if len(calls) == attempt:
            raise NeedsSparkError("it is tested")
        return open_source(runner)

    monkeypatch.setattr(LocalRunner, "open_source", open_or_fail)
    monkeypatch.setattr(pipelines.tag, "going_on_with_spark", lambda *which: runner_of(*which[:2]))
    result = tag_stream(workspace, "s", restart=True)
    assert (result.batches, result.rows, held(workspace)) == (2, 1, [1, 1, 1]) and calls[0] is not calls[-1]
