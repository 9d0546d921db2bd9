"""Makes Parquet files of column chunks of other files, which are copied without being decoded.

Apache Parquet format, "File format" and "Metadata"; a footer is a Thrift structure in the compact protocol. The bytes
of a column chunk contain no file offset, so only the offsets in the footer change.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any, BinaryIO, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from rules_index.workers.encoded_chunks import EncodedChunks
from rules_index.workers.parquet_writer import open_writer, write_row_group
from rules_index.workers.thrift import BINARY, I32, I64, LIST, STRUCT, Struct, ThriftError, read_struct, write_struct

_MAGIC = b"PAR1"
_COPIED_AT_ONCE = 8 << 20
"""Bytes that are copied at a time."""

# The numbers of fields in the Thrift structures of a footer, by structure.
# FileMetaData
_VERSION, _SCHEMA, _ROWS, _ROW_GROUPS, _KEY_VALUES, _CREATED_BY, _ORDERS = range(1, 8)
_ORDER_OF_TYPE: Struct = {1: (STRUCT, {})}
# SchemaElement
_NAME, _CHILDREN = 4, 5
# RowGroup
_COLUMNS, _BYTES, _ROWS_OF_GROUP, _FILE_OFFSET, _COMPRESSED = 1, 2, 3, 5, 6
# ColumnChunk
_ELSEWHERE, _CHUNK_OFFSET, _CHUNK_METADATA = 1, 2, 3
_OF_PAGE_INDEX, _OF_ENCRYPTION = (4, 5, 6, 7), (8, 9)
# ColumnMetaData
_KIND, _PATH, _UNCOMPRESSED_SIZE, _SIZE, _STATISTICS = 1, 3, 6, 7, 12
_PAGE_OFFSETS = (9, 10, 11)  # of data pages, the index page and the dictionary page
_OF_BLOOM_FILTER = (14, 15)
_FLOATS = (4, 5)  # values of `_KIND`: FLOAT and DOUBLE
# Statistics
_NULL_COUNT = 3


class ParquetFooterError(Exception):
    """The columns of a file cannot be copied, because of its footer."""


class ColumnFile:
    """A Parquet file from which column chunks can be copied. It is only open while it is read."""

    def __init__(self, file: str | io.BytesIO) -> None:
        """Reads the footer. Raises `ParquetFooterError` for a file without a footer, or with an encrypted one;
        `OSError` if the file cannot be read.

        file: a path, or a file in memory.
        """
        self._file = file
        with self.opened() as opened:
            self._footer = read_footer(opened)
        self._schema = {_name(subtree[0]): subtree for subtree in _subtrees(self._footer[_SCHEMA][1][1])}
        self._groups = [self._by_column(group) for group in self._footer[_ROW_GROUPS][1][1]]

    def opened(self) -> AbstractContextManager[BinaryIO]:
        """Opens the file for reading."""
        return open(self._file, "rb") if isinstance(self._file, str) else nullcontext(self._file)

    @property
    def names(self) -> list[str]:
        """The names of the top-level columns."""
        return list(self._schema)

    @property
    def row_groups(self) -> int:
        """The number of row groups."""
        return len(self._groups)

    @property
    def key_values(self) -> dict[str, str]:
        """The key-value metadata that the writer has added."""
        pairs = self._footer[_KEY_VALUES][1][1] if _KEY_VALUES in self._footer else []
        return {pair[1][1].decode(): pair[2][1].decode() for pair in pairs if 2 in pair}

    @property
    def created_by(self) -> bytes:
        """The program that wrote the file. It must be kept, since readers ignore the statistics of some programs."""
        return bytes(self._footer[_CREATED_BY][1]) if _CREATED_BY in self._footer else b""

    @property
    def stored_types(self) -> pa.Schema:
        """The columns' types by Parquet's own schema, whatever types of Arrow the writer has noted beside it."""
        text = _footer(list(self._schema.values()), [], 0, b"", {})
        file = pa.BufferReader(_MAGIC + text + len(text).to_bytes(4, "little") + _MAGIC)
        return pq.read_schema(file)

    def schema_of(self, name: str) -> list[Struct]:
        """The schema elements of a column: its own, followed by those of its children."""
        return self._schema[name]

    def stores(self, field: pa.Field, codec: str) -> bool:
        """Whether the file has a column, with the schema that it would be written with now."""
        return field.name in self._schema and self._schema[field.name] == encoded(
            pa.schema([field]).empty_table(), codec
        ).schema_of(field.name)

    def rows(self, group: int) -> int:
        """The number of rows of a row group."""
        return int(self._footer[_ROW_GROUPS][1][1][group][_ROWS_OF_GROUP][1])

    def chunks(self, group: int, name: str) -> list[Struct]:
        """The chunks of a column in a row group: one for each of its leaves."""
        return self._groups[group][name]

    @staticmethod
    def _by_column(group: Struct) -> dict[str, list[Struct]]:
        found: dict[str, list[Struct]] = {}
        for chunk in group[_COLUMNS][1][1]:
            if _ELSEWHERE in chunk or _CHUNK_METADATA not in chunk or any(field in chunk for field in _OF_ENCRYPTION):
                raise ParquetFooterError("The file is encrypted, or parts of it are in other files.")
            found.setdefault(_path(chunk)[0], []).append(chunk)
        return found


class Source(Protocol):
    """Where column chunks are copied from: a `ColumnFile`, or chunks in memory."""

    def opened(self) -> AbstractContextManager[BinaryIO]:
        """Opens what has the chunks' bytes for reading."""

    def chunks(self, group: int, name: str) -> list[Struct]:
        """The chunks of a column in a row group: one for each of its leaves."""


