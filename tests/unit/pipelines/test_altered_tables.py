"""Tables that other people have altered with SQL or another tool: runs go on, or stop with a sentence and its cure."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, write_deltalake

from pipelines.authoring.versions import history
from pipelines.compile import compile_scopes
from pipelines.errors import MissingTableError, TableError
from pipelines.lake.index_store import newest_index
from pipelines.lake.reading import read_rows
from pipelines.lint import accept_finding, lint_scopes
from pipelines.maintain import maintain
from pipelines.report import report_scopes
from pipelines.retag import retag
from pipelines.run import RunReport, run_due
from pipelines.status import status
from pipelines.tag import tag_stream
from pipelines.workspace import Workspace
from pipelines.writing.altered_types import cure_of_types
from quality.gates import QualityGates, rules_gate
from quality.written import unjudged
from tests.tables import alter, columns_of, widen

pytestmark = pytest.mark.usefixtures("without_spark")


@pytest.fixture
def workspace(new_workspace: Callable[..., Workspace], add_rules: Callable[..., None]) -> Workspace:
    """A stream with a tagged row, a rule that lint finds odd, and a second stream."""
    streams = {name: {"source": f"lake/{name}"} for name in ("s", "other")}
    lists = {"few": {"source": "lake/few"}}
    found = new_workspace({**streams, "s": {**streams["s"], "key": ["x"]}}, spark=False, lists=lists)
    write_deltalake(found.configuration.lists["few"].source, pa.table({"x": pa.array([1], pa.int32())}))
    add_rules(found, ("a", "s", "x > 0"), ("b", "s", "x IN LIST('few')"), ("c", "other", "x > 0"))
    append(found, 1)
    assert run(found).failures == {}
    return found


def append(workspace: Workspace, x: int) -> None:
    for name in ("s", "other"):
        write_deltalake(workspace.configuration.streams[name].source, pa.table({"x": [x]}), mode="append")


def run(workspace: Workspace) -> RunReport:
    return run_due(workspace, QualityGates())


def tags(workspace: Workspace, stream: str = "s") -> dict[int, list[str]]:
    return dict(columns_of(workspace, f"{stream}_tagged", "x", "rule_ids"))


def set_properties(workspace: Workspace, table: str, **properties: str) -> None:
    names = {f"delta.{name}": value for name, value in properties.items()}
    DeltaTable(workspace.lake.uri(table)).alter.set_table_properties(names)


@pytest.mark.slow
def test_columns_that_were_added_to_deltatags_own_tables_are_null(workspace, add_rules) -> None:
    for table in ("rule_index", "rule_rejects", "runs"):
        DeltaTable(workspace.lake.uri(table)).alter.add_columns([Field("note", "string")])
    add_rules(workspace, ("d", "s", "x > 1"), ("wrong", "s", "y > 1"), ("worse", "s", ""))
    append(workspace, 2)
    report = run(workspace)
    assert report.failures == {} and [each.rejects for each in report.compiled] == [2]
    assert tags(workspace) == {1: ["a", "b"], 2: ["a", "d"]}
    assert columns_of(workspace, "rule_rejects", "rule_id", "note") == [("worse", None), ("wrong", None)]
    assert unjudged(workspace.lake, "s") == 0
    compile_scopes(workspace, force=True)
    assert newest_index(workspace.lake, "s").rules == 3
    assert [each.name for each in workspace.lake.delta("rule_index").schema().fields][-1] == "note"
    accept_finding(workspace, "wrong", "rejected", None)
    DeltaTable(workspace.lake.uri("lint_accepted")).alter.add_columns([Field("note", "string")])
    accept_finding(workspace, "worse", "rejected", None)
    assert [each.rule_id for each in lint_scopes(workspace, ["s"])[0].accepted] == ["worse", "wrong"]


@pytest.mark.slow
def test_streams_are_tagged_although_the_rejects_cannot_be_written(workspace, add_rules) -> None:
    set_properties(workspace, "rule_rejects", appendOnly="true")
    add_rules(workspace, ("d", "s", "x > 1"), ("wrong", "other", "y > 1"))
    append(workspace, 2)
    failures = run(workspace).failures
    assert list(failures) == ["rule_rejects"]
    assert "SET TBLPROPERTIES ('delta.appendOnly' = 'false')" in failures["rule_rejects"]
    assert tags(workspace) == {1: ["a", "b"], 2: ["a", "d"]} and tags(workspace, "other") == {1: ["c"], 2: ["c"]}
    with pytest.raises(TableError, match="append-only"):
        compile_scopes(workspace)
    set_properties(workspace, "rule_rejects", appendOnly="false")
    assert run(workspace).failures == {} and columns_of(workspace, "rule_rejects", "rule_id") == [("wrong",)]


@pytest.mark.slow
@pytest.mark.parametrize("table", ["runs", "rule_index"])
def test_what_a_table_refuses_is_not_tried_again(workspace, add_rules, monkeypatch, table: str) -> None:
    def wait(_seconds: float) -> None:
        raise AssertionError("it is of no use to wait")

    monkeypatch.setattr(time, "sleep", wait)
    alter(workspace.lake.uri(table), writer_features=["inCommitTimestamp"])
    add_rules(workspace, ("d", "s", "x > 1"))
    append(workspace, 2)
    failures = run(workspace).failures
    assert "s" in failures and ("other" in failures) == (table == "runs")
    assert "DROP FEATURE" in failures["s"] and "too often" not in failures["s"]


@pytest.mark.slow
def test_a_constraint_of_runs_is_named_with_its_cure(workspace) -> None:
    DeltaTable(workspace.lake.uri("runs")).alter.add_constraint({"first": "batch < 1"})
    append(workspace, 2)
    assert "DROP CONSTRAINT" in run(workspace).failures["s"]


@pytest.mark.slow
@pytest.mark.parametrize("verb", [lint_scopes, lambda workspace: report_scopes(workspace, None, Path("pages"))])
def test_a_tagged_table_that_cannot_be_read_stops_no_other_scope(workspace, verb, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_deltalake(workspace.lake.uri("s_tagged"), pa.table({"x": [1]}), mode="overwrite", schema_mode="overwrite")
    found = {each.scope: each.error for each in verb(workspace)}
    assert "The table s_tagged" in found["s"] and found["other"] is None


@pytest.mark.slow
def test_rows_whose_tags_were_dropped_do_not_count_as_tagged(workspace) -> None:
    table = DeltaTable(workspace.lake.uri("s_tagged"))
    rows = table.to_pyarrow_table().drop_columns(["rule_ids"])
    write_deltalake(table, rows, mode="overwrite", schema_mode="overwrite")
    append(workspace, 2)
    with pytest.raises(TableError, match=r"no longer has the column rule_ids.* RESTORE TABLE s_tagged .* --restart"):
        tag_stream(workspace, "s")
    table = DeltaTable(workspace.lake.uri("s_tagged"))
    table.restore(table.version() - 1)
    assert run(workspace).failures == {} and tags(workspace) == {1: ["a", "b"], 2: ["a"]}


def test_times_without_a_zone_bound_rules_in_the_configured_one(new_workspace) -> None:
    """Polars and pandas write a naive time as TIMESTAMP_NTZ."""
    streams = {"s": {"source": "lake/s", "event_time": "t"}}
    workspace = new_workspace(streams, {"time_zone": "America/New_York"}, spark=False)
    times = pl.DataFrame({"t": [datetime(2024, 7, 1, hour) for hour in (3, 4, 5)]})
    times.with_columns(pl.col("t").dt.replace_time_zone("UTC")).write_delta(workspace.configuration.streams["s"].source)
    bounds = {"valid_from": [datetime(2024, 7, 1)], "valid_to": pl.Series([None], dtype=pl.Datetime("us"))}
    rules = pl.DataFrame({"rule_id": ["a"], "scope": ["s"], "expression": ["true"], **bounds})
    rules.write_delta(workspace.lake.uri("rules"), mode="overwrite", delta_write_options={"schema_mode": "overwrite"})
    assert rules_gate(workspace).passed
    assert run(workspace).failures == {}
    assert [len(ids) for _, ids in sorted(columns_of(workspace, "s_tagged", "t", "rule_ids"))] == [0, 1, 1]


@pytest.mark.parametrize(("first", "fails"), [(1.0, False), (1.5, True)])
def test_priorities_that_pandas_has_written_as_floats(new_workspace, first: float, fails: bool) -> None:
    workspace = new_workspace({"s": {"source": "lake/s", "annotations": ["first_rule_id"]}}, spark=False)
    write_deltalake(workspace.configuration.streams["s"].source, pa.table({"x": [1]}))
    named = {"rule_id": ["a", "b", "c"], "scope": ["s"] * 3, "expression": ["true"] * 3}
    rules = pl.DataFrame({**named, "priority": [None, 1e300, first]})
    rules.write_delta(workspace.lake.uri("rules"), mode="overwrite", delta_write_options={"schema_mode": "overwrite"})
    assert [*run(workspace).failures] == (["s"] if fails else [])
    if not fails:
        assert columns_of(workspace, "s_tagged", "first_rule_id") == [("c",)]


@pytest.mark.slow
def test_widened_types_of_rules_and_lists_are_read(workspace, add_rules) -> None:
    rule = {"rule_id": ["d"], "scope": ["s"], "expression": ["x > 1"], "priority": [1 << 40]}
    widen(workspace.lake.uri("rules"), "priority", "long", pa.table(rule))
    widen(workspace.configuration.lists["few"].source, "x", "long", pa.table({"x": [1 << 40]}))
    append(workspace, 1 << 40)
    assert run(workspace).failures == {}
    assert tags(workspace) == {1: ["a", "b"], 1 << 40: ["a", "b", "d"]}
    assert [each["expression"] for each in history(workspace, "d")] == ["x > 1"]
    assert lint_scopes(workspace)[0].error is None


def test_rows_of_a_table_with_widened_types(tmp_path: Path) -> None:
    """Against the rows as they were written: with partitions, and files from before a column."""
    kinds = pa.schema({"p": pa.string(), "n": pa.int32(), "text": pa.string()})
    old = {"p": ["a b", "a b", None], "n": [1, 2, 3], "text": ["x", "y", None]}
    write_deltalake(str(tmp_path), pa.table(old, kinds), partition_by=["p"])
    write_deltalake(str(tmp_path), pa.table({"p": ["c"], "n": [4], "text": ["z"]}, kinds), mode="append")
    DeltaTable(str(tmp_path)).alter.add_columns([Field("later", "boolean")])
    widen(str(tmp_path), "n", "long", pa.table({"n": [1 << 40], "text": ["x"], "later": [True]}))
    table = DeltaTable(str(tmp_path))
    rows = [("a b", 1, "x", None), ("a b", 2, "y", None), (None, 3, None, None)]
    rows += [("c", 4, "z", None), (None, 1 << 40, "x", True)]
    found = sorted(read_rows(table).to_pylist(), key=lambda row: row["n"])
    assert [tuple(row.values()) for row in found] == rows
    assert sorted(read_rows(table, ["n"], [("text", "x")])["n"].to_pylist()) == [1, 1 << 40]


@pytest.mark.slow
@pytest.mark.parametrize("table", ["rules", "runs"])
def test_the_rows_of_a_table_that_is_gone_are_not_made_again_by_init(workspace, table: str) -> None:
    shutil.move(workspace.lake.uri(table), f"{workspace.lake.uri(table)}-old")
    with pytest.raises(MissingTableError, match="put it back"):
        workspace.lake.delta(table)
    shutil.rmtree(workspace.configuration.lake.root)
    with pytest.raises(MissingTableError, match=r"Make it with: deltatag init\. If .* not mounted: put it back"):
        workspace.lake.delta(table)


@pytest.mark.slow
def test_status_says_what_to_do_about_a_source_that_was_made_again(workspace) -> None:
    source = workspace.configuration.streams["s"].source
    shutil.rmtree(source)
    write_deltalake(source, pa.table({"x": [1]}))
    assert str(status(workspace)[0].problem).endswith("deltatag tag s --restart")


@pytest.mark.slow
def test_matches_that_are_gone_are_not_made_again_without_those_of_earlier_rows(workspace, add_rules) -> None:
    matches = workspace.lake.uri("s_matches")
    shutil.move(matches, f"{matches}-old")
    add_rules(workspace, ("d", "s", "x > 1"))
    append(workspace, 2)
    assert "s_matches is gone" in str(status(workspace)[0].problem)
    report = run(workspace)
    assert re.search("s_matches is gone.* deltatag tag s --restart", report.failures.pop("s")) and not report.failures
    with pytest.raises(TableError, match="s_matches is gone"):
        retag(workspace, "s")
    shutil.move(f"{matches}-old", matches)
    assert run(workspace).failures == {}
    pairs = [(1, "a"), (1, "b"), (2, "a"), (2, "d")]
    assert sorted(columns_of(workspace, "s_matches", "x", "rule_id")) == pairs
    shutil.rmtree(matches)
    assert tag_stream(workspace, "s", restart=True).rows == 2
    assert sorted(columns_of(workspace, "s_matches", "x", "rule_id")) == pairs


@pytest.mark.slow
def test_a_list_that_an_older_copy_has_replaced_is_read_again(workspace) -> None:
    """The copy has the id of the table, and a new edit gets the number of a version that was compiled."""
    source = workspace.configuration.lists["few"].source
    shutil.copytree(source, f"{source}-copy")
    write_deltalake(source, pa.table({"x": pa.array([2], pa.int32())}), mode="append")
    append(workspace, 2)
    assert run(workspace).failures == {} and tags(workspace) == {1: ["a", "b"], 2: ["a", "b"]}
    shutil.rmtree(source)
    shutil.move(f"{source}-copy", source)
    write_deltalake(source, pa.table({"x": pa.array([3], pa.int32())}), mode="append")
    append(workspace, 3)
    append(workspace, 2)
    assert run(workspace).failures == {}
    assert sorted(columns_of(workspace, "s_tagged", "x", "rule_ids"))[1:] == [
        (2, ["a"]),
        (2, ["a", "b"]),
        (3, ["a", "b"]),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("interval", ["0", "many"])
def test_a_checkpoint_interval_that_is_none_is_that_of_delta(workspace, add_rules, interval: str) -> None:
    for table in ("s_tagged", "s_matches"):
        alter(workspace.lake.uri(table), properties={"delta.checkpointInterval": interval})
    for x in range(2, 12):
        append(workspace, x)
        assert tag_stream(workspace, "s").rows == 1
    add_rules(workspace, ("d", "s", "x > 5"))
    assert run(workspace).failures == {}
    assert retag(workspace, "s").rows_changed == 6
    log = Path(workspace.lake.uri("s_tagged"), "_delta_log")
    assert [path.name[:20] for path in log.glob("*.checkpoint.parquet")] == [f"{10:020}"]


@pytest.mark.slow
def test_a_retention_beyond_all_times_keeps_everything(workspace) -> None:
    for table in ("s_tagged", "runs"):
        alter(workspace.lake.uri(table), properties={"delta.deletedFileRetentionDuration": "interval 4000000 weeks"})
    assert [each.error for each in maintain(workspace) if each.error] == []


@pytest.mark.slow
def test_a_column_that_somebody_has_widened_is_not_blamed_on_the_source(workspace) -> None:
    """tests/spark/tagging/test_sources.py has the whole run, which needs Spark."""
    changed = "Give the source its old type back, or"
    assert cure_of_types(workspace.lake, "other_tagged", ["x"]) == changed
    rows = workspace.lake.arrow("other_tagged")
    widen(workspace.lake.uri("other_tagged"), "x", "decimal(30,0)", rows)
    cure = cure_of_types(workspace.lake, "other_tagged", ["y", "X"])
    assert cure.startswith("The column x of other_tagged itself was widened") and "RESTORE TABLE other_tagged" in cure
    assert cure_of_types(workspace.lake, "other_tagged", ["tagged_at"]) == changed


@pytest.mark.slow
@pytest.mark.parametrize("table", ["s_tagged", "s_matches", "quarantine_s"])
def test_a_table_that_only_takes_new_rows_is_not_emptied(workspace, table: str) -> None:
    alter(workspace.lake.uri(table), properties={"delta.appendOnly": "true"})
    append(workspace, 2)
    cure = rf"append-only, and a restart replaces rows .*ALTER TABLE {table} SET .*'delta.appendOnly' = 'false'"
    with pytest.raises(TableError, match=cure):
        tag_stream(workspace, "s", restart=True)
    assert tag_stream(workspace, "s").rows == 1  # nothing was planned
    alter(workspace.lake.uri(table), properties={"delta.appendOnly": "false"})
    assert tag_stream(workspace, "s", restart=True).rows == 2


@pytest.mark.slow
def test_a_quarantine_that_is_made_again_is_told(new_workspace, add_rules) -> None:
    workspace = new_workspace({"s": {"source": "lake/s", "key": ["x"]}}, spark=False)
    told: list[str] = []
    workspace.progress = told.append
    add_rules(workspace, ("a", "s", "x > 0"))
    quarantine = Path(workspace.lake.uri("quarantine_s"))

    def tag(*xs: int | None) -> list[str]:
        told.clear()
        rows = pa.table({"x": pa.array(xs, pa.int64())})
        write_deltalake(workspace.configuration.streams["s"].source, rows, mode="append")
        compile_scopes(workspace)
        tag_stream(workspace, "s")
        return [each for each in told if "quarantine" in each]

    assert tag(1) == []
    shutil.rmtree(quarantine)
    assert tag(2) == []  # no row is lost
    assert tag(None, None, 3) == []
    shutil.rmtree(quarantine)
    (lost,) = tag(4)
    assert "quarantine_s is gone, and with it the 2 rows" in lost and "deltatag tag s --restart" in lost
    assert tag(5) == []
    tag_stream(workspace, "s", restart=True)
    assert len(read_rows(workspace.lake.delta("quarantine_s"))) == 2
