"""Writes Parquet files of a Delta table in the process that has the rows, with the statistics for the table's log.

Delta protocol, "Add File". The caller adds the entries to the log.
"""

from __future__ import annotations

import contextlib
import json
import os
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from urllib.parse import quote, unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rules_index.workers.encoded_chunks import constant_of, decoded_bytes
from rules_index.workers.file_statistics import float_bounds, statistics
from rules_index.workers.parquet_columns import CompositeFile, encoded, sources_of

ROW_GROUP_BYTES = 64 << 20
"""A row group is written when the buffered rows take this much memory; half of it if they are sorted, which takes a
second copy."""
MOST_DECODED_BYTES = 1 << 30
"""A row group is also written when the texts in lists of its rows take more once they are decoded: some readers hold
at most 2 GiB of a column."""
_LONGEST_FOLDER = 255
"""The most characters that file systems allow in a name. A folder for a partition value is left out if its name is
longer; Polars, which takes the values from these names, then finds none."""
_HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
SORTED_ROWS = 1 << 14
"""The rows of a row group if rows are sorted: few, so that a search for one value reads few rows."""


@dataclass(frozen=True)
class Layout:
    """How the rows of a table are stored in its files.

    partition_by  columns that files do not have, because all rows of a file have the same value
    sort_by       the column by which the rows of a file are sorted; the values of a dictionary must ascend
    indexed       the columns that have bounds in the log; None: the first INDEXED_LEAVES leaves
    columns       the table's columns in its order, if the rows have another order; else ()
    """

    partition_by: tuple[str, ...] = ()
    sort_by: str | None = None
    indexed: frozenset[str] | None = None
    columns: tuple[str, ...] = ()


PLAIN = Layout()


