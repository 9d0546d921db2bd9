"""Re-tags files of a tagged table by Spark's Python workers, if the table has the layout that deltatag gives it.

The workers decode only the columns that the rules read, and copy all columns that do not change as they are in the
file. Spark reads and writes the rows itself if it must evaluate derived columns, if the table is not in a folder, and
in similar cases.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pipelines.lake.column_types import arrow_schema_of, plain_fields
from pipelines.retagging.rematch import Rematch, columns_read
from pipelines.spark.delta_internals import partition_columns
from pipelines.writing.files import folder_of, layout_of
from pipelines.writing.worker_writes import codec
from rules_index.workers.retagged_files import FileTask

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from pipelines.lake.lake import Lake
    from pipelines.sources.positions import Add


def file_task(
    spark: SparkSession, lake: Lake, name: str, snapshot: Any, columns: StructType, rematch: Rematch,
    files: Sequence[Add], stamps: Mapping[str, Any],
) -> FileTask | None:  # fmt: skip
    """The task of workers that re-tag files of a table by themselves; None if Spark is needed.

    columns, snapshot: those of the table's version; stamps: new values of columns of the rows that are matched again.
    """
    folder, written = folder_of(lake, name), codec(spark)
    if folder is None or written is None:
        return None
    if rematch.annotations is not None and rematch.changes.everything:  # files may be older than the annotation columns
        return None
    if (
        any(add.get("deletionVector") for _, add in files)
        or layout_of(lake, name, plain_fields(columns.jsonValue()["fields"])) is None
    ):
        return None
    read = columns_read(arrow_schema_of(columns.jsonValue()["fields"]), partition_columns(snapshot), rematch)
    if read is None:
        return None
    values = {name: pa.scalar(value) for name, value in stamps.items()}
    return FileTask(folder, rematch.replaced, read, written, values, rows=rematch.rows)


def count_changes(
    spark: SparkSession, index: Callable[[], str] | None, task: FileTask, files: Sequence[Add]
) -> list[tuple[int, int, int]]:
    """For each file in which rows change: its number, how many rows change, and how many of these have no id left."""
    adds = [(number, json.dumps(add)) for number, (_, add) in enumerate(files)]
    found: list[tuple[int, int, int]] = _spread(spark, adds).mapPartitions(_counter(index, task)).collect()
    return found


def write_files(
    spark: SparkSession, index: Callable[[], str] | None, task: FileTask, files: Sequence[Add]
) -> list[str]:
    """Rewrite files with the rows' new ids; returns the `add` entries of the new files, as JSON."""
    adds = [json.dumps(add) for _, add in files]
    found: list[str] = _spread(spark, adds).mapPartitions(_writer(index, task)).collect()
    return found


def _spread(spark: SparkSession, items: list[Any]) -> Any:
    """The items as an RDD: one task for each item, or for several if there are very many."""
    context = spark.sparkContext
    return context.parallelize(items, min(len(items), 16 * context.defaultParallelism))


def _counter(index: Callable[[], str] | None, task: FileTask) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """The function that workers run. It is pickled by value, so that they need no module of `pipelines`."""

    def count(adds: Iterator[Any]) -> Iterator[Any]:
        """Count the changes in numbered files; yields the files that have any."""
        import json

        from rules_index.workers import retagged_files, spark_worker

        compiled = spark_worker.open_index(index()) if index is not None else None
        for number, add in adds:
            changed, emptied = retagged_files.count_changes(compiled, task, json.loads(add))
            if changed:
                yield number, changed, emptied

    return count


def _writer(index: Callable[[], str] | None, task: FileTask) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def write(adds: Iterator[Any]) -> Iterator[Any]:
        """Rewrite files; yields the `add` entries of the new ones."""
        import json

        from rules_index.workers import retagged_files, spark_worker

        compiled = spark_worker.open_index(index()) if index is not None else None
        for add in adds:
            yield json.dumps({"add": retagged_files.write_file(compiled, task, json.loads(add))})

    return write
