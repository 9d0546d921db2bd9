"""A Parquet file with some of its columns replaced: all others are copied as they lie in it, without being decoded.

Apache Parquet format, "File format" and "Metadata"; its footer is a Thrift structure in the compact protocol. A column
chunk's bytes name no place, so that only the footer's offsets change.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

Struct: TypeAlias = dict[int, tuple[int, Any]]
"""A Thrift structure: the type and the value of each field, by its number, ascending."""

_MAGIC = b"PAR1"
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)
_SCHEMA, _ROW_GROUPS = 2, 4
_COLUMNS, _BYTES, _FILE_OFFSET, _COMPRESSED = 1, 2, 5, 6
_CHUNK_OFFSET, _CHUNK_METADATA = 2, 3
_OF_PAGE_INDEX = (4, 5, 6, 7)
_PATH, _UNCOMPRESSED_SIZE, _SIZE = 3, 6, 7
_OFFSETS = _DATA_PAGE, _INDEX_PAGE, _DICTIONARY_PAGE = 9, 10, 11
_OF_BLOOM_FILTER = (14, 15)
_NAME, _CHILDREN = 4, 5
_COPIED_AT_ONCE = 8 << 20


class ParquetFooterError(Exception):
    """A file whose footer is not as it must be for its columns to be copied."""


def with_columns(source: str, target: str, replaced: Sequence[pa.Table], codec: str) -> None:
    """Write to `target` the file `source` with other values in some columns.

    replaced: for each of its row groups a table of as many rows, with columns that the file has at its top level.
    ParquetFooterError for a file that is encrypted or whose parts are elsewhere; OSError where one cannot be read or
    written.
    """
    names = set(replaced[0].column_names) if replaced else set()
    made = io.BytesIO()
    if replaced:
        with pq.ParquetWriter(
            made,
            replaced[0].schema,
            compression=codec,
            write_statistics=_bounded(replaced[0].schema),
            store_schema=False,
        ) as writer:
            for table in replaced:
                writer.write_table(table, row_group_size=max(table.num_rows, 1))
    with open(source, "rb") as old, open(target, "wb") as out:
        footer = read_footer(old)
        new = read_footer(made)
        groups, news = footer[_ROW_GROUPS][1][1], new[_ROW_GROUPS][1][1]
        if len(groups) != len(news):
            raise ParquetFooterError(f"{source} has {len(groups)} row groups, and {len(news)} were given.")
        out.write(_MAGIC)
        for group, other in zip(groups, news, strict=True):
            _copy_group(old, made, out, group, other, names)
        schema = _merged(footer[_SCHEMA][1][1], new[_SCHEMA][1][1], names)
        footer[_SCHEMA] = (_LIST, (_STRUCT, schema))
        text = write_struct(footer)
        out.write(text + len(text).to_bytes(4, "little") + _MAGIC)


def _bounded(schema: pa.Schema) -> Any:
    """The columns that get bounds, as deltatag's files have them: not those in lists."""
    return [field.name for field in schema if not pa.types.is_nested(field.type)] or False


def _copy_group(old: BinaryIO, made: BinaryIO, out: BinaryIO, group: Struct, other: Struct, names: set[str]) -> None:
    """One row group: the chunks of each column from the file that has it."""
    begun = out.tell()
    theirs = {_path(chunk): chunk for chunk in other[_COLUMNS][1][1]}
    taken: list[Struct] = []
    done: set[str] = set()
    for chunk in group[_COLUMNS][1][1]:
        first = _path(chunk)[0]
        if first not in names:
            taken.append(_copied(old, out, chunk))
        elif first not in done:
            done.add(first)
            taken += [_copied(made, out, each) for path, each in theirs.items() if path[0] == first]
    if done != names:
        raise ParquetFooterError(f"The file has no column {', '.join(sorted(names - done))}.")
    group[_COLUMNS] = (_LIST, (_STRUCT, taken))
    group[_BYTES] = (_I64, sum(chunk[_CHUNK_METADATA][1][_UNCOMPRESSED_SIZE][1] for chunk in taken))
    if _FILE_OFFSET in group:
        group[_FILE_OFFSET] = (_I64, begun)
    if _COMPRESSED in group:
        group[_COMPRESSED] = (_I64, sum(chunk[_CHUNK_METADATA][1][_SIZE][1] for chunk in taken))


