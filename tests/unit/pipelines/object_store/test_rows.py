"""Lakes in an object store, without a JVM: their rows are those of a lake in a folder over the same source."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from unittest.mock import Mock

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from pipelines.backtest import Candidate, backtest
from pipelines.compile import compile_scopes
from pipelines.errors import NeedsSparkError, SourceError, SparkRuledOutError
from pipelines.join import join_streams
from pipelines.lake.store import store_of
from pipelines.lake.store_log import _place
from pipelines.lake.table_log import table_log
from pipelines.retag import reproduce_tags, retag
from pipelines.run import run_due
from pipelines.runners.choice import runner_of
from pipelines.sources.columns import source_columns
from pipelines.sources.first_rows import files_of
from pipelines.sources.newest_version import newest_version
from pipelines.tag import tag_stream
from pipelines.workspace import Workspace
from quality.gates import QualityGates
from tests.cases import soak_rest
from tests.tables import delete_rows
from tests.unit.pipelines.object_store.lakes import FIRST, UNSTABLE, contents, rows, written


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lake_in_store", "partition_by"), soak_rest(2, [(True, None), (False, "name"), (True, "name"), (False, None)])
)
def test_the_rows_are_those_of_a_lake_in_a_folder(store, make, uri, tmp_path, lake_in_store, partition_by) -> None:
    # 40,000 rows are a row group whose columns are copied
    for place in (f"{uri}/source", str(tmp_path / "source")):
        write_deltalake(place, rows(0, 40_000), partition_by=partition_by)
    found, wanted = (
        make(f"{uri}/lake" if lake_in_store else "stored", f"{uri}/source"),
        make("lake", str(tmp_path / "source")),
    )
    for workspace in (found, wanted):
        tag_stream(workspace, "s")
        write_deltalake(workspace.configuration.streams["s"].source, rows(40_000, 100), mode="append")
        tag_stream(workspace, "s")
    assert contents(found) == contents(wanted)
    assert [len(each) > 200 for each in contents(found).values()] == [True] * 3


@pytest.mark.slow
def test_deleted_rows_are_neither_tagged_nor_tried(store, make, uri, tmp_path) -> None:
    source = tmp_path / "source"
    for start in (0, 100):
        write_deltalake(str(source), rows(start, 100), mode="append")
        delete_rows(source, start // 100, [3, 50, 99])
    files = [str(path.relative_to(source)) for path in sorted(source.rglob("*")) if path.is_file()]
    store_of(f"{uri}/source").send(source, files)
    workspace = make(f"{uri}/lake", f"{uri}/source")
    assert tag_stream(workspace, "s").rows == 194
    for sample in (None, 50):
        tried = backtest(workspace, "s", [Candidate("all", "TRUE")], sample=sample)
        assert tried.rules[0].matches == tried.rows and (tried.rows == 194) == (sample is None)
    # no file is copied for a sample alone
    with pytest.raises(NeedsSparkError, match="copied from an object store"):
        files_of(workspace.configuration.streams["s"], DeltaTable(f"{uri}/source"))


@pytest.mark.slow
def test_a_table_has_columns_added_and_is_emptied(store, make, uri) -> None:
    write_deltalake(f"{uri}/source", rows(0, 100))
    workspace = make(f"{uri}/lake", f"{uri}/source")
    tag_stream(workspace, "s")
    more = rows(100, 10).append_column("more", pa.array(range(10)))
    for first, within in ((0, {"a": 1}), (5, {"a": 2, "b": 3})):
        further = more.slice(first, 5).append_column("within", pa.array([within] * 5))
        write_deltalake(f"{uri}/source", further, mode="append", schema_mode="merge")
        tag_stream(workspace, "s")
    before, table = contents(workspace, UNSTABLE), DeltaTable(workspace.lake.uri("s_tagged"))
    assert sorted(row["more"] for row in before["s_tagged"] if row["more"] is not None) == list(range(10))
    assert {"a": 1, "b": None} in [row["within"] for row in before["s_tagged"]]
    tag_stream(workspace, "s", restart=True)
    assert contents(workspace, UNSTABLE) == before
    write_deltalake(f"{uri}/source", rows(0, 50), mode="overwrite", schema_mode="overwrite")
    tag_stream(workspace, "s", restart=True)
    anew = DeltaTable(workspace.lake.uri("s_tagged"))
    assert anew.metadata().id == table.metadata().id
    assert "more" not in [field.name for field in anew.schema().fields]
    assert DeltaTable(workspace.lake.uri("s_tagged"), version=table.version()).to_pyarrow_table().num_rows == 98


@pytest.mark.parametrize("output", ["all", "matched"])
@pytest.mark.slow
def test_a_retag_does_what_it_does_in_a_folder(store, make, add_rules, uri, tmp_path, output: str) -> None:
    found, wanted = (
        make(f"{uri}/lake", written(f"{uri}/source", partition_by=["name"]), output=output),
        make("lake", written(str(tmp_path / "source"), partition_by=["name"]), output=output),
    )
    for workspace in (found, wanted):
        tag_stream(workspace, "s")
        add_rules(workspace, ("small", "s", "amount < 5"))
        compile_scopes(workspace, ["s"])
        assert retag(workspace, "s").rows_changed > 0
        for version in (1, 2):  # the table is made, and replaced
            until = str(FIRST + timedelta(hours=2)) if output == "all" else None
            assert 0 < reproduce_tags(workspace, "s", version, "past", until=until).rows_changed < 200
    tables = ("s_tagged", "s_matches", "past")
    assert contents(found, tables=tables) == contents(wanted, tables=tables)
    assert any("small" in row["rule_ids"] for row in contents(found)["s_tagged"])


@pytest.mark.slow
def test_a_join_does_what_it_does_in_a_folder(store, new_workspace, add_rules, uri, tmp_path) -> None:
    joined = {"streams": ["a", "b"], "on": ["name"], "window": "10 min"}
    held = []
    for root, place in ((f"{uri}/lake", uri), ("lake", str(tmp_path))):
        streams = {name: {"source": written(f"{place}/{name}"), "event_time": "t"} for name in ("a", "b")}
        workspace = new_workspace(streams, spark=False, runner="local", root=root, joins={"j": joined})
        add_rules(workspace, ("both", "j", "a.amount > 50 AND b.flag"))
        assert not [each.error for each in compile_scopes(workspace) if each.error]
        join_streams(workspace, "j")
        written(f"{place}/b", first=200)
        join_streams(workspace, "j")
        table = DeltaTable(workspace.lake.uri("j_tagged")).to_pyarrow_table().drop_columns(["tagged_at"])
        held.append(sorted(table.to_pylist(), key=repr))
    assert held[0] == held[1] and len(held[0]) > 50


@pytest.mark.slow
def test_gates_judge_what_a_run_wrote(store, new_workspace, add_rules, uri) -> None:
    streams = {name: {"source": written(f"{uri}/{name}"), "key": ["id"], "event_time": "t"} for name in ("a", "b")}
    streams["a"]["checks"] = {"few": "amount < 98"}
    joined = {"streams": ["a", "b"], "on": ["name"], "window": "10 min"}
    workspace = new_workspace(streams, spark=False, runner="local", root=f"{uri}/lake", joins={"j": joined})
    add_rules(workspace, ("big", "a", "amount > 50"), ("both", "j", "a.amount > 50 AND b.flag"))
    gates = QualityGates()
    assert not run_due(workspace, gates).failures
    assert {result.gate for result in gates.results if result.passed} >= {"a_tagged", "j_tagged"}


def test_a_source_that_delta_rs_cannot_read_is_left_to_spark(store, new_workspace, uri) -> None:
    workspace = new_workspace({"s": {"source": written(f"{uri}/source")}}, spark=False, runner="local")
    store.hinder(refuse=("GET", "source/_delta_log"))
    with pytest.raises(
        SparkRuledOutError, match=r"s needs Spark because delta-rs cannot read its source: .*403 Forbidden"
    ):
        runner_of(workspace, workspace.configuration.streams["s"])


@pytest.mark.parametrize("runner", ["local", "auto"])
def test_why_a_source_cannot_be_opened_is_told_whatever_spark_says(
    store, new_workspace, uri, runner: str, monkeypatch
) -> None:
    workspace = new_workspace({"s": {"source": written(f"{uri}/source")}}, spark=False, runner=runner)
    session = {"local": lambda _: pytest.fail("a JVM was started"), "auto": lambda _: None}[runner]
    monkeypatch.setattr(Workspace, "spark", property(session))
    failed = SourceError('No FileSystem for scheme "s3"')
    monkeypatch.setattr("pipelines.sources.source.open_source", Mock(side_effect=failed))
    store.hinder(refuse=("GET", "source/_delta_log"))
    for read in (source_columns, newest_version):
        with pytest.raises(SourceError, match=r"A source at .* cannot be opened: .*403 Forbidden"):
            read(workspace, workspace.configuration.streams["s"])


def test_copies_of_files_do_not_stay(store, make, uri, monkeypatch, tmp_path: Path) -> None:
    write_deltalake(f"{uri}/source", rows(0, 100))
    write_deltalake(f"{uri}/source", rows(100, 100), mode="append")
    log = table_log(f"{uri}/source")
    adds = log.files(log.latest())
    copies = [Path(file.path) for file in log.source_files([(0, add) for add in adds])]
    assert [path.stat().st_size for path in copies] == [add["size"] for add in adds]
    log.keep_only([adds[0]["path"]])
    assert [path.exists() for path in copies] == [True, False]
    folder = copies[0].parent
    del log
    assert not folder.exists() and os.path.isdir(folder.parent)


@pytest.mark.parametrize("path", ["../a.parquet", "a/../../b", "a/%2E%2E/%2E%2E/b", "/etc/a", "s3://other/a.parquet"])
def test_no_file_is_copied_to_a_place_outside_of_scratch(path: str) -> None:
    with pytest.raises(NeedsSparkError, match="not in its own folder"):
        _place(path)
