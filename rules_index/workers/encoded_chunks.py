"""Encodes column chunks of Parquet files without looking at each value.

Arrow hashes or compares every value that it writes. Here it is known which values are equal.

Apache Parquet format, "Encodings": RLE_DICTIONARY, and the run-length encoding of levels.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rules_index.workers.thrift import BINARY, I32, I64, LIST, STRUCT, Struct, put_varint, write_struct

CODECS = {"none": 0, "snappy": 1, "gzip": 2, "zstd": 6}
"""The numbers of codecs in a footer."""

_INT64, _BYTE_ARRAY = 2, 6
_PLAIN, _RLE, _RLE_DICTIONARY = 0, 3, 8
_DATA_PAGE, _DICTIONARY_PAGE = 0, 2
# fields of ColumnMetaData
_VALUES, _SIZE, _COMPRESSED, _DATA_PAGE_OFFSET, _STATISTICS, _PAGES = 5, 6, 7, 9, 12, 13
_MICROSECONDS = (pa.timestamp("us"), pa.timestamp("us", "UTC"))
_LONGEST_BOUND = 4096
"""The most bytes of a bound of a chunk; it has none if they would have more."""
_PAGE_VALUES = 1 << 18
"""About the most values, and the most lists, of a data page."""


@dataclass(frozen=True)
class StoredPage:
    """A page as a file has it.

    text    its header and its values, compressed
    size    the bytes of the header and of the values uncompressed
    values  the number of values; an empty list in a data page counts as one
    """

    text: bytes
    size: int
    values: int


class EncodedChunks:
    """Column chunks in memory, from which a `CompositeFile` copies them. Their columns may have NULLs by the file's
    schema, but have none."""

    def __init__(self, codec: str) -> None:
        """codec: the compression."""
        self._number = CODECS[codec]
        self._codec = pa.Codec(codec) if self._number else None
        self._file = io.BytesIO(b"PAR1")  # in a file no page is at offset 0
        self._chunks: dict[tuple[int, str], Struct] = {}

    def opened(self) -> AbstractContextManager[BinaryIO]:
        """The chunks' bytes."""
        return nullcontext(self._file)

    def chunks(self, group: int, name: str) -> list[Struct]:
        """The chunk of a column in a row group."""
        return [self._chunks[group, name]]

    def add_known(self, group: int, rows: pa.Table) -> set[str]:
        """Adds those columns of a row group that have one value, or lists of dictionary-encoded values; returns their
        names."""
        found = set()
        for field in rows.schema if rows.num_rows else ():
            column = rows[field.name]
            constant = constant_of(column) if field.nullable else None
            if constant is not None:
                self.add_runs(group, field.name, constant, np.array([rows.num_rows]))
            elif field.nullable and _has_coded_lists(column):
                lists = column.unify_dictionaries().chunks
                self.add_lists(group, field.name, lists[0].values.dictionary, lists)
            else:
                continue
            found.add(field.name)
        return found

    def add_runs(self, group: int, name: str, values: pa.Array, lengths: np.ndarray) -> None:
        """Adds a chunk of runs of equal values: values[i], strings or 8-byte integers, for lengths[i] rows, int64. The
        values must ascend; none is NULL."""
        rows, width = int(lengths.sum()), _width(values)
        codes = _runs(lengths, np.arange(len(lengths)), width)
        low, high = _as_bytes(values[0]), _as_bytes(values[-1])
        bounds = {5: (BINARY, high), 6: (BINARY, low)} if max(len(low), len(high)) <= _LONGEST_BOUND else {}
        chunk = self._begin((name,), values)
        self._add_page(chunk, rows, _sized(_run(rows, 1)) + bytes([width]) + codes)
        chunk[_STATISTICS] = (STRUCT, {3: (I64, 0), **bounds})
        self._chunks[group, name] = {2: (I64, 0), 3: (STRUCT, chunk)}

    def add_lists(
        self, group: int, name: str, dictionary: pa.Array, parts: Iterable[pa.ListArray | StoredPage]
    ) -> None:
        """Adds a chunk of lists of values of a dictionary. It has no statistics.

        parts: lists with this dictionary, or pages with codes of its first values, which are copied.
        """
        width, chunk = _width(dictionary), self._begin((name, "list", "element"), dictionary)
        for part in parts:
            if isinstance(part, StoredPage):
                self._file.write(part.text)
                self._count(chunk, len(part.text), part.size)
                self._count_page(chunk, part.values)
            else:
                self._add_pages(chunk, width, part.offsets.to_numpy(), part.values.indices.to_numpy())
        self._chunks[group, name] = {2: (I64, 0), 3: (STRUCT, chunk)}

    def _add_pages(self, chunk: Struct, width: int, all_offsets: np.ndarray, codes: np.ndarray) -> None:
        """Writes the data pages of lists, whose codes have `width` bits."""
        # imported here, so that a command that finds nothing to do does not load Numba
        from rules_index.kernels.bit_packing import pack, pack_levels

        first, lists = 0, len(all_offsets) - 1
        while first < lists:
            last = int(np.searchsorted(all_offsets, all_offsets[first] + _PAGE_VALUES, side="right")) - 1
            last = max(first + 1, min(last, first + _PAGE_VALUES, lists))
            offsets = all_offsets[first : last + 1]
            empty = int(np.count_nonzero(np.diff(offsets) == 0))
            count = int(offsets[-1] - offsets[0]) + empty
            repetition, definition = np.zeros(-(-count // 8), np.uint8), np.zeros(-(-count // 8) * 2, np.uint8)
            pack_levels(offsets, repetition, definition)
            packed = np.zeros(-(-(count - empty) // 8) * width // 4 + 1, np.uint32)
            pack(codes[offsets[0] : offsets[-1]], width, packed)
            levels = _sized(_packed(repetition, 1)) + _sized(_packed(definition, 2) if empty else _run(count, 3))
            stored = _packed(packed.view(np.uint8)[: -(-(count - empty) // 8) * width], width)
            self._add_page(chunk, count, levels + bytes([width]) + stored)
            first = last

    def _begin(self, path: Sequence[str], dictionary: pa.Array) -> Struct:
        """Writes the dictionary page of a chunk; returns the metadata of a chunk without rows."""
        begun = self._file.seek(0, io.SEEK_END)
        chunk: Struct = {
            1: (I32, _BYTE_ARRAY if pa.types.is_string(dictionary.type) else _INT64),
            2: (LIST, (I32, [_PLAIN, _RLE, _RLE_DICTIONARY])),
            3: (LIST, (BINARY, [part.encode() for part in path])),
            4: (I32, self._number),
            _VALUES: (I64, 0),
            _SIZE: (I64, 0),
            _COMPRESSED: (I64, 0),
            _DATA_PAGE_OFFSET: (I64, 0),
            11: (I64, begun),
            _PAGES: (LIST, (STRUCT, [_pages(_DICTIONARY_PAGE, _PLAIN, 1), _pages(_DATA_PAGE, _RLE_DICTIONARY, 0)])),
        }
        header = {1: (I32, len(dictionary)), 2: (I32, _PLAIN)}
        self._put(chunk, _DICTIONARY_PAGE, 7, header, _plain(dictionary))
        chunk[_DATA_PAGE_OFFSET] = (I64, self._file.tell())
        return chunk

    def _add_page(self, chunk: Struct, values: int, data: bytes) -> None:
        """Writes a data page of a chunk, with so many values, and counts them."""
        header = {1: (I32, values), 2: (I32, _RLE_DICTIONARY), 3: (I32, _RLE), 4: (I32, _RLE)}
        self._put(chunk, _DATA_PAGE, 5, header, data)
        self._count_page(chunk, values)

    def _count_page(self, chunk: Struct, values: int) -> None:
        """Adds a data page with so many values to the chunk's numbers."""
        chunk[_VALUES] = (I64, chunk[_VALUES][1] + values)
        known, of_data = chunk[_PAGES][1][1]
        chunk[_PAGES] = (LIST, (STRUCT, [known, _pages(_DATA_PAGE, _RLE_DICTIONARY, of_data[3][1] + 1)]))

    def _put(self, chunk: Struct, kind: int, field: int, header: Struct, data: bytes) -> None:
        """Writes a page of a chunk, and adds its size to the chunk's."""
        stored = data if self._codec is None else self._codec.compress(data, asbytes=True)
        page: Struct = {1: (I32, kind), 2: (I32, len(data)), 3: (I32, len(stored)), field: (STRUCT, header)}
        text = write_struct(page)
        self._file.write(text)
        self._file.write(stored)
        self._count(chunk, len(text) + len(stored), len(text) + len(data))

    def _count(self, chunk: Struct, stored: int, size: int) -> None:
        """Adds the bytes of a page, as they are stored and uncompressed, to the chunk's sizes."""
        chunk[_SIZE] = (I64, chunk[_SIZE][1] + size)
        chunk[_COMPRESSED] = (I64, chunk[_COMPRESSED][1] + stored)


def constant_of(column: pa.ChunkedArray) -> pa.Array | None:
    """The only value of a column of BIGINTs, TIMESTAMPs or coded strings, as versions have one; else None."""
    kind = column.type
    if column.null_count or not len(column):
        return None
    if pa.types.is_dictionary(kind):
        known = [chunk.dictionary for chunk in column.chunks]
        is_one = pa.types.is_string(kind.value_type) and len(known[0]) == 1 and not known[0].null_count
        return known[0] if is_one and all(each.equals(known[0]) for each in known) else None
    if not pa.types.is_int64(kind) and kind not in _MICROSECONDS:
        return None
    found = pc.min_max(column)
    return pa.array([found["min"]]) if found["min"] == found["max"] else None


def _has_coded_lists(column: pa.ChunkedArray) -> bool:
    """Whether it has lists of dictionary-encoded strings or BIGINTs, and no NULL."""
    kind = column.type
    if (
        column.null_count
        or not pa.types.is_list(kind)
        or not kind.value_field.nullable
        or not pa.types.is_dictionary(kind.value_type)
    ):
        return False
    values = [chunk.values for chunk in column.chunks]
    return (
        kind.value_type.value_type in (pa.string(), pa.int64())
        and pa.types.is_int32(kind.value_type.index_type)
        and not any(each.null_count or each.dictionary.null_count for each in values)
        and any(len(each.dictionary) for each in values)
    )


def decoded_bytes(rows: pa.RecordBatch) -> int:
    """The most bytes that dictionary-encoded texts in lists take once they are decoded, as readers of a whole row group
    decode them."""
    found = 0
    for column in rows.columns:
        kind = column.type
        if pa.types.is_list(kind) and pa.types.is_dictionary(kind.value_type):
            dictionary = column.values.dictionary
            if pa.types.is_string(dictionary.type) and len(dictionary):
                count = column.offsets[-1].as_py() - column.offsets[0].as_py()
                found += count * (pc.max(pc.binary_length(dictionary)).as_py() or 0)
    return found


def _pages(kind: int, encoding: int, count: int) -> Struct:
    """How many pages of a kind have an encoding. If all have a dictionary, Spark passes over chunks by that."""
    return {1: (I32, kind), 2: (I32, encoding), 3: (I32, count)}


def _run(length: int, level: int) -> bytes:
    """A run of `length` times the same level."""
    return _varint(length << 1) + bytes([level])


def _packed(bits: np.ndarray, width: int) -> bytes:
    """A run of packed values of `width` bits, of which there are eight or a multiple."""
    return _varint(len(bits) // width << 1 | 1) + bits.tobytes()


def _runs(lengths: np.ndarray, codes: np.ndarray, width: int) -> bytes:
    """Runs of lengths[i] times the code codes[i], which has `width` bits."""
    headers = (lengths.astype(np.uint64) << np.uint64(1))[:, None] >> (np.arange(6, dtype=np.uint64) * np.uint64(7))
    goes_on = headers[:, 1:] > 0
    varints = (headers[:, :5] & np.uint64(127)).astype(np.uint8) | goes_on.astype(np.uint8) << 7
    stored = (codes[:, None] >> (np.arange(-(-width // 8)) * 8)).astype(np.uint8)
    is_used = np.ones((len(lengths), 5 + stored.shape[1]), bool)
    is_used[:, 1:5] = goes_on[:, :4]
    return np.hstack([varints, stored])[is_used].tobytes()


def _varint(value: int) -> bytes:
    found = bytearray()
    put_varint(found, value)
    return bytes(found)


def _sized(levels: bytes) -> bytes:
    """Levels after their size, as a data page has them."""
    return len(levels).to_bytes(4, "little") + levels


def _width(dictionary: pa.Array) -> int:
    """The number of bits of a code."""
    return max(1, (len(dictionary) - 1).bit_length())


def _plain(values: pa.Array) -> bytes:
    """Values in Parquet's plain encoding: strings after their length in bytes."""
    if not pa.types.is_string(values.type):
        return np.ascontiguousarray(values.view(pa.int64()).to_numpy()).tobytes()
    _, places, texts = values.buffers()
    offsets = np.frombuffer(places, np.int32, len(values) + 1, values.offset * 4)
    found = np.empty(4 * len(values) + offsets[-1] - offsets[0], np.uint8)
    of_lengths = (offsets[:-1] - offsets[0] + 4 * np.arange(len(values)))[:, None] + np.arange(4)
    found[of_lengths] = np.diff(offsets).astype("<u4")[:, None].view(np.uint8)
    is_text = np.ones(len(found), bool)
    is_text[of_lengths] = False
    found[is_text] = np.frombuffer(texts or b"", np.uint8)[offsets[0] : offsets[-1]]
    return found.tobytes()


def _as_bytes(value: Any) -> bytes:
    """A value as the footer has it among a chunk's bounds."""
    if pa.types.is_string(value.type):
        return bytes(value.as_buffer())
    return int(value.cast(pa.int64()).as_py()).to_bytes(8, "little", signed=True)
