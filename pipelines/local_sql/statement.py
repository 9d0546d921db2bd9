"""Executes one SQL statement without Spark, if the result is the same."""

from __future__ import annotations

import pyarrow as pa

from pipelines.errors import NeedsSparkError
from pipelines.local_sql.grammar import parse_statement
from pipelines.local_sql.syntax import Insert, Merge, Numbers, Select
from pipelines.runners.choice import why_spark_works
from pipelines.workspace import Workspace
from rules_index.errors import RulesIndexError


def execute(workspace: Workspace, statement: str) -> pa.Table:
    """The result of a statement, in the form of `pipelines.sql.statement_result`.

    If Spark must execute it, nothing is done and NeedsSparkError has the reason. TableError if a commit fails.
    """
    reason = why_spark_works(workspace)
    if reason is not None:
        raise NeedsSparkError(reason)
    try:
        read = parse_statement(statement)
        if isinstance(read, Select):
            return in_zone(_selected(workspace, read), workspace.configuration.rules.time_zone)
        if isinstance(read, Numbers):
            names, values = zip(*read.values, strict=True)
            return pa.Table.from_arrays([pa.array([value], pa.int32()) for value in values], names=names)
        from pipelines.local_sql import edits, merge

        if isinstance(read, Merge):
            return merge.merge(workspace, read)
        return edits.insert(workspace, read) if isinstance(read, Insert) else edits.change(workspace, read)
    except RulesIndexError as error:
        raise NeedsSparkError("it has an expression that a rule cannot have") from error


def local_result(workspace: Workspace, statement: str) -> pa.Table | None:
    """Like `execute`, but None if Spark must execute the statement."""
    try:
        return execute(workspace, statement)
    except NeedsSparkError:
        return None


def _selected(workspace: Workspace, query: Select) -> pa.Table:
    from polars.exceptions import PolarsError

    from pipelines.local_sql.query import select

    try:
        return select(workspace, query)
    except (ArithmeticError, ValueError, PolarsError, pa.ArrowException) as error:
        raise NeedsSparkError(str(error)) from error  # a value that Python lacks, such as a year beyond 9999


def in_zone(result: pa.Table, zone: str) -> pa.Table:
    """The result with its timestamps in a time zone."""
    return result.cast(pa.schema([field.with_type(_in_zone(field.type, zone)) for field in result.schema]))


def _in_zone(data_type: pa.DataType, zone: str) -> pa.DataType:
    """The type with all its timestamps in a time zone."""
    if pa.types.is_timestamp(data_type):
        return pa.timestamp(data_type.unit, zone) if data_type.tz else data_type
    if pa.types.is_list(data_type):
        return pa.list_(data_type.value_field.with_type(_in_zone(data_type.value_type, zone)))
    if pa.types.is_map(data_type):
        return pa.map_(_in_zone(data_type.key_type, zone), _in_zone(data_type.item_type, zone))
    if pa.types.is_struct(data_type):
        return pa.struct([field.with_type(_in_zone(field.type, zone)) for field in data_type.fields])
    return data_type
