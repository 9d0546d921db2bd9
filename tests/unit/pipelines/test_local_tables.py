"""Files of a micro-batch are in its table, or gone: whoever commits first, and whether the commit succeeds."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pipelines.errors import TableError
from pipelines.lake.folder_snapshot import Definition
from pipelines.lake.table_log import table_log
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