class CompositeFile:
    """A Parquet file being made of the column chunks of others."""

    def __init__(self, file: str | pa.BufferOutputStream) -> None:
        """Creates the file. Raises `OSError` if it cannot.

        file: a path, or a file in memory.
        """
        self._out: Any = open(file, "wb") if isinstance(file, str) else file  # noqa: SIM115 - stays open for row groups
        self._out.write(_MAGIC)
        self._groups: list[Struct] = []
        self._rows = 0

    def add(self, rows: int, columns: Sequence[tuple[Source, int, str]]) -> None:
        """Adds a row group of so many rows. columns: for each column its file, and its row group and name there.

        Raises `ParquetFooterError` if a file ends too early, `OSError` if one cannot be read or written.
        """
        begun = self._out.tell()
        with ExitStack() as stack:
            files = {source: stack.enter_context(source.opened()) for source in {source for source, _, _ in columns}}
            chunks = [
                _copied(files[source], self._out, chunk)
                for source, group, name in columns
                for chunk in source.chunks(group, name)
            ]
        sizes = [chunk[_CHUNK_METADATA][1] for chunk in chunks]
        self._groups.append(
            {
                _COLUMNS: (LIST, (STRUCT, chunks)),
                _BYTES: (I64, sum(each[_UNCOMPRESSED_SIZE][1] for each in sizes)),
                _ROWS_OF_GROUP: (I64, rows),
                _FILE_OFFSET: (I64, begun),
                _COMPRESSED: (I64, sum(each[_SIZE][1] for each in sizes)),
            }
        )
        self._rows += rows

    def close(self, schema: Sequence[list[Struct]], created_by: bytes, key_values: Mapping[str, str]) -> None:
        """Writes the footer.

        schema: the elements of each column, in the order in which row groups have them.
        """
        text = _footer(schema, self._groups, self._rows, created_by, key_values)
        self._out.write(text + len(text).to_bytes(4, "little") + _MAGIC)
        self._out.close()

    def abandon(self) -> None:
        """Closes the file as it is, without the bytes that are buffered if the disk has no room for them."""
        with contextlib.suppress(OSError):  # it must not hide the error that led here
            self._out.close()


def _footer(
    schema: Sequence[list[Struct]],
    groups: Sequence[Struct],
    rows: int,
    created_by: bytes,
    key_values: Mapping[str, str],
) -> bytes:
    elements = [element for subtree in schema for element in subtree]
    root: Struct = {_NAME: (BINARY, b"schema"), _CHILDREN: (I32, len(schema))}
    leaves = sum(_CHILDREN not in element for element in elements)
    pairs = [{1: (BINARY, key.encode()), 2: (BINARY, value.encode())} for key, value in key_values.items()]
    return write_struct(
        {
            _VERSION: (I32, 2),
            _SCHEMA: (LIST, (STRUCT, [root, *elements])),
            _ROWS: (I64, rows),
            _ROW_GROUPS: (LIST, (STRUCT, groups)),
            **({_KEY_VALUES: (LIST, (STRUCT, pairs))} if pairs else {}),
            **({_CREATED_BY: (BINARY, created_by)} if created_by else {}),
            _ORDERS: (LIST, (STRUCT, [_ORDER_OF_TYPE] * leaves)),
        }
    )


def encoded(table: pa.Table, codec: str) -> ColumnFile:
    """A file in memory with the table as its only row group."""
    return encoded_row_groups(table, (), codec, 0)


def encoded_row_groups(first: pa.Table, others: Iterable[pa.Table], codec: str, most_bytes: int) -> ColumnFile:
    """A file in memory with each table as a row group. The first one decides on the encodings; no more of the others
    are taken once the file has `most_bytes`."""
    made, waiting = io.BytesIO(), iter(others)
    with open_writer(made, first.schema, first, codec) as writer:
        table: pa.Table | None = first
        while table is not None:
            write_row_group(writer, table)
            table = next(waiting, None) if made.tell() < most_bytes else None
    return ColumnFile(made)


