"""What the log of a table tells without a JVM."""

from __future__ import annotations

import errno
import json
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.transaction import AddAction

from pipelines.errors import TableError, UnforeseenError, not_written
from pipelines.lake.authors import author_of
from pipelines.lake.column_types import CHAR_TYPE, OPAQUE, arrow_schema_of
from pipelines.lake.lake import open_delta, rows_in
from pipelines.lake.reading import as_dataset, read_rows
from pipelines.status import status
from tests.tables import delete_rows


def test_deleted_rows_are_not_counted(tmp_path: Path, new_workspace) -> None:
    write_deltalake(str(tmp_path), pa.table({"x": range(100)}))
    write_deltalake(str(tmp_path), pa.table({"x": range(10)}), mode="append")
    assert rows_in(DeltaTable(str(tmp_path))) == 110
    delete_rows(tmp_path, 0, [3, 5, 99])
    assert rows_in(DeltaTable(str(tmp_path))) == 107
    workspace = new_workspace({"s": {"source": str(tmp_path)}}, spark=False)
    assert [each.lag_rows for each in status(workspace)] == [107]


def test_rows_with_a_text_are_found_in_files_that_delta_rs_has_rewritten(tmp_path: Path) -> None:
    """Its MERGE and UPDATE write texts as views."""
    rows = pa.table({"id": range(4), "text": ["a", "b", None, "it's"], "part": ["p", "q", "p", "q"]})
    write_deltalake(str(tmp_path), rows, partition_by=["part"])
    DeltaTable(str(tmp_path)).update(updates={"text": "'it''s'"}, predicate="id = 1")
    table = DeltaTable(str(tmp_path))
    assert any("view" in str(pq.read_schema(path)) for path in table.file_uris())
    assert sorted(read_rows(table, ["id"], [("text", "it's")])["id"].to_pylist()) == [1, 3]
    assert read_rows(table, ["text", "id"], [("part", "p"), ("id", 0)]).to_pylist() == [{"text": "a", "id": 0}]
    assert read_rows(table, None, [("part", "none")]).num_rows == 0
    assert len(read_rows(table)) == 4


def test_texts_within_lists_structs_and_maps_are_texts(tmp_path: Path) -> None:
    kinds = {
        "text": pa.string(),
        "bytes": pa.binary(),
        "texts": pa.list_(pa.string()),
        "struct": pa.struct([("text", pa.string()), ("deep", pa.list_(pa.struct([("bytes", pa.binary())])))]),
        "map": pa.map_(pa.string(), pa.list_(pa.string())),
    }
    given = {
        "text": "a",
        "bytes": b"b",
        "texts": ["c", None],
        "struct": {"text": "d", "deep": [{"bytes": b"e"}]},
        "map": [("f", ["g"])],
    }
    write_deltalake(str(tmp_path), pa.Table.from_pylist([given], schema=pa.schema(kinds.items())))
    table = DeltaTable(str(tmp_path))
    table.update(predicate="text = 'z'", new_values={"text": "y"})
    found = read_rows(table)
    assert dict(zip(found.column_names, found.schema.types, strict=True)) == kinds
    assert found.to_pylist() == [given]
    assert found.sort_by("text").num_rows == 1


@pytest.mark.parametrize(
    ("spelled", "is_left"),
    [("char(5)", True), ("varchar(5)", False), ("struct<a:char(5),n:int>", True), ("array<CHAR(3)>", True),
     ("map<string,varchar(4)>", False)],
)  # fmt: skip
def test_what_holds_a_char_is_left_to_spark(spelled: str, is_left: bool) -> None:
    """Spark pads the values of a CHAR as it reads them, also within structs, arrays and maps."""
    field = {"name": "c", "type": "string", "metadata": {CHAR_TYPE: spelled}}
    assert (arrow_schema_of([field]).field("c").type == OPAQUE) == is_left


def test_a_version_whose_commit_is_missing_is_told_in_a_sentence(tmp_path: Path) -> None:
    for _ in range(3):
        write_deltalake(str(tmp_path), pa.table({"x": [1]}), mode="append")
    DeltaTable(str(tmp_path)).create_checkpoint()
    (tmp_path / "_delta_log" / f"{1:020d}.json").unlink()
    for version, why in ((1, "was removed by the table's log retention"), (7, "is newer than the newest one")):
        told = f"Version {version} of the table t at {tmp_path} cannot be read: it {why} (2 is the newest)."
        with pytest.raises(TableError) as raised:
            open_delta(str(tmp_path), version, "the table t", "")
        assert str(raised.value) == told


def test_a_version_far_beyond_the_newest_is_refused_at_once(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path), pa.table({"x": [1]}))
    with pytest.raises(TableError, match=r"newer than the newest one \(0 is the newest\)"):
        open_delta(str(tmp_path), 10**15, "the table t", "")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OSError(errno.ENOSPC, "words"), "no space is left on the disk. Nothing is lost"),
        (OSError(errno.EDQUOT, "words"), "the disk quota is used up. Nothing is lost"),
        (ValueError("IO: Unable to copy data: No space left on device (os error 28)"), "no space is left on the disk."),
        (ValueError("\n one line\nanother"), "one line"),
        (OSError(errno.EIO, "words"), "[Errno 5] words"),
        (OSError(errno.EACCES, "words"), "this user has no permission for it"),
        (ValueError("Unable to open file x#1: Read-only file system (os error 30)"), "the file system is read-only"),
    ],
)
def test_a_write_that_failed_tells_of_a_full_disk_in_one_sentence(error: Exception, told: str) -> None:
    found = str(not_written("The table runs cannot be written", error))
    assert found.startswith(f"The table runs cannot be written: {told}") and "\n" not in found
    raised = RuntimeError("a library's")
    raised.__cause__ = error
    assert ("free some space" in str(UnforeseenError.of(raised))) == ("lost" in found or "space" in told)


