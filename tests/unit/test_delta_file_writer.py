"""Files of a Delta table made without Spark: their rows, and statistics that never lose a row."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from rules_index.compiling.compile import compile_rules
from rules_index.workers import delta_file_writer, table_files
from rules_index.workers.delta_file_writer import DeltaFile, Layout
from rules_index.workers.tagged_files import write_files
from rules_index.workers.task import Task

ROOT = Path(__file__).resolve().parents[2]
INF, NAN = float("inf"), float("nan")


def write(folder: Path, table: pa.Table, batch_rows: int = 2) -> tuple[dict[str, Any], dict[str, Any]]:
    """The file's entry, and its statistics."""
    file = DeltaFile(str(folder), table.schema, "snappy", {"made by": "a test"})
    for batch in table.to_batches(max_chunksize=batch_rows):
        file.write(batch)
    entry = file.close()
    return entry, json.loads(entry["stats"])


@pytest.mark.parametrize("group_bytes", [1, 64 << 20])
def test_rows_come_back_whatever_the_row_groups(tmp_path: Path, monkeypatch: Any, group_bytes: int) -> None:
    monkeypatch.setattr(delta_file_writer, "ROW_GROUP_BYTES", group_bytes)
    table = pa.table(
        {
            "n": pa.array([1, None, 3, 4, 5]),
            "list": [[1], [], None, [None], [2, 3]],
            "struct": [{"a": 1, "b": "x"}, None, {"a": None, "b": "y"}, {"a": 4, "b": None}, {"a": 5, "b": "z"}],
            "map": pa.array([[("k", 1)], [], None, [("l", None)], [("m", 2)]], pa.map_(pa.string(), pa.int32())),
        }
    )
    entry, stats = write(tmp_path, table)
    path = tmp_path / entry["path"]
    assert pq.read_table(path).to_pylist() == table.to_pylist()
    assert (entry["size"], stats["numRecords"]) == (os.path.getsize(path), 5)
    assert pq.read_metadata(path).num_row_groups == (3 if group_bytes == 1 else 1)
    assert pq.read_metadata(path).metadata[b"made by"] == b"a test"
    assert stats["minValues"] == {"n": 1, "struct": {"a": 1, "b": "x"}}
    assert stats["maxValues"] == {"n": 5, "struct": {"a": 5, "b": "z"}}
    assert stats["nullCount"] == {"n": 1, "struct": {"a": 2, "b": 2}}


MOMENT = datetime(2024, 1, 1, 0, 0, 0, 1999, UTC)


@pytest.mark.parametrize(
    ("values", "data_type", "low", "high"),
    [
        ([1.5, NAN, -2.0], pa.float64(), -2.0, None),
        ([NAN, NAN], pa.float64(), None, None),
        ([INF, 1.0, None], pa.float32(), 1.0, "Infinity"),
        ([-INF, 1.0], pa.float64(), "-Infinity", 1.0),
        (["é", "z", None], pa.string(), "z", "é"),
        (["\U0001f600", "\uffee"], pa.string(), "\uffee", "\U0001f600"),
        (["a" * 65, "b" * 65], pa.string(), "a" * 64, None),
        ([MOMENT], pa.timestamp("us", "UTC"), "2024-01-01T00:00:00.001Z", "2024-01-01T00:00:00.001Z"),
        ([-1], pa.timestamp("us"), "1969-12-31T23:59:59.999", "1969-12-31T23:59:59.999"),
        ([2**62], pa.timestamp("us", "UTC"), None, None),
        ([date(1, 1, 1), date(9999, 12, 31)], pa.date32(), "0001-01-01", "9999-12-31"),
        ([Decimal("1.10"), Decimal("-2.00")], pa.decimal128(10, 2), -2.0, 1.1),
        ([Decimal("1.10")], pa.decimal128(30, 2), None, None),
        ([True, False], pa.bool_(), None, None),
        ([b"a"], pa.binary(), None, None),
        ([None, None], pa.int32(), None, None),
    ],
)
def test_bounds_are_those_of_sparks_order_or_none(
    tmp_path: Path, values: list[Any], data_type: pa.DataType, low: Any, high: Any
) -> None:
    _, stats = write(tmp_path, pa.table({"c": pa.array(values, data_type)}), 1)
    assert (stats["minValues"].get("c"), stats["maxValues"].get("c")) == (low, high)
    assert stats["nullCount"] == {"c": values.count(None)}


