"""The runner of streams on Spark: for clusters, and for what only Spark can evaluate or read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pipelines.errors import PipelineError
from pipelines.lake.column_types import arrow_schema_of, plain_fields
from pipelines.lake.folder_log import FolderLog
from pipelines.lake.table_cache import local_folder
from pipelines.recovery.attempts import left_out
from pipelines.recovery.jvm_restart import batch_time_limit
from pipelines.runners.runner import Job
from pipelines.settings.model import Stream
from pipelines.sources.pieces import pieces_of
from pipelines.sources.positions import Slice
from pipelines.sources.pushdown import Matchable
from pipelines.sources.readable_features import why_spark_reads
from pipelines.sources.slices import rows_of, slice_frame, slice_schema, source_partitions
from pipelines.sources.source import Source, open_source
from pipelines.sources.source_names import followed_columns
from pipelines.spark.session import in_time_zone
from pipelines.workspace import Workspace
from pipelines.writing.configured_tables import stream_tables
from pipelines.writing.matching import Matcher, bound_batches
from pipelines.writing.quarantine import check_conditions, count_refused
from pipelines.writing.refused_rows import RefusedRows
from pipelines.writing.spark_output import Output
from pipelines.writing.spark_tables import fence, prepare_tables
from rules_index.workers.source_file_reader import SourceFile, source_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


_MOST_PIECE_BYTES = 512 << 20
"""Maximum uncompressed bytes of row groups for one task."""


class SparkRunner:
    """The runner of one stream on the workspace's Spark session."""

    name = "spark"

    def __init__(self, workspace: Workspace, stream: Stream) -> None:
        """The session is started on first use."""
        self.workspace, self.stream = workspace, stream
        self._matchables: dict[str, Matchable] = {}
        self._prepared: tuple[StructType, str] | None = None

    def session(self) -> AbstractContextManager[Any]:
        """A context in which deltatag's own session is the active one."""
        return self.workspace.active_session()

    def in_zone(self, time_zone: str) -> AbstractContextManager[None]:
        """Set the session's time zone to that of the rules."""
        return in_time_zone(self.workspace.spark, time_zone)

    def open_source(self, command: str | None = None) -> Source:
        """The source, read by Spark's Delta library with Spark's credentials."""
        return open_source(self.workspace.spark, self.stream, command)

    def columns(self, source: Source, version: int) -> pa.Schema:
        """The source's columns at a version."""
        return arrow_schema_of(slice_schema(source, version).jsonValue()["fields"])

    def followed(
        self, source: Source, version: int, before: Mapping[str, Any] | None, tables: Sequence[str], command: str
    ) -> dict[str, Any]:
        """What a plan must record about the names of columns."""
        return followed_columns(self.workspace, source, version, before, tables, command)

    def prepare(self, source: Source, version: int, id_type: str, from_scratch: bool = False) -> None:
        """Create and check the stream's tables, once for each set of columns."""
        schema = slice_schema(source, version)
        if from_scratch or self._prepared != (schema, id_type):
            columns = plain_fields(schema.jsonValue()["fields"])
            lake, stream = self.workspace.lake, self.stream
            tables = stream_tables(lake, stream, columns, source_partitions(source), id_type)
            prepare_tables(self.workspace, stream, tables, id_type, from_scratch, "tag")
            self._prepared = (schema, id_type)

    def refused(self, source: Source, taken: Slice, checks: Mapping[str, Any]) -> RefusedRows:
        """How many rows the slice has, and how many of them go to quarantine, by reason."""
        frame = slice_frame(source, taken)
        check_conditions(self.workspace.spark, self.stream, frame)
        return count_refused(self.workspace.spark, frame, checks["key"], checks["checks"])

    def match(self, job: Job, without: frozenset[str]) -> None:
        """Match the rows and write nothing."""
        self.workspace.progress(
            f"{self.stream.name}: micro-batch {job.batch.batch} ended Spark; matching it without {len(without)} "
            "predicates"
        )
        output, frame, matchable, limit = self._output(job, without)
        with limit:
            output.match(frame, matchable)

    def write(self, job: Job, resumed: bool) -> dict[str, Any]:
        """Write the micro-batch's tables; returns its figures."""
        output, frame, matchable, limit = self._output(job, left_out(job.batch.plan))
        with limit:
            figures = output.write(frame, matchable, resumed, None if matchable is not None else self._pieces(job))
        if matchable is not None:
            figures["rows"] = rows_of(job.taken.files)
        return figures

    def fence(self, series: str, names: Sequence[str], number: int) -> list[str]:
        """Fence off a series in these tables; returns the tables that already hold its micro-batch `number`."""
        return fence(self.workspace, series, names, number)

    def _output(
        self, job: Job, without: frozenset[str]
    ) -> tuple[Output, DataFrame, DataFrame | None, AbstractContextManager[None]]:
        """The micro-batch's writer, its rows, those of them that a rule can match (or None), and its time limit."""
        workspace, files = self.workspace, job.taken.files
        self.prepare(job.source, job.taken.schema_version, job.batch.plan["id_type"])
        matcher = Matcher(workspace.spark, job.compiled, job.path, workspace.lake.rule_id_type(), without)
        bound_batches(workspace, files)
        evaluated = len(job.compiled.derived) - len(without)
        limit = batch_time_limit(workspace, f"tag {self.stream.name}", files, evaluated)
        frame = slice_frame(job.source, job.taken)
        return Output(workspace, self.stream, job.batch, matcher, job.stored), frame, self._matchable(job), limit

    def _pieces(self, job: Job) -> list[list[SourceFile]] | None:
        """The slice's files in pieces, if Spark's Python workers can read them directly; else None.

        Spark's own reader is needed for derived columns, for rows in quarantine, for deletion vectors, and for table
        features that change what files mean.
        """
        adds, version = job.taken.files, job.taken.schema_version
        if job.compiled.derived or job.batch.plan["quarantined"]:
            return None
        if any(add.get("deletionVector") for _, add in adds):
            return None
        try:
            # by the slice's version, which may have features that the newest version has dropped
            if local_folder(self.stream.source) is None or why_spark_reads(self.stream, version):
                return None
            files = source_files(adds, FolderLog(self.stream.source).file)
            return pieces_of(files, self.workspace.spark.sparkContext.defaultParallelism, _MOST_PIECE_BYTES)
        except (PipelineError, OSError, pa.ArrowException):
            return None  # Spark can read more than delta-rs, and reports what is wrong with a file

    def _matchable(self, job: Job) -> DataFrame | None:
        """The slice without files and rows that no rule can match, if only matched rows are written; else None."""
        batch, taken = job.batch, job.taken
        if batch.plan["output"] != "matched" or rows_of(taken.files) is None:
            return None
        fingerprint = str(batch.fingerprint)
        if fingerprint not in self._matchables:
            self._matchables[fingerprint] = Matchable(self.workspace.spark, job.source, job.compiled)
        matchable = self._matchables[fingerprint]
        if matchable.condition is None:
            return None
        files = matchable.files(taken)
        size = sum(int(add["size"]) for _, add in files)
        self.workspace.progress(
            f"{self.stream.name}: micro-batch {batch.batch}, rules can match rows of {len(files):,} of "
            f"{len(taken.files):,} files, {size / 2**20:,.1f} MiB"
        )
        return slice_frame(job.source, replace(taken, files=files)).filter(matchable.condition)
