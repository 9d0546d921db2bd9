"""Ids of tagged rows, read as codes, are those that the table has."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from pipelines.lake import tagged_ids
from pipelines.lake.tagged_ids import MatchCounts, coded, tagged_batches


def random_ids(kind: pa.DataType, rows: int) -> list[list[Any]]:
    """Lists of up to four different ids, in ascending order, of which many are empty."""
    draw = random.Random(8)
    ids = [f"rule {number}" if pa.types.is_string(kind) else number for number in range(200)]
    return [sorted(draw.sample(ids, draw.choice([0, 0, 1, 4]))) for _ in range(rows)]


def written(path: Path, kind: pa.DataType, ids: list[list[Any]], first: int = 0, **options: Any) -> None:
    table = pa.table({"n": range(first, first + len(ids)), "rule_ids": pa.array(ids, pa.list_(kind))})
    pq.write_table(table, path, row_group_size=300, **options)


@pytest.mark.parametrize("kind", [pa.string(), pa.int64()], ids=str)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"use_dictionary": False},
        {"dictionary_pagesize_limit": 500, "data_page_size": 100},
        {"use_dictionary": False, "column_encoding": {"rule_ids.list.element": "DELTA_BINARY_PACKED"}},
        {"use_dictionary": False, "column_encoding": {"rule_ids.list.element": "DELTA_BYTE_ARRAY"}},
    ],
    ids=["dictionary", "plain", "dictionary given up", "numbers as differences", "texts as differences"],
)
@pytest.mark.parametrize("few_rows", [0, 500])
def test_ids_are_those_of_the_files(
    tmp_path: Path, kind: pa.DataType, options: dict[str, Any], few_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tagged_ids, "_FEW_ROWS", few_rows)
    encoding = options.get("column_encoding", {}).get("rule_ids.list.element", "")
    if encoding and pa.types.is_string(kind) != (encoding == "DELTA_BYTE_ARRAY"):
        pytest.skip("an encoding of the other type")
    ids = random_ids(kind, 1_000)
    written(tmp_path / "a.parquet", kind, ids[:700], **options)
    written(tmp_path / "b.parquet", kind, ids[700:], 700)
    found: dict[int, list[Any]] = {number: [] for number in range(1_000)}
    counts = MatchCounts(2)
    for batch in tagged_batches(ds.dataset(tmp_path), ["n", "rule_ids"]):
        assert batch.num_rows <= 300
        matches, numbers = coded(batch.column("rule_ids")), batch.column("n").to_pylist()
        names = matches.ids.to_pylist()
        for row, code in zip(matches.rows.tolist(), matches.codes.tolist(), strict=True):
            found[numbers[row]].append(names[code])
        counts.add(matches, np.array(numbers)[matches.rows] % 2)
    assert [*found.values()] == ids
    for rule, by_parity in zip(counts.ids.to_pylist(), counts.counts.tolist(), strict=True):
        assert by_parity == [sum(rule in row for row in ids[parity::2]) for parity in (0, 1)]
    assert set(counts.ids.to_pylist()) == {each for row in ids for each in row}


def test_only_wanted_files_and_rows_are_read(tmp_path: Path) -> None:
    ids = random_ids(pa.string(), 600)
    written(tmp_path / "a.parquet", pa.string(), ids[:300])
    written(tmp_path / "b.parquet", pa.string(), ids[300:])
    dataset = ds.dataset(tmp_path)
    (batch,) = tagged_batches(dataset, ["rule_ids"], lambda path: path.endswith("b.parquet"))
    assert batch.column("rule_ids").to_pylist() == ids[300:]
    rows = [batch.num_rows for batch in tagged_batches(dataset, ["rule_ids"], where=pc.field("n") < 7)]
    assert sum(rows) == 14


def test_lists_without_ids() -> None:
    empty = coded(pa.array([[], [], []], pa.list_(pa.string())))
    assert (len(empty.rows), len(empty.codes)) == (0, 0)
    counts = MatchCounts()
    counts.add(empty)
    assert not len(counts.ids) and counts.counts.shape == (0, 1)
    counts.add(coded(pa.array([[7], None, [7, 8]], pa.list_(pa.int64()))))
    counts.add(coded(pa.array([[9, None, 7]], pa.list_(pa.int64()))))
    assert (counts.ids.to_pylist(), counts.counts[:, 0].tolist()) == ([7, 8, 9], [3, 1, 1])
