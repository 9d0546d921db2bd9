"""Writes the three tables of one micro-batch, by the workers or by Spark's writer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from pyspark.sql import DataFrame, functions
from pyspark.sql.types import StructType

from pipelines.annotated import annotations_of
from pipelines.errors import PipelineError
from pipelines.lake.column_types import arrow_schema_of, nullable, plain_fields
from pipelines.lake.transaction_ids import app_of, is_done
from pipelines.spark.delta_internals import TableLog
from pipelines.spark.failures import is_conflict, run
from pipelines.table_definitions import (
    matches_keys,
    matches_table,
    quarantine_table,
    tagged_table,
)
from pipelines.writing.annotated_rows import annotation_columns_of
from pipelines.writing.configured_tables import planned_fields
from pipelines.writing.files import FilesWritten, discard, folder_of, layout_of, tables_of, task_of
from pipelines.writing.matching import Matcher
from pipelines.writing.quarantine import is_accepted, reason
from pipelines.writing.spark_tables import append_once
from pipelines.writing.worker_writes import codec, write_files, write_pieces
from rules_index.names import back_quoted
from rules_index.workers.delta_file_writer import Layout
from rules_index.workers.spark_worker import Counts

if TYPE_CHECKING:
    from pipelines.lake.index_store import StoredIndex
    from pipelines.lake.runs import MicroBatch
    from pipelines.settings.model import Stream
    from pipelines.workspace import Workspace
    from rules_index.index.annotations import Annotations
    from rules_index.workers.source_file_reader import SourceFile
    from rules_index.workers.task import Task

    Pieces = Sequence[Sequence[SourceFile]]


class Output:
    """Writes one micro-batch: `quarantine_`, `_matches`, `_tagged`, in this order."""

    def __init__(
        self, workspace: Workspace, stream: Stream, batch: MicroBatch, matcher: Matcher, index: StoredIndex
    ) -> None:
        """batch: the recorded plan; matcher: applies the plan's index; index: that index as stored."""
        self.lake, self.spark, self.stream = workspace.lake, workspace.spark, stream
        self.batch, self.plan, self.matcher, self.index = batch, batch.plan, matcher, index

    def write(
        self, frame: DataFrame, matchable: DataFrame | None, resumed: bool, pieces: Pieces | None = None
    ) -> dict[str, Any]:
        """Write the rows of `frame` (the source's columns and source_version); returns rows, matches and errors.

        matchable: those of the rows that a rule can match, if only matched rows are written; resumed: an earlier run
        may have committed to some tables, which are then skipped; pieces: the files of the rows, if workers can read
        them directly.
        """
        spark, plan, stream = self.spark, self.plan, self.stream
        if plan["quarantined"]:
            refused = frame.withColumn("reason", reason(spark, plan["key"], plan["checks"]))
            refused = refused.filter(functions.col("reason") != "").drop("source_version")
            refused = refused.withColumn("batch", functions.lit(self.batch.batch).cast("bigint"))
            self._append(quarantine_table(stream), refused, resumed)
        accepted = self._accepted(frame, matchable)
        layouts = self._layouts(frame)
        if layouts is not None:
            return self._write_files(accepted, layouts, resumed, pieces)
        return self._write_rows(accepted, resumed)

    def match(self, frame: DataFrame, matchable: DataFrame | None) -> None:
        """Match the rows as `write` does, but write nothing."""
        rows = self.matcher.with_inputs(self._accepted(frame, matchable))
        matched = rows.select(self.matcher.rule_ids().alias("rule_ids"))
        matched.write.format("noop").mode("overwrite").save()

    def _accepted(self, frame: DataFrame, matchable: DataFrame | None) -> DataFrame:
        """The rows that do not go to quarantine."""
        accepted = frame if matchable is None else matchable
        if not self.plan["quarantined"]:
            return accepted
        return accepted.filter(is_accepted(self.spark, self.plan["key"], self.plan["checks"]))

    def _layouts(self, frame: DataFrame) -> dict[str, Layout] | None:
        """The layout of the files, by `tagged` and `matches`; None unless workers can write all tables."""
        if codec(self.spark) is None or folder_of(self.lake, tagged_table(self.stream)) is None:
            return None
        columns = StructType([field for field in frame.schema if field.name != "source_version"])
        wanted = planned_fields(self.stream, self.plan, plain_fields(columns.jsonValue()["fields"]))
        names = tables_of(self.stream.name, self.plan)
        found = {kind: layout_of(self.lake, name, wanted[kind]) for kind, name in names.items()}
        known = {kind: layout for kind, layout in found.items() if layout is not None}
        return known if len(known) == len(found) else None

    def _write_files(
        self, accepted: DataFrame, layouts: Mapping[str, Layout], resumed: bool, pieces: Pieces | None
    ) -> dict[str, Any]:
        """Write the files by the workers, then commit them: the matches first, the tagged rows last."""
        lake, spark = self.lake, self.spark
        kinds = tables_of(self.stream.name, self.plan)
        due = {kind: name for kind, name in kinds.items() if not (resumed and self._is_done(name))}
        task = task_of(
            self.batch,
            self.index,
            [name for name in accepted.columns if name != "source_version"],
            {kind: str(folder_of(lake, name)) for kind, name in due.items()},
            layouts,
            str(codec(spark)),
            {"org.apache.spark.version": str(spark.version)},
        )
        task = replace(task, annotations=self._annotations)
        what = f"write micro-batch {self.batch.batch} to {kinds['tagged']}"
        written = run(lambda: self._written(accepted, task, pieces), what)
        for kind in due:
            self._enter(due[kind], kind, task, written)
        return {**written.figures, "rows": written.figures["rows"] + self.plan["quarantined"]}

    def _written(self, accepted: DataFrame, task: Task, pieces: Pieces | None) -> FilesWritten:
        if pieces is not None:
            schema = nullable(arrow_schema_of(accepted.drop("source_version").schema.jsonValue()["fields"]))
            written = write_pieces(self.spark, pieces, schema, self.matcher, task)
            if written is not None:
                return written
        return write_files(accepted, self.matcher, task)

    def _enter(self, name: str, kind: str, task: Task, written: FilesWritten) -> None:
        """Commit written files with the micro-batch's number; delete them if another commit certainly has it."""
        entries = written.entries[kind]
        log = TableLog(self.spark, self.lake.uri(name))
        append = partial(log.append, entries, self._app(name), self.batch.batch)
        try:
            if not run(append, f"write micro-batch {self.batch.batch} to {name}"):
                discard(task, {kind: entries})
        except PipelineError as error:
            # A concurrent run has committed the micro-batch for both. The files of this one are not deleted: its
            # commit may have succeeded even though it raised an error.
            if not is_conflict(error.__cause__) or not self._is_done(name):
                raise

    def _write_rows(self, accepted: DataFrame, resumed: bool) -> dict[str, Any]:
        """Write the rows by Spark's writer: the matches first, the tagged rows last."""
        spark, stream = self.spark, self.stream
        if self.plan["matches"]:
            self._append(matches_table(stream), self._pairs(accepted), resumed)
        figures = spark.sparkContext.accumulator({}, cast(Any, Counts()))
        written = self._append(tagged_table(stream), self._tagged(accepted, figures), resumed)
        if not written or (not figures.value and self.matcher.constant is None):
            # another run wrote these rows, and Delta skipped this write: match again, only for the figures
            figures = spark.sparkContext.accumulator({}, cast(Any, Counts()))
            self._tagged(accepted, figures).select("rule_ids").write.format("noop").mode("overwrite").save()
        return self._figures(figures.value, accepted)

    def _tagged(self, frame: DataFrame, figures: Any) -> DataFrame:
        """The rows with the columns of `<stream>_tagged`; `figures` counts matches when they are evaluated."""
        matched = self.matcher.with_inputs(frame).select(
            *self._source_columns(frame), self.matcher.rule_ids(figures).alias("rule_ids"), "source_version"
        )
        tagged = matched.select(
            *self._source_columns(frame),
            "rule_ids",
            *(
                column.alias(name)
                for name, column in annotation_columns_of(self._annotations, functions.col("rule_ids"))
            ),
            *self._versions(),
            functions.lit(self.index.fingerprint).alias("index_fingerprint"),
            "source_version",
            functions.lit(self.batch.started_at).alias("tagged_at"),
        )
        return tagged.filter(functions.size("rule_ids") > 0) if self.plan["output"] == "matched" else tagged

    @property
    def _annotations(self) -> Annotations | None:
        return annotations_of(self.matcher.compiled, self.stream.annotations)

    def _source_columns(self, frame: DataFrame) -> list[Any]:
        return [functions.col(back_quoted(name)) for name in frame.columns if name != "source_version"]

    def _versions(self) -> list[Any]:
        return [functions.lit(self.index.rules_version).cast("bigint").alias("rules_version")]

    def _pairs(self, frame: DataFrame) -> DataFrame:
        keys = [functions.col(back_quoted(name)) for name in matches_keys(self.plan["key"], self.plan["event_time"])]
        rows = self.matcher.with_inputs(frame)
        matched = rows.select(self.matcher.rule_ids().alias("rule_ids"), *keys, "source_version")
        return matched.select(
            functions.explode("rule_ids").alias("rule_id"), *keys, *self._versions(), "source_version"
        ).sortWithinPartitions("rule_id")

    def _append(self, name: str, frame: DataFrame, resumed: bool) -> bool:
        return append_once(self.lake, name, frame, self._app(name), self.batch.batch, resumed)

    def _app(self, name: str) -> str:
        return app_of(self.plan, name)

    def _is_done(self, name: str) -> bool:
        """True if the table holds this micro-batch."""
        return is_done(self.lake, name, self._app(name), self.batch.batch)

    def _figures(self, counted: dict[Any, int], accepted: DataFrame) -> dict[str, Any]:
        constant = self.matcher.constant
        if constant is not None:
            rows = accepted.count()
            counted = {"rows": rows, "matches": rows * len(constant)}
        errors = {str(key[1]): count for key, count in counted.items() if isinstance(key, tuple)}
        rows = counted.get("rows", 0) + self.plan["quarantined"]
        return {"rows": rows, "matches": counted.get("matches", 0), "errors": errors}
