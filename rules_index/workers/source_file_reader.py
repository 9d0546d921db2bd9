"""Reads the rows of a Delta table's Parquet files where they are matched, with the columns that the table's log
defines.

Delta protocol, "Add File" and "Partition Value Serialization". Files of which this module cannot be certain are refused
with `UnreadableFileError`: then Spark's reader must read them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rules_index.errors import RulesIndexError
from rules_index.names import column_key, spelled

BATCH_ROWS = 1 << 16
"""The most rows of a batch."""
_BATCH_BYTES = 16 << 20
"""About the most bytes of a batch, encoded as in its file but not compressed. Decoded texts take a multiple."""
SOURCE_VERSION = "source_version"
"""The column that follows the table's own columns: the version that added the row's file."""
KEPT = "kept"
"""A key of `deletionVector` in an `add` action: which rows it has left, as `SourceFile` has them."""
_BYTES_OF_A_CODE = 4.0
"""A string column with fewer bytes per value in a file, before compression, is taken to be dictionary-encoded."""
_DICTIONARY = pa.dictionary(pa.int32(), pa.string())
_LEGACY = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
_SPARK_VERSION = b"org.apache.spark.version"
_FAR_DATE = re.compile(r"[+-]\d{4,7}-\d\d-\d\d")
"""A date before the year 0 or after 9999, as Spark writes it; Arrow does not read these."""
_YEARS = (-62_135_596_800_000, 253_402_300_800_000)
"""Milliseconds since 1970 of the start of the year 1 and the end of the year 9999."""


class UnreadableFileError(RulesIndexError):
    """A file whose rows only Spark is certain to read as Spark does."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file of a table: its path, its partition's values as the log writes them, and the version that added it.

    groups: the row groups to read, None for all; kept: which rows of the file a deletion vector has left, [rows], None
    for all. If `kept` is shorter than the file, it has left the rows after it.
    """

    path: str
    partition: Mapping[str, str | None]
    version: int
    groups: tuple[int, ...] | None = None
    kept: pa.BooleanArray | None = None


def read_batches(
    files: Sequence[SourceFile],
    schema: pa.Schema,
    columns: Sequence[str] | None = None,
    coded: Sequence[str] = (),
    with_version: bool = True,
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of files, with the columns of `schema` (or those named in `columns`) in their order and types,
    and `source_version` unless `with_version` is False; then at least one column must be read.

    schema: the table's columns, including those of its partitions. Columns that a file lacks are NULL. A string column
    is dictionary-encoded if all files store it so; a list of strings always is if it is named in `coded`. Raises
    `UnreadableFileError` for a file that only Spark can read, `OSError` or `pyarrow.ArrowException` if a file cannot be
    read.
    """
    wanted = [field for field in schema if columns is None or field.name in columns]
    footers = [_footer(file) for file in files]
    encoded = dict.fromkeys(_dictionary_columns(footers, wanted), _DICTIONARY)
    lists = [each.name for each in wanted if each.name in coded and pa.types.is_list(each.type)]
    encoded |= {name: pa.list_(_DICTIONARY) for name in lists if pa.types.is_string(schema.field(name).type.value_type)}
    for file, footer in zip(files, footers, strict=True):
        with naming(file.path):
            yield from _batches(file, footer, wanted, encoded, with_version)


