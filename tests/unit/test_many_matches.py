"""Rows that satisfy very many rules, and very wide rows: few of them are in memory at a time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rules_index.compiling.compile import compile_rules
from rules_index.errors import RulesIndexError
from rules_index.index.compiled import CompiledRules
from rules_index.workers import source_file_reader, tagged_files
from rules_index.workers.source_file_reader import SourceFile, read_batches
from rules_index.workers.table_files import Files
from rules_index.workers.tagged_files import write_files
from rules_index.workers.task import Task


def test_batches_have_about_as_many_matches_as_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of rows that satisfy few rules all are matched at once."""
    monkeypatch.setattr(tagged_files, "_MOST_MATCHES", 4000)
    sizes: list[tuple[int, int]] = []
    as_before = CompiledRules.match_ordinals

    def noted(self: CompiledRules, batch: Any) -> Any:
        found = as_before(self, batch)
        sizes.append((len(batch), len(found[1])))
        return found

    monkeypatch.setattr(CompiledRules, "match_ordinals", noted)
    written: list[int] = []
    write = Files.write

    def note_ids(self: Files, batch: pa.RecordBatch) -> None:
        written.append(len(batch["rule_ids"].values))
        write(self, batch)

    monkeypatch.setattr(Files, "write", note_ids)
    numbers = np.concatenate([np.arange(1000), np.full(20_000, -1)])
    table = pa.table({"x": numbers, "source_version": np.ones(len(numbers), np.int64)})
    compiled = compile_rules([(f"r{n:04}", f"x >= {n}") for n in range(1000)], table.schema)
    stamps = {"rules_version": pa.scalar(1), "index_fingerprint": pa.scalar("f"), "tagged_at": pa.scalar(1)}
    task = Task(pa.string(), ("x",), (), stamps, False, "snappy", {}, {"tagged": str(tmp_path)})
    rows = [row for batch in write_files(compiled, task, iter(table.to_batches(50_000))) for row in batch.to_pylist()]
    assert sum(count for count, _ in sizes) == len(table)
    assert sizes[0][0] == 4 and max(count for count, _ in sizes) > 8000
    # the ids of more matches may take more than the 2 GiB that an array holds
    assert max(written) <= 8000
    in_the_middle = [matches for _, matches in sizes if matches > 1000]
    assert len(in_the_middle) > 50 and np.median(in_the_middle) < 6000
    path = tmp_path / json.loads(rows[1]["entry"])["add"]["path"]
    found = pq.read_table(path)
    assert found["x"].to_pylist() == numbers.tolist()
    assert np.array_equal([len(ids) for ids in found["rule_ids"].to_pylist()], np.maximum(numbers + 1, 0))


def test_wide_rows_are_read_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the width of the columns that are read."""
    monkeypatch.setattr(source_file_reader, "_BATCH_BYTES", 1 << 20)
    texts = [f"{n:08}" * 1000 for n in range(1000)]
    table = pa.table({"text": texts, "a": [{"b": n} for n in range(1000)], "n": range(1000)})
    path = str(tmp_path / "file.parquet")
    pq.write_table(table, path, row_group_size=700, use_dictionary=False, compression="zstd")
    batches = list(read_batches([SourceFile(path, {}, 1)], table.schema))
    assert max(map(len, batches)) == 130 and sum(map(len, batches)) == 1000
    assert pa.Table.from_batches(batches).drop_columns(["source_version"]).equals(table)
    assert max(len(batch) for batch in read_batches([SourceFile(path, {}, 1)], table.schema, ["a", "n"])) > 300


def test_batches_are_joined_in_order_up_to_a_bound(monkeypatch) -> None:
    monkeypatch.setattr(tagged_files, "_FEW_ROWS", 10)
    monkeypatch.setattr(tagged_files, "_FEW_BYTES", 200)
    sizes = [3, 0, 4, 5, 30, 1, 1]
    texts = ["", "b" * 20]
    batches, first = [], 0
    for number, size in enumerate(sizes):
        # each batch with a dictionary of its own, as batches of different files have
        text = pa.array([texts[number % 2]] * size, pa.string()).dictionary_encode()
        batches.append(pa.RecordBatch.from_arrays([pa.array(range(first, first + size), pa.int64()), text], ["n", "s"]))
        first += size
    made = list(tagged_files.joined(batches))
    assert [len(each) for each in made] == [7, 5, 30, 2]
    plain = [row for each in batches for row in each.to_pylist()]
    assert [row for each in made for row in each.to_pylist()] == plain
    assert list(tagged_files.joined([])) == []


@pytest.mark.slow
def test_ids_that_no_array_holds_are_told_in_words() -> None:
    rules = [(f"{number:01000d}", "a = 1") for number in range(33)]
    compiled = compile_rules(rules, pa.schema([("a", pa.int64())]))
    with pytest.raises(RulesIndexError, match=r"2,162,688 matches in one batch of 65,536 rows .* match fewer rows"):
        compiled.match(pa.table({"a": np.ones(1 << 16, np.int64)}))
