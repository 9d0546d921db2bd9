"""Lists that are replaced in a chunk of a Parquet file, read back by PyArrow and Polars."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rules_index.workers import encoded_chunks
from rules_index.workers.list_pages import ListPages, may_hold
from rules_index.workers.parquet_columns import ColumnFile, CompositeFile, encoded, sources_of
from tests.cases import cases

CODECS = ["snappy", "zstd", "none", "gzip"]


def coded(lists: list[list[object]], kind: pa.DataType, draw: random.Random) -> pa.ListArray:
    """Lists of dictionary-encoded values; the dictionary is in no order."""
    known = sorted({each for values in lists for each in values}, key=str) or [0 if pa.types.is_int64(kind) else "x"]
    draw.shuffle(known)
    places = {each: place for place, each in enumerate(known)}
    codes = pa.array([places[each] for values in lists for each in values], pa.int32())
    offsets = pa.array(np.cumsum([0, *map(len, lists)]), pa.int32())
    return pa.ListArray.from_arrays(offsets, pa.DictionaryArray.from_arrays(codes, pa.array(known, kind)))


def written(path: Path, column: pa.ListArray, codec: str) -> ColumnFile:
    """A file of one row group."""
    rows = pa.table({"rule_ids": column})
    file, empty = CompositeFile(str(path)), encoded(rows.slice(0, 0), codec)
    file.add(len(column), [(*sources_of(rows, codec)["rule_ids"], "rule_ids")])
    file.close([empty.schema_of("rule_ids")], empty.created_by, {})
    return ColumnFile(str(path))


@pytest.mark.parametrize("seed", range(cases(120)))
def test_only_the_pages_with_these_rows_are_written_anew(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(seed)
    monkeypatch.setattr(encoded_chunks, "_PAGE_VALUES", draw.choice([1, 5, 64, 1 << 18]))
    codec, kind = draw.choice(CODECS), draw.choice([pa.string(), pa.int64()])
    count = draw.choice([1, 2, 3, 200, 5000])
    names = [number - 1 if kind == pa.int64() else f"{'é' * (number % 3)}{number}" for number in range(count)]
    rows, longest = draw.choice([1, 9, 500]), draw.choice([0, 1, 6, 50])
    lists = [[draw.choice(names) for _ in range(draw.randint(0, longest))] for _ in range(rows)]
    file = written(tmp_path / "old", coded(lists, kind, draw), codec)
    pages = ListPages.read(file, 0, "rule_ids", codec)
    assert pages is not None
    new = sorted(draw.sample(range(rows), draw.randint(1, min(rows, 3))))
    numbers = pages.holding(np.array(new))
    held = pages.rows_of(numbers)
    assert set(new) <= set(held.tolist())
    before = pages.lists(numbers)
    if before is None:
        assert not any(lists[row] for row in held)
        return
    assert before.to_pylist() == [lists[row] for row in held]
    added = [names[0], 1 << 62 if kind == pa.int64() else "a new one", *names[-1:]]
    for row in new:
        lists[row] = [*lists[row], *draw.sample(added, draw.randint(1, 3))]
    after = coded([lists[row] for row in held], kind, draw)
    made, target = pages.replaced(numbers, before, after, codec), tmp_path / "new"
    out, empty = CompositeFile(str(target)), encoded(pa.table({"rule_ids": after[:0]}), codec)
    out.add(rows, [(made, 0, "rule_ids")])
    out.close([empty.schema_of("rule_ids")], empty.created_by, {})
    found = pq.read_table(target)["rule_ids"]
    assert found.type == pa.list_(kind) and found.to_pylist() == lists
    assert pl.read_parquet(target)["rule_ids"].to_list() == lists
    again = ListPages.read(ColumnFile(str(target)), 0, "rule_ids", codec)
    assert again is not None and again.starts[-1] == rows
    copied = [page for number, page in enumerate(pages.pages) if number not in numbers]
    assert all(page in again.pages for page in copied)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("kind", [pa.string(), pa.int64()])
def test_a_dictionary_tells_which_values_are_in_no_list(tmp_path: Path, codec: str, kind: pa.DataType) -> None:
    draw = random.Random(1)
    names = [number if kind == pa.int64() else f"r{number}" for number in range(100)]
    file = written(tmp_path / "ids", coded([[each] for each in names[::2]], kind, draw), codec)
    for number, each in enumerate(names):
        assert may_hold(file, 0, "rule_ids", pa.array([each], kind)) or number % 2
    assert not any(may_hold(file, 0, "rule_ids", pa.array([each], kind)) for each in names[1::2])
    assert not may_hold(file, 0, "rule_ids", pa.array(names[1:60:2], kind))
    assert may_hold(file, 0, "rule_ids", pa.array(names[1::2] * 2, kind)), "so many are not looked up"
    plain = pa.table({"rule_ids": pa.array([[each] for each in names], pa.list_(kind))})
    pq.write_table(plain, tmp_path / "plain", use_dictionary=False, compression=codec)
    assert may_hold(ColumnFile(str(tmp_path / "plain")), 0, "rule_ids", pa.array(names[:1], kind))


@pytest.mark.parametrize("seed", range(cases(20)))
def test_damaged_bytes_are_not_taken_for_lists_or_told_by_arrow(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    codec, kind = draw.choice(CODECS), draw.choice([pa.string(), pa.int64()])
    names = [number if kind == pa.int64() else f"r{number}" for number in range(9)]
    lists = [[draw.choice(names) for _ in range(draw.randint(0, 4))] for _ in range(200)]
    file = written(tmp_path / "old", coded(lists, kind, draw), codec)
    data, end = (tmp_path / "old").read_bytes(), file.chunks(0, "rule_ids")[0][3][1][7][1]
    refused = 0
    for number in range(40):
        damaged = bytearray(data)
        for _ in range(draw.choice([1, 1, 5])):
            damaged[draw.randrange(4, 4 + end)] = draw.randrange(256)
        path = tmp_path / f"{number}"
        path.write_bytes(damaged)
        assert may_hold(ColumnFile(str(path)), 0, "rule_ids", pa.array(names[:2], kind)) in (True, False)
        pages = ListPages.read(ColumnFile(str(path)), 0, "rule_ids", codec)
        refused += pages is None
        if pages is None:
            continue
        with contextlib.suppress(pa.ArrowException, OSError):
            found = pages.lists(np.arange(len(pages.pages)))
            assert found is None or len(found) == len(lists)
    assert refused, "a header or a level was hit"


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("use_dictionary", [True, False])
def test_pages_of_other_writers_are_not_taken_apart(tmp_path: Path, version: str, use_dictionary: bool) -> None:
    rows = pa.table({"rule_ids": pa.array([[f"r{n % 7}", "x"] * (n % 3) for n in range(1000)], pa.list_(pa.string()))})
    path = tmp_path / "other"
    pq.write_table(rows, path, use_dictionary=use_dictionary, data_page_version=version, data_page_size=100)
    file = ColumnFile(str(path))
    assert ListPages.read(file, 0, "rule_ids", "snappy") is None
    assert ListPages.read(file, 0, "rule_ids", "zstd") is None
    assert may_hold(file, 0, "rule_ids", pa.array(["r1"]))
