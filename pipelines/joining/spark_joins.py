"""The runner of joins on Spark: for clusters, and for what only Spark can evaluate or read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, cast

from pyspark.sql import DataFrame, functions

from pipelines.annotated import annotations_of
from pipelines.joining.runner import PartitionedRows, PlannedJoin
from pipelines.joining.shuffle import join_partitions, joined_schema
from pipelines.joining.shuffled_rows import ShuffledRows
from pipelines.joining.sides import SideFiles
from pipelines.joining.spark_rows import JoinRows
from pipelines.joining.watermark import later_time
from pipelines.lake.column_types import ARROW_ID_TYPES, plain_fields
from pipelines.lake.transaction_ids import app_of
from pipelines.recovery.jvm_restart import batch_time_limit
from pipelines.scopes import JOINED_TIME
from pipelines.settings.model import Join, Stream
from pipelines.sources.source import Source, open_source
from pipelines.sources.source_names import followed_columns
from pipelines.spark.session import in_time_zone
from pipelines.table_definitions import quarantine_table, tagged_table
from pipelines.workspace import Workspace
from pipelines.writing.annotated_rows import annotation_columns_of
from pipelines.writing.configured_tables import join_tables
from pipelines.writing.matching import Matcher
from pipelines.writing.spark_tables import append_once, fence, prepare_tables, written_rows
from rules_index.join.worker import JoinTask
from rules_index.names import back_quoted


class SparkJoins:
    """The runner of joins on the workspace's Spark session."""

    name = "spark"

    def __init__(self, workspace: Workspace) -> None:
        """The session is started on first use."""
        self.workspace, self.lake = workspace, workspace.lake
        self._prepared: dict[str, dict[str, list[dict[str, Any]]]] = {}

    def session(self) -> AbstractContextManager[Any]:
        """A context in which deltatag's own session is the active one."""
        return self.workspace.active_session()

    def open_source(self, stream: Stream, command: str) -> Source:
        """The source, read by Spark's Delta library with Spark's credentials."""
        return open_source(self.workspace.spark, stream, command)

    def followed(
        self, source: Source, version: int, before: Mapping[str, Any] | None, join: Join, name: str
    ) -> dict[str, Any]:
        """What a plan's side must record about the names of a stream's columns."""
        tables = [tagged_table(join.name), quarantine_table(join.name)]
        return followed_columns(self.workspace, source, version, before, tables, f"join {join.name}", (name,))

    def partitioned_rows(self, widest_join: Join, together: Sequence[PlannedJoin]) -> ShuffledRows:
        """The rows of micro-batches that all read the same rows, as DataFrames."""
        indexes = [(planned.index, self._matcher(planned)) for planned in together]
        first = together[0]
        return ShuffledRows(self.workspace, widest_join, JoinRows(widest_join, first.sides, first.batch.plan), indexes)

    def match(self, widest_join: Join, planned: PlannedJoin) -> None:
        """Join the rows and write nothing."""
        self.workspace.progress(
            f"{planned.join.name}: micro-batch {planned.batch.batch} ended Spark; matching it without "
            f"{len(planned.without)} predicates"
        )
        partitioned = self.partitioned_rows(widest_join, [planned])
        with self._bounded(planned):
            self._joined(planned, partitioned).write.format("noop").mode("overwrite").save()

    def write(self, planned: PlannedJoin, partitioned: PartitionedRows) -> dict[str, Any]:
        """Write the micro-batch's tables; returns its figures."""
        self.prepare(planned.join, planned.sides, planned.batch.plan["id_type"])
        with self._bounded(planned):
            return self._write(planned, cast("ShuffledRows", partitioned))

    def fence(self, series: str, names: Sequence[str], number: int) -> list[str]:
        """Fence off a series in these tables; returns the tables that already hold its micro-batch `number`."""
        return fence(self.workspace, series, names, number)

    @contextmanager
    def _bounded(self, planned: PlannedJoin) -> Iterator[None]:
        """Set the session to the rules' time zone, and limit how long the work may take."""
        adds = [add for side in planned.sides for add in side.files]
        evaluated = len(planned.index.compiled.derived) - len(planned.without)
        with ExitStack() as stack:
            stack.enter_context(in_time_zone(self.workspace.spark, planned.index.compiled.time_zone))
            stack.enter_context(batch_time_limit(self.workspace, f"join {planned.join.name}", adds, evaluated))
            yield

    def _matcher(self, planned: PlannedJoin) -> Matcher:
        spark, id_type = self.workspace.spark, self.lake.rule_id_type()
        return Matcher(spark, planned.index.compiled, planned.path, id_type, planned.without)

    def prepare(self, join: Join, sides: Sequence[SideFiles], id_type: str, from_scratch: bool = False) -> None:
        """Create missing tables, or empty existing ones if `from_scratch`; SourceChangedError if a source's columns
        changed."""
        columns = {side.stream.name: plain_fields(side.schema.jsonValue()["fields"]) for side in sides}
        if self._prepared.get(join.name) != columns or from_scratch:
            prepare_tables(self.workspace, join, join_tables(join, columns, id_type), id_type, from_scratch, "join")
            self._prepared[join.name] = columns

    def _write(self, planned: PlannedJoin, partitioned: ShuffledRows) -> dict[str, Any]:
        """Write the late rows first, the joined rows last; returns the figures."""
        batch, stored = planned.batch, planned.stored
        annotations = annotations_of(planned.index.compiled, planned.join.annotations)
        quarantined, latest = self._quarantine(planned, partitioned.rows)
        joined = self._joined(planned, partitioned).select(
            *(functions.col(back_quoted(name)) for name in planned.join.streams),
            "rule_ids",
            *(column.alias(name) for name, column in annotation_columns_of(annotations, functions.col("rule_ids"))),
            functions.lit(stored.rules_version).cast("bigint").alias("rules_version"),
            functions.lit(stored.fingerprint).alias("index_fingerprint"),
            functions.lit(batch.started_at).alias("tagged_at"),
        )
        name = tagged_table(planned.join.name)
        app = app_of(batch.plan, name)
        append_once(self.lake, name, joined, app, batch.batch, planned.resumed)
        # counted in the table, since an earlier or concurrent run may have written it
        written = written_rows(self.workspace.spark, self.lake, name, app, batch.batch)
        sums = functions.count("*"), functions.sum(functions.size("rule_ids"))
        counted = written.agg(*sums).first() if written is not None else None
        return {
            "rows": partitioned.rows.new_count(),
            "joined": int(counted[0]) if counted is not None else 0,
            "matches": int(counted[1] or 0) if counted is not None else 0,
            "quarantined": quarantined,
            "latest": latest,
        }

    def _joined(self, planned: PlannedJoin, partitioned: ShuffledRows) -> DataFrame:
        """The joined rows that satisfy a rule: one STRUCT per stream, and `rule_ids`."""
        rows, keys = partitioned.rows_and_keys
        id_type = planned.batch.plan["id_type"]
        task = JoinTask(
            planned.join.streams,
            tuple(tuple(field.name for field in side.schema.fields) for side in planned.sides),
            tuple(planned.join.window[name] for name in planned.join.streams),
            keys,
            ARROW_ID_TYPES[id_type],
            planned.join.method,
        )
        matcher = self._matcher(planned)
        found = join_partitions(rows, matcher.file, task, joined_schema(planned.sides, id_type))
        return found if planned.index.exact else self._decided(planned.join, found, matcher)

    def _decided(self, join: Join, candidates: DataFrame, matcher: Matcher) -> DataFrame:
        """The candidates that satisfy a rule, if residual predicates are left that only Spark evaluates."""
        streams = self.workspace.configuration.streams
        times = [
            functions.col(f"{back_quoted(name)}.{back_quoted(str(streams[name].event_time))}").cast("timestamp")
            for name in join.streams
        ]
        rows = candidates.drop("rule_ids").withColumn(JOINED_TIME, functions.greatest(*times))
        columns = [functions.col(back_quoted(name)) for name in rows.columns]
        matched = matcher.with_inputs(rows).select(*columns, matcher.rule_ids().alias("rule_ids"))
        return matched.filter(functions.size("rule_ids") > 0)

    def _quarantine(self, planned: PlannedJoin, rows: JoinRows) -> tuple[int, int | None]:
        """Write the rows that came too late; returns how many, and the latest event time (microseconds) ever taken."""
        batch = planned.batch
        if batch.plan["lateness"] is None:
            return 0, batch.plan["latest"]
        latest, late = rows.latest_and_late()
        latest = later_time(batch.plan["latest"], latest)
        if late:
            name = quarantine_table(planned.join.name)
            app = app_of(batch.plan, name)
            append_once(self.lake, name, rows.late_rows(batch.batch), app, batch.batch, planned.resumed)
        return late, latest
