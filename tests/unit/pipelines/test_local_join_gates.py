"""The gate behind a join that is run without a JVM: what is right passes, faults in files are found."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from pipelines.join import join_streams
from pipelines.run import run_due
from pipelines.status import status
from pipelines.table_definitions import tagged_table
from pipelines.workspace import Workspace
from quality import joined
from quality.gates import QualityGates
from tests.cases import quick_first

ROWS = 60
STREAMS = {name: {"source": f"lake/{name}", "event_time": "t", "key": ["id"]} for name in ("a", "b")}
JOIN = {"streams": ["a", "b"], "on": ["k"], "window": {"a": "0 s", "b": "10 s"}, "lateness": "1 hour"}
FIRST = datetime(2024, 1, 1, tzinfo=UTC)


def rows(first: int, kind: pa.DataType) -> pa.Table:
    numbers = range(first, first + ROWS)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "k": pa.array([n % 7 for n in numbers], kind),
            "x": pa.array([n % 10 for n in numbers], pa.int32()),
            "t": pa.array([FIRST + timedelta(seconds=n) for n in numbers], pa.timestamp("us", "UTC")),
        }
    )


@pytest.fixture
def workspace(new_workspace, add_rules) -> Workspace:
    found: Workspace = new_workspace(STREAMS, spark=False, joins={"j": JOIN})
    write_deltalake(found.configuration.streams["a"].source, rows(0, pa.float64()))
    write_deltalake(found.configuration.streams["b"].source, rows(0, pa.int32()))
    add_rules(
        found,
        ("some", "j", "a.x > b.x"),
        ("few", "j", "a.x + b.x < 4 AND b.id > 3"),
        {"rule_id": "late", "scope": "j", "expression": "TRUE", "valid_from": FIRST + timedelta(seconds=30)},
    )
    return found


@pytest.mark.slow
def test_a_source_that_changed_names_the_command_of_its_joins(workspace) -> None:
    assert run_due(workspace, QualityGates()).failures == {}
    source = workspace.configuration.streams["b"].source
    write_deltalake(source, rows(0, pa.int32()), mode="append")
    DeltaTable(source).delete("id = 3")
    gates = QualityGates()
    report = run_due(workspace, gates)
    (reason,) = report.failures.values()
    assert "deltatag join j --restart" in reason and "deltatag tag" not in reason
    # what was joined before is told and judged
    assert [result.batches for result in report.joined] == [1] and gates.results[-1].gate == "j_tagged"
    assert status(workspace)[-1].problem in reason


@pytest.mark.slow
def test_a_join_is_not_told_to_skip_rows_of_files_that_are_gone(workspace, add_rules) -> None:
    add_rules(workspace, ("alone", "b", "x > 3"))
    workspace = with_stream(workspace, "b", checks={"positive": "x >= 0"})
    source = workspace.configuration.streams["b"].source
    assert run_due(workspace, QualityGates()).failures == {}
    write_deltalake(source, rows(ROWS, pa.int32()), mode="append")
    DeltaTable(source).optimize.compact()
    DeltaTable(source).vacuum(0, dry_run=False, enforce_retention_duration=False)
    reason = run_due(workspace, QualityGates()).failures["j"]
    assert "The quality gate of b for j is closed. Expected: The source is a Delta table that only grew" in reason
    assert "since it was tagged last: found: " in reason and "no longer exist" in reason
    assert "deltatag join j --restart" in reason and "--skip-changes" not in reason


def with_stream(workspace: Workspace, name: str, **changed: Any) -> Workspace:
    """The workspace with another configuration of a stream."""
    streams = dict(workspace.configuration.streams)
    streams[name] = replace(streams[name], **changed)
    return Workspace(replace(workspace.configuration, streams=streams), None)


@pytest.mark.slow
@pytest.mark.parametrize("has_rules", quick_first(1, [False, True]))
@pytest.mark.parametrize(
    "wrong", quick_first(1, [{"key": ("lacks",)}, {"cluster_by": ("lacks",)}, {"partition_by": ("lacks",)}]), ids=str
)
def test_what_only_a_stream_needs_of_its_source_does_not_keep_its_joins_from_running(
    workspace, add_rules, wrong, has_rules
) -> None:
    if has_rules:
        add_rules(workspace, ("alone", "a", "x > 3"))
    gates = QualityGates()
    report = run_due(with_stream(workspace, "a", **wrong), gates)
    (what,) = wrong
    assert list(report.failures) == ["a"]
    assert f"has the {what} lacks, but its source has no such column" in report.failures["a"]
    assert [(each.join, each.joined > 50) for each in report.joined] == [("j", True)]
    assert {result.gate for result in gates.results if not result.passed} == {"a"}
    assert workspace.lake.exists("j_tagged") and not workspace.lake.exists("a_tagged")


def test_what_a_join_needs_of_a_source_keeps_it_from_running(workspace) -> None:
    # every row of `a` fails the check; that its stream lacks its key changes nothing of it
    changed: dict[str, Any] = {"key": ("lacks",), "checks": {"never": "x < 0"}, "max_quarantine_share": 0.5}
    report = run_due(with_stream(workspace, "a", **changed), QualityGates())
    assert set(report.failures) == {"a", "j"} and report.joined == []
    assert "The quality gate of a for j is closed." in report.failures["j"]
    assert "at most 0.5 is allowed" in report.failures["j"] and "lacks" not in report.failures["j"]


@pytest.mark.slow
def test_a_stream_that_stopped_at_a_change_does_not_stop_a_join_that_is_beyond_it(workspace, add_rules) -> None:
    add_rules(workspace, ("alone", "b", "x > 3"))
    assert run_due(workspace, QualityGates()).failures == {}
    DeltaTable(workspace.configuration.streams["b"].source).delete("id = 3")
    join_streams(workspace, "j", skip_changes=True)
    write_deltalake(workspace.configuration.streams["b"].source, rows(ROWS, pa.int32()).slice(0, 5), mode="append")
    report = run_due(workspace, QualityGates())
    assert list(report.failures) == ["b"] and "deltatag tag b" in report.failures["b"]
    assert [(each.join, each.rows) for each in report.joined] == [("j", 5)]


def measured(workspace: Workspace) -> Mapping[str, Any]:
    return joined.suites(workspace, workspace.configuration.joins["j"]).measures


@pytest.mark.slow
def test_a_run_of_a_join_needs_no_jvm_and_its_gates_pass(workspace) -> None:
    began = "pyspark" in sys.modules
    report = run_due(workspace, QualityGates())
    assert report.failures == {}
    assert report.joined[0].joined > 50
    measures = measured(workspace)
    assert measures["tagged_rows"] == measures["recorded_rows"] == report.joined[0].joined
    assert measures["tagged_matches"] == measures["recorded_matches"] == report.joined[0].matches
    assert measures["sampled_rows"] > 50 and measures["sampled_rules"] == 3
    for name in ("unequal_keys", "outside_window", "repeated_rows", "unmatched_rows", "wrong_versions"):
        assert measures[name] == 0
    assert measures["unknown_ids"] == measures["disagreeing_rules"] == "none"
    late = pa.concat_tables([rows(ROWS, pa.int32()).slice(0, 1), rows(-7200, pa.int32()).slice(0, 2)])
    write_deltalake(workspace.configuration.streams["b"].source, late, mode="append")
    report = run_due(workspace, QualityGates())
    assert report.failures == {}
    measures = measured(workspace)
    assert (measures["new_rows"], measures["quarantined_rows"]) == (3, 2)
    assert began or "pyspark" not in sys.modules


def within(table: pa.Table, stream: str, column: str, change: Callable[[Any], Any]) -> pa.Table:
    """A stream's column changed in the first row."""
    struct = table[stream].combine_chunks()
    struct = struct.chunk(0) if isinstance(struct, pa.ChunkedArray) else struct
    values = struct.to_pylist()
    values[0][column] = change(values[0][column])
    return table.set_column(table.column_names.index(stream), stream, pa.array(values, struct.type))


