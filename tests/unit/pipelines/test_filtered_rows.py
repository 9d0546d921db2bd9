"""The few rows of a table that satisfy a condition."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyarrow.dataset import FileSystemDataset

from pipelines.lake import reading
from pipelines.lake.filtered_rows import filtered_rows
from pipelines.lake.reading import as_dataset, as_texts

COLUMNS = ["until", "id", "text", "labels"]
"""In another order than in the table."""
FAR = 253_370_764_800_000_000
"""Microseconds of the year 9999, as people write it who mean `for ever`."""


def _rows(first: int, count: int) -> pa.Table:
    ids = [None if n % 7 == 0 else f"r{n % 50}" for n in range(first, first + count)]
    return pa.table(
        {
            "id": pa.array(ids, pa.string()),
            "text": pa.array([f"a{n} > {n}" for n in range(count)]),
            "until": pa.array([FAR if n % 2 else None for n in range(count)], pa.timestamp("us", tz="UTC")),
            "labels": pa.array([[("k", f"v{n % 3}")] for n in range(count)], pa.map_(pa.string(), pa.string())),
            "part": pa.array([f"p{n % 2}" for n in range(count)]),
        }
    )


@pytest.mark.parametrize("partitioned", [False, True])
def test_the_rows_of_all_files_are_filtered(tmp_path: Path, partitioned: bool) -> None:
    by = ["part"] if partitioned else None
    write_deltalake(str(tmp_path), _rows(0, 1000).drop_columns(["labels"]), partition_by=by)
    for first in (500, 2000):  # the files of the first write lack a column
        write_deltalake(str(tmp_path), _rows(first, 300), mode="append", schema_mode="merge")
    table = DeltaTable(str(tmp_path))
    named = pc.field("id").cast(pa.string())
    for ids, nameless in ((["r1", "r49", "absent"], False), ([], True), (["r8"], True), ([], False)):
        where = pc.is_in(named, pa.array(ids, pa.string()))
        where = where | named.is_null() if nameless else where
        found, whole = filtered_rows(table, COLUMNS, where), as_dataset(table).to_table(COLUMNS, where)
        assert found.schema.names == COLUMNS
        assert _sorted(found) == _sorted(whole)
        assert len(found) == sum((row["id"] in ids) or (nameless and row["id"] is None) for row in _all(table))


def test_texts_that_are_not_utf8_and_times_in_96_bits_are_read(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path), _rows(0, 20))
    (path,) = tmp_path.glob("*.parquet")
    rows = pq.read_table(path)
    texts = [each.as_py().encode() for each in rows["text"]]
    texts[1] = b"\xff > 1"
    # Arrow casts no such bytes to strings, but it writes them
    rows = rows.set_column(1, "text", pa.array(texts, pa.binary()).view(pa.string()))
    pq.write_table(rows, path, use_deprecated_int96_timestamps=True)
    where = pc.is_in(pc.field("id"), pa.array(["r1", "r3"]))
    found = filtered_rows(DeltaTable(str(tmp_path)), COLUMNS, where).sort_by("id").to_pylist()
    assert [(row["id"], row["text"]) for row in found] == [("r1", None), ("r3", "a3 > 3")]
    assert {row["until"].year for row in found} == {9999}


def _all(table: DeltaTable) -> list[dict[str, object]]:
    found: list[dict[str, object]] = as_texts(as_dataset(table).to_table(COLUMNS)).to_pylist()
    return found


@pytest.mark.parametrize("count", [1, 40])
def test_files_whose_bounds_exclude_a_value_are_not_read(tmp_path: Path, monkeypatch, count: int) -> None:
    texts = [None, "", "a", "x" * 40, "x" * 40 + "y", "\U0010ffff" * 40, "\ue000", "z"]
    numbers = [None, -(1 << 31), -1, 0, 7, (1 << 31) - 1]
    rows = [(text, number) for text in texts for number in numbers]
    for start in range(0, len(rows), count):
        texts_of, numbers_of = zip(*rows[start : start + count], strict=True)
        columns = {"text": pa.array(texts_of, pa.string()), "number": pa.array(numbers_of, pa.int32())}
        write_deltalake(str(tmp_path), pa.table(columns), mode="append")
    table = DeltaTable(str(tmp_path))
    read: list[int] = []
    dataset_of = reading._dataset_of

    def noted(opened: DeltaTable, files: pa.Table) -> FileSystemDataset:
        read.append(len(files))
        return dataset_of(opened, files)

    monkeypatch.setattr(reading, "_dataset_of", noted)
    for text, number in [*((t, n) for t, n in rows if t is not None and n is not None), ("b", 0), ("a", 1 << 40)]:
        found = reading.read_rows(table, ["number", "text"], [("text", text), ("number", number)])
        assert [tuple(row.values())[::-1] for row in found.to_pylist()] == [(text, number)] * rows.count((text, number))
    if count == 1:  # the file of the row, and those that have a NULL in place of a bound
        assert max(read) <= 4


def _sorted(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))
