"""Column chunks that are encoded here are read as what they were made of, by Arrow, Polars and DuckDB."""

from __future__ import annotations

import random
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from rules_index.workers import encoded_chunks
from rules_index.workers.encoded_chunks import EncodedChunks
from rules_index.workers.parquet_columns import CompositeFile, encoded, sources_of
from tests.cases import cases


def lists(draw: random.Random, rows: int, words: pa.Array) -> pa.ChunkedArray:
    """Lists of some of the words, in one or two chunks, which are slices and may have dictionaries of their own."""
    longest = draw.choice([0, 1, 3, 40])
    chunks = []
    for count in (rows // 3, rows - rows // 3):
        words = words.take(pc.sort_indices(words)) if draw.random() < 0.5 else words
        lengths = [draw.choice([0, longest, draw.randint(0, longest)]) for _ in range(count + 2)]
        codes = [draw.randrange(len(words)) for _ in range(sum(lengths))]
        values = pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), words)
        made = pa.ListArray.from_arrays(pa.array(np.cumsum([0, *lengths]), pa.int32()), values)
        chunks.append(made.slice(1, count))
    return pa.chunked_array(chunks)


def written(path: Path, groups: list[pa.Table], codec: str) -> None:
    """Writes a file with each table as a row group."""
    file, empty = CompositeFile(str(path)), encoded(groups[0].slice(0, 0), codec)
    for group in groups:
        sources = sources_of(group, codec)
        file.add(group.num_rows, [(*sources[name], name) for name in group.column_names])
    file.close([empty.schema_of(name) for name in groups[0].column_names], empty.created_by, {})


@pytest.mark.parametrize("seed", range(cases(120)))
def test_rows_are_read_as_they_were_written(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(seed)
    monkeypatch.setattr(encoded_chunks, "_PAGE_VALUES", draw.choice([1, 7, 100, 1 << 18]))
    count = draw.choice([1, 2, 3, 130, 5000])
    words = pa.array([draw.choice(["", "é", "x" * 300, "w"]) + str(number) for number in range(count)])
    words = words.slice(draw.randint(0, 1)) if count > 2 else words
    numbers = pa.array([draw.randrange(-(1 << 63), 1 << 63) for _ in range(count)], pa.int64())
    groups, plain = [], []
    for _ in range(draw.randint(1, 3)):
        rows = draw.choice([1, 7, 64, 300])
        ids, ordinals = lists(draw, rows, words), lists(draw, rows, numbers)
        instant = pa.array([draw.randrange(-(1 << 60), 1 << 60)], pa.timestamp("us", "UTC"))
        columns = {
            "ids": ids,
            "ordinals": ordinals,
            "version": pa.repeat(pa.scalar(draw.choice([0, -1, (1 << 63) - 1, -(1 << 63)]), pa.int64()), rows),
            "text": pa.DictionaryArray.from_arrays(
                pa.array(np.zeros(rows, np.int32)), pa.array([draw.choice(["", "f" * 5000, "ü"])])
            ),
            "t": pa.repeat(instant[0], rows),
            "other": pa.array(range(rows), pa.int64()),
        }
        groups.append(pa.table(columns))
        decoded = {"ids": ids.cast(pa.list_(pa.string())), "ordinals": ordinals.cast(pa.list_(pa.int64()))}
        plain.append(pa.table({**columns, **decoded, "text": columns["text"].cast(pa.string())}))
    path, codec = tmp_path / "rows.parquet", draw.choice(["snappy", "zstd", "none", "gzip"])
    written(path, groups, codec)
    expected = pa.concat_tables(plain)
    found = pq.read_table(path)
    assert found.equals(expected.cast(found.schema))
    assert pl.read_parquet(path).equals(pl.DataFrame(pl.from_arrow(expected)))
    told = duckdb.sql(f"SELECT ids, ordinals, version, text, epoch_us(t) AS t, other FROM '{path}'").to_arrow_table()
    assert told["ids"].to_pylist() == expected["ids"].to_pylist()
    assert told["ordinals"].to_pylist() == expected["ordinals"].to_pylist()
    assert told["text"].to_pylist() == expected["text"].to_pylist()
    assert told["t"].to_pylist() == expected["t"].cast(pa.int64()).to_pylist()
    assert told["version"].to_pylist() == expected["version"].to_pylist()
    footer = pq.read_metadata(path)
    for number, group in enumerate(plain):
        bounds = footer.row_group(number).column(2).statistics
        assert (bounds.min, bounds.max, bounds.null_count) == (*[group["version"][0].as_py()] * 2, 0)
        text = footer.row_group(number).column(3).statistics
        assert text.has_min_max == (len(group["text"][0].as_py()) <= 4096)


@pytest.mark.parametrize("seed", range(cases(40)))
def test_runs(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    count = draw.choice([1, 2, 3, 257, 70_000])
    lengths = np.array([draw.choice([1, 63, 64, 8191, 1 << 21]) if count < 9 else 1 for _ in range(count)])
    texts = draw.random() < 0.5
    values = pa.array([f"r{number:06}" for number in range(count)] if texts else range(-1, count - 1))
    made = EncodedChunks("zstd")
    made.add_runs(0, "id", values, lengths)
    file, empty = CompositeFile(str(tmp_path / "f")), encoded(pa.table({"id": values.slice(0, 0)}), "zstd")
    file.add(int(lengths.sum()), [(made, 0, "id")])
    file.close([empty.schema_of("id")], empty.created_by, {})
    expected = values.take(pa.array(np.repeat(np.arange(count), lengths)))
    assert pq.read_table(tmp_path / "f")["id"].combine_chunks().equals(expected)
    assert pl.read_parquet(tmp_path / "f")["id"].equals(pl.Series("id", pl.from_arrow(expected)))
    bounds = pq.read_metadata(tmp_path / "f").row_group(0).column(0).statistics
    assert (bounds.min, bounds.max) == (values[0].as_py(), values[-1].as_py())


def test_what_arrow_encodes_better_is_left_to_it() -> None:
    """Columns with NULLs, with several values, and lists with NULLs in them or without a dictionary."""
    words = pa.array(["a", "b", None]).dictionary_encode()
    offsets = pa.array([0, 2, 3], pa.int32())
    rows = pa.table(
        {
            "nulls": pa.array([1, None], pa.int64()),
            "different": pa.array([1, 2], pa.int64()),
            "double": pa.array([1.0, 1.0]),
            "null in a list": pa.ListArray.from_arrays(offsets, words),
            "null list": pa.array([["a"], None], pa.list_(pa.string())).cast(
                pa.list_(pa.dictionary(pa.int32(), pa.string()))
            ),
            "plain": pa.array([["a"], ["b"]]),
            "numbers": pa.array([[1], [2]]),
        }
    )
    assert EncodedChunks("none").add_known(0, rows) == set()
    required = pa.table([pa.array([1, 1])], schema=pa.schema([pa.field("n", pa.int64(), nullable=False)]))
    assert EncodedChunks("none").add_known(0, required) == set()
    assert EncodedChunks("none").add_known(0, rows.slice(0, 0)) == set()