@contextmanager
def naming(path: str) -> Iterator[None]:
    """Adds the file's path to Arrow's errors about a file's content, the messages of which lack it."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, MemoryError) or getattr(error, "errno", None) is not None:
            raise
        what = "cannot be read" if isinstance(error, pa.ArrowNotImplementedError) else "is damaged"
        raise pa.ArrowInvalid(f"{path} {what}: {error}") from error


def row_group_bytes(path: str) -> list[int]:
    """The size in bytes of each row group of a file."""
    with naming(path):
        footer = pq.read_metadata(path)
    return [footer.row_group(i).total_byte_size for i in range(footer.num_row_groups)]


def _footer(file: SourceFile) -> pq.FileMetaData:
    with naming(file.path):
        footer = pq.read_metadata(file.path, memory_map=True)
    known = footer.metadata or {}
    old = known.get(_SPARK_VERSION, b"3").split(b".")[0]
    if any(key in known for key in _LEGACY) or old in (b"1", b"2"):
        raise UnreadableFileError(f"{file.path} has dates of the calendar before 1582, which only Spark reads.")
    return footer


def _dictionary_columns(footers: Sequence[pq.FileMetaData], wanted: Sequence[pa.Field]) -> frozenset[str]:
    """The string columns that all files store dictionary-encoded."""
    sizes: dict[str, list[float]] = {}
    for footer in footers:
        for group in range(footer.num_row_groups):
            described = footer.row_group(group)
            for number in range(footer.num_columns):
                column = described.column(number)
                if column.num_values and column.physical_type == "BYTE_ARRAY" and "." not in column.path_in_schema:
                    per_value = column.total_uncompressed_size / column.num_values
                    sizes.setdefault(column.path_in_schema, []).append(per_value)
    return frozenset(
        field.name
        for field in wanted
        if pa.types.is_string(field.type) and max(sizes.get(field.name, [_BYTES_OF_A_CODE])) < _BYTES_OF_A_CODE
    )


def _batches(
    file: SourceFile,
    footer: pq.FileMetaData,
    wanted: Sequence[pa.Field],
    encoded: Mapping[str, pa.DataType],
    with_version: bool,
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of one file. encoded: the columns that are read as dictionaries, with their types."""
    names = [*(field.name for field in wanted), *([SOURCE_VERSION] if with_version else [])]
    partition = {column_key(name): value for name, value in file.partition.items()}
    stored_names = _stored_names(footer, [field.name for field in wanted if column_key(field.name) not in partition])
    read = list(stored_names.values())
    parquet = pq.ParquetFile(
        file.path,
        metadata=footer,
        memory_map=True,
        coerce_int96_timestamp_unit="us",
        read_dictionary=[
            leaf for name in encoded if name in stored_names for leaf in coded_leaves(footer, stored_names[name])
        ],
    )
    groups = range(parquet.num_row_groups) if file.groups is None else file.groups
    _check_times(file.path, footer, groups, read)
    group_by_group = any(pa.types.is_list(kind) for kind in encoded.values())
    kept = None if file.kept is None else _kept_in(file.kept, footer, groups)
    for rows, batch in _rows(parquet, groups, read, _rows_at_once(footer, groups, read), group_by_group):
        arrays = []
        for field in wanted:
            kind = encoded.get(field.name, field.type)
            if column_key(field.name) in partition:
                arrays.append(_constant(partition[column_key(field.name)], field.type, kind, rows))
            elif field.name not in stored_names:
                arrays.append(pa.nulls(rows, kind))
            else:
                assert batch is not None
                arrays.append(_cast(batch.column(stored_names[field.name]), kind, file.path, field.name))
        if with_version:
            arrays.append(pa.repeat(pa.scalar(file.version, pa.int64()), rows))
        table_rows = pa.RecordBatch.from_arrays(arrays, names)
        if kept is not None:
            table_rows, kept = table_rows.filter(kept[:rows]), kept[rows:]
            if not len(table_rows):
                continue
        yield table_rows


def _stored_names(footer: pq.FileMetaData, names: Sequence[str]) -> dict[str, str]:
    """How a file spells the names of a table's columns; without the columns that it lacks."""
    stored = footer.schema.to_arrow_schema().names
    spellings = {name: spelled(stored, name, column_key) for name in names}
    return {name: spelling for name, spelling in spellings.items() if spelling is not None}


def _kept_in(kept: pa.BooleanArray, footer: pq.FileMetaData, groups: Sequence[int]) -> pa.BooleanArray:
    """Which rows of some row groups, in their order, a deletion vector of the file has left."""
    sizes = [footer.row_group(number).num_rows for number in range(footer.num_row_groups)]
    whole = pa.concat_arrays([kept, pa.repeat(pa.scalar(True), max(sum(sizes) - len(kept), 0))])
    return pa.concat_arrays([pa.array([], pa.bool_()), *(whole.slice(sum(sizes[:n]), sizes[n]) for n in groups)])


def coded_leaves(footer: pq.FileMetaData, name: str) -> list[str]:
    """The paths of a column's leaves in a file, which must be looked up: writers name the items of a list in different
    ways. Only those that Arrow can read as dictionaries: not texts that are stored as differences (DELTA_BYTE_ARRAY) or
    behind their lengths (DELTA_LENGTH_BYTE_ARRAY)."""
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    paths = {footer.schema.column(number).path: number for number in range(footer.num_columns)}
    return [
        path
        for path, number in paths.items()
        if (path == name or path.startswith(f"{name}."))
        and not any("DELTA" in each for group in groups for each in group.column(number).encodings)
    ]


def _check_times(path: str, footer: pq.FileMetaData, groups: Sequence[int], columns: Sequence[str]) -> None:
    """Raises `UnreadableFileError` if Arrow may read a timestamp of type INT96 differently from Spark.

    For days before -4713 and beyond 287,000 Spark's day number is signed and Arrow's is not, so that Arrow may return
    any time. In milliseconds such a time is outside of all years, except for day 0, which becomes the start of 1970.
    """
    parts = [footer.schema.column(number) for number in range(footer.num_columns)]
    prefixes = tuple(f"{name}." for name in columns)
    leaves = [each.path for each in parts if each.physical_type == "INT96" and f"{each.path}.".startswith(prefixes)]
    if not leaves:
        return
    with pq.ParquetFile(path, metadata=footer, memory_map=True, coerce_int96_timestamp_unit="ms") as parquet:
        for batch in parquet.iter_batches(BATCH_ROWS, groups, columns=leaves, use_threads=False):
            for values in (each for column in batch.columns for each in _leaves(column)):
                millis = values.cast(pa.int64())
                low, high = pc.min_max(millis).values()
                is_far = low.is_valid and not _YEARS[0] <= low.as_py() <= high.as_py() < _YEARS[1]
                if is_far or pc.any(pc.equal(millis, 0)).as_py():
                    raise UnreadableFileError(f"{path} may have timestamps that are not of the years 1 to 9999.")


