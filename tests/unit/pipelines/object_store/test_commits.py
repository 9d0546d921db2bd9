"""Commits to tables in an object store: refused, lost, repeated and at once; and how many requests a run sends."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from datetime import timedelta

import pytest
from deltalake import DeltaTable, write_deltalake
from pyarrow.fs import FileSelector, FileType

from pipelines.errors import PipelineError, SparkRuledOutError, TableError
from pipelines.lake.folder_log import FolderLog
from pipelines.lake.folder_snapshot import Definition
from pipelines.lake.log_actions import commit_info, transaction
from pipelines.lake.runs import batches
from pipelines.lake.store import store_of
from pipelines.lake.table_cache import shared_table
from pipelines.lake.table_log import table_log
from pipelines.maintain import maintain
from pipelines.run import run_due
from pipelines.runners.choice import runner_of
from pipelines.tag import tag_stream
from pipelines.workspace import Workspace
from quality.gates import QualityGates
from tests.cases import quick_first, soak_rest
from tests.unit.pipelines.object_store.lakes import contents, rows, written


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
def test_a_run_sends_few_requests(store, make, uri, monkeypatch) -> None:
    # on a busy machine tables are looked at again, and every ten minutes they are opened again, wherever the run is
    for seconds in ("_TRUSTED_SECONDS", "_KEPT_SECONDS"):
        monkeypatch.setattr(f"pipelines.lake.table_cache.{seconds}", float("inf"))
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_clustered_table_is_left_to_spark(store, make, uri) -> None:
    write_deltalake(f"{uri}/source", rows(0, 100))
    with pytest.raises(SparkRuledOutError, match="is clustered, and in an object store only Spark writes such a table"):
        tag_stream(make(f"{uri}/lake", f"{uri}/source", cluster_by=["name"]), "s")


@pytest.mark.slow
def test_a_clustered_table_that_is_there_is_left_to_spark(store, make, uri, tmp_path) -> None:
    workspace = make(f"{uri}/lake", written(f"{uri}/source"))
    fields = [{"name": "rule_id", "type": "string", "nullable": True, "metadata": {}}]
    FolderLog(str(tmp_path / "made")).create(Definition(fields, cluster_by=["rule_id"]))
    store_of(workspace.lake.uri("s_matches")).send(tmp_path / "made", ["_delta_log/00000000000000000000.json"])
    with pytest.raises(SparkRuledOutError, match="s needs Spark because the table s_matches is clustered"):
        runner_of(workspace, workspace.configuration.streams["s"])
