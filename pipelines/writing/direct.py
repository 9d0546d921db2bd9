"""Tagged rows and matches written by the workers that match them, where their tables are as deltatag made them.

Spark's own writer takes every row apart twice more, which costs more than matching it. It stays the way for tables
that are elsewhere than in a folder, or that have column mapping, constraints, other columns and the like.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pipelines.spark.arrow_batches import map_batches
from pipelines.writing.files import CODEC, FilesWritten, codec_named, discard, gathered
from rules_index.workers.tagged_files import RESULT, UNREADABLE, Task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pipelines.writing.matching import Matcher
    from rules_index.workers.source_files import SourceFile


def codec(spark: SparkSession) -> str | None:
    """Arrow's name for the session's compression of Parquet; None for one that Arrow does not have."""
    return codec_named(str(spark.conf.get(CODEC, "snappy")))


def write_files(frame: DataFrame, matcher: Matcher, task: Task) -> FilesWritten:
    """Match the rows of `frame` and write them as files that no log knows yet."""
    return run_task(map_batches(matcher.with_inputs(frame), _writer(matcher.file, task), RESULT), task)


def write_pieces(
    spark: SparkSession, pieces: Sequence[Sequence[SourceFile]], schema: pa.Schema, matcher: Matcher, task: Task
) -> FilesWritten | None:
    """As `write_files`, of the rows of files, which the workers read themselves: no row passes through the JVM.

    None, and no file is left, where a file asks for Spark's own reader.
    """
    numbers = spark.range(0, len(pieces), 1, len(pieces))
    rows = [row.asDict() for row in map_batches(numbers, _reader(matcher.file, pieces, schema, task), RESULT).collect()]
    unreadable = [row for row in rows if row["name"] == UNREADABLE]
    written = gathered((row for row in rows if row["name"] != UNREADABLE), task)
    if unreadable:
        discard(task, written.entries)
        return None
    return written


def run_task(made: DataFrame, task: Task) -> FilesWritten:
    """Have the workers do a task: `made` has the columns `RESULT`."""
    return gathered((row.asDict() for row in made.collect()), task)


def _writer(file: Callable[[], str], task: Task) -> Callable[[Iterator[Any]], Iterator[pa.RecordBatch]]:
    """The function that workers run; it travels by value, so that they need no module of the jobs."""

    def write(batches: Iterator[Any]) -> Iterator[pa.RecordBatch]:
        from rules_index.workers import spark_worker, tagged_files

        yield from tagged_files.write_files(spark_worker.open_index(file()), task, batches)

    return write


def _reader(
    file: Callable[[], str], pieces: Sequence[Sequence[SourceFile]], schema: pa.Schema, task: Task
) -> Callable[[Iterator[Any]], Iterator[pa.RecordBatch]]:
    """The function that workers run on the numbers of pieces; it travels by value."""

    def write(batches: Iterator[Any]) -> Iterator[pa.RecordBatch]:
        from rules_index.workers import spark_worker, tagged_files

        compiled = spark_worker.open_index(file())
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from tagged_files.write_piece(compiled, task, pieces[number], schema)

    return write
