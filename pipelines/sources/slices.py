"""Reads a slice of a source with Spark: its columns and its rows; and counts its rows by the log."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

from pipelines.sources.positions import Add, Slice
from pipelines.sources.source import Source


def slice_schema(source: Source, schema_version: int) -> StructType:
    """The source's columns at a version."""
    from pyspark.sql.types import StructType

    from pipelines.spark.delta_internals import snapshot_schema

    fields = snapshot_schema(source.log.snapshot(schema_version)).fields
    return StructType([field for field in fields if field.name not in source.left_out])


def source_partitions(source: Source) -> list[str]:
    """The columns by which the source's newest version is partitioned."""
    from pipelines.spark.delta_internals import partition_columns

    return partition_columns(source.log.latest())


def slice_frame(source: Source, taken: Slice) -> DataFrame:
    """The slice's rows: the source's columns, and `source_version`, the version that added the row's file."""
    from pipelines.spark.delta_internals import COMMIT_VERSION, TableLog

    assert isinstance(source.log, TableLog)
    frame = source.log.frame(source.log.snapshot(taken.schema_version), taken.files)
    return frame.drop(*source.left_out).withColumnRenamed(COMMIT_VERSION, "source_version")


def has_no_null(files: Iterable[Add], columns: Iterable[str]) -> bool:
    """Whether the files have no NULL in these columns, by the log's statistics; False if a file lacks them.

    columns: by their names in files (`column_types.stored_names`)
    """
    wanted = {column.lower() for column in columns}
    for _, add in files:
        nulls = json.loads(add.get("stats") or "{}").get("nullCount", {})
        if not wanted <= {name.lower() for name, count in nulls.items() if count == 0}:
            return False
    return True


def rows_of(files: Iterator[Add] | tuple[Add, ...]) -> int | None:
    """How many rows the files have, by the log's statistics; None if a file has none."""
    rows = 0
    for _, add in files:
        stats = json.loads(add.get("stats") or "{}")
        if "numRecords" not in stats:
            return None
        rows += int(stats["numRecords"]) - int((add.get("deletionVector") or {}).get("cardinality", 0))
    return rows
