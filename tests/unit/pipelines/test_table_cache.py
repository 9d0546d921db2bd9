"""Opened tables are kept while they are current: the newest version is the newest, whoever writes it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import TableNotFoundError

from pipelines.lake import table_cache
from pipelines.lake.table_cache import own_table, shared_table

ROWS = pa.table({"n": [1, 2]})


@pytest.fixture
def uri(tmp_path: Path) -> str:
    write_deltalake(tmp_path / "t", ROWS)
    return str(tmp_path / "t")


def test_a_table_without_a_newer_version_is_opened_once(uri: str) -> None:
    assert shared_table(uri, None) is shared_table(uri, None)
    assert shared_table(uri, 0) is shared_table(uri, 0)


def test_a_newer_version_is_seen_and_an_older_one_is_kept(uri: str) -> None:
    first = shared_table(uri, None)
    write_deltalake(uri, ROWS, mode="append")
    assert (shared_table(uri, None).version(), shared_table(uri, 0).version(), first.version()) == (1, 0, 0)


def test_who_writes_does_not_change_what_others_read(uri: str) -> None:
    read = shared_table(uri, None)
    own_table(uri).delete("n = 1")
    assert read.to_pyarrow_table().num_rows == 2
    assert shared_table(uri, None).to_pyarrow_table().num_rows == 1


def test_a_table_created_anew_is_not_taken_for_the_old_one(uri: str) -> None:
    before = shared_table(uri, None).metadata().id
    shutil.rmtree(uri)
    with pytest.raises(TableNotFoundError):
        shared_table(uri, None)
    write_deltalake(uri, ROWS)
    assert shared_table(uri, None).metadata().id == DeltaTable(uri).metadata().id != before


def test_a_checkpoint_in_place_of_commits_is_read(uri: str) -> None:
    for _ in range(3):
        write_deltalake(uri, ROWS, mode="append")
    assert shared_table(uri, None).version() == 3
    DeltaTable(uri).create_checkpoint()
    for commit in sorted(Path(uri, "_delta_log").glob("*.json"))[:-1]:
        commit.unlink()
    assert shared_table(uri, None).version() == 3
    write_deltalake(uri, ROWS, mode="append")
    assert shared_table(uri, None).to_pyarrow_table().num_rows == 10


def test_a_table_whose_checkpoint_gave_way_to_a_newer_one_is_opened_anew(uri: str) -> None:
    for _ in range(3):
        write_deltalake(uri, ROWS, mode="append")
    DeltaTable(uri).create_checkpoint()
    write_deltalake(uri, ROWS, mode="append")
    before = shared_table(uri, None)
    DeltaTable(uri).create_checkpoint()
    for checkpoint in sorted(Path(uri, "_delta_log").glob("*.checkpoint.parquet"))[:-1]:
        checkpoint.unlink()
    assert shared_table(uri, None) is not before
    assert shared_table(uri, None).transaction_version("none") is None


def test_a_checkpoint_written_while_a_table_is_opened_is_seen(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def opened_before_a_checkpoint(uri: str, version: int | None = None) -> DeltaTable:
        table = own_table(uri, version)
        DeltaTable(uri).create_checkpoint()
        return table

    with monkeypatch.context() as patched:
        patched.setattr(table_cache, "own_table", opened_before_a_checkpoint)
        before = shared_table(uri, None)
    assert shared_table(uri, None) is not before


def test_an_object_that_moves_on_is_one_for_all_who_read_and_write(uri: str) -> None:
    table = shared_table(uri, None, moves_on=True)
    write_deltalake(uri, ROWS, mode="append")
    assert shared_table(uri, None, moves_on=True) is table and table.version() == 1
    table.delete("n = 1")
    assert shared_table(uri, None, moves_on=True) is table
    assert (table.version(), table.to_pyarrow_table().num_rows) == (2, 2)
    # nobody else has it
    read = shared_table(uri, None)
    write_deltalake(uri, ROWS, mode="append")
    assert shared_table(uri, None, moves_on=True) is table and (table.version(), read.version()) == (3, 2)


def test_an_object_that_moves_on_is_replaced_with_its_table(uri: str) -> None:
    before = shared_table(uri, None, moves_on=True)
    shutil.rmtree(uri)
    with pytest.raises(TableNotFoundError):
        shared_table(uri, None, moves_on=True)
    for _ in range(2):
        write_deltalake(uri, ROWS, mode="append")
    after = shared_table(uri, None, moves_on=True)
    assert after is not before and after.to_pyarrow_table().num_rows == 4
    # nor does it need commits that a checkpoint has replaced
    for _ in range(3):
        write_deltalake(uri, ROWS, mode="append")
    DeltaTable(uri).create_checkpoint()
    for commit in sorted(Path(uri, "_delta_log").glob("*.json"))[:-1]:
        commit.unlink()
    assert shared_table(uri, None, moves_on=True).to_pyarrow_table().num_rows == 10


def test_an_object_that_another_thread_moved_back_is_brought_up_to_date(uri: str) -> None:
    table = shared_table(uri, None, moves_on=True)
    write_deltalake(uri, ROWS, mode="append")
    assert shared_table(uri, None, moves_on=True).version() == 1
    table.load_as_version(0)  # as a commit through it does that ends behind a later one
    assert shared_table(uri, None, moves_on=True) is table and table.version() == 1


def test_a_version_through_which_somebody_wrote_is_opened_anew(uri: str) -> None:
    table = shared_table(uri, None)
    assert shared_table(uri, 0) is table
    table.delete("n = 1")
    assert (shared_table(uri, 0).version(), shared_table(uri, None).version()) == (0, 1)
    assert shared_table(uri, 0).to_pyarrow_table().num_rows == len(ROWS)
