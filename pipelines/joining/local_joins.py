"""The local runner of joins: threads of this process join the rows and write the results, without a JVM.

It writes the same tables and transactions as the runner on Spark, and runs the same code as Spark's workers. What it
cannot read, compare, evaluate or write exactly as Spark does is left to Spark (NeedsSparkError).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.annotated import annotations_of
from pipelines.errors import NeedsSparkError, not_written
from pipelines.joining.local_rows import LocalRows
from pipelines.joining.local_sides import names_of, side_readers, struct_of
from pipelines.joining.runner import PartitionedRows, PlannedJoin
from pipelines.joining.sides import SideFiles
from pipelines.joining.watermark import late_reason, later_time, watermark
from pipelines.lake.column_types import ARROW_ID_TYPES, arrow_schema_of, plain_fields
from pipelines.lake.delta_log import DeltaLog
from pipelines.lake.table_log import table_log
from pipelines.lake.transaction_ids import app_of, files_added_by, is_done
from pipelines.runners.spark_required import why_spark_evaluates
from pipelines.sources.pieces import each_in_threads, progress_of_parts
from pipelines.sources.readable_features import refuse_foreign
from pipelines.sources.source import Source
from pipelines.table_definitions import quarantine_table, tagged_table
from pipelines.writing.compression import codec_of
from pipelines.writing.configured_tables import join_tables
from pipelines.writing.files import joined_layout_of
from pipelines.writing.local_tables import commit_files, fence_off, layout_to_write, prepare_tables
from pipelines.writing.table_order import is_partition_type
from rules_index.index.annotations import plain
from rules_index.join.worker import JoinTask, join_partition
from rules_index.workers.delta_file_writer import DeltaFile, Layout
from rules_index.workers.source_file_reader import read_batches

if TYPE_CHECKING:
    from pipelines.settings.model import Join, Stream
    from pipelines.workspace import Workspace


class LocalJoins:
    """The runner of joins in this process."""

    name = "local"

    def __init__(self, workspace: Workspace) -> None:
        """The sources and the lake must be in folders or object stores."""
        self.workspace, self.lake = workspace, workspace.lake
        self._prepared: dict[str, tuple[list[list[dict[str, Any]]], str]] = {}
        self._columns: dict[str, Sequence[Mapping[str, Any]]] = {}  # that are written, by the table's name

    def session(self) -> AbstractContextManager[None]:
        """A context that does nothing: no session is needed."""
        return nullcontext()

    def open_source(self, stream: Stream, command: str) -> Source:
        """The source, read by delta-rs; NeedsSparkError if only Spark can read it."""
        log = table_log(stream.source, bounds=True)
        source = Source(stream.name, log, command, stream.source_stream, stream.left_out, stream.start)
        snapshot = source.snapshot(source.version)
        refuse_foreign(stream.name, snapshot)
        kinds = {field["name"]: field["type"] for field in snapshot.fields}
        if odd := [name for name in snapshot.partition_columns if not is_partition_type(kinds[name])]:
            raise NeedsSparkError(f"only Spark reads partitions by {odd[0]} of the source of {stream.name}")
        return source

    def followed(
        self, source: Source, version: int, before: Mapping[str, Any] | None, join: Join, name: str
    ) -> dict[str, Any]:
        """Empty: sources with column mapping are left to Spark."""
        return {}

    def prepare(self, join: Join, sides: Sequence[SideFiles], id_type: str, from_scratch: bool = False) -> None:
        """Create missing tables, or empty existing ones if `from_scratch`; changes to existing tables are left to
        Spark."""
        fields = [side.fields for side in sides]
        if self._prepared.get(join.name) == (fields, id_type) and not from_scratch:
            return
        side_readers(join, sides, "UTC")
        tables = join_tables(join, {side.stream.name: plain_fields(side.fields) for side in sides}, id_type)
        prepare_tables(self.lake, join, tables, id_type, from_scratch, joined_layout_of)
        self._columns |= {table.name: table.fields for table in tables}
        self._prepared[join.name] = fields, id_type

    def partitioned_rows(self, widest_join: Join, together: Sequence[PlannedJoin]) -> LocalRows:
        """The rows of micro-batches that read the same rows; NeedsSparkError if only Spark can read or match them."""
        for planned in together:
            if reason := why_spark_evaluates(planned.index.compiled):
                raise NeedsSparkError(reason)
            for side in planned.sides:
                if side.tracked is not None:
                    raise NeedsSparkError(f"the earlier rows of {side.stream.name} are identified by row tracking")
        indexes = [planned.index for planned in together]
        return LocalRows(self.workspace, widest_join, together[0].sides, indexes, watermark(together[0].batch.plan))

    def match(self, widest_join: Join, planned: PlannedJoin) -> None:
        """Leave it to Spark: only predicates that ended Spark are searched for in this way."""
        raise NeedsSparkError("deltatag is looking for the predicates that ended Spark")

    def write(self, planned: PlannedJoin, partitioned: PartitionedRows) -> dict[str, Any]:
        """Write the micro-batch's tables; returns its figures."""
        rows, batch, plan = cast("LocalRows", partitioned), planned.batch, planned.batch.plan
        self.prepare(planned.join, planned.sides, plan["id_type"])
        quarantined, latest = self._write_late(planned, rows)
        name = tagged_table(planned.join.name)
        log, app = table_log(self.lake.uri(name)), app_of(plan, name)
        found = None
        if not (planned.resumed and is_done(self.lake, name, app, batch.batch)):
            found = self._write_joined(planned, rows, name)
        if found is None:
            # an earlier run, or a concurrent one, has written it
            found = _written(log, app, batch.batch)
        joined, matches = found
        return {
            "rows": rows.new_count(),
            "joined": joined,
            "matches": matches,
            "quarantined": quarantined,
            "latest": latest,
        }

    def fence(self, series: str, names: Sequence[str], number: int) -> list[str]:
        """Fence off a series in these tables; returns the tables that already hold its micro-batch `number`."""
        return fence_off(self.lake, series, names, number)

    def _write_joined(self, planned: PlannedJoin, rows: LocalRows, name: str) -> tuple[int, int] | None:
        """Write the joined rows; returns how many, and how many matches; None if a concurrent run was first."""
        join, batch, names = planned.join, planned.batch, names_of(rows.readers)
        task = JoinTask(
            join.streams,
            tuple(names[stream] for stream in join.streams),
            tuple(join.window[stream] for stream in join.streams),
            len(rows.readers[0].types),
            ARROW_ID_TYPES[batch.plan["id_type"]],
            join.method,
        )
        stamps = {
            "rules_version": pa.scalar(planned.stored.rules_version, pa.int64()),
            "index_fingerprint": pa.scalar(planned.stored.fingerprint),
            "tagged_at": pa.scalar(batch.started_at, pa.timestamp("us", "UTC")),
        }

        annotations = annotations_of(planned.index.compiled, join.annotations)

        def joined(part: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            """The joined rows of a part, with all columns of the table."""
            for found in join_partition(planned.index, task, part):
                made = plain(annotations.of_ids(found.column("rule_ids"))) if annotations is not None else {}
                arrays = [*found.columns, *made.values()]
                arrays += [pa.repeat(value, len(found)) for value in stamps.values()]
                yield pa.RecordBatch.from_arrays(arrays, [*found.schema.names, *made, *stamps])

        written = self._files(name)
        try:
            self._each_part(planned, rows.tasks(), joined, written)
            entries = written.close()
        except OSError as error:
            written.abandon()
            raise not_written(f"Could not write micro-batch {batch.batch} to the table {name}", error) from error
        except BaseException:
            written.abandon()
            raise
        entered = commit_files(self.lake, name, batch.plan, batch.batch, entries, written.abandon)
        return (written.rows, written.matches) if entered else None

    def _each_part(
        self,
        planned: PlannedJoin,
        parts: Sequence[Callable[[], Iterator[pa.RecordBatch]]],
        joined: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
        written: _JoinedFiles,
    ) -> None:
        """Join all parts by threads, each of which writes to a file of its own."""

        def join(part: Callable[[], Iterator[pa.RecordBatch]]) -> None:
            """Join one part."""
            with written.file() as write:
                for found in joined(part()):
                    write(found)

        each_in_threads(parts, join, progress_of_parts(self.workspace, planned.join.name, len(parts)))

    def _write_late(self, planned: PlannedJoin, rows: LocalRows) -> tuple[int, int | None]:
        """Write the rows that came too late; returns how many, and the latest event time (microseconds) ever taken."""
        batch, plan = planned.batch, planned.batch.plan
        if plan["lateness"] is None:
            return 0, plan["latest"]
        latest, late = rows.latest_and_late()
        latest = later_time(plan["latest"], latest)
        name = quarantine_table(planned.join.name)
        if not late or (planned.resumed and is_done(self.lake, name, app_of(plan, name), batch.batch)):
            return late, latest
        reason = pa.scalar(late_reason(plan["lateness"]))
        written = self._files(name)
        try:
            with written.file() as write:
                for reader, found in rows.late_rows():
                    sides = {
                        each.side.stream.name: struct_of(reader, found)
                        if each is reader
                        else pa.nulls(len(found), pa.struct(list(each.schema)))
                        for each in rows.readers
                    }
                    arrays = [*sides.values(), pa.repeat(reason, len(found))]
                    numbers = pa.repeat(pa.scalar(batch.batch, pa.int64()), len(found))
                    write(pa.RecordBatch.from_arrays([*arrays, numbers], [*sides, "reason", "batch"]))
            entries = written.close()
        except BaseException:
            written.abandon()
            raise
        commit_files(self.lake, name, plan, batch.batch, entries, written.abandon)
        return late, latest

    def _files(self, name: str) -> _JoinedFiles:
        layout = layout_to_write(self.lake, name, self._columns[name], joined_layout_of)
        return _JoinedFiles(str(table_log(self.lake.uri(name)).folder), layout, codec_of(self.workspace))


class _JoinedFiles:
    """The files that threads write to a table: at most one for each thread, created when its first rows come."""

    def __init__(self, folder: str, layout: Layout, codec: str) -> None:
        self._folder, self._layout, self._codec = folder, layout, codec
        self._files: list[DeltaFile] = []
        self._unused: list[DeltaFile] = []
        self._lock = threading.Lock()
        self.rows = self.matches = 0

    @contextmanager
    def file(self) -> Iterator[Callable[[pa.RecordBatch], None]]:
        """A function that writes rows to a file that no other thread uses meanwhile."""
        with self._lock:
            file = self._unused.pop() if self._unused else None

        def write(rows: pa.RecordBatch) -> None:
            """Add rows to the file, and count them."""
            nonlocal file
            if file is None:
                file = DeltaFile(self._folder, rows.schema, self._codec, {}, self._layout)
                with self._lock:
                    self._files.append(file)
            file.write(rows)
            with self._lock:
                self.rows += len(rows)
                if "rule_ids" in rows.schema.names:
                    self.matches += len(rows.column("rule_ids").flatten())

        yield write
        if file is not None:
            with self._lock:
                self._unused.append(file)

    def close(self) -> list[str]:
        """Finish the files; returns their `add` actions as JSON."""
        return [json.dumps({"add": file.close()}) for file in self._files]

    def abandon(self) -> None:
        """Remove the files."""
        for file in self._files:
            file.abandon()


def _written(log: DeltaLog, app: str, number: int) -> tuple[int, int]:
    """How many joined rows and matches a micro-batch has written; 0 if the log no longer holds its commit."""
    found = files_added_by(log, app, number)
    rows = matches = 0
    if found is not None:
        schema = arrow_schema_of(log.latest().fields)
        for batch in read_batches(log.source_files(found[1]), schema, ["rule_ids"]):
            rows += len(batch)
            matches += int(pc.sum(pc.list_value_length(batch.column("rule_ids"))).as_py() or 0)
    return rows, matches