class NewFile:
    """A file of a Delta table that is not in its log yet: its name, and its `add` entry once it is written."""

    def __init__(self, folder: str, codec: str, partition: Mapping[str, str | None]) -> None:
        """Makes the folder of the file's partition. Raises `OSError` if it cannot.

        partition: the values, as the log writes them, of the table's partition columns.
        """
        self._partition = dict(partition)
        self._name = f"{_folder_name(self._partition)}part-{uuid.uuid4()}.{codec}.parquet"
        self.path = os.path.join(folder, self._name)
        if self._partition:
            os.makedirs(os.path.dirname(self.path), exist_ok=True)

    def added(self, stats: Mapping[str, Any]) -> dict[str, Any]:
        """The `add` entry of the written file."""
        return {
            "path": quote(self._name, "/="),
            "partitionValues": self._partition,
            "size": os.path.getsize(self.path),
            "modificationTime": int(os.path.getmtime(self.path) * 1000),
            "dataChange": True,
            "stats": json.dumps(stats, ensure_ascii=False),
        }

    def remove(self) -> None:
        """Removes what was written."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)


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
        """Creates a file in the table's `folder`, with `footer` in its metadata. Raises `OSError` if it cannot.

        partition: the values, as the log writes them, of the layout's partition columns, which are not in `schema`.
        """
        self._file = NewFile(folder, codec, partition or {})
        self._schema, self._layout = schema, layout
        self._waiting: list[pa.RecordBatch] = []
        self.waiting_bytes = self._decoded_bytes = 0
        self._floats = float_bounds(schema)
        self._codec, self._footer = codec, dict(footer)
        self._out = CompositeFile(self._file.path)

    def write(self, batch: pa.RecordBatch) -> None:
        """Adds rows."""
        decoded = decoded_bytes(batch)
        if self._decoded_bytes + decoded > MOST_DECODED_BYTES:
            self.flush()
        self._waiting.append(batch)
        self.waiting_bytes += batch.nbytes
        self._decoded_bytes += decoded
        if self.waiting_bytes >= ROW_GROUP_BYTES // (1 if self._layout.sort_by is None else 2):
            self.flush()

    def close(self) -> dict[str, Any]:
        """Finishes the file; returns its `add` entry."""
        self.flush()
        empty = encoded(self._schema.empty_table(), self._codec)
        self._out.close([empty.schema_of(name) for name in self._schema.names], empty.created_by, self._footer)
        written = pq.read_metadata(self._file.path)
        return self._file.added(statistics(written, self._schema, self._floats, self._layout.indexed))

    def abandon(self) -> None:
        """Removes what was written."""
        self._out.abandon()
        self._file.remove()

    def flush(self) -> None:
        """Writes the buffered rows: as one row group, or, if they are sorted, as several with narrow bounds."""
        if not self._waiting:
            return
        table = pa.Table.from_batches(self._waiting, self._schema)
        self._waiting, self.waiting_bytes, self._decoded_bytes = [], 0, 0
        if self._layout.sort_by is not None:
            table = _sorted(table, self._layout.sort_by)
        if self._layout.sort_by is None:
            self.write_row_group(table)
            return
        for start in range(0, table.num_rows, SORTED_ROWS):
            self.write_row_group(_narrowed(table.slice(start, SORTED_ROWS), self._layout.sort_by))

    def write_row_group(self, rows: pa.Table) -> None:
        """Adds rows as a row group of their own."""
        for name, bounds in self._floats.items():
            bounds.add(rows[name])
        sources = sources_of(rows, self._codec)
        self._out.add(rows.num_rows, [(*sources[name], name) for name in self._schema.names])


def remove_files(folder: str, adds: Iterable[Mapping[str, Any]]) -> None:
    """Removes written files that are not committed, given by their `add` entries. One that cannot be removed does no
    harm, since no log names it."""
    for add in adds:
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(folder, unquote(add["path"])))


def _sorted(table: pa.Table, name: str) -> pa.Table:
    """The rows sorted by a column. If it has a dictionary, the values of this must ascend: rows are sorted by code."""
    column = table[name].combine_chunks()
    order = column.chunk(0) if isinstance(column, pa.ChunkedArray) and column.num_chunks else column
    if isinstance(order, pa.DictionaryArray) and len(order.dictionary) <= np.iinfo(np.uint16).max:
        # NumPy sorts two-byte integers by radix sort
        codes = order.indices.to_numpy().astype(np.uint16)
        places = pa.array(np.argsort(codes, kind="stable"))
    else:
        places = pc.sort_indices(order.indices if isinstance(order, pa.DictionaryArray) else order)
    columns = [
        each if constant_of(each) is not None else pc.take(each, places, boundscheck=False) for each in table.columns
    ]
    return pa.table(columns, schema=table.schema)


def _narrowed(rows: pa.Table, name: str) -> pa.Table:
    """Cuts the dictionary of sorted rows to the range of their values, because the writer writes the whole dictionary
    into each row group."""
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
    """The name of a folder for a partition's files, which only people and Polars read: the log has the values."""
    if not partition:
        return ""
    parts = [
        f"{quote(name, '')}={_HIVE_NULL if value is None else quote(value, '')}" for name, value in partition.items()
    ]
    return "".join(f"{part}/" for part in parts if len(part) <= _LONGEST_FOLDER)


def partition_text(value: Any) -> str | None:
    """A partition's value, a string, an integer, a Boolean, a date or a decimal, as the log writes it. None for NULL
    and for "", which a partition does not distinguish.

    value: a scalar; or as Python has it, where dates may be texts already.
    """
    if isinstance(value, pa.Scalar):
        if value.is_valid and pa.types.is_date32(value.type):
            return _date_text(value.value)
        value = value.as_py()
    if value is None or value == "":
        return None
    if isinstance(value, bool):
        return str(value).lower()
    return format(value, "f") if isinstance(value, Decimal) else str(value)


def _date_text(days: int) -> str:
    """A date, in days since 1970, as Spark writes it: a year before 0 or after 9999 has a sign. Python has no dates
    before the year 1 or after 9999."""
    year, month, day = str(np.datetime64(days, "D")).rsplit("-", 2)
    return f"{int(year):{'04' if 0 <= int(year) <= 9999 else '+05'}}-{month}-{day}"
