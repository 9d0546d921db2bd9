"""The files of a table that a query reads, with those row groups whose statistics do not exclude the rows that it asks
for."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
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
    sizes = [int(add["size"]) for add in adds]
    # files in a store are copied here before their footers can be read
    _check(sum(sizes), most if kept is None or not isinstance(log, FolderLog) else max(most, _MOST_FILES), most)
    files = log.source_files([(0, add) for add in adds])
    to_read = 0.0
    for place, (file, size) in enumerate(zip(files, sizes, strict=True) if kept is not None else ()):
        share = 1.0
        if size > _SMALL_FILE and kept is not None:
            files[place], share = _with_row_groups(file, schema, kept)
        to_read += size * share
        _check(to_read, most, most)
    return files


def _check(size: float, limit: int, most: int) -> None:
    if size > limit:
        raise NeedsSparkError(f"the table has more than {most >> 30} GiB to read")


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
