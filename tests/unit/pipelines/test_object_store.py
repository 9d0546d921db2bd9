"""Lakes and sources in an object store, without a JVM: their rows are those of a lake in a folder over the same source.

The store is a server of S3's protocol that delta-rs reaches as it reaches S3.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyarrow.fs import FileSelector, FileType

from pipelines.backtest import Candidate, backtest
from pipelines.compile import compile_scopes
from pipelines.errors import NeedsSparkError, PipelineError, SourceError, SparkRuledOutError, TableError
from pipelines.join import join_streams
from pipelines.lake.folder_log import FolderLog
from pipelines.lake.folder_snapshot import Definition
from pipelines.lake.log_actions import commit_info, transaction
from pipelines.lake.runs import batches
from pipelines.lake.store import store_of
from pipelines.lake.store_log import _place
from pipelines.lake.table_cache import shared_table
from pipelines.lake.table_log import table_log
from pipelines.maintain import maintain
from pipelines.retag import reproduce_tags, retag
from pipelines.run import run_due
from pipelines.runners.choice import runner_of
from pipelines.sources.columns import source_columns
from pipelines.sources.first_rows import files_of
from pipelines.sources.newest_version import newest_version
from pipelines.tag import tag_stream
from pipelines.workspace import Workspace
from quality.gates import QualityGates
from tests.cases import quick_first, soak_rest
from tests.object_store import ObjectStore, served
from tests.tables import delete_rows

FIRST = datetime(2024, 3, 30, 12, tzinfo=UTC)
TABLES = ("s_tagged", "s_matches", "quarantine_s")
NAMES = ["n 1", "n=2/é", "100%", None, "n1"]
RULES = (
    ("big", "s", "amount > 50"),
    ("named", "s", "name IN ('n 1', '100%') AND flag"),
    {"rule_id": "late", "scope": "s", "expression": "TRUE", "valid_from": FIRST + timedelta(hours=2)},
)


def rows(first: int, count: int) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table(
        {
            "id": pa.array([None if n % 97 == 13 else n for n in numbers], pa.int64()),
            "name": pa.array([NAMES[n % 5] for n in numbers]),
            "amount": pa.array([None if n % 11 == 0 else Decimal(n % 100) for n in numbers], pa.decimal128(10, 2)),
            "flag": pa.array([n % 3 == 0 for n in numbers]),
            "t": pa.array([FIRST + timedelta(minutes=n) for n in numbers], pa.timestamp("us", "UTC")),
        }
    )


def written(place: str, first: int = 0, count: int = 200, **options: Any) -> str:
    """A table with these rows, added to those that it has; its place."""
    write_deltalake(place, rows(first, count), mode="append", **options)
    return place


@pytest.fixture(scope="module")
def server() -> Iterator[ObjectStore]:
    with served() as store:
        yield store


@pytest.fixture
def store(server: ObjectStore, monkeypatch) -> ObjectStore:
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    server.hinder()
    return server


@pytest.fixture
def make(new_workspace, add_rules, tmp_path) -> Callable[..., Workspace]:
    """A lake and a source at places (folders of the test, or URIs), with rules that are compiled."""

    def made(root: str, source: str, **stream: Any) -> Workspace:
        settings = {"source": source, "key": ["id"], "event_time": "t", "checks": {"few": "amount < 98"}, **stream}
        workspace = new_workspace({"s": settings}, spark=False, runner="local", root=root)
        add_rules(workspace, *RULES)
        assert not [each.error for each in compile_scopes(workspace, ["s"]) if each.error]
        return workspace

    return made


@pytest.fixture
def uri(request, tmp_path) -> str:
    """A place in the store that no other test has."""
    return f"s3://bucket/{tmp_path.parent.name}/{tmp_path.name}"


UNSTABLE = ("tagged_at", "source_version", "batch")


def contents(
    workspace: Workspace, left_out: tuple[str, ...] = ("tagged_at",), tables: tuple[str, ...] = TABLES
) -> dict[str, list[dict[str, Any]]]:
    """The rows of a stream's tables, read by delta-rs alone."""
    found = {}
    for name in tables:
        held = DeltaTable(workspace.lake.uri(name)).to_pyarrow_table().to_pylist()
        kept = [{key: row[key] for key in sorted(row) if key not in left_out} for row in held]
        found[name] = sorted(kept, key=repr)
    return found


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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "hindrance"),
    soak_rest(
        3,
        [
            *(("s_matches/_delta_log/", "refuse"), ("s_tagged/part", "lose"), ("s_tagged/_delta_log/", "refuse")),
            *(("s_matches/_delta_log/", "lose"), ("s_tagged/part", "refuse"), ("s_tagged/_delta_log/", "lose")),
        ],
    ),
)
def test_a_run_that_is_killed_at_a_write_is_repeated(store, make, uri, tmp_path, part, hindrance) -> None:
    write_deltalake(f"{uri}/source", rows(0, 500))
    workspace = make(f"{uri}/lake", f"{uri}/source")
    tag_stream(workspace, "s")
    write_deltalake(f"{uri}/source", rows(500, 500), mode="append")
    code = "import sys; sys.stdin.readline(); from deltatag.__main__ import main; main(['tag'])"
    stream = (
        f'[streams.s]\nsource = "{uri}/source"\nkey = ["id"]\nevent_time = "t"\nchecks = {{ few = "amount < 98" }}\n'
    )
    (tmp_path / "deltatag.toml").write_text(f'[lake]\nroot = "{uri}/lake"\nrunner = "local"\n{stream}')
    with subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, stdin=subprocess.PIPE, text=True) as run:
        store.hinder(**{hindrance: ("PUT", part)}, kill=run.pid)
        run.communicate("\n", timeout=60)
    store.hinder()
    assert run.returncode == -9
    assert batches(workspace.lake, "s")[-1].state == "planned"
    tag_stream(workspace, "s")
    write_deltalake(tmp_path / "source", rows(0, 500))
    wanted = make("lake", str(tmp_path / "source"))
    tag_stream(wanted, "s")
    write_deltalake(tmp_path / "source", rows(500, 500), mode="append")
    tag_stream(wanted, "s")
    assert contents(workspace) == contents(wanted)