def test_bounds_of_a_dictionary_are_those_of_the_values_in_use(tmp_path: Path) -> None:
    """Arrow takes the values of three for those of the whole dictionary, since NULL makes them as many."""
    words = pa.array(["", "x", "y", None, "z", ""]).dictionary_encode()
    batch = pa.record_batch({"w": words.take(pa.array([1, 2, 3, 4]))})
    file = DeltaFile(str(tmp_path), batch.schema, "snappy", {})
    file.write(batch)
    stats = json.loads(file.close()["stats"])
    assert (stats["minValues"], stats["maxValues"], stats["nullCount"]) == ({"w": "x"}, {"w": "z"}, {"w": 1})


def test_only_the_first_columns_have_statistics(tmp_path: Path) -> None:
    _, stats = write(tmp_path, pa.table({f"c{n}": [n] for n in range(40)}))
    assert list(stats["minValues"]) == [f"c{n}" for n in range(32)]


def test_the_columns_that_a_table_names_have_statistics(tmp_path: Path) -> None:
    table = pa.table({f"c{n}": [n] for n in range(40)})
    file = DeltaFile(str(tmp_path), table.schema, "snappy", {}, Layout(indexed=frozenset({"c1", "c39"})))
    file.write(table.to_batches()[0])
    assert list(json.loads(file.close()["stats"])["maxValues"]) == ["c1", "c39"]


@pytest.mark.parametrize("form", ["int64", "string", "dictionary"])
def test_row_groups_tell_rules_apart(tmp_path: Path, form: str) -> None:
    rules = np.random.default_rng(1).integers(0, 1000, 300_000)
    names = pa.array([f"r{n:04}" for n in range(1000)])
    kinds = {"int64": pa.array(rules), "string": names.take(pa.array(rules))}
    ids = kinds.get(form, pa.DictionaryArray.from_arrays(pa.array(rules, pa.int32()), names))
    batch = pa.RecordBatch.from_arrays([ids, pa.array(np.arange(len(rules)))], ["rule_id", "row"])
    file = DeltaFile(str(tmp_path), batch.schema, "snappy", {}, Layout(sort_by="rule_id"))
    for start in range(0, len(batch), 50_000):
        file.write(batch.slice(start, 50_000))
    entry = file.close()
    read = pq.ParquetFile(tmp_path / entry["path"])
    wanted = 77 if form == "int64" else "r0077"
    bounds = [read.metadata.row_group(i).column(0).statistics for i in range(read.num_row_groups)]
    groups = [i for i, each in enumerate(bounds) if each.min <= wanted <= each.max]
    assert len(groups) <= 2 < read.num_row_groups / 8
    found = read.read_row_groups(groups).filter(pc.field("rule_id") == wanted)["row"].to_pylist()
    assert sorted(found) == np.flatnonzero(rules == 77).tolist()
    assert json.loads(entry["stats"])["minValues"]["rule_id"] == (0 if form == "int64" else "r0000")
    assert sorted(read.read()["row"].to_pylist()) == list(range(len(rules)))
    stored = max(read.metadata.row_group(i).column(0).total_uncompressed_size for i in range(read.num_row_groups))
    assert stored < names.nbytes // 2  # each row group stores the ids that it has, and not all of them


def test_each_partition_has_files_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many there are at a time, and whatever their values."""
    monkeypatch.setattr(table_files, "_MOST_OPEN", 2)
    monkeypatch.setattr(table_files, "_MOST_WAITING", 100)
    texts = [None, "", "a/b", "a%2Fb", "x=1", "ü ", "..", "y" * 300, "z" * 240, "a", "__HIVE_DEFAULT_PARTITION__"]
    rows = 60
    table = pa.table(
        {
            "x": pa.array(range(rows), pa.int64()),
            "text": pa.array([texts[n % len(texts)] for n in range(rows)]),
            "day": pa.array([date(2024, 1, 1 + n % 2) for n in range(rows)]),
            "flag": pa.array([n % 3 == 0 if n % 7 else None for n in range(rows)]),
            "amount": pa.array([Decimal("1E+3") + n % 2 for n in range(rows)], pa.decimal128(20, 2)),
            "source_version": pa.array([1] * rows, pa.int64()),
        }
    )
    compiled = compile_rules([("a", "x > 30")], table.schema)
    by = ("text", "day", "flag", "amount")
    stamps = {"rules_version": pa.scalar(1), "index_fingerprint": pa.scalar("f"), "tagged_at": pa.scalar(1)}
    layouts = {"tagged": Layout(by)}
    folders = {"tagged": str(tmp_path)}
    task = Task(pa.string(), ("x", *by), (), stamps, False, "snappy", {}, folders, layouts)
    (result,) = write_files(compiled, task, iter(table.to_batches(max_chunksize=7)))
    entries = [json.loads(text)["add"] for text in result["entry"].to_pylist() if text]
    found = []
    for entry in entries:
        file = pq.read_table(tmp_path / unquote(entry["path"]), partitioning=None)
        assert not {*by} & {*file.column_names}
        assert [part.split("=")[0] for part in entry["path"].split("/")[:-1]] == [
            name for name in by if len(entry["partitionValues"][name] or "") < 250
        ]
        found += [(x, *entry["partitionValues"].values()) for x in file["x"].to_pylist()]
    expected = []
    for row in table.to_pylist():
        flag = None if row["flag"] is None else str(row["flag"]).lower()
        expected.append((row["x"], row["text"] or None, str(row["day"]), flag, f"{row['amount']:.2f}"))
    assert sorted(found, key=str) == sorted(expected, key=str)
    assert json.loads(result["figures"].to_pylist()[0])["matches"] == 29


def test_an_abandoned_file_is_gone(tmp_path: Path) -> None:
    file = DeltaFile(str(tmp_path), pa.schema({"c": pa.int32()}), "zstd", {})
    file.write(pa.record_batch({"c": pa.array([1], pa.int32())}))
    file.abandon()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_full_disk_is_said_and_leaves_nothing(tmp_path: Path) -> None:
    """The system refuses more than 64 KiB a file, as it refuses any byte more on a full disk."""
    code = f"""