@pytest.mark.parametrize(
    ("commit", "author"),
    [
        ({"userName": "eve", "userMetadata": '{"userName": "ann"}'}, "eve"),
        ({"userMetadata": '{"userName": "ann"}'}, "ann"),
        ({"userMetadata": "a note"}, None),
        ({"userMetadata": '{"userName": 3}'}, None),
        ({"userMetadata": '["userName"]'}, None),
        ({"userMetadata": "[" * 100_000}, None),
        ({}, None),
    ],
)
def test_the_author_of_a_commit(commit: dict[str, str], author: str | None) -> None:
    assert author_of(commit) == author


def test_no_thread_of_arrow_reads_a_folder_through_python(tmp_path: Path) -> None:
    """Such a thread aborts the process when it drops a file while the interpreter ends, once in some forty times."""
    odd = ["a b", "x/y", "x%2Fy", None, "c:d=e?#", "q+;", "\u00e9"]
    rows = pa.table({"id": range(len(odd)), "p": odd})
    for folder in (tmp_path / "plain", tmp_path / "o d#d?;\u00e9"):
        write_deltalake(folder, rows, partition_by=["p"])
        found = as_dataset(open_delta(str(folder), None, "a table", ""))
        assert found.filesystem.type_name == "subtree" and found.filesystem.base_fs.type_name == "local"
        assert found.to_table().sort_by("id") == rows
        assert as_dataset(DeltaTable(folder.as_uri())).to_table(["id"]).num_rows == len(odd)


def test_a_version_whose_files_were_vacuumed_is_told_in_a_sentence(new_workspace, add_rules) -> None:
    workspace = new_workspace({}, spark=False)
    add_rules(workspace, ("a", "s", "x > 1"))
    rows = workspace.lake.arrow("rules")
    write_deltalake(workspace.lake.uri("rules"), rows, mode="overwrite")
    workspace.lake.writable("rules").vacuum(0, dry_run=False, enforce_retention_duration=False)
    for filters in (None, pc.field("rule_id") == "a"):
        with pytest.raises(
            TableError, match=r"Version 1 of the table rules .* any more: VACUUM has removed files of it"
        ):
            workspace.lake.arrow("rules", filters=filters, version=1)


def test_timestamps_of_int96_beyond_the_year_2262(tmp_path: Path) -> None:
    """Spark writes timestamps as INT96, which Arrow reads in nanoseconds unless told otherwise."""
    kind = pa.timestamp("us", "UTC")
    rows = pa.table({"t": pa.array([datetime(9999, 12, 31, tzinfo=UTC), datetime(1, 1, 1, tzinfo=UTC), None], kind)})
    pq.write_table(rows, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True, store_schema=False)
    table = DeltaTable.create(str(tmp_path), rows.schema)
    file = AddAction("a.parquet", (tmp_path / "a.parquet").stat().st_size, {}, 0, True, "{}")
    table.create_write_transaction([file], "append", rows.schema)
    found = as_dataset(DeltaTable(str(tmp_path))).to_table(filter=pc.field("t") > datetime(9000, 1, 1, tzinfo=UTC))
    assert found["t"].cast(kind).to_pylist() == [datetime(9999, 12, 31, tzinfo=UTC)]
    assert as_dataset(DeltaTable(str(tmp_path))).to_table()["t"].cast(kind).equals(rows["t"])


def test_a_filter_finds_rows_of_files_whose_statistics_lack_a_bound(tmp_path: Path) -> None:
    """delta-rs takes a missing bound for NULL, by which Arrow leaves out the whole file."""
    rows = pa.table({"p": ["x", "x", None, None], "n": [1, 2, 3, 4], "whole": [1.0, float("nan"), 2.0, None]})
    write_deltalake(tmp_path, rows, partition_by=["p"])
    log = tmp_path / "_delta_log" / f"{0:020}.json"
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    for add in (each["add"] for each in entries if "add" in each):
        stats = json.loads(add["stats"])
        for part in ("minValues", "maxValues", "nullCount"):
            stats[part].pop("n")
        add["stats"] = json.dumps(stats)
    log.write_text("\n".join(map(json.dumps, entries)))
    found = as_dataset(DeltaTable(str(tmp_path)))
    for where, ids in (
        (pc.field("n") >= 2, [2, 3, 4]),
        ((pc.field("n") < 4) & (pc.field("p") == "x"), [1, 2]),
        (pc.field("p").is_null() & (pc.field("n") == 3), [3]),
        (pc.field("whole") <= 2, [1, 3]),
    ):
        assert sorted(found.to_table(filter=where)["n"].to_pylist()) == ids
    assert found.to_table(["p", "n"]).sort_by("n") == rows.drop_columns(["whole"])
