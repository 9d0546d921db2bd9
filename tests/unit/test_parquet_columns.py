"""Parquet files with some columns replaced, read back by PyArrow's and Polars's own readers."""

from __future__ import annotations

import random
from datetime import date, datetime
from decimal import Decimal
from itertools import pairwise
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rules_index.workers.parquet_columns import ColumnFile, ParquetFooterError, read_footer, with_columns
from rules_index.workers.thrift import write_struct
from tests.cases import quick_first

KINDS = {
    "n": (pa.int32(), [None, -5, 7, 2**31 - 1]),
    "text": (pa.string(), [None, "", "x", "é" * 40]),
    "d": (pa.float64(), [None, float("inf"), 0.5]),
    "flag": (pa.bool_(), [None, True, False]),
    "day": (pa.date32(), [None, date(1970, 1, 1), date(2024, 2, 29)]),
    "t": (pa.timestamp("us", "UTC"), [None, datetime(2024, 1, 1), datetime(1900, 1, 1)]),
    "money": (pa.decimal128(20, 3), [None, Decimal("1.005"), Decimal("-99999999999999999.999")]),
    "place": (pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))]), [None, {"a": 1, "b": ["x", None]}, {}]),
    "odd, name": (pa.binary(), [None, b"", b"\x00\xff"]),
    "pairs": (pa.map_(pa.string(), pa.int32()), [None, [], [("k", 1), ("l", None)]]),
}


def table(draw: random.Random, rows: int) -> pa.Table:
    columns = {
        name: pa.array([draw.choice(values) for _ in range(rows)], kind) for name, (kind, values) in KINDS.items()
    }
    ids = [[f"r{i}" for i in range(draw.randint(0, 4))] for _ in range(rows)]
    columns["rule_ids"] = pa.array(ids, pa.list_(pa.string()))
    columns["rules_version"] = pa.array([3] * rows, pa.int64())
    columns["index_fingerprint"] = pa.array(["f" * 64] * rows)
    return pa.table(columns)


def values_of(rows: pa.Table) -> dict[str, pa.Array]:
    """A row group's columns."""
    return {name: pa.concat_arrays(rows[name].chunks or [rows[name].combine_chunks()]) for name in rows.column_names}


@pytest.mark.parametrize("seed", quick_first(4, range(12), 7))
def test_only_the_replaced_columns_differ(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    rows = draw.choice([0, 1, 700])
    source, target = tmp_path / "old.parquet", tmp_path / "new.parquet"
    old = table(draw, rows)
    codec = draw.choice(["snappy", "zstd", "none", "gzip"])
    old_codec = draw.choice(["snappy", "zstd", "none"])
    with pq.ParquetWriter(
        source, old.schema, compression=old_codec, store_schema=False, write_page_index=draw.random() < 0.5,
        data_page_version=draw.choice(["1.0", "2.0"]), use_dictionary=draw.random() < 0.7,
        use_deprecated_int96_timestamps=draw.random() < 0.5,
    ) as writer:  # fmt: skip
        writer.write_table(old, row_group_size=draw.choice([1, 100, 5000]))
        writer.add_key_value_metadata({"key": "value"})
    new = table(draw, rows).select(["rule_ids", "rules_version", "index_fingerprint"])
    new = new.set_column(1, "rules_version", pa.array([None if n % 3 else 9 for n in range(rows)], pa.int64()))
    footer = pq.read_metadata(source)
    starts = [0]
    for group in range(footer.num_row_groups):
        starts.append(starts[-1] + footer.row_group(group).num_rows)
    parts = [values_of(new.slice(start, stop - start)) for start, stop in pairwise(starts)]
    with_columns(ColumnFile(str(source)), str(target), new.schema, iter(parts), codec)
    expected = pq.read_table(source)
    if parts:
        for name in new.column_names:
            expected = expected.set_column(expected.schema.get_field_index(name), name, new[name])
    found = pq.read_table(target)
    assert found.equals(expected)
    assert found.schema.names == old.schema.names
    assert pq.read_metadata(target).metadata[b"key"] == b"value"
    if rows:
        names = ["n", "text", "rule_ids", "rules_version"]
        assert pl.read_parquet(target, columns=names).to_dicts() == expected.select(names).to_pylist()
    written = pq.read_metadata(target)
    assert all(written.row_group(group).total_byte_size > 0 for group in range(footer.num_row_groups))
    # bounds are those of the new values: a reader that passes over row groups by them finds what there is
    assert pq.read_table(target, filters=[("rules_version", "=", 9)]).num_rows == sum(n % 3 == 0 for n in range(rows))


def test_a_footer_is_written_as_it_was_read(tmp_path: Path) -> None:
    path = tmp_path / "file.parquet"
    pq.write_table(table(random.Random(1), 300), path, row_group_size=50, sorting_columns=[pq.SortingColumn(0)])
    data = path.read_bytes()
    size = int.from_bytes(data[-8:-4], "little")
    with path.open("rb") as file:
        assert write_struct(read_footer(file)) == data[-8 - size : -8]


def test_columns_that_a_file_lacks_come_last(tmp_path: Path) -> None:
    path, target = tmp_path / "file.parquet", tmp_path / "new.parquet"
    rows = table(random.Random(1), 300)
    pq.write_table(rows, path, row_group_size=200)
    old, first, second = ColumnFile(str(path)), *(values_of(part) for part in (rows.slice(0, 200), rows.slice(200)))
    field = rows.schema.field("rule_ids")
    assert old.stores(field, "none") and not old.stores(pa.field("rule_ids", pa.list_(pa.int64())), "none")
    assert not old.stores(field.with_name("new"), "none")
    groups = [{"rule_ids": None, "new": first["rule_ids"]}, {"rule_ids": second["rule_ids"], "new": second["rule_ids"]}]
    with_columns(old, str(target), pa.schema([field.with_name("new"), field]), groups, "none")
    assert pq.read_table(target).equals(rows.append_column("new", rows["rule_ids"]))


def test_what_is_no_such_file_is_refused(tmp_path: Path) -> None:
    path, target = tmp_path / "file.parquet", str(tmp_path / "new")
    rows = table(random.Random(1), 4)
    pq.write_table(rows, path)
    ids, old = rows.select(["rule_ids"]), ColumnFile(str(path))
    with pytest.raises(ParquetFooterError, match="row groups"):
        with_columns(old, target, ids.schema, [values_of(ids)] * 2, "none")
    with pytest.raises(ParquetFooterError, match="row groups"):
        with_columns(old, target, ids.schema, [], "none")
    path.write_bytes(path.read_bytes()[:-4] + b"PARE")
    with pytest.raises(ParquetFooterError, match="encrypted"):
        ColumnFile(str(path))
