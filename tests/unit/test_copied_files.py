"""Tagged files with the source's columns as they lie in its files: the same rows, with bounds that hold."""

from __future__ import annotations

import json
import os
import random
import resource
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rules_index.compiling.compile import compile_rules
from rules_index.workers import copied_files, table_files, tagged_files
from rules_index.workers.copied_columns import copied_columns
from rules_index.workers.delta_file_writer import Layout
from rules_index.workers.parquet_columns import ColumnFile, with_columns
from rules_index.workers.source_file_reader import SourceFile
from rules_index.workers.tagged_files import write_piece
from rules_index.workers.task import Task
from tests.cases import quick_first

NAN = float("nan")
KINDS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "n": (pa.int64(), [None, *range(-3, 20)]),
    "small": (pa.int8(), [None, -128, 127]),
    "text": (pa.string(), [None, "", "x", "é" * 40, "\U0001f600" * 30]),
    "x": (pa.float64(), [None, float("-inf"), -0.0, 0.5, NAN]),
    "single": (pa.float32(), [0.25, 1e30]),
    "flag": (pa.bool_(), [None, True, False]),
    "day": (pa.date32(), [None, date(1, 1, 1), date(1582, 10, 10), date(9999, 12, 31)]),
    "at": (pa.timestamp("us", "UTC"), [None, datetime(1, 1, 1), datetime(2024, 2, 29, 1, 2, 3, 456789)]),
    "local": (pa.timestamp("us"), [None, datetime(1900, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999)]),
    "money": (pa.decimal128(7, 2), [None, Decimal("1.05"), Decimal("-99999.99")]),
    "long money": (pa.decimal128(30, 3), [None, Decimal("1.005"), Decimal("-99999999999999999.999")]),
    "odd, name": (pa.binary(), [None, b"", b"\x00\xff"]),
    "place": (
        pa.struct([("a", pa.int64()), ("f", pa.float64()), ("b", pa.list_(pa.string()))]),
        [None, {"a": 1, "f": NAN, "b": ["x", None]}, {"a": 7, "f": 1.5, "b": []}],
    ),
    "place.a": (pa.int32(), [None, 5, 6]),
    "pairs": (pa.map_(pa.string(), pa.int32()), [None, [], [("k", 1), ("l", None)]]),
}
SCHEMA = pa.schema([(name, kind) for name, (kind, _) in KINDS.items()])
STAMPS = {
    "rules_version": pa.scalar(3, pa.int64()),
    "index_fingerprint": pa.scalar("f" * 64),
    "tagged_at": pa.scalar(datetime(2024, 1, 1, tzinfo=UTC), pa.timestamp("us", "UTC")),
}
RULES = [("odd", "n % 2 = 1"), ("text", "text LIKE 'x%' OR text = ''"), ("not a number", "x > 1e300"), ("all", "TRUE")]


@pytest.fixture(autouse=True)
def _small_row_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copied_files, "_FEWEST_ROWS", 1)


def rows_of(draw: random.Random, rows: int, part: int = 0) -> pa.Table:
    """Random rows; some of their columns have few values, or only NULL, and the first bounds depend on `part`."""
    columns = {}
    for name, (kind, values) in KINDS.items():
        kept = draw.sample(values, draw.randint(1, len(values)))
        columns[name] = pa.array([draw.choice(kept) for _ in range(rows)], kind)
    columns["n"] = pa.array([n + part if n % 7 else None for n in range(rows)], pa.int64())
    return pa.table(columns)


def write_source(draw: random.Random, path: Path, table: pa.Table, writer: str) -> None:
    """A file of a source, as different libraries and settings write one."""
    if writer == "polars":
        frame = pl.DataFrame({name: pl.from_arrow(table[name]) for name in table.column_names if name != "pairs"})
        frame.write_parquet(path, compression="snappy", row_group_size=draw.choice([7, 1000]))
        return
    if draw.random() < 0.3:
        table = table.set_column(2, "text", table["text"].cast(pa.large_string()))
    if draw.random() < 0.3:
        table = table.set_column(0, "n", table["n"].cast(pa.int32()))
    pq.write_table(
        table,
        path,
        compression=draw.choice(["snappy", "snappy", "snappy", "zstd", "none"]),
        row_group_size=draw.choice([1, 9, 1000]),
        data_page_version=draw.choice(["1.0", "2.0"]),
        use_dictionary=draw.random() < 0.7,
        write_statistics=draw.choice([True, True, ["n", "text"], False]),
        write_page_index=draw.random() < 0.3,
        store_schema=draw.random() < 0.5,
        store_decimal_as_integer=draw.random() < 0.5,
        use_deprecated_int96_timestamps=draw.random() < 0.2,
    )


