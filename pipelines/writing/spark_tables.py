"""The tables of streams and joins in Spark: how they are created, and appended to exactly once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql.types import StructField, StructType

from pipelines.annotated import check_widened
from pipelines.errors import PipelineError, SourceChangedError, TableError
from pipelines.lake.column_types import changed_types, needs_mapping, plain_schema, same_columns
from pipelines.lake.transaction_ids import application, is_done
from pipelines.lake.unfinished_log import remove_unfinished_log
from pipelines.settings.model import Stream
from pipelines.spark.delta_internals import TableLog, snapshot_schema, table_property
from pipelines.spark.failures import is_conflict, run
from pipelines.spark.sql_text import quoted
from pipelines.table_definitions import (
    QUARANTINE_COLUMNS,
    Column,
    matches_columns,
    matches_keys,
    matches_table,
    quarantine_table,
    tagged_columns,
    tagged_table,
)
from pipelines.writing.table_order import Order, order_of_matches, partition_columns_for, statistics_property

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipelines.lake.lake import Lake
    from pipelines.workspace import Workspace

_PROPERTIES = {"delta.enableDeletionVectors": "false"}
_MAPPING = "delta.columnMapping.mode"
_ATTEMPTS = 5


class StreamTables:
    """`<stream>_tagged`, `<stream>_matches` and `quarantine_<stream>`."""

    def __init__(self, workspace: Workspace, stream: Stream, id_type: str) -> None:
        """`id_type` is the type of rule ids: "string" or "bigint"."""
        self.workspace, self.stream, self.id_type = workspace, stream, id_type
        self.lake, self.spark = workspace.lake, workspace.spark

    def prepare(self, source: StructType, partitions: Sequence[str], anew: bool = False) -> None:
        """Create the missing tables; SourceChangedError if the source's columns no longer fit existing ones.

        partitions: the columns by which the source is partitioned, and by default also a new `<stream>_tagged`; anew:
        empty existing tables and give them the source's current columns; their history is kept.
        """
        columns = plain_schema(source)
        keys = matches_keys(self.stream.key, self.stream.event_time)
        by = Order(
            self.stream.cluster_by, partition_columns_for(self.stream, columns.jsonValue()["fields"], partitions), keys
        )
        tables = [
            (
                tagged_table(self.stream),
                _with(columns, tagged_columns(self.id_type, self.stream.annotations)),
                by,
                True,
            ),
            (
                matches_table(self.stream),
                matches_schema(columns, keys, self.id_type),
                order_of_matches(self.lake),
                self.stream.keeps_matches,
            ),
            (quarantine_table(self.stream), _with(columns, QUARANTINE_COLUMNS), Order(), self.stream.can_quarantine),
        ]
        for name, wanted, order, kept in tables:
            prepare_table(self.workspace, name, wanted, order, kept, anew, f"deltatag tag {self.stream.name}")
        held = self.lake.frame(tagged_table(self.stream)).columns
        check_widened(self.stream.name, held, self.stream.annotations, self.id_type)


def prepare_table(
    workspace: Workspace, name: str, wanted: StructType, order: Order, kept: bool, anew: bool, command: str
) -> None:
    """Create a table that `command` writes, if it is missing and `kept`; with `anew`, empty an existing one.

    An existing table gets column mapping if the name of a new column needs it. SourceChangedError if its columns no
    longer fit.
    """
    exists = workspace.lake.exists(name)
    if (exists and anew) or (kept and not exists):
        create_table(workspace, name, wanted, order, replace=exists)
    elif exists and kept and (changes := changed_types(workspace.lake.frame(name).schema, wanted)):
        raise SourceChangedError(
            f"A column of a source changed its type, and the table {name} cannot hold both: {'; '.join(changes)}. Give "
            f"the source its old type back, or take everything anew with its new types: {command} --restart"
        )
    elif exists and kept and needs_mapping(wanted):
        _map_columns(workspace, name)


def _map_columns(workspace: Workspace, name: str) -> None:
    """Enable column mapping by name, which names with blanks and the like need."""
    log = TableLog(workspace.spark, workspace.lake.uri(name))
    if table_property(log.latest(), _MAPPING) in (None, "none"):
        statement = f"ALTER TABLE {workspace.lake.sql_name(name)} SET TBLPROPERTIES ('{_MAPPING}' = 'name')"
        run(lambda: workspace.spark.sql(statement), f"give the table {name} column mapping for its new columns' names")


def create_table(
    workspace: Workspace, name: str, columns: StructType, order: Order | None = None, replace: bool = False
) -> None:
    """Create a table of the lake; with `replace`, empty it and give it these columns."""
    from delta.tables import DeltaTable

    lake, spark, order = workspace.lake, workspace.spark, order or Order()
    builder = DeltaTable.replace(spark) if replace else DeltaTable.createIfNotExists(spark)
    if lake.settings.root is not None:
        builder = builder.location(lake.uri(name))
    else:
        builder = builder.tableName(lake.sql_name(name))
    builder = builder.addColumns(columns)
    mapping = {_MAPPING: "name"} if needs_mapping(columns) else {}
    for key, value in {**_PROPERTIES, **mapping, **statistics_property(columns.jsonValue()["fields"], order)}.items():
        builder = builder.property(key, value)
    if order.cluster_by:
        builder = builder.clusterBy(*map(quoted, order.cluster_by))
    if order.partition_by:
        builder = builder.partitionedBy(*order.partition_by)  # takes names as they are, unlike clusterBy
    action = f"make the table {name} at {lake.settings.root or lake.settings.catalog}"
    try:
        run(builder.execute, action)
    except TableError:
        # a concurrent run may have created the table, or a killed one its folder alone
        if replace:
            raise
        if lake.settings.root is not None and remove_unfinished_log(lake.uri(name), lambda: lake.exists(name)):
            run(builder.execute, action)
        elif not lake.exists(name):
            raise


def append_once(lake: Lake, name: str, frame: DataFrame, app: str, number: int, resumed: bool) -> bool:
    """Append rows idempotently, in one commit with the micro-batch's number; False if another run has done so."""
    if resumed and is_done(lake, name, app, number):
        return False
    try:
        return bool(run(partial(_append, lake, name, frame, app, number), f"write micro-batch {number} to {name}"))
    except PipelineError as error:
        # a concurrent run may have committed the micro-batch for both
        if not is_conflict(error.__cause__) or not is_done(lake, name, app, number):
            raise
        return False