def sources_of(table: pa.Table, codec: str) -> dict[str, tuple[Source, int]]:
    """Encodes the columns of a table; returns for each the file in memory that has it, and its row group there."""
    known = EncodedChunks(codec)
    names = known.add_known(0, table)
    others = [name for name in table.column_names if name not in names]
    found: dict[str, tuple[Source, int]] = dict.fromkeys(names, (known, 0))
    return found | dict.fromkeys(others, (encoded(table.select(others), codec), 0)) if others else found


def with_columns(
    old: ColumnFile,
    target: str,
    schema: pa.Schema,
    groups: Iterable[Mapping[str, pa.Array | EncodedChunks | None]],
    codec: str,
) -> None:
    """Writes to `target` a copy of the file `old` with other values in its top-level columns `schema`.

    groups: for each row group of the file its values in each of these columns, encoded or not; None if they are the
    same as before, which is only possible if `old.stores` the column. Row groups are taken one at a time, since they
    may be large. Columns that the file lacks come last.
    Raises `ParquetFooterError` for a file that has parts elsewhere or other row groups, `OSError` if one cannot be read
    or written.
    """
    names = [*old.names, *(name for name in schema.names if name not in old.names)]
    empty, out, number = encoded(schema.empty_table(), codec), CompositeFile(target), 0
    try:
        for columns in groups:
            if number < old.row_groups:
                plain = {name: values for name, values in columns.items() if isinstance(values, pa.Array)}
                made = sources_of(pa.table(plain), codec)
                made |= {name: (each, 0) for name, each in columns.items() if isinstance(each, EncodedChunks)}
                out.add(old.rows(number), [(*made.get(name, (old, number)), name) for name in names])
            number += 1
        if number != old.row_groups:
            raise ParquetFooterError(f"The file has {old.row_groups} row groups, and {number} were given.")
        elements = [(empty if name in schema.names else old).schema_of(name) for name in names]
        out.close(elements, old.created_by, old.key_values)
    finally:
        out.abandon()


def _copied(source: BinaryIO, out: BinaryIO, chunk: Struct) -> Struct:
    """Copies a column chunk; returns its description with the new offsets."""
    chunk = {field: value for field, value in chunk.items() if field not in _OF_PAGE_INDEX}
    metadata = {f: value for f, value in chunk[_CHUNK_METADATA][1].items() if f not in _OF_BLOOM_FILTER}
    if metadata[_KIND][1] in _FLOATS and _STATISTICS in metadata:
        # their bounds leave out NaN, which is Spark's largest number
        kept = {field: value for field, value in metadata[_STATISTICS][1].items() if field == _NULL_COUNT}
        metadata[_STATISTICS] = (STRUCT, kept)
    start = start_of(metadata)
    moved = out.tell() - start
    source.seek(start)
    left = metadata[_SIZE][1]
    while left:
        part = source.read(min(left, _COPIED_AT_ONCE))
        if not part:
            raise ParquetFooterError("The file ends before its columns do.")
        out.write(part)
        left -= len(part)
    for field in _PAGE_OFFSETS:
        if field in metadata and metadata[field][1] > 0:
            metadata[field] = (I64, metadata[field][1] + moved)
    chunk[_CHUNK_METADATA] = (STRUCT, metadata)
    chunk[_CHUNK_OFFSET] = (I64, start + moved if chunk[_CHUNK_OFFSET][1] > 0 else 0)
    return chunk


def start_of(metadata: Struct) -> int:
    """Where the first page of a chunk begins in its file; 0 for a chunk without rows, which has no pages."""
    return min(
        (metadata[field][1] for field in _PAGE_OFFSETS if field in metadata and metadata[field][1] > 0), default=0
    )


def _path(chunk: Struct) -> tuple[str, ...]:
    return tuple(part.decode() for part in chunk[_CHUNK_METADATA][1][_PATH][1][1])


def _name(element: Struct) -> str:
    text: bytes = element[_NAME][1]
    return text.decode()


def _subtrees(elements: list[Struct]) -> Iterator[list[Struct]]:
    """Yields the schema elements of each top-level column, in order; the first element of a schema is its root."""
    place = 1
    while place < len(elements):
        stop = place + 1
        open_children = int(elements[place].get(_CHILDREN, (0, 0))[1])
        while open_children:
            open_children += int(elements[stop].get(_CHILDREN, (0, 0))[1]) - 1
            stop += 1
        yield elements[place:stop]
        place = stop


def read_footer(file: BinaryIO) -> Struct:
    """The footer of a Parquet file. Raises `ParquetFooterError` if there is none that can be read."""
    file.seek(-8, os.SEEK_END)
    end = file.read(8)
    if end[4:] != _MAGIC:
        raise ParquetFooterError("The file is not a Parquet file, or its footer is encrypted.")
    size = int.from_bytes(end[:4], "little")
    file.seek(-8 - size, os.SEEK_END)
    try:
        return read_struct(file.read(size))
    except (ThriftError, IndexError) as error:
        raise ParquetFooterError(f"The file's footer cannot be read: {error}") from error
