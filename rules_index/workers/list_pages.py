"""Replaces some lists of a column chunk that `EncodedChunks` has written; only the pages that have these lists are
decoded and encoded, all others are copied.

Apache Parquet format, "Data Pages": each page says how many bits its codes have, so that the codes of other pages stay
valid if the dictionary gets further values.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import pairwise
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rules_index.workers.encoded_chunks import CODECS, EncodedChunks, StoredPage
from rules_index.workers.parquet_columns import ColumnFile, CompositeFile, start_of
from rules_index.workers.thrift import I64, STRUCT, Struct, ThriftError, read_struct_at

_METADATA = 3  # field of ColumnChunk
# fields of ColumnMetaData
_CODEC, _VALUES, _SIZE, _COMPRESSED, _DATA_OFFSET, _DICTIONARY_OFFSET, _PAGES = 4, 5, 6, 7, 9, 11, 13
# fields of PageHeader
_PAGE_SIZE, _PAGE_COMPRESSED, _DATA, _DICTIONARY = 2, 3, 5, 7
_DATA_PAGE, _DICTIONARY_PAGE, _DATA_PAGE_V2 = 0, 2, 3
_PLAIN_DICTIONARY, _RLE_DICTIONARY = 2, 8
_MOST_SOUGHT = 64
"""The most values that are looked up in a dictionary page; each takes a pass over it."""
_NAMES = {number: name for name, number in CODECS.items()}
_LARGEST_PAGE = 1 << 30
_OTHER_FORM = (ThriftError, LookupError, ValueError, TypeError, OSError)
"""What is raised while the bytes of a page are taken apart that have another form, or are damaged."""


@dataclass(frozen=True)
class ListPages:
    """The pages of a chunk of lists.

    name        the column
    schema      its elements in the file's schema
    chunk       the chunk's description in the footer
    dictionary  its dictionary page
    known       the values of this page, uncompressed
    pages       its data pages
    starts      the first row of each of these, and the number of rows, [pages + 1] int64
    """

    name: str
    schema: list[Struct]
    chunk: Struct
    dictionary: StoredPage
    known: bytes
    pages: list[StoredPage]
    starts: np.ndarray

    @classmethod
    def read(cls, file: ColumnFile, group: int, name: str, codec: str) -> ListPages | None:
        """Reads the pages of a column in a row group. None if they are not compressed with `codec` or not as
        `EncodedChunks` writes them. Raises `OSError` if the file cannot be read."""
        (chunk, *others) = file.chunks(group, name)
        metadata = chunk[_METADATA][1]
        if others or metadata[_CODEC][1] != CODECS[codec] or not _has_dictionary(metadata):
            return None
        data = _bytes_of(file, metadata)
        try:
            dictionary, place, known = _page_at(data, 0, codec)
            pages, rows = [], []
            while place < len(data):
                page, place, levels = _page_at(data, place, codec)
                pages.append(page)
                rows.append(_rows_in(levels, page.values))
        except _OTHER_FORM:
            return None
        starts = np.concatenate([[0], np.cumsum(rows, dtype=np.int64)])
        if starts[-1] != file.rows(group):
            return None
        return cls(name, file.schema_of(name), chunk, dictionary, known, pages, starts)

    def holding(self, rows: np.ndarray) -> np.ndarray:
        """The numbers of the pages that have any of these rows, [.] int64, ascending. rows: ascending."""
        found: np.ndarray = np.unique(np.searchsorted(self.starts, rows, side="right") - 1)
        return found

    def rows_of(self, numbers: np.ndarray) -> np.ndarray:
        """The rows that pages have, [rows] int64."""
        parts = [np.arange(self.starts[number], self.starts[number + 1]) for number in numbers]
        return np.concatenate([np.empty(0, np.int64), *parts])

    def lists(self, numbers: np.ndarray) -> pa.ListArray | None:
        """The lists that pages have, dictionary-encoded with the chunk's whole dictionary; None if Arrow does not read
        that, as from pages of empty lists. Raises `OSError` or `pyarrow.ArrowException` for damaged pages."""
        sink = pa.BufferOutputStream()
        file = CompositeFile(sink)
        file.add(len(self.rows_of(numbers)), [(_SomePages(self, numbers), 0, self.name)])
        file.close([self.schema], b"", {})
        buffer = pa.BufferReader(sink.getvalue())
        found = pq.ParquetFile(buffer, read_dictionary=[f"{self.name}.list.element"]).read()[self.name].combine_chunks()
        values = found.values
        if pa.types.is_int64(values.type):
            known = pa.array(np.frombuffer(self.known, np.int64))
            values = pa.DictionaryArray.from_arrays(pc.index_in(values, value_set=known), known)
        is_whole = pa.types.is_dictionary(values.type) and len(values.dictionary) == self.dictionary.values
        return pa.ListArray.from_arrays(found.offsets, values) if is_whole else None

    def replaced(self, numbers: np.ndarray, old: pa.ListArray, new: pa.ListArray, codec: str) -> EncodedChunks:
        """The chunk with the lists `new` in pages that had the lists `old`, which `lists` has returned."""
        known, ids = old.values.dictionary, new.values.dictionary
        places = pc.index_in(ids, value_set=known)
        is_new = places.is_null().to_numpy(zero_copy_only=False)
        codes = pc.fill_null(places, 0).to_numpy().astype(np.int32)
        codes[is_new] = np.arange(len(known), len(known) + is_new.sum(), dtype=np.int32)
        dictionary = pa.concat_arrays([known, ids.filter(pa.array(is_new))])
        values = pa.DictionaryArray.from_arrays(pa.array(codes[new.values.indices.to_numpy()]), dictionary)
        lists = pa.ListArray.from_arrays(new.offsets, values)
        sizes = self.starts[numbers + 1] - self.starts[numbers]
        bounds = np.concatenate([[0], np.cumsum(sizes)]).tolist()
        parts: list[pa.ListArray | StoredPage] = list(self.pages)
        for number, (start, stop) in zip(numbers.tolist(), pairwise(bounds), strict=True):
            parts[number] = lists.slice(start, stop - start)
        made = EncodedChunks(codec)
        made.add_lists(0, self.name, dictionary, parts)
        return made


class _SomePages:
    """Some pages of a chunk as a chunk of their own."""

    def __init__(self, pages: ListPages, numbers: Sequence[int] | np.ndarray) -> None:
        taken = [pages.dictionary, *(pages.pages[number] for number in numbers)]
        metadata = {
            **{field: value for field, value in pages.chunk[_METADATA][1].items() if field <= _DICTIONARY_OFFSET},
            _VALUES: (I64, sum(page.values for page in taken[1:])),
            _SIZE: (I64, sum(page.size for page in taken)),
            _COMPRESSED: (I64, sum(len(page.text) for page in taken)),
            _DATA_OFFSET: (I64, 4 + len(pages.dictionary.text)),
            _DICTIONARY_OFFSET: (I64, 4),
        }
        self._chunk: Struct = {2: (I64, 0), 3: (STRUCT, metadata)}
        # in a file no page is at offset 0
        self._file = io.BytesIO(b"PAR1" + b"".join(page.text for page in taken))

    def opened(self) -> AbstractContextManager[BinaryIO]:
        """The chunk's bytes."""
        return nullcontext(self._file)

    def chunks(self, group: int, name: str) -> list[Struct]:
        """The only chunk."""
        return [self._chunk]