def _append(lake: Lake, name: str, frame: DataFrame, app: str, number: int) -> bool:
    """Append rows in one commit; True also if Spark's writer is used, which does not report whether it skipped them."""
    if lake.settings.root is not None:
        log = TableLog(frame.sparkSession, lake.uri(name))
        if same_columns(snapshot_schema(log.latest()), frame.schema):
            return log.append_rows(frame, app, number)
    writer = frame.write.format("delta").mode("append").option("mergeSchema", "true")
    writer = writer.option("txnAppId", app).option("txnVersion", number)
    if lake.settings.root is not None:
        writer.save(lake.uri(name))
    else:
        writer.saveAsTable(lake.sql_name(name))
    return True


def written_rows(spark: SparkSession, lake: Lake, name: str, app: str, number: int) -> DataFrame | None:
    """The rows that a micro-batch has written to a table; None if the log no longer holds its commit."""
    log = TableLog(spark, lake.uri(name))
    for version in reversed(log.commits()):
        actions = log.commit(version) or []
        numbers = [a["txn"]["version"] for a in actions if "txn" in a and a["txn"]["appId"] == app]
        if number in numbers:
            return log.frame(log.snapshot(version), [(version, a["add"]) for a in actions if "add" in a])
    return None


def fence(workspace: Workspace, series: str, names: Sequence[str], number: int) -> list[str]:
    """Fence off a series in these tables: from now on, each counts every micro-batch of the series as written.

    Returns the tables that already hold the series' micro-batch `number`.
    """
    held = []
    for name in filter(workspace.lake.exists, names):
        log = TableLog(workspace.spark, workspace.lake.uri(name))
        mark = partial(log.fence, application(series, name), number)
        for attempt in range(_ATTEMPTS):
            try:
                held += [name] if run(mark, f"fence off what is being written to {name}") else []
                break
            except TableError as error:
                # a concurrent run has written its micro-batch first, which then counts
                if attempt == _ATTEMPTS - 1 or not is_conflict(error.__cause__):
                    raise
    return held


def matches_schema(columns: StructType, keys: Sequence[str], id_type: str) -> StructType:
    """The columns of `<stream>_matches`: the rule's id, the key columns of the source, the versions."""
    first, *last = matches_columns(id_type)
    named = {field.name.lower(): field for field in columns.fields}
    return StructType([*fields_of([first]), *(named[key.lower()] for key in keys), *fields_of(last)])


def fields_of(columns: list[Column] | tuple[Column, ...]) -> list[StructField]:
    """Columns of deltatag's tables as Spark's fields, with their comments."""
    schema = ", ".join(f"{column.name} {column.type}" for column in columns)
    parsed = StructType.fromDDL(schema)
    assert isinstance(parsed, StructType)
    types = {field.name: field.dataType for field in parsed.fields}
    return [StructField(c.name, types[c.name], True, {"comment": c.comment}) for c in columns]


def _with(columns: StructType, added: tuple[Column, ...]) -> StructType:
    return StructType([*columns.fields, *fields_of(added)])
