"""Writes tagged rows as files with column chunks that are copied from the source's files.

Only the columns that deltatag adds are encoded and compressed, and the source's columns that the table stores in
another way. All columns have been decoded for matching, so a damaged file is still noticed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rules_index.workers.copied_columns import copied_columns
from rules_index.workers.delta_file_writer import MOST_DECODED_BYTES, Layout, NewFile, partition_text
from rules_index.workers.encoded_chunks import decoded_bytes
from rules_index.workers.file_statistics import float_bounds, statistics
from rules_index.workers.parquet_columns import ColumnFile, CompositeFile, ParquetFooterError, encoded, sources_of
from rules_index.workers.source_file_reader import SourceFile
from rules_index.workers.table_files import Files
from rules_index.workers.thrift import Struct, write_struct

_FEWEST_ROWS, _FEWEST_BYTES = 1 << 15, 4 << 20
"""A row group with fewer rows and fewer bytes is not copied, but merged with others."""
_MOST_WAITING = 128 << 20
"""The most bytes of new columns that are buffered for a row group."""
_MOST_OPEN = 32
"""The most files that are open at a time."""


class LargeRowGroupError(Exception):
    """The new columns of a row group take too much memory: its rows must be written as several row groups."""


@dataclass(frozen=True)
class RowGroup:
    """A row group of a source: its number in its file, and the columns that are copied. If there are none, there is no
    file either, and its rows are merged with others."""

    rows: int
    file: ColumnFile | None = None
    number: int = 0
    columns: frozenset[str] = frozenset()


def copied_row_groups(
    files: Sequence[SourceFile], schema: pa.Schema, codec: str, partition_by: Sequence[str]
) -> list[RowGroup]:
    """Returns the row groups of files that have rows, in order; [] if none is to be copied, or a file has lost rows.

    schema: the table's columns that the source has; partition_by: the table's partition columns. Row groups are copied
    only if the source is partitioned by these, too, so that each has rows of a single partition. Raises
    `ParquetFooterError` for an encrypted file, `OSError` or `pyarrow.ArrowException` if one cannot be read.
    """
    if any(source.kept is not None for source in files):
        return []
    stored = pa.schema([field for field in schema if field.name not in partition_by])
    found: list[RowGroup] = []
    for source in files:
        footer = pq.read_metadata(source.path, memory_map=True)
        numbers = range(footer.num_row_groups) if source.groups is None else source.groups
        groups = {number: footer.row_group(number) for number in numbers}
        large = [
            n for n, each in groups.items() if each.num_rows >= _FEWEST_ROWS or each.total_byte_size >= _FEWEST_BYTES
        ]
        file, columns = None, frozenset[str]()
        if large and set(partition_by) <= set(source.partition):
            file = ColumnFile(source.path)
            columns = copied_columns(file, large, stored, codec)
        whole = frozenset(large if columns else ())
        for number, each in groups.items():
            if each.num_rows:
                found.append(RowGroup(each.num_rows, *((file, number, columns) if number in whole else ())))
    return found if any(group.columns for group in found) else []


class CopiedFiles:
    """The files of a tagged table for one piece of its source: one for each partition of the table and each way in
    which the source's files store their columns."""

    def __init__(
        self,
        folder: str,
        codec: str,
        footer: Mapping[str, str],
        layout: Layout,
        groups: Sequence[RowGroup],
        plain: Files,
    ) -> None:
        """plain: the files for rows without copied columns."""
        self._folder, self._codec, self._footer, self._layout = folder, codec, footer, layout
        self._plain = plain
        self._groups = iter(groups)
        self._group: RowGroup | None = None
        # the rows of the row group that are still to come
        self._rows_left = 0
        self._file: _CopiedFile | None = None
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = self._decoded_bytes = 0
        self._open: dict[tuple[Any, ...], _CopiedFile] = {}
        self._entries: list[dict[str, Any]] = []
        self._written: list[NewFile] = []

    def write(self, rows: pa.RecordBatch) -> None:
        """Adds rows: those of the row groups, in their order, with new columns after the source's. Raises
        `LargeRowGroupError` if these take too much memory, `OSError` if a file cannot be read or written."""
        if self._layout.columns:
            rows = rows.select(list(self._layout.columns))
        while len(rows):
            if not self._rows_left:
                self._begin(rows)
            assert self._group is not None
            part = rows.slice(0, self._rows_left)
            rows = rows.slice(len(part))
            self._rows_left -= len(part)
            if self._file is None:
                self._plain.write(part)
            else:
                self._add(part, self._file, self._group)

    def _begin(self, rows: pa.RecordBatch) -> None:
        """Begins the next row group, the first rows of which are at the beginning of `rows`."""
        self._group = next(self._groups, None)
        if self._group is None:
            raise ParquetFooterError("More rows were read than the files' footers name.")
        self._rows_left = self._group.rows
        self._file = self._file_of(rows, self._group) if self._group.columns else None

    def _add(self, rows: pa.RecordBatch, file: _CopiedFile, group: RowGroup) -> None:
        """Adds rows of a row group. The row group is copied once its last row is there."""
        rows = rows.drop_columns(list(self._layout.partition_by))
        file.add_bounds(rows)
        new = rows.drop_columns([name for name in rows.schema.names if name in group.columns])
        self._waiting.append(new)
        self._waiting_bytes += new.nbytes
        self._decoded_bytes += decoded_bytes(new)
        if self._waiting_bytes > _MOST_WAITING or self._decoded_bytes > MOST_DECODED_BYTES:
            raise LargeRowGroupError
        if not self._rows_left:
            file.add(group, pa.Table.from_batches(self._waiting))
            self._waiting, self._waiting_bytes, self._decoded_bytes = [], 0, 0

    def _file_of(self, rows: pa.RecordBatch, group: RowGroup) -> _CopiedFile:
        """The open file for a row group's partition and the way in which its columns are stored; creates it if
        needed."""
        assert group.file is not None
        values = tuple(partition_text(rows.column(name)[0]) for name in self._layout.partition_by)
        stored = [b"".join(map(write_struct, group.file.schema_of(name))) for name in sorted(group.columns)]
        key = (values, group.columns, group.file.created_by, *stored)
        file = self._open.pop(key, None)
        if file is None:
            if len(self._open) == _MOST_OPEN:
                self._close(next(iter(self._open)))
            new = NewFile(self._folder, self._codec, dict(zip(self._layout.partition_by, values, strict=True)))
            self._written.append(new)
            file = _CopiedFile(new, self._codec, rows.schema, self._layout)
        self._open[key] = file  # moves it to the end: the order is that of the last use
        return file

    def _close(self, key: tuple[Any, ...]) -> None:
        self._entries.append(self._open.pop(key).close(self._footer))

    def close(self) -> list[dict[str, Any]]:
        """Finishes the files; returns their `add` entries. Raises `ParquetFooterError` if rows are lacking."""
        if self._rows_left or next(self._groups, None) is not None:
            raise ParquetFooterError("Fewer rows were read than the files' footers name.")
        while self._open:
            self._close(next(iter(self._open)))
        return [*self._entries, *self._plain.close()]

    def abandon(self) -> None:
        """Removes what was written."""
        self._plain.abandon()
        for file in self._open.values():
            file.abandon()
        for new in self._written:
            new.remove()