def may_hold(file: ColumnFile, group: int, name: str, values: pa.Array) -> bool:
    """False only if no list of a column in a row group has any of these values, strings or BIGINTs, by the chunk's
    dictionary."""
    (chunk, *others) = file.chunks(group, name)
    metadata = chunk[_METADATA][1]
    codec = _NAMES.get(metadata[_CODEC][1])
    if others or codec is None or len(values) > _MOST_SOUGHT or not _has_dictionary(metadata):
        return True
    data = _bytes_of(file, metadata, metadata[_DATA_OFFSET][1] - metadata[_DICTIONARY_OFFSET][1])
    try:
        _, _, stored = _page_at(data, 0, codec)
    except _OTHER_FORM:
        return True
    return any(each in stored for each in _plain_values(values))


def _plain_values(values: pa.Array) -> list[bytes]:
    """Each value in Parquet's plain encoding. Bytes that happen to be equal may be in a page without the value."""
    if pa.types.is_int64(values.type):
        return [int(value).to_bytes(8, "little", signed=True) for value in values.to_pylist()]
    texts = [value.encode() for value in values.to_pylist()]
    return [len(text).to_bytes(4, "little") + text for text in texts]


def _has_dictionary(metadata: Struct) -> bool:
    """Whether all data pages of a chunk have codes of its dictionary page, by the numbers of pages in the footer."""
    counts = [(each[1][1], each[2][1]) for each in metadata.get(_PAGES, (0, (0, [])))[1][1]]
    of_data = {encoding for kind, encoding in counts if kind in (_DATA_PAGE, _DATA_PAGE_V2)}
    offset = metadata.get(_DICTIONARY_OFFSET, (0, 0))[1]
    has_page = any(kind == _DICTIONARY_PAGE for kind, _ in counts) and offset == start_of(metadata) > 0
    return has_page and bool(of_data) and of_data <= {_PLAIN_DICTIONARY, _RLE_DICTIONARY}


def _bytes_of(file: ColumnFile, metadata: Struct, size: int | None = None) -> bytes:
    """The first `size` bytes of a chunk; None: all."""
    with file.opened() as opened:
        opened.seek(start_of(metadata))
        return opened.read(metadata[_COMPRESSED][1] if size is None else size)


def _page_at(data: bytes, place: int, codec: str) -> tuple[StoredPage, int, bytes]:
    """The page that begins at a place, the place behind it, and its values uncompressed. Raises ValueError for a page
    of a form that `EncodedChunks` does not write."""
    header, begin = read_struct_at(data, place)
    end = begin + header[_PAGE_COMPRESSED][1]
    of_kind = header.get(_DICTIONARY if place == 0 else _DATA)
    size = header[_PAGE_SIZE][1]
    if of_kind is None or not begin <= end <= len(data) or not 0 <= size <= _LARGEST_PAGE:
        raise ValueError("no such page")
    stored = data[begin:end]
    values = stored if codec == "none" else pa.Codec(codec).decompress(stored, size, asbytes=True)
    return StoredPage(data[place:end], begin - place + size, of_kind[1][1][1]), end, values


def _rows_in(page: bytes, entries: int) -> int:
    """The number of lists in a page, by its repetition levels. Raises ValueError if a list goes on from the page before
    it, or if the levels are not packed in one run, as `EncodedChunks` packs them."""
    size = int.from_bytes(page[:4], "little")
    header = shift = 0
    place = 4
    while page[place] & 128:
        header |= (page[place] & 127) << shift
        place, shift = place + 1, shift + 7
    header |= page[place] << shift
    packed = -(-entries // 8)
    if not header & 1 or header >> 1 != packed or place + 1 + packed != 4 + size or page[place + 1] & 1:
        raise ValueError("other levels")
    goes_on = np.unpackbits(np.frombuffer(page, np.uint8, packed, place + 1), count=entries, bitorder="little")
    return entries - int(goes_on.sum())
