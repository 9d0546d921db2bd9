"""The files of a table that a query reads, with those row groups whose statistics do not exclude the rows that it asks
for."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.errors import NeedsSparkError
from pipelines.lake.add_actions import may_match
from pipelines.lake.delta_log import DeltaLog
from pipelines.lake.folder_log import FolderLog
from pipelines.local_sql.condition import Condition
from rules_index.workers.file_statistics import statistics
from rules_index.workers.source_file_reader import SourceFile, naming

_SMALL_FILE = 1 << 20
"""A file with at most so many bytes is read whole."""
_MOST_FILES = 64 << 30
"""Maximum bytes of files whose footers are read: those of more would take long."""


def files_to_read(
    log: DeltaLog, adds: Sequence[Mapping[str, Any]], schema: pa.Schema, kept: Condition | None, most: int
) -> list[SourceFile]:
    """The files of `add` actions, with the row groups that may have rows which satisfy a condition that cannot raise.

    schema: the table's columns. NeedsSparkError if more than `most` bytes are to be read. Raises `OSError` or
    `pyarrow.ArrowException` if a file cannot be read.
    """
    # files in a store are copied here before their footers can be read
    limit = most if kept is None or not isinstance(log, FolderLog) else max(most, _MOST_FILES)
    is_too_much = _size(adds) > limit
    files, to_read = [], 0.0
    for file, size in () if is_too_much else _with_sizes(log, adds, schema, kept):
        files.append(file)
        to_read += size
        if to_read > most:
            is_too_much = True
            break
    if is_too_much:
        raise NeedsSparkError(f"the table has more than {most >> 30} GiB to read")
    return files


def bytes_to_read(log: DeltaLog, adds: Sequence[Mapping[str, Any]], schema: pa.Schema, kept: Condition | None) -> float:
    """About the bytes of what `files_to_read` returns; of files in a store, the bytes of all of them."""
    if kept is None or not isinstance(log, FolderLog) or _size(adds) > _MOST_FILES:
        return _size(adds)
    return sum(size for _, size in _with_sizes(log, adds, schema, kept))


def _size(adds: Sequence[Mapping[str, Any]]) -> int:
    return sum(int(add["size"]) for add in adds)


def _with_sizes(
    log: DeltaLog, adds: Sequence[Mapping[str, Any]], schema: pa.Schema, kept: Condition | None
) -> Iterator[tuple[SourceFile, float]]:
    """Each file with the row groups to read, and about their bytes."""
    for add, file in zip(adds, log.source_files([(0, add) for add in adds]), strict=True):
        size = int(add["size"])
        if kept is None or size <= _SMALL_FILE:
            yield file, size
        else:
            narrowed, share = _with_row_groups(file, schema, kept)
            yield narrowed, size * share


def _with_row_groups(file: SourceFile, schema: pa.Schema, kept: Condition) -> tuple[SourceFile, float]:
    """The file with the row groups that may have rows which satisfy a condition, and their share of all of them."""
    with naming(file.path):
        footer = pq.read_metadata(file.path, memory_map=True)
    if footer.num_row_groups < 2:
        return file, 1.0
    stored = footer.schema.to_arrow_schema()
    asked = frozenset(_of_one_type((path[0] for path in kept.paths), schema, stored))

    def may_have_rows(group: int) -> bool:
        """Whether a row group may have such a row."""
        found = statistics(footer, stored, {}, asked, [group])
        return may_match({"stats": json.dumps(found)}, [kept.widened])

    groups = tuple(filter(may_have_rows, range(footer.num_row_groups)))
    return replace(file, groups=groups), len(groups) / footer.num_row_groups


def _of_one_type(names: Iterable[str], schema: pa.Schema, stored: pa.Schema) -> list[str]:
    """The columns that have the same name and type in a table and in a file."""
    both = [name for name in names if name in schema.names and name in stored.names]
    return [name for name in both if schema.field(name).type == stored.field(name).type]