def task_of(folder: Path, by: tuple[str, ...] = (), **more: Any) -> Task:
    for name in ("tagged", "matches"):
        (folder / name).mkdir(parents=True)
    folders = {name: str(folder / name) for name in ("tagged", "matches")}
    layouts = {"tagged": Layout(by), "matches": Layout(sort_by="rule_id")}
    return Task(
        pa.string(), tuple(SCHEMA.names), ("n",), STAMPS, more.get("only_matched", False), "snappy",
        {"org.apache.spark.version": "4.0.0"}, folders, layouts,
    )  # fmt: skip


def written(task: Task, files: list[SourceFile]) -> tuple[pa.Table, list[dict[str, Any]], dict[str, Any]]:
    """The tagged rows in the order of their n, the tagged table's `add` entries, and the figures."""
    compiled = compile_rules(RULES, SCHEMA, "scan")
    rows = [row for batch in write_piece(compiled, task, files, SCHEMA) for row in batch.to_pylist()]
    entries = [json.loads(row["entry"])["add"] for row in rows if row["name"] == "tagged"]
    tables = []
    for entry in entries:
        table = pq.read_table(Path(task.folders["tagged"]) / unquote(entry["path"]), partitioning=None)
        check_bounds(table, json.loads(entry["stats"]))
        for name, value in entry["partitionValues"].items():
            table = table.append_column(name, pa.array([value] * len(table), pa.string()).cast(SCHEMA.field(name).type))
        tables.append(table.select([*SCHEMA.names, "rule_ids", "source_version"]))
    assert {path.name for path in Path(task.folders["tagged"]).rglob("*.parquet")} == {
        Path(unquote(entry["path"])).name for entry in entries
    }
    return pa.concat_tables(tables), entries, json.loads(rows[0]["figures"])


def check_bounds(table: pa.Table, stats: dict[str, Any]) -> None:
    assert stats["numRecords"] == len(table)
    for name, kind in ((field.name, field.type) for field in SCHEMA if field.name in table.column_names):
        values = [value for value in table[name].to_pylist() if value is not None]
        if pa.types.is_nested(kind):
            continue
        assert stats["nullCount"][name] == len(table) - len(values)
        low, high = (stats[which].get(name) for which in ("minValues", "maxValues"))
        if pa.types.is_floating(kind):
            numbers = [value for value in values if value == value]
            assert (low is None) == (not numbers)
            assert low is None or float(low) == min(numbers)
            assert high is None or (len(numbers) == len(values) and float(high) == max(numbers))
        elif pa.types.is_integer(kind):
            assert (low, high) == ((min(values), max(values)) if values else (None, None))
        elif pa.types.is_string(kind):
            assert all((low is None or low <= v) and (high is None or v.encode() <= high.encode()) for v in values)
        elif pa.types.is_date(kind) and values:
            assert (low, high) == (min(values).isoformat(), max(values).isoformat())
        elif pa.types.is_timestamp(kind) and values:
            least = datetime.fromisoformat(low.removesuffix("Z"))
            assert timedelta(0) <= min(values).replace(tzinfo=None) - least < timedelta(milliseconds=1)


def expected_of(tables: list[tuple[int, pa.Table]]) -> list[str]:
    """The rows that the tagged table must have, with ids and version, as texts: NaN is then equal to itself."""
    compiled = compile_rules(RULES, SCHEMA, "scan")
    found = []
    for version, table in tables:
        given = pa.table({f.name: table[f.name].cast(f.type) if f.name in table.column_names else
                          pa.nulls(len(table), f.type) for f in SCHEMA})  # fmt: skip
        for batch in given.to_batches():
            ids = compiled.match(batch).to_pylist()
            found += [str(({**row, "rule_ids": its}, version)) for row, its in zip(batch.to_pylist(), ids, strict=True)]
    return sorted(found)