def _copied(source: BinaryIO, out: BinaryIO, chunk: Struct) -> Struct:
    """A column chunk, copied; its description with the places that it has now."""
    if 1 in chunk or _CHUNK_METADATA not in chunk or 8 in chunk or 9 in chunk:
        raise ParquetFooterError("The file is encrypted, or parts of it are in other files.")
    metadata: Struct = chunk[_CHUNK_METADATA][1]
    places = [metadata[field][1] for field in _OFFSETS if field in metadata and metadata[field][1] > 0]
    size = metadata[_SIZE][1]
    start = min(places) if places else 0  # of no rows there are no pages
    moved = out.tell() - start
    source.seek(start)
    left = size
    while left:
        part = source.read(min(left, _COPIED_AT_ONCE))
        if not part:
            raise ParquetFooterError("The file ends before its columns do.")
        out.write(part)
        left -= len(part)
    for field in _OFFSETS:
        if field in metadata and metadata[field][1] > 0:
            metadata[field] = (_I64, metadata[field][1] + moved)
    for field in _OF_BLOOM_FILTER:
        metadata.pop(field, None)
    for field in _OF_PAGE_INDEX:
        chunk.pop(field, None)
    if chunk[_CHUNK_OFFSET][1] > 0:
        chunk[_CHUNK_OFFSET] = (_I64, start + moved)
    return chunk


def _path(chunk: Struct) -> tuple[str, ...]:
    return tuple(part.decode() for part in chunk[_CHUNK_METADATA][1][_PATH][1][1])


def _merged(old: list[Struct], new: list[Struct], names: set[str]) -> list[Struct]:
    """The schema of the old file, where the replaced columns are as they were written."""
    theirs = {_name(subtree[0]): subtree for subtree in _subtrees(new)}
    merged = [old[0]]
    for subtree in _subtrees(old):
        merged += theirs[_name(subtree[0])] if _name(subtree[0]) in names else subtree
    return merged


def _name(element: Struct) -> str:
    text: bytes = element[_NAME][1]
    return text.decode()


def _subtrees(elements: list[Struct]) -> Iterator[list[Struct]]:
    """The elements of each column at the top level, in their order; the first one of a schema is its root."""
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
    """The footer of a Parquet file."""
    file.seek(-8, os.SEEK_END)
    end = file.read(8)
    if end[4:] != _MAGIC:
        raise ParquetFooterError("The file is no Parquet file, or its footer is encrypted.")
    size = int.from_bytes(end[:4], "little")
    file.seek(-8 - size, os.SEEK_END)
    return _Reader(file.read(size)).struct()


class _Reader:
    """Thrift's compact protocol, from bytes."""

    def __init__(self, data: bytes) -> None:
        self._data, self._place = data, 0

    def struct(self) -> Struct:
        """One structure."""
        found: Struct = {}
        number = 0
        while header := self._byte():
            kind = header & 15
            number = number + (header >> 4) if header >> 4 else self._zigzag()
            found[number] = (kind, self._value(kind))
        return found

    def _byte(self) -> int:
        value = self._data[self._place]
        self._place += 1
        return value

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7

    def _zigzag(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def _bytes(self, count: int) -> bytes:
        found = self._data[self._place : self._place + count]
        self._place += count
        return found

    def _value(self, kind: int) -> Any:
        if kind in (_TRUE, _FALSE):
            return None
        if kind in (_I16, _I32, _I64):
            return self._zigzag()
        if kind == _BINARY:
            return self._bytes(self._varint())
        if kind == _STRUCT:
            return self.struct()
        if kind == _BYTE:
            return self._byte()
        if kind == _DOUBLE:
            return self._bytes(8)
        if kind in (_LIST, _SET):
            return self._items()
        raise ParquetFooterError(f"The footer has a value of Thrift's type {kind}, which no footer has.")

    def _items(self) -> tuple[int, list[Any]]:
        header = self._byte()
        count = self._varint() if header >> 4 == 15 else header >> 4
        kind = header & 15
        one = self._byte if kind in (_TRUE, _FALSE) else lambda: self._value(kind)
        return kind, [one() for _ in range(count)]


def write_struct(struct: Struct) -> bytes:
    """A structure in the compact protocol."""
    out = bytearray()
    _put_struct(out, struct)
    return bytes(out)


def _put_struct(out: bytearray, struct: Struct) -> None:
    before = 0
    for number in sorted(struct):
        kind, value = struct[number]
        if 0 < number - before < 16:
            out.append((number - before) << 4 | kind)
        else:
            out.append(kind)
            _put_zigzag(out, number)
        before = number
        _put(out, kind, value)
    out.append(0)


def _put(out: bytearray, kind: int, value: Any) -> None:
    if kind in (_TRUE, _FALSE):
        return
    if kind in (_I16, _I32, _I64):
        _put_zigzag(out, value)
    elif kind == _BINARY:
        _put_varint(out, len(value))
        out += value
    elif kind == _STRUCT:
        _put_struct(out, value)
    elif kind == _BYTE:
        out.append(value)
    elif kind == _DOUBLE:
        out += value
    else:
        inner, items = value
        out.append(min(len(items), 15) << 4 | inner)
        if len(items) >= 15:
            _put_varint(out, len(items))
        for item in items:
            if inner in (_TRUE, _FALSE):
                out.append(item)
            else:
                _put(out, inner, item)


def _put_varint(out: bytearray, value: int) -> None:
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)


def _put_zigzag(out: bytearray, value: int) -> None:
    _put_varint(out, value << 1 if value >= 0 else (-value << 1) - 1)
