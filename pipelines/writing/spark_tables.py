"""The tables of streams and joins in Spark: how they are created, and appended to exactly once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from pipelines.annotated import check_widened
from pipelines.errors import PipelineError, SourceChangedError, TableError
from pipelines.lake.column_types import changed_types, odd_names, same_fields, with_later_fields
from pipelines.lake.transaction_ids import application, files_added_by, is_done
from pipelines.lake.unfinished_log import remove_unfinished_log
from pipelines.spark.delta_internals import TableLog, snapshot_schema, table_property
from pipelines.spark.failures import is_conflict, run
from pipelines.table_definitions import quarantine_table, tagged_table
from pipelines.writing.altered_types import cure_of_types
from rules_index.names import back_quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrameWriter, SparkSession

    from pipelines.lake.folder_snapshot import Definition
    from pipelines.lake.lake import Lake
    from pipelines.settings.model import Join, Stream
    from pipelines.workspace import Workspace
    from pipelines.writing.configured_tables import ConfiguredTable

_MAPPING = "delta.columnMapping.mode"
_DEFAULTS = "spark.databricks.delta.properties.defaults"
_PLAIN = {_MAPPING: "none", "delta.enableTypeWidening": "false", "delta.checkpointPolicy": "classic"}
"""Properties that a table gets if the session has other defaults, with which delta-rs could not read it."""
_ATTEMPTS = 5
"""Maximum number of attempts of a table's fence if others commit first."""


def prepare_tables(
    workspace: Workspace,
    scope: Stream | Join,
    tables: Sequence[ConfiguredTable],
    id_type: str,
    from_scratch: bool,
    verb: str,
) -> None:
    """Create the missing tables that a verb keeps for a scope; `from_scratch` also empties existing ones, and gives
    them the source's current columns; their history is kept.

    SourceChangedError if the source's columns no longer fit existing tables.
    """
    for table in tables:
        _prepare_table(workspace, table, from_scratch, f"deltatag {verb} {scope.name}")
        if table.kept and table.name == quarantine_table(scope):
            _add_columns(workspace, table)
    held = workspace.lake.frame(tagged_table(scope)).columns
    check_widened(scope.name, held, scope.annotations, id_type)


def _prepare_table(workspace: Workspace, table: ConfiguredTable, from_scratch: bool, command: str) -> None:
    """Prepare one table that `command` writes; it gets column mapping if the name of a new column needs it."""
    name, exists = table.name, workspace.lake.exists(table.name)
    if (exists and from_scratch) or (table.kept and not exists):
        create_table(workspace, name, table.definition, replace=exists)
    elif exists and table.kept:
        wanted = schema_of(table.fields)
        if changes := changed_types(workspace.lake.frame(name).schema, wanted):
            cure = cure_of_types(workspace.lake, name, [path.split(".")[0] for path in changes])
            raise SourceChangedError(
                f"The table {name} has a column with another type than the source, and cannot hold both: "
                f"{'; '.join(changes.values())}. {cure} process everything again with the source's types: {command} "
                "--restart"
            )
        if odd_names(table.fields):
            _map_columns(workspace, name)


def _add_columns(workspace: Workspace, table: ConfiguredTable) -> None:
    """Add the columns, and fields of STRUCTs, that the table lacks. A table to which each micro-batch appends rows gets
    them with these rows; few micro-batches append to a quarantine."""
    held = workspace.lake.frame(table.name).schema.jsonValue()["fields"]
    if with_later_fields(held, table.fields) != held:
        nothing = workspace.spark.createDataFrame([], schema_of(table.fields))
        write = partial(_write, workspace.lake, table.name, nothing.write.format("delta").mode("append"))
        run(write, f"add the new columns of its source to the table {table.name}")


def _map_columns(workspace: Workspace, name: str) -> None:
    """Enable column mapping by name, which names with blanks and the like need."""
    log = TableLog(workspace.spark, workspace.lake.uri(name))
    if table_property(log.latest(), _MAPPING) in (None, "none"):
        statement = f"ALTER TABLE {workspace.lake.sql_name(name)} SET TBLPROPERTIES ('{_MAPPING}' = 'name')"
        run(lambda: workspace.spark.sql(statement), f"give the table {name} column mapping for its new columns' names")


def create_table(workspace: Workspace, name: str, definition: Definition, replace: bool = False) -> None:
    """Create a table of the lake; with `replace`, empty it and give it these columns."""
    from delta.tables import DeltaTable

    lake, spark, columns = workspace.lake, workspace.spark, schema_of(definition.fields)
    builder = DeltaTable.replace(spark) if replace else DeltaTable.createIfNotExists(spark)
    if lake.settings.root is not None:
        builder = builder.location(lake.uri(name))
    else:
        builder = builder.tableName(lake.sql_name(name))
    builder = builder.addColumns(columns)
    mapping = {_MAPPING: "name"} if odd_names(definition.fields) else {}
    plain = {key: value for key, value in _PLAIN.items() if spark.conf.get(key.replace("delta", _DEFAULTS, 1), None)}
    for key, value in {**definition.properties, **plain, **mapping}.items():
        builder = builder.property(key, value)
    if definition.cluster_by:
        builder = builder.clusterBy(*map(back_quoted, definition.cluster_by))
    if definition.partition_by:
        builder = builder.partitionedBy(*definition.partition_by)  # takes names as they are, unlike clusterBy
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


def schema_of(fields: Sequence[Mapping[str, Any]]) -> StructType:
    """Columns in the log's form as Spark's type."""
    return StructType.fromJson({"type": "struct", "fields": list(fields)})


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
        if same_fields(*(each.jsonValue()["fields"] for each in (snapshot_schema(log.latest()), frame.schema))):
            return log.append_rows(frame, app, number)
    writer = frame.write.format("delta").mode("append").option("txnAppId", app).option("txnVersion", number)
    _write(lake, name, writer)
    return True


def _write(lake: Lake, name: str, writer: DataFrameWriter) -> None:
    """Write by Spark's writer; the table gets the columns that it lacks."""
    writer = writer.option("mergeSchema", "true")
    if lake.settings.root is not None:
        writer.save(lake.uri(name))
    else:
        writer.saveAsTable(lake.sql_name(name))


def written_rows(spark: SparkSession, lake: Lake, name: str, app: str, number: int) -> DataFrame | None:
    """The rows that a micro-batch has written to a table; None if the log no longer holds its commit."""
    log = TableLog(spark, lake.uri(name))
    found = files_added_by(log, app, number)
    return None if found is None else log.frame(log.snapshot(found[0]), found[1])


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
                held += [name] if run(mark, f"fence {name} against earlier micro-batches") else []
                break
            except TableError as error:
                # a concurrent run has written its micro-batch first, which then counts
                if attempt == _ATTEMPTS - 1 or not is_conflict(error.__cause__):
                    raise
    return held
