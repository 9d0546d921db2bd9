"""Files of a micro-batch are in its table, or gone: whoever commits first, and whether the commit succeeds."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from pipelines.compile import compile_scopes
from pipelines.errors import SparkRuledOutError, TableError
from pipelines.lake.folder_snapshot import Definition
from pipelines.lake.table_log import table_log
from pipelines.status import status
from pipelines.tag import tag_stream
from pipelines.writing.local_tables import commit_files, fence_off
from rules_index.workers.delta_file_writer import DeltaFile, Layout

PLAN: dict[str, Any] = {"series": "one"}


@pytest.fixture
def lake(new_workspace):
    """A lake with a table `t` of numbers."""
    found = new_workspace(spark=False).lake
    field = {"name": "n", "type": "long", "nullable": True, "metadata": {}}
    table_log(found.uri("t")).create(Definition([field]))
    return found


def written(lake, *numbers: int) -> tuple[DeltaFile, list[str]]:
    """A file of the table that no version of it has yet, and its entry."""
    rows = pa.record_batch({"n": pa.array(numbers, pa.int64())})
    file = DeltaFile(str(table_log(lake.uri("t")).folder), rows.schema, "snappy", {}, Layout())
    file.write(rows)
    return file, [json.dumps({"add": file.close()})]


def files(lake) -> list[str]:
    return sorted(path.name for path in Path(lake.uri("t")).glob("*.parquet"))


def numbers(lake) -> list[int]:
    return sorted(lake.arrow("t")["n"].to_pylist())


def test_the_first_run_of_two_commits_and_the_other_leaves_nothing(lake) -> None:
    (one, entries), (two, others) = written(lake, 1), written(lake, 2)
    assert commit_files(lake, "t", PLAN, 0, entries, one.abandon)
    assert len(files(lake)) == 2
    assert not commit_files(lake, "t", PLAN, 0, others, two.abandon)
    assert len(files(lake)) == 1 and numbers(lake) == [1]


def test_a_commit_that_fails_leaves_nothing(lake, monkeypatch: pytest.MonkeyPatch) -> None:
    file, entries = written(lake, 1)

    def full(*_args: Any, **_named: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", full)
        with pytest.raises(TableError):
            commit_files(lake, "t", PLAN, 0, entries, file.abandon)
    assert files(lake) == [] and numbers(lake) == []
    file, entries = written(lake, 3)
    assert commit_files(lake, "t", PLAN, 0, entries, file.abandon) and numbers(lake) == [3]


def test_whoever_is_fenced_off_commits_nothing(lake) -> None:
    file, entries = written(lake, 1)
    assert fence_off(lake, "one", ["t", "none"], 0) == []
    assert not commit_files(lake, "t", PLAN, 0, entries, file.abandon)
    assert files(lake) == [] and numbers(lake) == []
    assert fence_off(lake, "one", ["t"], 0) == []


@pytest.mark.parametrize("restart", [True, False])
def test_a_table_that_keeps_the_times_of_its_commits_gets_none_without(new_workspace, restart: bool) -> None:
    """Neither the fence of a restart nor the new column of a source: Spark could not read the table's history then."""
    workspace = new_workspace({"s": {"source": "lake/source"}}, runner="local", spark=False)
    source, lake = workspace.configuration.streams["s"].source, workspace.lake
    write_deltalake(source, pa.table({"n": [1]}))
    compile_scopes(workspace)
    tag_stream(workspace, "s")
    log = table_log(lake.uri("s_tagged"))
    metadata = log.latest().with_fields(log.latest().fields)
    metadata["metaData"]["configuration"]["delta.enableInCommitTimestamps"] = "true"
    path = Path(lake.uri("s_tagged"), "_delta_log", f"{lake.version('s_tagged') + 1:020}.json")
    path.write_text(json.dumps(metadata))
    before = lake.version("s_tagged")
    write_deltalake(source, pa.table({"n": [1], "new": [2]}), mode="append", schema_mode="merge")
    with pytest.raises(SparkRuledOutError, match="s_tagged keeps the times of its commits"):
        tag_stream(workspace, "s", restart=restart)
    assert lake.version("s_tagged") == before


@pytest.mark.slow
def test_a_tagged_table_that_is_gone_is_not_made_again_without_its_rows(new_workspace) -> None:
    workspace = new_workspace({"s": {"source": "lake/source"}}, spark=False)
    source = workspace.configuration.streams["s"].source
    write_deltalake(source, pa.table({"n": [1]}))
    compile_scopes(workspace)
    tag_stream(workspace, "s")
    assert status(workspace)[0].problem is None
    shutil.rmtree(workspace.lake.uri("s_tagged"))
    assert "s_tagged is gone" in str(status(workspace)[0].problem)
    write_deltalake(source, pa.table({"n": [2]}), mode="append")
    with pytest.raises(TableError, match=r"s_tagged is gone.* deltatag tag s --restart"):
        tag_stream(workspace, "s")
    assert tag_stream(workspace, "s", restart=True).rows == 2
    assert workspace.lake.arrow("s_tagged").num_rows == 2
