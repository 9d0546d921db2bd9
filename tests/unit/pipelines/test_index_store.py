"""The table of indexes, with several runs at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from threading import Barrier

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from pipelines.errors import TableError
from pipelines.lake.index_store import fetch_index, load_former, newest_index, store_index
from pipelines.lake.lake import Lake
from pipelines.lake.plain_tables import is_plain
from pipelines.lake.runs import PLANNED, MicroBatch, record_plan
from pipelines.table_definitions import RULE_INDEX


@pytest.fixture(params=["plain", "with a constraint"])
def lake(request: pytest.FixtureRequest, new_workspace) -> Lake:
    """A lake whose table of indexes deltatag or, since it has a constraint, delta-rs commits to."""
    found: Lake = new_workspace(spark=False).lake
    if request.param != "plain":
        DeltaTable(found.uri("rule_index")).alter.add_constraint({"counted": "chunk >= 0"})
    assert is_plain(found.delta("rule_index"), RULE_INDEX) == (request.param == "plain")
    return found


def test_runs_at_once_store_an_index_once(lake: Lake, tmp_path) -> None:
    start = Barrier(4)

    def store(number: int):
        path = tmp_path / f"{number}.index"
        path.write_bytes(b"the same index" * 1000)
        start.wait()
        scope, fingerprint = ("s", "f" * 64) if number < 3 else ("other", "f" * 64)
        return store_index(lake, scope, 1, fingerprint, "asc", path, {})

    with ThreadPoolExecutor(4) as pool:
        *same, other = pool.map(store, range(4))
    assert same == [same[0]] * 3 and other.scope == "other"
    assert sorted(lake.arrow("rule_index", ["scope"])["scope"].to_pylist()) == ["other", "s"]
    assert fetch_index(lake, same[0]).read_bytes() == b"the same index" * 1000


def test_a_run_that_stores_the_same_index_after_this_one_has_looked_is_noticed(
    lake: Lake, tmp_path, monkeypatch
) -> None:
    path = tmp_path / "an.index"
    path.write_bytes(b"the same index")
    look, others = newest_index, [1]

    def second(*given):
        found = look(*given)
        if others and others.pop():
            store_index(lake, "s", 1, "f" * 64, "asc", path, {})
        return found

    monkeypatch.setattr("pipelines.lake.index_store.newest_index", second)
    stored = store_index(lake, "s", 1, "f" * 64, "asc", path, {})
    assert lake.arrow("rule_index", ["created_at"])["created_at"].to_pylist() == [stored.created_at]


def test_an_index_of_before_is_stored_again(lake: Lake, tmp_path) -> None:
    path = tmp_path / "an.index"
    path.write_bytes(b"index")
    for fingerprint in ("a" * 64, "b" * 64, "a" * 64):
        store_index(lake, "s", 1, fingerprint, "asc", path, {})
    newest = newest_index(lake, "s")
    assert newest is not None and newest.fingerprint == "a" * 64
    assert lake.arrow("rule_index", ["scope"]).num_rows == 3


@pytest.mark.parametrize("from_scratch", [False, True])
def test_the_last_index_is_the_newest_whatever_the_clock_says(lake: Lake, tmp_path, from_scratch: bool) -> None:
    path = tmp_path / "an.index"
    path.write_bytes(b"index")
    stored = store_index(lake, "s", 1, "a" * 64, "asc", path, {})
    ahead = stored.created_at + timedelta(days=1)
    lake.writable("rule_index").update(updates={"created_at": f"'{ahead.isoformat()}'"})
    record_plan(lake, MicroBatch("s", 0, PLANNED, {}, 1, "a" * 64, None, stored.created_at))
    store_index(lake, "s", 2, "b" * 64, "asc", path, {}, from_scratch)
    newest = newest_index(lake, "s")
    assert newest is not None and newest.fingerprint == "b" * 64 and newest.created_at > ahead
    assert lake.arrow("rule_index", ["scope"]).num_rows == 2 and fetch_index(lake, newest).read_bytes() == b"index"


@pytest.mark.parametrize("scope", ["s", "it's a/b = ü%"])
def test_an_index_of_several_chunks_has_a_row_group_for_each(lake: Lake, tmp_path, monkeypatch, scope: str) -> None:
    monkeypatch.setattr("pipelines.lake.index_store.CHUNK_BYTES", 1000)
    monkeypatch.setattr("pipelines.lake.index_files.CHUNK_BYTES", 1000)
    path, data = tmp_path / "an.index", bytes(range(256)) * 10
    path.write_bytes(data)
    stored = store_index(lake, scope, 1, "a" * 64, "asc", path, {})
    assert stored.chunks == 3 and newest_index(lake, scope) == stored
    assert fetch_index(lake, stored).read_bytes() == data
    rows = lake.arrow("rule_index").sort_by("chunk").to_pylist()
    assert [(row["chunk"], len(row["data"]), row["scope"]) for row in rows] == [
        (number, len(data[1000 * number : 1000 * number + 1000]), scope) for number in range(3)
    ]


def test_another_scope_and_columns_that_others_have_added_stay(lake: Lake, tmp_path) -> None:
    path = tmp_path / "an.index"
    path.write_bytes(b"index")
    other = store_index(lake, "other", 1, "a" * 64, "asc", path, {})
    noted = lake.arrow("rule_index").append_column("note", pa.array(["kept"]))
    write_deltalake(lake.uri("rule_index"), noted, mode="overwrite", schema_mode="merge", partition_by=["scope"])
    store_index(lake, "s", 1, "b" * 64, "asc", path, {})
    for fingerprint in ("c" * 64, "d" * 64):
        store_index(lake, "s", 2, fingerprint, "asc", path, {}, from_scratch=True)
    rows = lake.arrow("rule_index", ["scope", "fingerprint", "note"]).sort_by("scope").to_pylist()
    assert [tuple(row.values()) for row in rows] == [("other", "a" * 64, "kept"), ("s", "d" * 64, None)]
    assert newest_index(lake, "other") == other


def test_a_full_disk_leaves_no_part_of_an_index(new_workspace, tmp_path, monkeypatch) -> None:
    lake = new_workspace(spark=False).lake
    path = tmp_path / "an.index"
    path.write_bytes(b"index")
    before = sorted(Path(lake.uri("rule_index")).rglob("*"))

    def fails(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pipelines.lake.index_files.pq.ParquetWriter.write_batch", fails)
    with pytest.raises(TableError, match=r"rule_index at .* cannot be written: .*space"):
        store_index(lake, "s", 1, "a" * 64, "asc", path, {})
    assert [each for each in sorted(Path(lake.uri("rule_index")).rglob("*")) if each.is_file()] == [
        each for each in before if each.is_file()
    ]


@pytest.mark.parametrize(
    "error", [PermissionError(13, "Permission denied"), OSError("Generic S3 error: operation timed out")]
)
def test_an_index_that_is_out_of_reach_is_not_damaged(new_workspace, monkeypatch, error: OSError) -> None:
    """To compile it by force, as is right for a damaged one, drops the indexes that tagged earlier rows."""
    lake: Lake = new_workspace(spark=False).lake

    def refuse(*_: object) -> None:
        raise error

    monkeypatch.setattr(Lake, "_rows", refuse)
    with pytest.raises(TableError, match=r"rule_index at .* cannot be read: ") as raised:
        load_former(lake, "s", "any")
    assert "--force" not in str(raised.value)
