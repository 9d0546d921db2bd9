"""Opens the Parquet files that deltatag writes, with encodings and statistics that suit their rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rules_index.workers.file_statistics import leaves

_LOOKED_AT = 1 << 13
"""The number of rows from whose values a column's encoding is chosen."""


def open_writer(
    sink: Any, schema: pa.Schema, rows: pa.Table, codec: str, footers: list[pq.FileMetaData] | None = None
) -> pq.ParquetWriter:
    """Opens the writer of a file, with encodings that suit its first rows.

    sink: a path, or a file to write to. footers: gets the file's footer when the writer is closed.
    """
    # Bounds of values inside lists would cost more than the lists themselves, and nobody reads them. Those of
    # floating-point numbers leave out NaN, which is Spark's largest number: it would skip row groups that have one.
    named = [(".".join(path), kind) for path, kind in leaves(schema)]
    unbounded = {name for name, kind in named if kind is None or pa.types.is_floating(kind)}
    bounded = [name for name, _ in named if name not in unbounded]
    # Arrow does not distinguish a column `a.b` from a field `b` of a column `a`: neither gets an encoding of its own
    count = Counter(".".join(path) for path in stored_paths(schema))
    packed = [name for name in schema.names if count[name] == 1 and _is_packed(rows[name])]
    encoded = [".".join(path) for path in stored_paths(schema) if path[0] not in packed]
    return pq.ParquetWriter(
        sink,
        schema,
        compression=codec,
        use_dictionary=encoded or False,
        column_encoding=dict.fromkeys(packed, "DELTA_BINARY_PACKED") or None,
        write_statistics=bounded or False,
        store_schema=False,
        metadata_collector=footers,
    )


def write_row_group(writer: pq.ParquetWriter, rows: pa.Table) -> None:
    """Writes rows as one row group, with bounds of the values that the rows have, not of a whole dictionary."""
    for place, column in enumerate(rows.columns):
        if pa.types.is_dictionary(column.type) and column.null_count:
            rows = rows.set_column(place, rows.field(place), _with_values_in_use(column))
    writer.write_table(rows, row_group_size=max(rows.num_rows, 1))


def _with_values_in_use(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Removes unused values from the dictionary of a column with NULLs, if Arrow would include them in the bounds.

    Arrow takes the bounds of the whole dictionary if a chunk has as many distinct values as the dictionary, and counts
    NULL as one of these.
    """
    chunks = [
        chunk.dictionary_decode().dictionary_encode().cast(column.type)
        if pc.count_distinct(chunk.indices, "all").as_py() == len(chunk.dictionary)
        else chunk
        for chunk in column.chunks
    ]
    return pa.chunked_array(chunks, column.type)


def _is_packed(column: pa.ChunkedArray) -> bool:
    """Whether to delta-encode a column's integers: if most of its first values are distinct, a dictionary would take
    longer to write, and more space."""
    kind = column.type
    if not (
        pa.types.is_int64(kind) or pa.types.is_int32(kind) or pa.types.is_timestamp(kind) or pa.types.is_date(kind)
    ):
        return False
    first = column.slice(0, _LOOKED_AT)
    return bool(pc.count_distinct(first).as_py() > len(first) // 2)


def stored_paths(schema: pa.Schema | pa.StructType) -> Iterator[tuple[str, ...]]:
    """The paths of Parquet's leaf columns, by their names in a file."""
    for field in schema:
        for path in _within(field.type):
            yield (field.name, *path)


def _within(kind: pa.DataType) -> Iterator[tuple[str, ...]]:
    if pa.types.is_struct(kind):
        yield from stored_paths(kind)
    elif pa.types.is_map(kind):
        yield from (("key_value", "key", *path) for path in _within(kind.key_type))
        yield from (("key_value", "value", *path) for path in _within(kind.item_type))
    elif pa.types.is_list(kind):
        yield from (("list", "element", *path) for path in _within(kind.value_type))
    else:
        yield ()
