"""Matches written as files: the pairs of brute force, sorted by rule, whatever the ids, keys and row groups."""

from __future__ import annotations

import json
import random
from collections import Counter
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rules_index.workers import match_files
from rules_index.workers.delta_file_writer import Layout
from rules_index.workers.match_files import MatchFiles
from rules_index.workers.task import Task
from tests.cases import cases


def task(keys: tuple[str, ...]) -> Task:
    stamps = {"rules_version": pa.scalar(7, pa.int64()), "index_fingerprint": pa.scalar("f")}
    return Task(pa.string(), keys, keys, stamps, False, "snappy", {"written": "here"}, {})


SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("word", pa.dictionary(pa.int32(), pa.string())),
        ("value", pa.float64()),
        pa.field("number", pa.int64(), nullable=False),
        pa.field("source_version", pa.int64(), nullable=False),
    ]
)


def batch(draw: random.Random, rows: int, version: int) -> pa.RecordBatch:
    words = [draw.choice(["a", "bé", None, ""]) for _ in range(rows)]
    return pa.record_batch(
        {
            "id": pa.array([draw.choice([None, draw.randrange(1000)]) for _ in range(rows)], pa.int64()),
            "word": pa.array(words, pa.string()).dictionary_encode(),
            "value": pa.array([draw.choice([None, float("nan"), 1.5, -2.0]) for _ in range(rows)], pa.float64()),
            "number": pa.array(range(rows), pa.int64()),
            "source_version": pa.repeat(pa.scalar(version, pa.int64()), rows),
        },
        schema=SCHEMA,
    )


def read(folder: Path) -> pa.Table:
    files = list(folder.iterdir())
    assert len(files) == 1
    return pq.read_table(files[0])