@pytest.mark.slow
@pytest.mark.parametrize("part", quick_first(1, ["s_matches/part", "s_matches/_delta_log/", "s_tagged/_delta_log/"]))
def test_a_store_that_refuses_a_write_is_named_and_nothing_is_lost(store, make, uri, part) -> None:
    write_deltalake(f"{uri}/source", rows(0, 500))
    workspace = make(f"{uri}/lake", f"{uri}/source")
    tag_stream(workspace, "s")
    write_deltalake(f"{uri}/source", rows(500, 500), mode="append")
    store.hinder(refuse=("PUT", part))
    with pytest.raises(TableError, match=f"{uri}/lake/{part.split('/')[0]} cannot be written"):
        tag_stream(workspace, "s")
    store.hinder()
    tag_stream(workspace, "s")
    held = contents(workspace)
    assert len(held["s_tagged"]) + len(held["quarantine_s"]) == 1000


@pytest.mark.slow
def test_a_commit_whose_answer_is_lost_counts_once(store, make, uri) -> None:
    write_deltalake(f"{uri}/source", rows(0, 500))
    workspace = make(f"{uri}/lake", f"{uri}/source")
    tag_stream(workspace, "s")
    write_deltalake(f"{uri}/source", rows(500, 500), mode="append")
    store.hinder(lose=("PUT", "s_tagged/_delta_log/"))
    tag_stream(workspace, "s")
    store.hinder()
    held = contents(workspace)
    assert len(held["s_tagged"]) + len(held["quarantine_s"]) == 1000
    assert batches(workspace.lake, "s")[-1].state == "done"


@pytest.mark.slow
def test_two_runs_at_once_write_each_row_once(store, make, uri) -> None:
    write_deltalake(f"{uri}/source", rows(0, 500))
    workspace = make(f"{uri}/lake", f"{uri}/source", max_bytes_per_batch="1b")
    write_deltalake(f"{uri}/source", rows(500, 500), mode="append")
    both = threading.Barrier(2)

    def run() -> None:
        both.wait()
        with contextlib.suppress(PipelineError):  # the other one may take over what this one has planned
            tag_stream(Workspace(workspace.configuration), "s")

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    tag_stream(workspace, "s")
    held = contents(workspace)
    assert len(held["s_tagged"]) + len(held["quarantine_s"]) == 1000


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


def test_gates_judge_what_a_run_wrote(store, new_workspace, add_rules, uri) -> None:
    streams = {name: {"source": written(f"{uri}/{name}"), "key": ["id"], "event_time": "t"} for name in ("a", "b")}
    streams["a"]["checks"] = {"few": "amount < 98"}
    joined = {"streams": ["a", "b"], "on": ["name"], "window": "10 min"}
    workspace = new_workspace(streams, spark=False, runner="local", root=f"{uri}/lake", joins={"j": joined})
    add_rules(workspace, ("big", "a", "amount > 50"), ("both", "j", "a.amount > 50 AND b.flag"))
    gates = QualityGates()
    assert not run_due(workspace, gates).failures
    assert {result.gate for result in gates.results if result.passed} >= {"a_tagged", "j_tagged"}