class _CopiedFile:
    """A file being written, row group by row group."""

    def __init__(self, file: NewFile, codec: str, schema: pa.Schema, layout: Layout) -> None:
        self._file, self._codec, self._indexed = file, codec, layout.indexed
        self._schema = pa.schema([field for field in schema if field.name not in layout.partition_by])
        self._floats = float_bounds(self._schema)
        self._out = CompositeFile(file.path)
        self._stored: list[list[Struct]] = []
        self._created_by = b""

    def add_bounds(self, rows: pa.RecordBatch) -> None:
        """Widens the bounds of floating-point columns, which the footers of copied files lack."""
        for name, bounds in self._floats.items():
            bounds.add(pa.chunked_array([rows.column(name)]))

    def add(self, group: RowGroup, new: pa.Table) -> None:
        """Adds a row group; new: the columns that are not copied."""
        assert group.file is not None
        sources = {**sources_of(new, self._codec), **dict.fromkeys(group.columns, (group.file, group.number))}
        self._out.add(group.rows, [(*sources[name], name) for name in self._schema.names])
        if not self._stored:
            empty = encoded(new.slice(0, 0), self._codec)
            files = [group.file if name in group.columns else empty for name in self._schema.names]
            self._stored = [file.schema_of(name) for file, name in zip(files, self._schema.names, strict=True)]
            self._created_by = group.file.created_by

    def close(self, footer: Mapping[str, str]) -> dict[str, Any]:
        """Finishes the file; returns its `add` entry."""
        self._out.close(self._stored, self._created_by, footer)
        written = pq.read_metadata(self._file.path)
        return self._file.added(statistics(written, self._schema, self._floats, self._indexed))

    def abandon(self) -> None:
        """Closes the unfinished file, without removing it."""
        self._out.abandon()
