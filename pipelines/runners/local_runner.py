"""The local runner of streams: threads of this process match and write the rows, without a JVM.

It writes the same tables and transactions as the runner on Spark, and runs the same code as Spark's workers. What it
cannot read, evaluate or write exactly as Spark does is left to Spark (NeedsSparkError).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa

from pipelines.annotated import annotations_of
from pipelines.error_texts import first_line
from pipelines.errors import NeedsSparkError, SourceError, TableError, not_written
from pipelines.lake.column_types import arrow_schema_of, nullable, plain_fields
from pipelines.lake.delta_log import DeltaLog
from pipelines.lake.table_log import table_log
from pipelines.lake.transaction_ids import app_of, is_done
from pipelines.runners.runner import Job
from pipelines.runners.spark_required import why_spark_evaluates
from pipelines.settings.model import Stream
from pipelines.sources.columns import check_condition
from pipelines.sources.pieces import cores, each_in_threads, pieces_of, progress_of_parts
from pipelines.sources.positions import Slice
from pipelines.sources.readable_features import refuse_foreign
from pipelines.sources.source import Source
from pipelines.table_definitions import quarantine_table
from pipelines.workspace import Workspace
from pipelines.writing.compression import codec_of
from pipelines.writing.configured_tables import planned_fields, stream_tables
from pipelines.writing.files import FilesWritten, combined_results, discard, layout_of, tables_of, task_of
from pipelines.writing.local_tables import commit_files, fence_off, layout_to_write, prepare_tables
from pipelines.writing.refused_rows import RefusedRows
from rules_index.arrays import decoded
from rules_index.workers.delta_file_writer import DeltaFile
from rules_index.workers.source_file_reader import (
    SourceFile,
    UnreadableFileError,
    read_batches,
)
from rules_index.workers.tagged_files import write_files, write_piece
from rules_index.workers.task import Task

if TYPE_CHECKING:
    from rules_index.workers.row_checks import RowChecks

_MOST_PIECE_BYTES = 2 << 30
"""Maximum uncompressed bytes of row groups that become one file of a table."""
_T = TypeVar("_T")


class LocalRunner:
    """The runner of one stream in this process."""

    name = "local"

    def __init__(self, workspace: Workspace, stream: Stream) -> None:
        """The stream's source and the lake must be in folders or object stores."""
        self.workspace, self.stream, self.lake = workspace, stream, workspace.lake
        self._prepared: tuple[int, str] | None = None
        self._zone = workspace.configuration.rules.time_zone
        self._row_checks: dict[str, RowChecks] = {}

    def session(self) -> AbstractContextManager[None]:
        """A context that does nothing: no session is needed."""
        return nullcontext()

    def in_zone(self, time_zone: str) -> AbstractContextManager[None]:
        """Remember the time zone for row checks; the index has its own."""
        self._zone = time_zone
        return nullcontext()

    def open_source(self, command: str | None = None) -> Source:
        """The source, read by delta-rs; NeedsSparkError if it has features that only Spark reads."""
        stream = self.stream
        log, start = table_log(stream.source), stream.start
        source = Source(stream.name, log, command, stream.source_stream, stream.left_out, start)
        self.check_features(source, source.version)
        return source

    def columns(self, source: Source, version: int) -> pa.Schema:
        """The source's columns at a version."""
        return arrow_schema_of(self._fields(source, version))

    def followed(
        self, source: Source, version: int, before: Mapping[str, Any] | None, tables: Sequence[str], command: str
    ) -> dict[str, Any]:
        """Empty: sources with column mapping are left to Spark."""
        return {}

    def prepare(self, source: Source, version: int, id_type: str, from_scratch: bool = False) -> None:
        """Create missing tables, empty existing ones if `from_scratch`, and add columns that the source has been given
        since; other changes to existing tables are left to Spark."""
        if self._prepared == (version, id_type) and not from_scratch:
            return
        fields = plain_fields(self._fields(source, version))
        partitions = _log(source).snapshot(version).partition_columns
        tables = stream_tables(self.lake, self.stream, fields, partitions, id_type)
        prepare_tables(self.lake, self.stream, tables, id_type, from_scratch, layout_of)
        self._prepared = (version, id_type)

    def refused(self, source: Source, taken: Slice, checks: Mapping[str, Any]) -> RefusedRows:
        """How many rows the slice has, and how many of them go to quarantine, by reason."""
        schema = self.columns(source, taken.schema_version)
        row_checks = self._checks(schema, checks)

        def count(piece: Sequence[SourceFile]) -> Any:
            """The counts of a piece's rows."""
            return row_checks.count(read_batches(piece, schema, row_checks.columns))

        none = row_checks.count(iter(()))
        sums = np.sum([none, *self._each_piece(source, taken, count)], axis=0).tolist()
        keys = len(row_checks.key)
        return RefusedRows(sums[0], sums[1], tuple(sums[2 : 2 + keys]), tuple(sums[2 + keys :]))

    def each_accepted(
        self,
        source: Source,
        taken: Slice,
        schema: pa.Schema,
        checks: Mapping[str, Any],
        work: Callable[[Iterator[pa.RecordBatch]], _T],
    ) -> list[_T]:
        """The results of `work` for each piece of a slice, run by threads.

        `work` gets the rows of the piece that do not go to quarantine, in batches with the columns of `schema`. checks:
        a plan, with the `key`, the `checks` and the number `quarantined`.
        """
        row_checks = self._checks(schema, checks) if checks["quarantined"] else None

        def work_on_accepted(piece: Sequence[SourceFile]) -> _T:
            """Do the work for the rows of a piece that do not go to quarantine."""
            batches = read_batches(piece, schema)
            return work(batches if row_checks is None else _accepted(row_checks, batches))

        return self._each_piece(source, taken, work_on_accepted)

    def match(self, job: Job, without: frozenset[str]) -> None:
        """Leave it to Spark: only predicates that ended Spark are searched for in this way."""
        raise NeedsSparkError("deltatag is looking for the predicates that ended Spark")

    def write(self, job: Job, resumed: bool) -> dict[str, Any]:
        """Write the micro-batch's tables: quarantine, matches, tagged rows; returns its figures. NeedsSparkError if
        only Spark can do that."""
        batch, plan = job.batch, job.batch.plan
        self._zone = job.compiled.time_zone
        if reason := why_spark_evaluates(job.compiled):
            raise NeedsSparkError(reason)
        # the slice's version may have features that the newest version has dropped
        self.check_features(job.source, job.taken.schema_version)
        self.prepare(job.source, job.taken.schema_version, plan["id_type"])
        schema = nullable(self.columns(job.source, job.taken.schema_version))
        fields = planned_fields(self.stream, plan, plain_fields(self._fields(job.source, job.taken.schema_version)))
        row_checks = self._checks(schema, plan) if plan["quarantined"] else None
        if row_checks is not None:
            self._write_quarantine(job, schema, fields["quarantine"], row_checks)
        tables = tables_of(self.stream.name, plan)
        due = {kind: name for kind, name in tables.items() if not (resumed and self._holds_batch(job, name))}
        layouts = {kind: layout_to_write(self.lake, name, fields[kind], layout_of) for kind, name in tables.items()}
        folders = {kind: str(table_log(self.lake.uri(name)).folder) for kind, name in due.items()}
        task = task_of(batch, job.stored, schema.names, folders, layouts, codec_of(self.workspace), {})
        task = replace(task, annotations=annotations_of(job.compiled, self.stream.annotations))
        try:
            written = self._write_pieces(job, task, schema, row_checks)
        except OSError as error:
            what = f"Could not write micro-batch {batch.batch} to the table {tables['tagged']}"
            raise not_written(what, error) from error
        entries = {kind: written.entries[kind] for kind in due}
        for kind, name in due.items():
            self._commit(job, name, kind, task, entries)
        return {**written.figures, "rows": written.figures["rows"] + plan["quarantined"]}

    def _write_pieces(self, job: Job, task: Task, schema: pa.Schema, row_checks: RowChecks | None) -> FilesWritten:
        """Match the rows of a slice and write them to files, a piece of it per thread, without committing them. After
        an error no file is left behind."""
        results: list[dict[str, str]] = []

        def tag(piece: Sequence[SourceFile]) -> list[dict[str, str]]:
            """Match and write the rows of a piece; returns what was written."""
            if row_checks is None:
                written = write_piece(job.compiled, task, piece, schema)
            else:
                written = write_files(job.compiled, task, _accepted(row_checks, read_batches(piece, schema)))
            result = [row for each in written for row in each.to_pylist()]
            results.extend(result)
            return result

        try:
            in_order = self._each_piece(job.source, job.taken, tag)
        except BaseException:
            discard(task, combined_results(results, task).entries)
            raise
        return combined_results((row for result in in_order for row in result), task)

    def fence(self, series: str, names: Sequence[str], number: int) -> list[str]:
        """Fence off a series in these tables; returns the tables that already hold its micro-batch `number`."""
        return fence_off(self.lake, series, names, number)

    def _commit(self, job: Job, name: str, kind: str, task: Task, entries: dict[str, list[str]]) -> None:
        """Commit a table's written files with the micro-batch's number; if a concurrent run was first, delete them.

        entries: the `add` entries by kind of table; those of this table are taken out. If the commit fails, the files
        of the remaining tables are deleted, too.
        """
        added = entries.pop(kind)
        try:
            commit_files(self.lake, name, job.batch.plan, job.batch.batch, added, lambda: discard(task, {kind: added}))
        except TableError:
            discard(task, entries)
            raise

    def _holds_batch(self, job: Job, name: str) -> bool:
        return is_done(self.lake, name, app_of(job.batch.plan, name), job.batch.batch)

    def _write_quarantine(
        self, job: Job, schema: pa.Schema, fields: Sequence[Mapping[str, Any]], row_checks: RowChecks
    ) -> None:
        """Write the slice's rows that go to quarantine, and commit them, unless the table already holds them. fields:
        the columns of the quarantine that are written."""
        name = quarantine_table(self.stream)
        if self._holds_batch(job, name):
            return
        layout = layout_to_write(self.lake, name, fields, layout_of)
        quarantine_schema = pa.schema([*schema, pa.field("reason", pa.string()), pa.field("batch", pa.int64())])
        log = table_log(self.lake.uri(name))
        file = DeltaFile(str(log.folder), quarantine_schema, codec_of(self.workspace), {}, layout)
        try:
            with self._reading():
                pieces = self._pieces(job.source, job.taken)
                for batch in (each for piece in pieces for each in read_batches(piece, schema)):
                    refused = batch.filter(pa.array(~row_checks.accepted(batch)))
                    if len(refused):
                        reasons = pa.array(row_checks.reasons(refused), pa.string())
                        numbers = pa.repeat(pa.scalar(job.batch.batch, pa.int64()), len(refused))
                        columns = [decoded(refused.column(each)) for each in schema.names]
                        file.write(pa.RecordBatch.from_arrays([*columns, reasons, numbers], schema=quarantine_schema))
            entry = json.dumps({"add": file.close()})
        except BaseException:
            file.abandon()
            raise
        commit_files(self.lake, name, job.batch.plan, job.batch.batch, [entry], file.abandon)

    def _checks(self, schema: pa.Schema, checks: Mapping[str, Any]) -> RowChecks:
        """The `key` and `checks` of a plan, as they are applied to rows; NeedsSparkError for a check that only Spark
        evaluates."""
        key = json.dumps([checks["key"], checks["checks"], schema.to_string(), self._zone])
        if key not in self._row_checks:
            from rules_index.workers.row_checks import RowChecks

            row_checks = RowChecks.of(checks["key"], checks["checks"], schema, self._zone)
            if (name := row_checks.needs_spark) is not None:
                check_condition(self.stream.name, name, checks["checks"][name], schema)
                raise NeedsSparkError(f"only Spark evaluates the check {name} of {self.stream.name}")
            self._row_checks[key] = row_checks
        return self._row_checks[key]

    def _fields(self, source: Source, version: int) -> list[dict[str, Any]]:
        fields = _log(source).snapshot(version).fields
        return [field for field in fields if field["name"] not in source.left_out]

    def check_features(self, source: Source, version: int) -> None:
        """NeedsSparkError if a version of the source has features that only Spark reads."""
        refuse_foreign(self.stream.name, _log(source).snapshot(version))

    def _each_piece(self, source: Source, taken: Slice, work: Callable[[Sequence[SourceFile]], Any]) -> list[Any]:
        """The results of `work` for pieces of the slice, run by threads.

        NeedsSparkError for a file that only Spark can read. The first error is raised.
        """
        with self._reading():
            pieces = self._pieces(source, taken)
            return each_in_threads(pieces, work, progress_of_parts(self.workspace, self.stream.name, len(pieces)))

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Turn the errors of reading the source's files into those of pipelines.errors; NeedsSparkError for a file that
        only Spark can read."""
        try:
            yield
        except UnreadableFileError as error:
            raise NeedsSparkError(str(error)) from error
        except MemoryError as error:  # Arrow's is one, too
            raise TableError(
                f"Too little memory to tag {self.stream.name}: {first_line(error)}. Nothing is lost: free some, and "
                "run the same command again."
            ) from error
        except pa.ArrowException as error:
            raise SourceError(f"The source of {self.stream.name} cannot be read: {first_line(error)}") from error

    def _pieces(self, source: Source, taken: Slice) -> list[list[SourceFile]]:
        log = _log(source)
        log.keep_only([add["path"] for _, add in taken.files])
        return pieces_of(log.source_files(taken.files), cores(), _MOST_PIECE_BYTES)


def _log(source: Source) -> DeltaLog:
    assert isinstance(source.log, DeltaLog)
    return source.log


def _accepted(row_checks: RowChecks, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows that do not go to quarantine."""
    for batch in batches:
        accepted = row_checks.accepted(batch)
        yield batch if accepted.all() else batch.filter(pa.array(accepted))