def texts_of(table: pa.Table) -> list[str]:
    rows = table.drop_columns(["source_version"]).to_pylist()
    return sorted(str(each) for each in zip(rows, table["source_version"].to_pylist(), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("seed", quick_first(8, range(60), 7))
def test_rows_are_those_of_the_source(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever wrote its files, and however many there are."""
    draw = random.Random(seed)
    monkeypatch.setattr(table_files, "_MOST_OPEN", 2)
    monkeypatch.setattr(copied_files, "_MOST_OPEN", 2)
    if draw.random() < 0.2:
        monkeypatch.setattr(copied_files, "_MOST_WAITING", 2000)
    files, tables = [], []
    for number in range(draw.randint(1, 4)):
        path = tmp_path / f"{number}.parquet"
        table = rows_of(draw, draw.choice([1, 30, 200]), number * 1000)
        write_source(draw, path, table, draw.choice(["polars", "arrow", "arrow"]))
        kept = pq.ParquetFile(path).schema_arrow.names
        tables.append((number, table.select([name for name in table.column_names if name in kept])))
        files.append(SourceFile(str(path), {}, number))
    found, _, figures = written(task_of(tmp_path / "lake"), files)
    assert texts_of(found) == expected_of(tables)
    assert figures["rows"] == len(found) and figures["matches"] == sum(map(len, found["rule_ids"].to_pylist()))


def test_columns_are_copied_byte_for_byte(tmp_path: Path) -> None:
    """All but those that the table stores in another way; a row group stays a row group."""
    table = rows_of(random.Random(1), 100).set_column(0, "n", pa.array(range(100), pa.int32()))
    path = tmp_path / "source.parquet"
    pq.write_table(table, path, row_group_size=40, write_page_index=True)
    found, (entry,), _ = written(task_of(tmp_path / "lake"), [SourceFile(str(path), {}, 1, (0, 2))])
    assert len(found) == 60
    target = tmp_path / "lake" / "tagged" / entry["path"]
    old, new = pq.read_metadata(path), pq.read_metadata(target)
    assert [new.row_group(group).num_rows for group in range(new.num_row_groups)] == [40, 20]
    data, original = target.read_bytes(), path.read_bytes()
    copied = []
    for column in range(old.num_columns):
        chunk = old.row_group(2).column(column)
        start = chunk.dictionary_page_offset or chunk.data_page_offset
        if original[start : start + chunk.total_compressed_size] in data:
            copied.append(chunk.path_in_schema)
    assert {"text", "x", "place.b.list.element", "place.a", "pairs.key_value.key"} <= set(copied)
    assert "n" not in copied
    assert new.created_by == old.created_by and new.metadata == {b"org.apache.spark.version": b"4.0.0"}
    names = ["n", "text", "money", "place", "rule_ids"]
    assert pl.read_parquet(target, columns=names).to_dicts() == found.select(names).to_pylist()
    # bounds of floating-point columns would leave out NaN, which is Spark's largest number
    floats = [c for c in range(new.num_columns) if new.row_group(0).column(c).path_in_schema in ("x", "place.f")]
    assert not any(new.row_group(0).column(column).statistics.has_min_max for column in floats)


def test_each_partition_has_files_of_its_own(tmp_path: Path) -> None:
    """A file's rows go to the partition that the source's log names, and rows of no partition are divided."""
    files, tables = [], []
    for number, text in enumerate(["b", None, "b", "ü/x"]):
        table = rows_of(random.Random(number), 50, number * 1000)
        table = table.set_column(2, "text", pa.array([text] * 50, pa.string()))
        path = tmp_path / f"{number}.parquet"
        pq.write_table(table.drop_columns(["text"]), path, row_group_size=20)
        tables.append((number, table))
        files.append(SourceFile(str(path), {"text": text}, number))
    found, entries, _ = written(task_of(tmp_path / "lake", ("text",)), files)
    assert texts_of(found) == expected_of(tables)
    assert sorted((str(e["partitionValues"]["text"]), json.loads(e["stats"])["numRecords"]) for e in entries) == [
        ("None", 50), ("b", 100), ("ü/x", 50),
    ]  # fmt: skip
    path = tmp_path / "mixed.parquet"
    table = rows_of(random.Random(9), 50)
    pq.write_table(table, path)
    found, _, _ = written(task_of(tmp_path / "other", ("flag",)), [SourceFile(str(path), {}, 1)])
    assert texts_of(found) == expected_of([(1, table)])


def test_damaged_columns_are_found_and_leave_nothing_behind(tmp_path: Path) -> None:
    """Also those that no rule reads."""
    path = tmp_path / "source.parquet"
    table = rows_of(random.Random(1), 3000)
    pq.write_table(table, path)
    chunk = next(
        each
        for each in map(pq.read_metadata(path).row_group(0).column, range(17))
        if each.path_in_schema == "odd, name"
    )
    data = bytearray(path.read_bytes())
    start = chunk.dictionary_page_offset
    data[start : start + chunk.total_compressed_size] = b"\xff" * chunk.total_compressed_size
    path.write_bytes(data)
    with pytest.raises((OSError, pa.ArrowException)):
        written(task_of(tmp_path / "lake"), [SourceFile(str(path), {}, 1)])
    assert not list((tmp_path / "lake").rglob("*.parquet"))


def test_large_row_groups_are_divided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the ids of their rows need not be in memory all at once."""
    monkeypatch.setattr(copied_files, "_MOST_WAITING", 1000)
    monkeypatch.setattr("rules_index.workers.delta_file_writer.ROW_GROUP_BYTES", 1)
    monkeypatch.setattr("rules_index.workers.source_file_reader.BATCH_ROWS", 100)
    monkeypatch.setattr(tagged_files, "_FEW_ROWS", 100)
    table = rows_of(random.Random(3), 1000)
    path = tmp_path / "source.parquet"
    pq.write_table(table, path)
    found, (entry,), _ = written(task_of(tmp_path / "lake"), [SourceFile(str(path), {}, 1)])
    assert texts_of(found) == expected_of([(1, table)])
    assert pq.read_metadata(tmp_path / "lake" / "tagged" / entry["path"]).num_row_groups == 10


def test_many_small_row_groups_become_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    table = pa.table({"n": np.arange(1000)})
    files = []
    for number in range(20):
        pq.write_table(table, tmp_path / f"{number}.parquet", row_group_size=100)
        files.append(SourceFile(str(tmp_path / f"{number}.parquet"), {}, number))
    found, (entry,), _ = written(task_of(tmp_path / "lake"), files)
    assert len(found) == 20_000
    assert pq.read_metadata(tmp_path / "lake" / "tagged" / entry["path"]).num_row_groups == 1


@pytest.mark.slow
def test_few_files_are_open_at_a_time(tmp_path: Path) -> None:
    """However many a source has."""
    files, tables = [], []
    for number in range(60):
        tables.append((number, rows_of(random.Random(number), 3, number * 1000)))
        path = tmp_path / f"{number}.parquet"
        pq.write_table(tables[-1][1], path)
        files.append(SourceFile(str(path), {}, number))
    task = task_of(tmp_path / "lake")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 30, hard))
    try:
        found, (entry,), _ = written(task, files)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert texts_of(found) == expected_of(tables)
    assert pq.read_metadata(tmp_path / "lake" / "tagged" / entry["path"]).num_row_groups == 60


def test_copied_columns_are_copied_once_more_where_rows_get_new_ids(tmp_path: Path) -> None:
    """As a re-tag does."""
    table = rows_of(random.Random(5), 300)
    path, target = tmp_path / "source.parquet", tmp_path / "new.parquet"
    pq.write_table(table, path, row_group_size=100, write_page_index=True)
    _, (entry,), _ = written(task_of(tmp_path / "lake"), [SourceFile(str(path), {}, 1)])
    tagged = tmp_path / "lake" / "tagged" / entry["path"]
    ids = pa.array([["new"]] * 100, pa.list_(pa.string()))
    with_columns(
        ColumnFile(str(tagged)), str(target), pa.schema({"rule_ids": ids.type}), [{"rule_ids": ids}] * 3, "snappy"
    )
    before, after = pq.read_table(tagged), pq.read_table(target)
    assert after["rule_ids"].to_pylist() == [["new"]] * 300
    assert list(map(str, after.drop_columns(["rule_ids"]).to_pylist())) == list(
        map(str, before.drop_columns(["rule_ids"]).to_pylist())
    )
    assert texts_of(before.select([*SCHEMA.names, "rule_ids", "source_version"])) == expected_of([(1, table)])


def test_a_column_whose_encodings_are_not_named_is_not_copied(tmp_path: Path) -> None:
    path = tmp_path / "source.parquet"
    pq.write_table(pa.table({"n": pa.array(range(10), pa.int64())}), path)
    file = ColumnFile(str(path))
    schema = pa.schema({"n": pa.int64()})
    assert copied_columns(file, [0], schema, "snappy") == {"n"}
    for chunk in file.chunks(0, "n"):
        chunk[3][1][2] = (9, (5, []))
    assert copied_columns(file, [0], schema, "snappy") == frozenset()
