"""Writes Parquet files of a Delta table where the rows are, with the statistics for the table's log.

Delta protocol, "Add File" and "Per-file Statistics". The caller adds the entries to the log.
"""

from __future__ import annotations

import contextlib
import json
import os
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

ROW_GROUP_BYTES = 64 << 20
"""A row group is written when the buffered rows take this much memory; half of it where they are sorted, since that
takes a second copy."""
INDEXED_LEAVES = 32
"""Delta keeps statistics of so many leaf columns, the first ones, unless a table asks for others."""
_LONGEST_FOLDER = 200
_HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
SORTED_ROWS = 1 << 14
"""The rows of a row group where rows are sorted: few, so that a search for one value reads few rows."""
_LOOKED_AT = 1 << 13
"""The number of rows from whose values a column's encoding is chosen."""
_LONGEST_TEXT = 64
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Layout:
    """How the rows of a table are stored in its files.

    partition_by  columns that files do not have, because all rows of a file have the same value
    sort_by       the column by which the rows of a file are sorted; its values are ordered as they are stored
    indexed       the columns whose bounds the log has; None: the first INDEXED_LEAVES leaves
    columns       the table's columns in its order, where the rows have another one; else ()
    """

    partition_by: tuple[str, ...] = ()
    sort_by: str | None = None
    indexed: frozenset[str] | None = None
    columns: tuple[str, ...] = ()


PLAIN = Layout()


@dataclass
class FloatBounds:
    """A file's statistics of a floating-point column: least and greatest number, number of NULLs, whether there is a
    NaN."""

    low: float | None = None
    high: float | None = None
    nulls: int = 0
    nan: bool = False

    def add(self, column: pa.ChunkedArray) -> None:
        """Adds further values."""
        self.nulls += column.null_count
        not_numbers = pc.is_nan(column)
        if pc.any(not_numbers).as_py():
            self.nan = True
            column = column.filter(pc.invert(not_numbers))
        found = pc.min_max(column).as_py()
        if found["min"] is not None:
            self.low = found["min"] if self.low is None else min(self.low, found["min"])
            self.high = found["max"] if self.high is None else max(self.high, found["max"])

    def put(self, found: dict[str, Any], name: str) -> None:
        """Writes them to a file's statistics."""
        found["nullCount"][name] = self.nulls
        if self.low is not None and self.high is not None:
            found["minValues"][name] = _finite(self.low)
            if not self.nan:
                found["maxValues"][name] = _finite(self.high)


class DeltaFile:
    """A file being written: rows come in batches of one schema, and `close` returns the log's `add` entry."""

    def __init__(
        self,
        folder: str,
        schema: pa.Schema,
        codec: str,
        footer: Mapping[str, str],
        layout: Layout = PLAIN,
        partition: Mapping[str, str | None] | None = None,
    ) -> None:
        """Creates the file in the table's `folder`, with `footer` in its metadata. Raises `OSError` where it cannot.

        partition: the values, as the log writes them, of the layout's partition columns, which are not in `schema`.
        """
        self._partition = dict(partition or {})
        self.path = f"{_folder_name(self._partition)}part-{uuid.uuid4()}.{codec}.parquet"
        self._path = os.path.join(folder, self.path)
        self._schema, self._layout = schema, layout
        self._waiting: list[pa.RecordBatch] = []
        self.waiting_bytes = 0
        floats = [field.name for field in schema if pa.types.is_floating(field.type)]
        self._floats = {name: FloatBounds() for name in floats}
        self._footers: list[pq.FileMetaData] = []
        if self._partition:
            os.makedirs(os.path.dirname(self._path), exist_ok=True)
        self._codec, self._footer = codec, dict(footer)
        self._writer: pq.ParquetWriter | None = None

    def write(self, batch: pa.RecordBatch) -> None:
        """Adds rows."""
        self._waiting.append(batch)
        self.waiting_bytes += batch.nbytes
        if self.waiting_bytes >= ROW_GROUP_BYTES // (1 if self._layout.sort_by is None else 2):
            self.flush()

    def close(self) -> dict[str, Any]:
        """Finishes the file; returns its `add` entry."""
        self.flush()
        if self._writer is None:
            self._writer = self._opened(self._schema.empty_table())
        self._writer.close()
        return {
            "path": quote(self.path, "/="),
            "partitionValues": self._partition,
            "size": os.path.getsize(self._path),
            "modificationTime": int(os.path.getmtime(self._path) * 1000),
            "dataChange": True,
            "stats": json.dumps(statistics(self._footers[0], self._schema, self._floats, self._layout.indexed)),
        }

    def abandon(self) -> None:
        """Removes what was written."""
        with contextlib.suppress(Exception):  # a failure here must not hide the error that led here
            if self._writer is not None:
                self._writer.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)

    def flush(self) -> None:
        """Writes the buffered rows: as one row group, or, if they are sorted, as several with narrow bounds."""
        if not self._waiting:
            return
        table = pa.Table.from_batches(self._waiting, self._schema)
        self._waiting, self.waiting_bytes = [], 0
        if self._layout.sort_by is not None:
            table = _sorted(table, self._layout.sort_by)
        for name, bounds in self._floats.items():
            bounds.add(table[name])
        if self._writer is None:
            self._writer = self._opened(table)
        if self._layout.sort_by is None:
            self._writer.write_table(table, row_group_size=max(table.num_rows, 1))
            return
        for start in range(0, table.num_rows, SORTED_ROWS):
            self._writer.write_table(_narrowed(table.slice(start, SORTED_ROWS), self._layout.sort_by))

    def _opened(self, rows: pa.Table) -> pq.ParquetWriter:
        """The file's writer, with encodings that suit its first rows."""
        # Bounds of values inside lists would cost more than the lists themselves, and nobody reads them. Those of
        # floating-point numbers leave out NaN, which is Spark's largest number: it would skip row groups that have one.
        leaves = [(".".join(path), kind) for path, kind in _leaves(self._schema)]
        unbounded = {name for name, kind in leaves if kind is None or pa.types.is_floating(kind)}
        bounded = [name for name, _ in leaves if name not in unbounded]
        # Arrow takes a column `a.b` and a field `b` of a column `a` for the same
        named = Counter(".".join(path) for path in _stored_paths(self._schema))
        packed = [name for name in self._schema.names if named[name] == 1 and _is_packed(rows[name])]
        encoded = [".".join(path) for path in _stored_paths(self._schema) if path[0] not in packed]
        writer = pq.ParquetWriter(
            self._path,
            self._schema,
            compression=self._codec,
            use_dictionary=encoded or False,
            column_encoding=dict.fromkeys(packed, "DELTA_BINARY_PACKED") or None,
            write_statistics=bounded or False,
            store_schema=False,
            metadata_collector=self._footers,
        )
        writer.add_key_value_metadata(self._footer)
        return writer


