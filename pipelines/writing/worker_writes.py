"""The workers that match rows also write them, if the tables have the layout that deltatag gives them.

Spark's own writer would convert each row twice more, which costs more than matching it. It is still used for tables
that are not in a folder, and for those with column mapping, constraints, other columns and the like.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pipelines.spark.arrow_batches import map_batches
from pipelines.writing.compression import CODEC, DEFAULT_CODEC, codec_named
from pipelines.writing.files import FilesWritten, combined_results, discard
from rules_index.workers.tagged_files import RESULT, UNREADABLE
from rules_index.workers.task import Task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pipelines.writing.matching import Matcher
    from rules_index.workers.source_file_reader import SourceFile


def codec(spark: SparkSession) -> str | None:
    """Arrow's name of the session's Parquet codec; None for one that Arrow lacks."""
    return codec_named(str(spark.conf.get(CODEC, DEFAULT_CODEC)))


def write_files(frame: DataFrame, matcher: Matcher, task: Task) -> FilesWritten:
    """Match the rows of `frame` and write them to files, which are not committed yet."""
    return run_task(map_batches(matcher.with_inputs(frame), _writer(matcher.file, task), RESULT), task)


def write_pieces(
    spark: SparkSession, pieces: Sequence[Sequence[SourceFile]], schema: pa.Schema, matcher: Matcher, task: Task
) -> FilesWritten | None:
    """Like `write_files`, for rows of files that the workers read themselves: no row passes through the JVM.

    None, with no file left behind, if a file needs Spark's own reader.
    """
    numbers = spark.range(0, len(pieces), 1, len(pieces))
    rows = [row.asDict() for row in map_batches(numbers, _reader(matcher.file, pieces, schema, task), RESULT).collect()]
    unreadable = [row for row in rows if row["name"] == UNREADABLE]
    written = combined_results((row for row in rows if row["name"] != UNREADABLE), task)
    if unreadable:
        discard(task, written.entries)
        return None
    return written


def run_task(made: DataFrame, task: Task) -> FilesWritten:
    """Execute a task on the workers and collect its results; `made` has the columns `RESULT`."""
    return combined_results((row.asDict() for row in made.collect()), task)


def _writer(file: Callable[[], str], task: Task) -> Callable[[Iterator[Any]], Iterator[pa.RecordBatch]]:
    """The function that workers run. It is pickled by value, so that they need no module of `pipelines`."""

    def write(batches: Iterator[Any]) -> Iterator[pa.RecordBatch]:
        from rules_index.workers import spark_worker, tagged_files

        yield from tagged_files.write_files(spark_worker.open_index(file()), task, batches)

    return write


def _reader(
    file: Callable[[], str], pieces: Sequence[Sequence[SourceFile]], schema: pa.Schema, task: Task
) -> Callable[[Iterator[Any]], Iterator[pa.RecordBatch]]:
    """The function that workers run on the numbers of pieces. It is pickled by value."""

    def write(batches: Iterator[Any]) -> Iterator[pa.RecordBatch]:
        """Write the pieces with these numbers."""
        from rules_index.workers import spark_worker, tagged_files
        from rules_index.workers.source_file_reader import UnreadableFileError

        compiled = spark_worker.open_index(file())
        for batch in batches:
            for number in batch.column(0).to_pylist():
                try:
                    yield from tagged_files.write_piece(compiled, task, pieces[number], schema)
                except UnreadableFileError:
                    yield tagged_files.unreadable()

    return write