@pytest.mark.parametrize("seed", range(cases(40)))
def test_the_pairs_are_those_of_brute_force(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    draw = random.Random(seed)
    monkeypatch.setattr(match_files, "_PAIRS", draw.choice([1, 7, 100, 1 << 20]))
    monkeypatch.setattr(match_files, "_KEY_BYTES", draw.choice([100, 1 << 20]))
    monkeypatch.setattr(match_files, "SORTED_ROWS", draw.choice([1, 3, 50, 1 << 14]))
    monkeypatch.setattr(match_files, "_ENCODED_BYTES", draw.choice([1, 1000, 1 << 20]))
    monkeypatch.setattr(match_files, "_LONG_RUN", draw.choice([0, 2, 64]))
    rules = draw.choice([1, 2, 50, 70_000])
    texts = draw.random() < 0.6
    ids = pa.array(
        [f"r{number:06}" for number in range(rules)] if texts else range(rules), None if texts else pa.int64()
    )
    keys = draw.choice([("id",), ("word", "id"), ("value", "word"), ("number", "word")])
    columns = (*draw.sample(["rule_id", *keys, "rules_version", "source_version"], len(keys) + 3),)
    layout = Layout((), "rule_id", None, columns if draw.random() < 0.5 else ())
    files, expected = MatchFiles(str(tmp_path), task(keys), layout, ids), Counter()
    for number in range(draw.randint(0, 6)):
        rows = batch(draw, draw.choice([0, 1, 5, 200]), draw.choice([3, number]))
        matched = [sorted(draw.sample(range(rules), min(rules, draw.choice([0, 0, 1, 4])))) for _ in range(len(rows))]
        offsets = np.cumsum([0, *map(len, matched)]).astype(np.int32)
        files.add(rows.select([*keys, "source_version"]), offsets, np.array([*chain.from_iterable(matched)], np.int32))
        for row, its in zip(rows.to_pylist(), matched, strict=True):
            expected.update(
                repr((ids[rule].as_py(), *(row[key] for key in keys), row["source_version"])) for rule in its
            )
    entries = files.close()
    assert len(entries) == (1 if expected else 0)
    if not expected:
        assert not list(tmp_path.iterdir())
        return
    found = read(tmp_path)
    assert found.column_names == list(layout.columns or ("rule_id", *keys, "rules_version", "source_version"))
    pairs = [repr((row["rule_id"], *(row[key] for key in keys), row["source_version"])) for row in found.to_pylist()]
    assert Counter(pairs) == expected
    assert set(found["rules_version"].to_pylist()) == {7}
    stats = json.loads(entries[0]["stats"])
    assert stats["numRecords"] == found.num_rows
    assert stats["minValues"]["rule_id"] == min(found["rule_id"].to_pylist())
    assert stats["nullCount"][keys[0]] == found[keys[0]].null_count


def test_rows_of_a_rule_are_in_few_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(match_files, "_PAIRS", 4000)
    monkeypatch.setattr(match_files, "SORTED_ROWS", 100)
    files = MatchFiles(str(tmp_path), task(("id",)), Layout((), "rule_id"), pa.array([f"r{n:03}" for n in range(100)]))
    for start in range(0, 8000, 1000):
        rows = pa.record_batch(
            {"id": range(start, start + 1000), "source_version": pa.repeat(pa.scalar(1, pa.int64()), 1000)}
        )
        files.add(rows, np.arange(1001, dtype=np.int32), np.array([n * 37 % 100 for n in range(1000)], np.int32))
    files.close()
    held = pq.ParquetFile(next(tmp_path.iterdir()))
    groups = [held.read_row_group(n).column("rule_id").to_pylist() for n in range(held.num_row_groups)]
    assert len(groups) == 80 and all(group == sorted(group) for group in groups)
    assert sum("r042" in group for group in groups) <= 4
    ids = held.read()["id"].to_pylist()
    assert ids[:40] == sorted(ids[:40]), "the rows of a rule are in their order"


def test_nothing_is_left_of_a_file_that_is_abandoned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(match_files, "_PAIRS", 1)
    files = MatchFiles(str(tmp_path), task(("id",)), Layout((), "rule_id"), pa.array(["r"]))
    rows = pa.record_batch({"id": [1], "source_version": pa.array([1], pa.int64())})
    files.add(rows, np.array([0, 1], np.int32), np.zeros(1, np.int32))
    assert list(tmp_path.iterdir())
    files.abandon()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("rules", [2, 40])
def test_keys_that_are_never_null_are_read_back(tmp_path: Path, rules: int) -> None:
    fields = [pa.field("x", pa.int64(), nullable=False), pa.field("y", pa.int64(), nullable=False)]
    schema = pa.schema([*fields, pa.field("source_version", pa.int64(), nullable=False)])
    rows = pa.RecordBatch.from_arrays([pa.array([7] * 100), pa.array(range(100)), pa.array([1] * 100)], schema=schema)
    file = MatchFiles(str(tmp_path), task(("x", "y")), Layout(), pa.array([f"r{n:02}" for n in range(rules)]))
    file.add(rows, np.arange(101), np.arange(100, dtype=np.int32) % rules)
    file.close()
    found = read(tmp_path)
    assert found["x"].to_pylist() == [7] * 100
    assert sorted(zip(found["y"].to_pylist(), found["rule_id"].to_pylist(), strict=True)) == [
        (row, f"r{row % rules:02}") for row in range(100)
    ]


def test_a_file_in_which_each_column_has_one_value(tmp_path: Path) -> None:
    rows = pa.record_batch({"x": pa.array([7] * 300), "source_version": pa.array([1] * 300)})
    file = MatchFiles(str(tmp_path), task(("x",)), Layout(), pa.array(["r", "s"]))
    file.add(rows, np.arange(301), np.ones(300, np.int32))
    (entry,) = file.close()
    assert read(tmp_path).to_pylist() == [{"rule_id": "s", "x": 7, "rules_version": 7, "source_version": 1}] * 300
    assert json.loads(entry["stats"])["maxValues"] == {"rule_id": "s", "x": 7, "rules_version": 7, "source_version": 1}
