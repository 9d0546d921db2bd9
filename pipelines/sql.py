"""The verb sql: any Spark SQL statement, with deltatag's tables and the streams' sources by name."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.errors import PySparkException

from pipelines.error_texts import first_line
from pipelines.errors import MissingTableError, StatementError
from pipelines.lake.authors import by_this_user_in_spark
from pipelines.lake.lake import catalog_location, is_table
from pipelines.lake.table_cache import delta_rs_uri
from pipelines.lake.table_names import source_of, table_names
from pipelines.local_sql.statement import in_zone
from pipelines.local_sql.tables import why_missing
from pipelines.settings.configuration import is_catalog_name
from pipelines.settings.model import LakeSettings
from pipelines.workspace import Workspace
from rules_index.names import quoted_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_MAKES_TABLE = {"CreateTable", "CreateTableAsSelect", "ReplaceTable", "ReplaceTableAsSelect"}
_MAKES_VIEW = {"CreateView"}
_QUOTED = 4_000
"""Maximum length of a statement that an error quotes as a whole: it may have a hundred thousand rows of VALUES."""


def run_statement(workspace: Workspace, statement: str) -> DataFrame:
    """The statement's result. A statement that changes a table has been executed when this returns.

    StatementError with Spark's reason and, if Spark gives the position, the statement's lines with a marker.
    """
    spark = workspace.spark
    register_tables(workspace, statement)
    refuse_what_would_be_lost(spark, statement)
    try:
        with by_this_user_in_spark(spark):
            return spark.sql(statement)
    except PySparkException as error:
        raise StatementError(_explain(workspace, statement, error)) from error


def refuse_what_would_be_lost(spark: SparkSession, statement: str) -> None:
    """Raise StatementError if a statement creates a table or view that would be lost when the command ends.

    This is the case for one without a location in a session catalog that is kept in memory.
    """
    from py4j.protocol import Py4JJavaError

    from pipelines.spark.catalyst import parsed_statement

    if spark.conf.get("spark.sql.catalogImplementation", "in-memory") != "in-memory":
        return
    try:
        plan = parsed_statement(spark, statement)
    except (PySparkException, Py4JJavaError):
        return  # executing the statement gives Spark's own message
    kind = plan.getClass().getSimpleName()
    if kind not in _MAKES_TABLE | _MAKES_VIEW:
        return
    name = (plan.name() if kind in _MAKES_TABLE else plan.child()).nameParts()
    parts = [str(name.apply(place)) for place in range(name.size())]
    first = parts[0].lower() if len(parts) > 1 else ""
    if first == "delta" or (first not in ("", "spark_catalog") and spark.conf.get(f"spark.sql.catalog.{first}", None)):
        return
    if kind in _MAKES_TABLE and plan.tableSpec().location().isDefined():
        return
    advice = (
        "Give its folder instead of a name: CREATE TABLE delta.`/path/of/the/table` USING delta ..., and read it by "
        "the same name."
        if kind in _MAKES_TABLE
        else "Write its query into the statements that would use it."
    )
    raise StatementError(
        f"The {'table' if kind in _MAKES_TABLE else 'view'} {'.'.join(parts)} would be lost when this command ends, "
        f"because names are kept in memory if no catalog is configured. {advice}"
    )


def statement_result(workspace: Workspace, statement: str) -> pa.Table:
    """Like `run_statement`, with the result's rows as an Arrow table.

    Values of types that Arrow lacks are strings. Timestamps are in the time zone of rules, which the statement's own
    functions use, too.
    """
    frame = run_statement(workspace, statement)
    try:
        result = _as_arrow(frame)
    except PySparkException as error:
        raise StatementError(_explain(workspace, statement, error)) from error
    return in_zone(result, workspace.configuration.rules.time_zone)


def _as_arrow(frame: DataFrame) -> pa.Table:
    from pyspark.sql import functions, types

    foreign = (types.VariantType, types.YearMonthIntervalType, types.DayTimeIntervalType, types.CalendarIntervalType)
    # results of commands such as OPTIMIZE have NULLs in columns that their schema declares NOT NULL
    nullable = re.sub(r'"(nullable|containsNull|valueContainsNull)":false', r'"\1":true', frame.schema.json())
    columns = []
    for index, field in enumerate(types.StructType.fromJson(json.loads(nullable)).fields):
        kind = "string" if isinstance(field.dataType, foreign) else field.dataType
        columns.append(functions.col(f"`{index}`").cast(kind).alias(str(index)))
    # columns are renamed to numbers, since a result may have two of one name
    numbered = frame.toDF(*(str(index) for index in range(len(frame.columns)))).select(*columns)
    return numbered.toArrow().rename_columns(frame.columns) if frame.columns else pa.table({})


def register_tables(workspace: Workspace, statement: str | None = None) -> None:
    """Register the tables in the session by name: all, or those that a statement seems to mention."""
    spark, configuration = workspace.spark, workspace.configuration
    database = _database(configuration.lake)
    if configuration.lake.catalog is None:
        spark.sql(f"CREATE DATABASE IF NOT EXISTS {database}")
    spark.sql(f"USE {database}")
    for name, location in _locations(workspace, statement):
        if location is not None and is_catalog_name(location):
            spark.table(location).createOrReplaceTempView(name)
        elif location is not None and configuration.lake.catalog is not None:
            spark.read.format("delta").load(location).createOrReplaceTempView(name)
        elif configuration.lake.catalog is None:
            _register(spark, f"{database}.`{name}`", location)


def _database(lake: LakeSettings) -> str:
    """The database of the lake's tables: its catalog, or one of its own in the session catalog."""
    if lake.root is None:
        return str(lake.catalog)
    # sessions may share a persistent metastore, and every lake has a table `rules`
    return f"deltatag_{hashlib.sha256(lake.root.encode()).hexdigest()[:16]}"


