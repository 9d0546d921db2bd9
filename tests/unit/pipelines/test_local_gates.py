"""The gates around a stream that is tagged without a JVM: what is right passes, faults in files are found."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from pipelines.compile import compile_scopes
from pipelines.run import OpenGates, run_due
from pipelines.runners.local_runner import LocalRunner
from pipelines.tag import tag_stream
from pipelines.workspace import Workspace
from quality import sources, tagged
from quality.evaluation import evaluate
from quality.gates import QualityGates, tagged_gate
from quality.written import NewestBatch
from rules_index.index import artifact
from tests.cases import quick_first

ROWS = 500


@pytest.fixture
def workspace(new_workspace, add_rules) -> Workspace:
    stream = {"source": "lake/source", "key": ["id"], "event_time": "t", "checks": {"small": "x < 90"}}
    found: Workspace = new_workspace({"s": stream}, spark=False)
    numbers = range(ROWS)
    table = pa.table(
        {
            "id": pa.array([None if n == 3 else n for n in numbers], pa.int64()),
            "x": pa.array([n % 100 for n in numbers], pa.int32()),
            "t": pa.array([datetime(2024, 1, 1, tzinfo=UTC) + timedelta(hours=n) for n in numbers]),
        }
    )
    write_deltalake(found.configuration.streams["s"].source, table)
    add_rules(found, ("a", "s", "x > 50"), ("c", "s", "x BETWEEN 10 AND 60"), ("n", "s", "x < 0"))
    compile_scopes(found)
    return found


def test_the_source_is_counted_before_it_is_tagged(workspace) -> None:
    measures = sources.suites(workspace, workspace.configuration.streams["s"]).measures
    refused = sum(n % 100 >= 90 or n == 3 for n in range(ROWS))
    assert measures["new_rows"] == ROWS
    assert measures["refused"] == refused
    assert measures["null_key_0"] == 1
    assert measures["failed_check_0"] == ROWS // 10
    tag_stream(workspace, "s")
    measures = sources.suites(workspace, workspace.configuration.streams["s"]).measures
    assert (measures["new_rows"], measures["refused"]) == (0, 0)


@pytest.mark.parametrize("start", [100, "2999-01-01"])
def test_a_start_in_the_future_closes_no_gate(new_workspace, start) -> None:
    workspace = new_workspace({"s": {"source": "lake/source", "key": ["id"], "start": start}}, spark=False)
    stream = workspace.configuration.streams["s"]
    write_deltalake(stream.source, pa.table({"id": [1, 2]}))
    measures = sources.suites(workspace, stream).measures
    assert (measures["followed"], measures["new_rows"]) == ("yes", 0)


def test_an_empty_text_that_a_partition_does_not_keep_is_no_fault(new_workspace, add_rules) -> None:
    stream = {"source": "lake/source", "key": ["id"], "partition_by": ["s"]}
    workspace = new_workspace({"s": stream}, spark=False)
    texts = pa.table({"id": pa.array(range(4), pa.int64()), "s": ["", None, "a", "b"]})
    write_deltalake(workspace.configuration.streams["s"].source, texts)
    add_rules(workspace, ("empty", "s", "s = ''"), ("null", "s", "s IS NULL"), ("a", "s", "s = 'a'"))
    compile_scopes(workspace)
    tag_stream(workspace, "s")
    found = measured(workspace)
    assert (found["tagged_matches"], found["disagreeing_rules"], found["sampled_rows"]) == (3, "none", 2)


def measured(workspace: Workspace) -> Mapping[str, object]:
    return tagged.suites(workspace, workspace.configuration.streams["s"]).measures


@pytest.mark.slow
def test_a_micro_batch_that_a_run_resumes_is_judged_with_those_after_it(workspace, monkeypatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(LocalRunner, "write", lambda *_: 1 / 0)
        assert set(run_due(workspace, OpenGates()).failures) == {"s"}
    stream = workspace.configuration.streams["s"]
    write_deltalake(stream.source, pl.read_delta(stream.source).head(9).to_arrow(), mode="append")
    gates = QualityGates()
    report = run_due(workspace, gates)
    assert (report.failures, report.tagged[0].batches) == ({}, 2)
    assert gates.results[-1].measures["tagged_rows"] == report.tagged[0].rows - report.tagged[0].quarantined


@pytest.mark.slow
def test_what_a_killed_run_tagged_is_judged_by_the_next_one(workspace, monkeypatch) -> None:
    source, gates = workspace.configuration.streams["s"].source, QualityGates()

    def append_and_run() -> int:
        """Let three rows arrive, and run; returns how many rows were judged."""
        write_deltalake(source, pl.read_delta(source).head(3).to_arrow(), mode="append")
        assert run_due(workspace, gates).failures == {}
        return gates.results[-1].measures["source_rows"]

    def kill(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr("quality.gates.tagged_gate", kill)
        append_and_run()
    assert append_and_run() == ROWS + 6
    assert append_and_run() == 3
    tag_stream(workspace, "s", restart=True)  # what was there before has gone unjudged with its rows
    assert append_and_run() == ROWS + 12
    version = workspace.lake.version("runs")
    assert tagged_gate(workspace, "s").measures["source_rows"] == 3
    assert workspace.lake.version("runs") == version


@pytest.mark.slow
def test_rows_that_were_written_by_another_output_are_not_judged_by_this_one(workspace) -> None:
    configuration = workspace.configuration
    stream = replace(configuration.streams["s"], output="matched")
    tag_stream(Workspace(replace(configuration, streams={"s": stream})), "s")
    write_deltalake(stream.source, pl.read_delta(stream.source).head(3).to_arrow(), mode="append")
    gates = QualityGates()
    assert run_due(workspace, gates).failures == {} and gates.results[-1].measures["source_rows"] == 3


@pytest.mark.slow
def test_what_was_tagged_is_found_right(workspace) -> None:
    tag_stream(workspace, "s")
    found = measured(workspace)
    assert found["tagged_rows"] == found["expected_rows"] == ROWS - ROWS // 10 - 1
    assert found["tagged_matches"] == found["recorded_matches"] > 0
    for name in ("null_rule_ids", "unordered_rule_ids", "wrong_versions"):
        assert found[name] == 0
    for name in ("unknown_ids", "differing_rules", "disagreeing_rules"):
        assert found[name] == "none"
    assert found["sampled_rows"] > 100
    assert found["sampled_rules"] == 3


@pytest.mark.slow
@pytest.mark.parametrize("gone", ["files", "commits"])
def test_what_vacuum_or_the_log_no_longer_has_is_not_judged(workspace, gone) -> None:
    tag_stream(workspace, "s")
    table = workspace.lake.writable("s_tagged")
    table.delete("id < 0")
    write_deltalake(table, workspace.lake.arrow("s_tagged"), mode="overwrite")
    table = workspace.lake.writable("s_tagged")
    if gone == "files":
        assert measured(workspace)["tagged_rows"] > 0
        assert table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    else:
        table.create_checkpoint()
        for file in Path(workspace.lake.uri("s_tagged"), "_delta_log").glob("*[01].json"):
            file.unlink()
    found = tagged.suites(workspace, workspace.configuration.streams["s"])
    assert found.measures["tagged_rows"] == found.measures["expected_rows"] == 0
    assert all(each.success for each in evaluate(found.suites))


def test_a_lost_file_of_the_newest_version_is_an_error(workspace) -> None:
    tag_stream(workspace, "s")
    for file in Path(workspace.lake.uri("s_tagged")).rglob("*.parquet"):
        file.unlink()
    with pytest.raises(FileNotFoundError):
        measured(workspace)


@pytest.mark.slow
def test_rules_of_the_three_columns_that_are_needed_are_tried_again(workspace) -> None:
    rules = pa.table({"rule_id": ["a", "n"], "scope": ["s", "s"], "expression": ["x > 50", "x < 0"]})
    write_deltalake(workspace.lake.uri("rules"), rules, mode="overwrite", schema_mode="overwrite")
    compile_scopes(workspace)
    tag_stream(workspace, "s")
    found = measured(workspace)
    assert (found["sampled_rules"], found["disagreeing_rules"]) == (2, "none")


@pytest.mark.slow
@pytest.mark.parametrize("anew", [False, True], ids=["vacuumed", "made anew"])
def test_the_rules_that_were_compiled_may_be_gone(workspace, add_rules, anew) -> None:
    rules = workspace.lake.arrow("rules")
    if anew:
        # as with DROP TABLE and CREATE TABLE: the same number of a version stands for other rules
        shutil.rmtree(workspace.lake.uri("rules"))
        workspace.lake.create("rules")
        add_rules(workspace, ("a", "s", "x > 51"))
    write_deltalake(workspace.lake.uri("rules"), rules, mode="overwrite")
    if not anew:
        workspace.lake.writable("rules").vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert [each.state for each in compile_scopes(workspace)] == ["unchanged"]
    tag_stream(workspace, "s")
    found = measured(workspace)
    assert (found["sampled_rules"], found["disagreeing_rules"], found["unknown_ids"]) == (3, "none", "none")


@pytest.mark.slow
def test_one_of_two_indexes_of_a_version_of_the_rules_may_be_gone(workspace, add_rules) -> None:
    add_rules(workspace, ("late", "s", "y = 1"), ("three", "s", "x = 3"))
    compile_scopes(workspace)  # without `late`, whose column the source does not have yet
    tag_stream(workspace, "s")
    wider = pa.table({"id": pa.array([ROWS], pa.int64()), "x": pa.array([55], pa.int32()), "y": pa.array([1])})
    source = workspace.configuration.streams["s"].source
    write_deltalake(source, wider, mode="append", schema_mode="merge")
    compile_scopes(workspace)
    tag_stream(workspace, "s")
    written = NewestBatch.newest(workspace, "s", 2)
    (version,) = {batch.rules_version for batch in written.batches}
    first, second = (batch.fingerprint for batch in written.batches)
    assert first != second
    pairs = pl.DataFrame({"rules_version": [version] * 2, "rule_id": ["late", "zz"]})
    assert written.unknown_ids(pairs) == ["zz"]
    workspace.lake.writable("rule_index").delete(f"fingerprint = '{second}'")
    assert written.unknown_ids(pairs) == ["zz"]


def test_rows_are_judged_after_an_upgrade_that_does_not_read_the_index_that_tagged_them(workspace, monkeypatch) -> None:
    tag_stream(workspace, "s")  # by a version that did not get to the gate
    monkeypatch.setattr(artifact, "FORMAT_VERSION", artifact.FORMAT_VERSION + 1)
    found = tagged_gate(workspace, "s")
    assert found.passed and found.error is None
    assert found.measures["unknown_ids"] == "none"


def ids(table: pa.Table, change: Callable[[int, list[str]], list[str] | None]) -> pa.Table:
    changed = [change(number, found) for number, found in enumerate(table["rule_ids"].to_pylist())]
    place = table.column_names.index("rule_ids")
    return table.set_column(place, "rule_ids", pa.array(changed, table.schema.field(place).type))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "change", "fault"),
    quick_first(4, [
        ("s_tagged", lambda t: ids(t, lambda n, i: None if n == 9 else i), "null_rule_ids"),
        ("s_tagged", lambda t: ids(t, lambda n, i: [*i, None] if n == 9 else i), "null_rule_ids"),
        ("s_tagged", lambda t: ids(t, lambda n, i: i[::-1]), "unordered_rule_ids"),
        ("s_tagged", lambda t: ids(t, lambda n, i: [*i, "zz"] if n == 9 else i), "unknown_ids"),
        ("s_tagged", lambda t: ids(t, lambda n, i: ["a"]), "disagreeing_rules"),
        ("s_tagged", lambda t: ids(t, lambda n, i: [] if n == 55 else i), "differing_rules"),
        ("s_tagged", lambda t: t.slice(1), "surplus_rows"),
        ("s_tagged", lambda t: t.set_column(t.column_names.index("rules_version"), "rules_version",
                                            pa.array([0] * t.num_rows, pa.int64())), "wrong_versions"),
        ("s_matches", lambda t: t.slice(1), "differing_rules"),
        ("s_matches", lambda t: t.set_column(1, "id", pc.add(t["id"], 1)), "differing_rules"),
    ]),
)  # fmt: skip
def test_each_fault_in_a_file_is_found(workspace, name, change, fault) -> None:
    tag_stream(workspace, "s")
    (path,) = DeltaTable(workspace.lake.uri(name)).file_uris()
    pq.write_table(change(pq.read_table(Path(path))), path)
    assert measured(workspace)[fault] not in (0, "none")