def ids(table: pa.Table, change: Callable[[list[str]], list[str] | None]) -> pa.Table:
    changed = [change(found) for found in table["rule_ids"].to_pylist()]
    place = table.column_names.index("rule_ids")
    return table.set_column(place, "rule_ids", pa.array(changed, table.schema.field(place).type))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "fault"),
    quick_first(
        3,
        [
            (lambda t: within(t, "a", "k", lambda k: k + 1), "unequal_keys"),
            (lambda t: within(t, "b", "t", lambda t: t - timedelta(seconds=60)), "outside_window"),
            (lambda t: pa.concat_tables([t, t.slice(0, 1)]), "repeated_rows"),
            (lambda t: ids(t, lambda i: ["few"]), "disagreeing_rules"),
            (lambda t: ids(t, lambda i: []), "unmatched_rows"),
            # tests/unit/pipelines/test_local_gates.py has those of ids, and what is NULL is neither equal nor within
            (lambda t: within(t, "b", "k", lambda k: None), "unequal_keys"),
            (lambda t: within(t, "a", "t", lambda t: None), "outside_window"),
            (lambda t: ids(t, lambda i: ["some", "late"]), "unordered_rule_ids"),
            (lambda t: ids(t, lambda i: [*i, "zz"]), "unknown_ids"),
        ],
        5,
    ),
)
def test_each_fault_in_a_file_is_found(workspace, change, fault) -> None:
    run_due(workspace, QualityGates())
    assert measured(workspace)[fault] in (0, "none")
    (path,) = DeltaTable(workspace.lake.uri(tagged_table("j"))).file_uris()
    pq.write_table(change(pq.read_table(Path(path))), path)
    assert measured(workspace)[fault] not in (0, "none")