def _is_packed(column: pa.ChunkedArray) -> bool:
    """Whether a column's integers are delta-encoded: if most of its first values are distinct, a dictionary of them
    takes longer to write and more space."""
    kind = column.type
    if not (
        pa.types.is_int64(kind) or pa.types.is_int32(kind) or pa.types.is_timestamp(kind) or pa.types.is_date(kind)
    ):
        return False
    first = column.slice(0, _LOOKED_AT)
    return bool(pc.count_distinct(first).as_py() > len(first) // 2)


def _stored_paths(schema: pa.Schema | pa.StructType) -> Iterator[tuple[str, ...]]:
    """The paths of Parquet's leaf columns, by their names in a file."""
    for field in schema:
        for path in _within(field.type):
            yield (field.name, *path)


def _within(kind: pa.DataType) -> Iterator[tuple[str, ...]]:
    if pa.types.is_struct(kind):
        yield from _stored_paths(kind)
    elif pa.types.is_map(kind):
        yield from (("key_value", "key", *path) for path in _within(kind.key_type))
        yield from (("key_value", "value", *path) for path in _within(kind.item_type))
    elif pa.types.is_list(kind):
        yield from (("list", "element", *path) for path in _within(kind.value_type))
    else:
        yield ()


def _sorted(table: pa.Table, name: str) -> pa.Table:
    """The rows sorted by a column; a dictionary's values are ascending."""
    column = table[name].combine_chunks()
    order = column.chunk(0) if isinstance(column, pa.ChunkedArray) and column.num_chunks else column
    if isinstance(order, pa.DictionaryArray) and len(order.dictionary) <= np.iinfo(np.uint16).max:
        # NumPy sorts two-byte integers by radix sort
        codes = order.indices.to_numpy().astype(np.uint16)
        places = pa.array(np.argsort(codes, kind="stable"))
    else:
        places = pc.sort_indices(order.indices if isinstance(order, pa.DictionaryArray) else order)
    columns = [each if _is_constant(each) else pc.take(each, places, boundscheck=False) for each in table.columns]
    return pa.table(columns, schema=table.schema)


def _is_constant(column: pa.ChunkedArray) -> bool:
    """Whether all values are one integer, as those of versions mostly are."""
    if not pa.types.is_int64(column.type) or column.null_count:
        return False
    found = pc.min_max(column)
    return bool(found["min"] == found["max"])


def _narrowed(rows: pa.Table, name: str) -> pa.Table:
    """Sorted rows with only that part of their dictionary in which their values are: the writer writes all of a
    dictionary into each row group."""
    column = rows[name]
    if not pa.types.is_dictionary(column.type) or column.num_chunks != 1 or column.null_count:
        return rows
    codes, dictionary = column.chunk(0).indices, column.chunk(0).dictionary
    first, last = pc.min_max(codes).as_py().values()
    narrow = pa.DictionaryArray.from_arrays(
        pc.subtract(codes, pa.scalar(first, codes.type)), dictionary.slice(first, last - first + 1)
    )
    return rows.set_column(rows.column_names.index(name), name, narrow)


def _folder_name(partition: Mapping[str, str | None]) -> str:
    """The name of a folder for a partition's files, for people to read: their values are in the log."""
    if not partition:
        return ""
    parts = [
        f"{quote(name, '')}={_HIVE_NULL if value is None else quote(value, '')}" for name, value in partition.items()
    ]
    return "".join(f"{part}/" for part in parts if len(part) <= _LONGEST_FOLDER)


def partition_text(value: Any) -> str | None:
    """A partition's value as the log writes it: a string, an integer, a Boolean, a date or a decimal. NULL for "",
    because a partition does not distinguish the two."""
    if value is None or value == "":
        return None
    if isinstance(value, bool):
        return str(value).lower()
    return format(value, "f") if isinstance(value, Decimal) else str(value)


def statistics(
    footer: pq.FileMetaData,
    schema: pa.Schema,
    floats: Mapping[str, FloatBounds],
    indexed: frozenset[str] | None = None,
) -> dict[str, Any]:
    """Delta's per-file statistics from a file's footer, as the object that the log has as JSON text; for the columns
    `indexed`, by default for the first leaves.

    Bounds are given only where they certainly hold in Spark's order: none for Booleans, bytes, long decimals and values
    inside lists or maps. Those of floating-point columns are passed in; there is no upper one for a column with NaN.
    """
    found: dict[str, Any] = {"numRecords": footer.num_rows, "minValues": {}, "maxValues": {}, "nullCount": {}}
    for number, (path, data_type) in enumerate(_leaves(schema)):
        if data_type is None or (number >= INDEXED_LEAVES if indexed is None else path[0] not in indexed):
            continue
        if path[0] in floats:
            floats[path[0]].put(found, path[0])
            continue
        chunks = [footer.row_group(i).column(number).statistics for i in range(footer.num_row_groups)]
        if any(chunk is None or not chunk.has_null_count for chunk in chunks):
            continue
        _put(found["nullCount"], path, sum(chunk.null_count for chunk in chunks))
        bounded = [chunk for chunk in chunks if chunk.has_min_max]
        if not bounded or any(not c.has_min_max and c.num_values for c in chunks):
            continue
        low, high = _bounds(bounded, data_type)
        if low is not None:
            _put(found["minValues"], path, low)
        if high is not None:
            _put(found["maxValues"], path, high)
    return found


def _leaves(schema: pa.Schema | pa.StructType) -> Iterator[tuple[tuple[str, ...], pa.DataType | None]]:
    """Parquet's leaf columns in their order: path and type; no type for those below a list or a map."""
    for field in schema:
        kind = field.type
        if pa.types.is_struct(kind):
            for path, leaf in _leaves(kind):
                # Nested fields are not searched for NaN, so they get no bounds.
                yield (field.name, *path), None if leaf is not None and pa.types.is_floating(leaf) else leaf
        elif pa.types.is_map(kind):
            yield from _unknown(pa.struct([("k", kind.key_type), ("v", kind.item_type)]))
        elif pa.types.is_list(kind):
            yield from _unknown(pa.struct([("element", kind.value_type)]))
        else:
            yield (field.name,), kind.value_type if pa.types.is_dictionary(kind) else kind


def _unknown(kind: pa.StructType) -> Iterator[tuple[tuple[str, ...], None]]:
    for path, _ in _leaves(kind):
        yield path, None


def _bounds(chunks: list[pq.Statistics], data_type: pa.DataType) -> tuple[Any, Any]:
    """The least and the greatest value as the log writes them; None for bounds that it must not have."""
    if pa.types.is_integer(data_type):
        return min(c.min for c in chunks), max(c.max for c in chunks)
    if pa.types.is_string(data_type):
        texts = [(str(c.min), str(c.max)) for c in chunks]
        low = min((least for least, _ in texts), key=str.encode)
        high = max((largest for _, largest in texts), key=str.encode)
        return low[:_LONGEST_TEXT], high if len(high) <= _LONGEST_TEXT else None
    if pa.types.is_decimal(data_type) and data_type.precision <= 15:
        return float(min(c.min for c in chunks)), float(max(c.max for c in chunks))
    if pa.types.is_date(data_type) or pa.types.is_timestamp(data_type):
        low, high = min(c.min_raw for c in chunks), max(c.max_raw for c in chunks)
        return _time(low, data_type), _time(high, data_type)
    return None, None


def _finite(value: float) -> float | str:
    """A number, with infinities as the log writes them."""
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    return value


def _time(value: int, data_type: pa.DataType) -> str | None:
    """A date, or a timestamp in milliseconds, which readers know to be rounded down; None beyond the year 9999."""
    try:
        moment = _EPOCH + (
            timedelta(days=value) if pa.types.is_date(data_type) else timedelta(milliseconds=value // 1000)
        )
    except OverflowError:
        return None
    if pa.types.is_date(data_type):
        return moment.date().isoformat()
    text = moment.replace(tzinfo=None).isoformat(timespec="milliseconds")
    return f"{text}Z" if data_type.tz is not None else text


def _put(values: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for part in path[:-1]:
        values = values.setdefault(part, {})
    values[path[-1]] = value