import resource, numpy as np, pyarrow as pa
from rules_index.compiling.compile import compile_rules
from rules_index.workers.tagged_files import write_files
from rules_index.workers.task import Task
table = pa.table({{"x": np.random.default_rng(1).random(50_000)}})
rules = pa.table({{"rule_id": ["a"], "expression": ["x > 0.5"]}})
compiled = compile_rules(rules, table.schema)
stamps = {{"rules_version": pa.scalar(1), "source_version": pa.scalar(1), "index_fingerprint": pa.scalar("f")}}
stamps["tagged_at"] = pa.scalar(1)
task = Task(pa.string(), ("x",), (), stamps, False, "snappy", {{}}, {{"tagged": {str(tmp_path)!r}}})
resource.setrlimit(resource.RLIMIT_FSIZE, (65_536, 65_536))
list(write_files(compiled, task, iter(table.to_batches())))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=300)
    assert run.stderr.splitlines()[-1].startswith("OSError: [Errno 27]"), run.stderr
    assert list(tmp_path.iterdir()) == []


def test_no_row_group_says_that_it_has_no_nan(tmp_path: Path) -> None:
    """NaN is Spark's largest number, and Parquet's bounds leave it out: a reader of `x > 10` would pass over it."""
    table = pa.table(
        {"x": [1.0, NAN], "y": pa.array([1.0, NAN], pa.float32()), "z": [{"w": 1.0}, {"w": NAN}], "n": [1, 2]}
    )
    entry, stats = write(tmp_path, table)
    group = pq.read_metadata(tmp_path / entry["path"]).row_group(0)
    assert [group.column(i).is_stats_set for i in range(4)] == [False, False, False, True]
    assert stats["maxValues"] == {"n": 2}


def test_a_column_may_have_the_name_of_a_field_of_another(tmp_path: Path) -> None:
    numbers = pa.array(range(1000), pa.int64())
    fields = pa.StructArray.from_arrays([pa.array([float("nan"), 1.5] * 500)], ["b"])
    batch = pa.RecordBatch.from_arrays([numbers, fields], ["a.b", "a"])
    file = DeltaFile(str(tmp_path), batch.schema, "snappy", {})
    file.write(batch)
    entry = file.close()
    read = pq.ParquetFile(tmp_path / entry["path"]).read()
    assert read["a.b"].to_pylist() == list(range(1000)) and read["a"].chunk(0).field("b").null_count == 0


def test_row_groups_hold_few_bytes_of_decoded_ids(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(delta_file_writer, "MOST_DECODED_BYTES", 1000)
    values = pa.DictionaryArray.from_arrays(pa.array([0, 1] * 4, pa.int32()), pa.array(["x" * 100, "y"]))
    batch = pa.record_batch({"rule_ids": pa.ListArray.from_arrays(pa.array([0, 0, 4, 8], pa.int32()), values)})
    file = DeltaFile(str(tmp_path), batch.schema, "snappy", {})
    for start in (0, 1, 2) * 2:
        file.write(batch.slice(start, 1))
    path = tmp_path / file.close()["path"]
    footer = pq.read_metadata(path)
    assert [footer.row_group(number).num_rows for number in range(footer.num_row_groups)] == [4, 2]
    assert pq.read_table(path)["rule_ids"].to_pylist() == batch["rule_ids"].to_pylist() * 2