def _register(spark: SparkSession, known: str, location: str | None) -> None:
    """Register the Delta table at a location under a name; without a location the name is dropped."""
    if spark.catalog.tableExists(known):
        # another process may be about to use the name, so it is not dropped while it is right
        if location is not None and _is_at(spark, known, location):
            return
        spark.sql(f"DROP TABLE IF EXISTS {known}")
    if location is None:
        return
    spark.sql(f"CREATE TABLE IF NOT EXISTS {known} USING DELTA LOCATION {quoted_text(location)}")


def _is_at(spark: SparkSession, known: str, location: str) -> bool:
    try:
        found = catalog_location(spark, known)
    except MissingTableError:
        return False
    return delta_rs_uri(found) == delta_rs_uri(location)


def _locations(workspace: Workspace, statement: str | None) -> Iterator[tuple[str, str | None]]:
    """Name and location of each table that a statement may mean; the location is None if the table does not exist."""
    words = None if statement is None else {word.lower() for word in re.findall(r"\w+", statement)}
    if words is not None and words & {"show", "describe", "desc"}:
        words = None
    lake = workspace.lake
    for name in table_names(workspace.configuration):
        if words is not None and name.lower() not in words:
            continue
        source = source_of(workspace.configuration, name)
        if source is not None:
            there = is_catalog_name(source) or is_table(source)
            yield name, source if there else None
        elif lake.settings.root is not None:
            yield name, lake.uri(name) if lake.exists(name) else None


def _explain(workspace: Workspace, statement: str, error: PySparkException) -> str:
    """Spark's message as one paragraph, followed by the lines of the statement that Spark points at.

    If the statement names a table of deltatag's that does not exist yet, the message says how to create it.
    """
    condition = error.getCondition() if hasattr(error, "getCondition") else None
    if condition == "TABLE_OR_VIEW_NOT_FOUND":
        words = {word.lower() for word in re.findall(r"\w+", statement)}
        for name in table_names(workspace.configuration):
            if name.lower() in words and not workspace.lake.settings.catalog and not _exists(workspace, name):
                return why_missing(workspace, name)
        known = ", ".join(table_names(workspace.configuration))
        return f"{first_line(error)} Tables that have a name are: {known}."
    message, heading, quoted = str(error).split("JVM stacktrace:")[0].partition("== SQL")
    message = re.sub(r"(; line \d+ pos \d+);\n.*", r"\1", message, flags=re.DOTALL)  # Spark's plan follows
    text = " ".join(line.strip() for line in message.splitlines() if line.strip())
    if heading:
        return "\n".join([text, *_near_mark(quoted.partition("\n")[2].rstrip().splitlines())])
    return text.split("; line ")[0] if len(text) > 2000 else text


def _near_mark(lines: Sequence[str]) -> list[str]:
    """The lines of a statement near the line of carets by which Spark marks an error; all lines if they are short."""
    if sum(map(len, lines)) <= _QUOTED:
        return list(lines)
    place = next((number for number, line in enumerate(lines) if line.strip("-^ ") == "" and "^" in line), 1)
    start = max(0, lines[place].find("^") - 40) if place < len(lines) else 0
    return [line[start : start + 100] for line in lines[max(0, place - 1) : place + 1]]


def _exists(workspace: Workspace, name: str) -> bool:
    source = source_of(workspace.configuration, name)
    if source is None:
        return workspace.lake.exists(name)
    return is_table(source)
