"""Streams that only a join reads: their sources, and what is said of them."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from pipelines.run import run_due
from pipelines.tag import tag_stream
from quality.gates import QualityGates

pytestmark = pytest.mark.usefixtures("without_spark")

JOIN = {"streams": ["a", "b"], "on": ["k"], "window": "1 hour"}


def test_a_join_reads_tagged_rows_by_their_path(new_workspace, add_rules) -> None:
    streams = {
        "s": {"source": "lake/s", "event_time": "at"},
        "a": {"source": "lake/s_tagged", "event_time": "at"},
        "b": {"source": "lake/b", "event_time": "at"},
    }
    workspace = new_workspace(streams, spark=False, joins={"j": JOIN})
    at = pa.array([datetime(2026, 1, 1, tzinfo=UTC)], pa.timestamp("us", "UTC"))
    for name in ("s", "b"):
        write_deltalake(workspace.configuration.streams[name].source, pa.table({"k": [1], "x": [5], "at": at}))
    add_rules(workspace, ("high", "s", "x > 3"), ("both", "j", "a.x = b.x AND array_contains(a.rule_ids, 'high')"))
    assert set(run_due(workspace, QualityGates()).failures) == {"a", "j"}  # s is tagged after they are compiled
    assert run_due(workspace, QualityGates()).failures == {}
    assert workspace.lake.arrow("j_tagged")["rule_ids"].to_pylist() == [["both"]]
    add_rules(workspace, ("own", "a", "x > 4"))
    told = run_due(workspace, QualityGates()).failures
    assert len(told) == 1 and "a column rule_ids, a name that deltatag needs" in str(told), told
    assert not workspace.lake.exists("a_tagged")


def test_rejected_rules_are_told_from_none(new_workspace, add_rules) -> None:
    streams = {name: {"source": f"lake/{name}", "event_time": "at"} for name in "ab"}
    workspace = new_workspace(streams, spark=False, joins={"j": JOIN})
    at = pa.array([datetime(2026, 1, 1, tzinfo=UTC)], pa.timestamp("us", "UTC"))
    for name in "ab":
        write_deltalake(workspace.configuration.streams[name].source, pa.table({"k": [1], "at": at}))
    add_rules(workspace, ("both", "j", "a.k = b.k"), ("wrong", "a", "misspelt > 3"))
    assert run_due(workspace, QualityGates()).failures == {}
    told = {name: tag_stream(workspace, name).notices[0] for name in "ab"}
    assert told["a"].startswith("a has only rejected rules, and is read only by the join j")
    assert "until one of them compiles (" in told["a"]
    assert told["b"].startswith("b has no rule, and is read only by the join j")
    assert "until it has one (" in told["b"]
