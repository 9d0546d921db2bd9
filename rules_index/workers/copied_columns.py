"""Finds the columns of a Parquet file that can be copied into a Delta table's file without being encoded again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pyarrow as pa

from rules_index.workers.encoded_chunks import CODECS
from rules_index.workers.file_statistics import has_bounds, leaves
from rules_index.workers.parquet_columns import ColumnFile
from rules_index.workers.parquet_writer import stored_paths
from rules_index.workers.thrift import Struct

_METADATA = 3
_TYPE, _ENCODINGS, _PATH, _CODEC, _VALUES, _STATISTICS = 1, 2, 3, 4, 5, 12
_NULL_COUNT, _MAX, _MIN = 3, 5, 6
_INT96 = 3
_BYTE_STREAM_SPLIT = 9


def copied_columns(file: ColumnFile, groups: Iterable[int], schema: pa.Schema, codec: str) -> frozenset[str]:
    """Returns the names of the columns of `schema` that can be copied from all of these row groups.

    They have the table's type, the codec of its files, an encoding that Spark reads, and the statistics that its log
    needs.
    """
    stored = file.stored_types
    types = {name: stored.field(name).type for name, count in Counter(stored.names).items() if count == 1}
    alike = [field for field in schema if types.get(field.name) == field.type]
    groups = list(groups)
    return frozenset(field.name for field in alike if all(_is_copied(file, group, field, codec) for group in groups))


def _is_copied(file: ColumnFile, group: int, field: pa.Field, codec: str) -> bool:
    chunks = [chunk[_METADATA][1] for chunk in file.chunks(group, field.name)]
    one = pa.schema([field])
    paths = [tuple(part.decode() for part in chunk[_PATH][1][1]) for chunk in chunks]
    return paths == list(stored_paths(one)) and all(
        chunk[_TYPE][1] != _INT96
        and chunk[_CODEC][1] == CODECS[codec]
        and max(chunk[_ENCODINGS][1][1], default=_BYTE_STREAM_SPLIT) < _BYTE_STREAM_SPLIT
        and (kind is None or pa.types.is_floating(kind) or _has_statistics(chunk, kind))
        for chunk, (_, kind) in zip(chunks, leaves(one), strict=True)
    )


def _has_statistics(chunk: Struct, kind: pa.DataType) -> bool:
    """Whether a chunk's footer has all statistics that the log can have of a type: NULLs, and bounds if it has any
    value."""
    found = chunk.get(_STATISTICS, (0, {}))[1]
    if _NULL_COUNT not in found:
        return False
    is_empty = found[_NULL_COUNT][1] == chunk[_VALUES][1]
    return is_empty or not has_bounds(kind) or (_MIN in found and _MAX in found)