def _leaves(column: pa.Array) -> Iterator[pa.Array]:
    """Yields the leaves of an array: the arrays without children of which it consists."""
    kind = column.type
    if pa.types.is_map(kind):
        parts = [column.keys, column.items]
    elif pa.types.is_struct(kind):
        parts = column.flatten()
    elif pa.types.is_list(kind):
        parts = [column.flatten()]
    else:
        yield column
        return
    for part in parts:
        yield from _leaves(part)


def _rows_at_once(footer: pq.FileMetaData, groups: Sequence[int], columns: Sequence[str]) -> int:
    """How many rows of these columns are read at a time: fewer if rows are wide."""
    prefixes = tuple(f"{name}." for name in columns)
    leaves = [n for n in range(footer.num_columns) if f"{footer.schema.column(n).path}.".startswith(prefixes)]
    widest = 1.0
    for group in map(footer.row_group, groups):
        size = sum(group.column(leaf).total_uncompressed_size for leaf in leaves)
        widest = max(widest, size / max(group.num_rows, 1))
    return max(1, min(BATCH_ROWS, int(_BATCH_BYTES / widest)))


def _rows(
    parquet: pq.ParquetFile, groups: Sequence[int], columns: list[str], at_once: int, group_by_group: bool
) -> Iterator[tuple[int, pa.RecordBatch | None]]:
    """Yields the number of rows of each batch, and its columns, or None if no column is read.

    group_by_group: whether to read each row group by itself: Arrow cannot unite lists of dictionary-encoded texts from
    several.
    """
    if columns:
        # a name with dots would be taken for a path, so leaves are requested by their first part
        for part in [[group] for group in groups] if group_by_group else [groups]:
            for batch in parquet.iter_batches(at_once, part, columns=columns, use_threads=False):
                if len(batch):
                    yield len(batch), batch
        return
    for group in groups:
        left = parquet.metadata.row_group(group).num_rows
        while left:
            rows = min(left, BATCH_ROWS)
            yield rows, None
            left -= rows


def _cast(column: pa.Array, kind: pa.DataType, path: str, name: str) -> pa.Array:
    """The column in the table's type. Raises `UnreadableFileError` if the file's type cannot be cast to it without
    loss."""
    if column.type == kind:
        return column
    if pa.types.is_dictionary(kind):
        return column.cast(kind)
    try:
        if pa.types.is_timestamp(kind) and pa.types.is_timestamp(column.type) and column.type.unit == "ns":
            column = pc.cast(column, pa.timestamp("us", column.type.tz), safe=False)
        return column.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise UnreadableFileError(f"{path}: the column {name} is {column.type}, not {kind}: {error}") from error


def _constant(text: str | None, column_type: pa.DataType, kind: pa.DataType, rows: int) -> pa.Array:
    """A partition's value, repeated for each row. kind: the type of the array, which may be a dictionary."""
    value = partition_value(text, column_type)
    if pa.types.is_dictionary(kind):
        return pa.DictionaryArray.from_arrays(
            pa.repeat(pa.scalar(0 if value.is_valid else None, pa.int32()), rows),
            pa.array([value.as_py() or ""], pa.string()),
        )
    return pa.repeat(value, rows)


def partition_value(text: str | None, kind: pa.DataType) -> pa.Scalar:
    """A partition's value, given as the log writes it. Raises `UnreadableFileError` for a value of another type, or a
    type that writers format in different ways."""
    if text is None or (text == "" and not pa.types.is_binary(kind)):
        return pa.scalar(None, kind)
    if not is_partition_type(kind):
        raise UnreadableFileError(f"a partition by {kind} is read by Spark alone")
    try:
        if pa.types.is_date32(kind) and _FAR_DATE.fullmatch(text):
            return pa.scalar(int(np.datetime64(text, "D").astype(np.int64)), pa.int32()).cast(kind)
        return pa.scalar(text, pa.string()).cast(kind)
    except (pa.ArrowInvalid, ValueError) as error:
        raise UnreadableFileError(f"The partition value {json.dumps(text)} is no {kind}: {error}") from error


def is_partition_type(kind: pa.DataType) -> bool:
    """Whether all writers format the values of a type alike."""
    t = pa.types
    return bool(t.is_string(kind) or t.is_integer(kind) or t.is_date(kind) or t.is_boolean(kind) or t.is_decimal(kind))


def source_files(adds: Sequence[tuple[int, Mapping[str, Any]]], path_of: Any) -> list[SourceFile]:
    """Files from their `add` actions, each with the version that added it; path_of: maps a name in the log to a
    path. Raises `UnreadableFileError` for a deletion vector without the rows that it has left (`KEPT`)."""
    found = []
    for version, add in adds:
        deletions = add.get("deletionVector") or {KEPT: None}
        if KEPT not in deletions:
            raise UnreadableFileError(f"{add['path']} has a deletion vector that was written with its rows.")
        partition = add.get("partitionValues") or {}
        found.append(SourceFile(str(path_of(add["path"])), partition, version, kept=deletions[KEPT]))
    return found