def test_a_run_sends_few_requests(store, make, uri) -> None:
    workspace = make(f"{uri}/lake", written(f"{uri}/source"))
    for first in (200, 400):
        assert not run_due(workspace, QualityGates()).failures
        written(f"{uri}/source", first=first)
    store.hinder()
    assert run_due(workspace, QualityGates()).tagged
    assert len(store.seen()[0]) < 360  # each takes 20 to 50 ms in a store of the cloud
    store.hinder()
    assert not run_due(workspace, QualityGates()).tagged
    assert len(store.seen()[0]) < 70


def test_a_table_created_anew_is_seen(store, uri, monkeypatch) -> None:
    def replaced(commits: int, count: int = 200) -> None:
        """Remove the table, and write another at its place."""
        files = store_of(uri)._files
        for each in files.get_file_info(FileSelector("", recursive=True)):
            if each.type == FileType.File:
                files.delete_file(each.path)
        for _ in range(commits):
            written(uri, count=count)

    written(uri), written(uri)
    for commits in (1, 3):
        shared_table(uri, None)
        replaced(commits)
        assert shared_table(uri, None).metadata().id == DeltaTable(uri).metadata().id
    # one with as many commits, once the table is looked at again
    replaced(3, count=1000)
    monkeypatch.setattr("pipelines.lake.table_cache._TRUSTED_SECONDS", 0)
    assert shared_table(uri, None).metadata().id == DeltaTable(uri).metadata().id


@pytest.mark.slow
def test_small_files_are_merged_and_old_ones_removed(store, make, uri) -> None:
    workspace = make(f"{uri}/lake", written(f"{uri}/source"))
    for first in range(200, 1000, 200):
        tag_stream(workspace, "s")
        written(f"{uri}/source", first=first)
    before, runs = contents(workspace), batches(workspace.lake, "s")
    done = {each.table: each for each in maintain(workspace)}
    assert not [each.error for each in done.values() if each.error]
    assert (done["s_matches"].merged, done["s_matches"].into, done["runs"].into) == (4, 1, 1)
    assert contents(workspace) == before and batches(workspace.lake, "s") == runs
    log = table_log(workspace.lake.uri("s_matches"))
    changes = [each for each in log.commit(log.latest().number) or [] if "add" in each or "remove" in each]
    assert [action["dataChange"] for each in changes for action in each.values()] == [False] * 5
    store.hinder(refuse=("PUT", "s_matches/_delta_log/"))
    with pytest.raises(TableError, match="s_matches cannot be written"):
        tag_stream(workspace, "s")  # which leaves a file that no version names
    store.hinder(age=timedelta(days=8).total_seconds())
    assert {each.table: each.removed for each in maintain(workspace)}["s_matches"] == 1
    store.hinder()
    tag_stream(workspace, "s")
    assert len(contents(workspace)["s_tagged"]) > len(before["s_tagged"])


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


def test_a_commit_that_is_not_the_next_one_is_not_written(store, uri) -> None:
    field = {"name": "n", "type": "long", "nullable": True, "metadata": {}}
    first, second = table_log(uri), table_log(uri)
    assert first.create(Definition([field])) and not second.create(Definition([field]))
    before = second.latest()
    assert first.append([], "app", 1) and not first.append([], "app", 1)
    # the version that follows the one that it knows is taken
    assert not second._commit_once(before, "app", 1, [commit_info("WRITE", {}, {}), transaction("app", 1)])
    assert second.append([], "app", 2) and second.commits() == range(3)
    assert DeltaTable(uri).transaction_version("app") == 2


@pytest.mark.slow
def test_a_clustered_table_is_left_to_spark(store, make, uri) -> None:
    write_deltalake(f"{uri}/source", rows(0, 100))
    with pytest.raises(SparkRuledOutError, match="is clustered, and in an object store only Spark writes such a table"):
        tag_stream(make(f"{uri}/lake", f"{uri}/source", cluster_by=["name"]), "s")


def test_a_clustered_table_that_is_there_is_left_to_spark(store, make, uri, tmp_path) -> None:
    workspace = make(f"{uri}/lake", written(f"{uri}/source"))
    fields = [{"name": "rule_id", "type": "string", "nullable": True, "metadata": {}}]
    FolderLog(str(tmp_path / "made")).create(Definition(fields, cluster_by=["rule_id"]))
    store_of(workspace.lake.uri("s_matches")).send(tmp_path / "made", ["_delta_log/00000000000000000000.json"])
    with pytest.raises(SparkRuledOutError, match="s needs Spark because the table s_matches is clustered"):
        runner_of(workspace, workspace.configuration.streams["s"])


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
