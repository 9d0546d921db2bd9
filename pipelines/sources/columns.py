"""The columns of a stream's source for rules, and checks of whether a stream can be configured over them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from pipelines.errors import AccessError, CheckError, MissingTableError, SourceError, TableError
from pipelines.lake.column_types import arrow_schema_of, nullable, spark_name
from pipelines.lake.lake import open_delta
from pipelines.settings.configuration import is_catalog_name
from pipelines.settings.model import Stream
from pipelines.table_definitions import MATCHES_COLUMNS, QUARANTINE_COLUMNS, TAGGED_COLUMNS, tagged_table
from rules_index.names import did_you_mean

if TYPE_CHECKING:
    from pipelines.workspace import Workspace

_LOG_COLUMNS = ("_change_type", "_commit_version", "_commit_timestamp")


def source_columns(workspace: Workspace, stream: Stream) -> pa.Schema:
    """The source's columns as Arrow types; SourceError if there is no such table.

    They are read without a JVM if delta-rs supports the table's features, else by Spark. For another stream's tagged
    rows they are the columns of that stream's source, even before it has tagged anything.
    """
    if stream.source_stream is None:
        return _table_columns(workspace, stream)
    if not workspace.lake.exists(tagged_table(stream.source_stream)):
        return nullable(source_columns(workspace, workspace.configuration.stream(stream.source_stream)))
    found = _table_columns(workspace, stream)
    return pa.schema([field for field in found if field.name not in stream.left_out])


def _table_columns(workspace: Workspace, stream: Stream) -> pa.Schema:
    unopened: TableError | None = None
    if not is_catalog_name(stream.source):
        try:
            schema = open_delta(stream.source, None, "a source", "").schema().to_json()
            return arrow_schema_of(json.loads(schema)["fields"])
        except MissingTableError:
            raise SourceError(
                f"The stream {stream.name} has no source: there is no Delta table at {stream.source}. Write it "
                f"first, or correct [streams.{stream.name}] source in {workspace.configuration.path}."
            ) from None
        except AccessError as error:
            raise SourceError(f"The source of {stream.name} is out of reach: {error}") from None
        except TableError as error:
            unopened = error
        except ValueError:
            pass
    from pipelines.sources.opened_by_spark import opened_by_spark
    from pipelines.spark.delta_internals import snapshot_schema

    source = opened_by_spark(workspace, stream, unopened)
    return arrow_schema_of(snapshot_schema(source.log.latest()).jsonValue()["fields"])


def check_columns(stream: Stream, schema: pa.Schema) -> None:
    """Raise SourceError if the source lacks a column that the stream names, or has one that deltatag adds."""
    check_named_columns(stream, schema)
    _check_added_columns(stream, schema)


def check_named_columns(stream: Stream, schema: pa.Schema) -> None:
    """Raise SourceError if the source lacks a column that the stream names."""
    names = {name.lower(): name for name in schema.names}
    for what, columns in (
        ("key", stream.key),
        ("cluster_by", stream.cluster_by),
        ("partition_by", stream.partition_by or ()),
    ):
        for column in columns:
            if column.lower() not in names:
                raise SourceError(
                    f"The stream {stream.name} has the {what} {column}, but its source has no such column"
                    f"{did_you_mean(column, schema.names)}"
                )
    check_event_time(stream, schema)


def _check_added_columns(stream: Stream, schema: pa.Schema) -> None:
    names = {name.lower(): name for name in schema.names}
    added = [*TAGGED_COLUMNS, *stream.annotations, *_LOG_COLUMNS]
    if stream.can_quarantine:
        added += [column.name for column in QUARANTINE_COLUMNS]
    for name in added:
        if name in names and name in stream.annotations:
            raise SourceError(
                f"The source of the stream {stream.name} has a column {names[name]}, which annotations adds to tagged "
                f'rows. Leave "{name}" out of annotations in [streams.{stream.name}]; no more is needed.'
            )
        if name in names:
            raise SourceError(
                f"The source of the stream {stream.name} has a column {names[name]}, a name that deltatag needs for a "
                "column of its own. Rename it in the source, or tag a copy without it. What another stream has "
                "tagged is read with source_stream in place of source."
            )
    if stream.event_time is not None and stream.keeps_matches and stream.event_time.lower() in MATCHES_COLUMNS:
        raise SourceError(f"The event time of {stream.name} is named like a column that deltatag adds: rename it.")


def check_event_time(stream: Stream, schema: pa.Schema) -> None:
    """Raise SourceError if the stream names an event time that its source lacks, or that is no time."""
    if stream.event_time is None:
        return
    names = {name.lower(): name for name in schema.names}
    if stream.event_time.lower() not in names:
        raise SourceError(
            f"The stream {stream.name} has the event_time {stream.event_time}, but its source has no such column"
            f"{did_you_mean(stream.event_time, schema.names)}"
        )
    kind = schema.field(names[stream.event_time.lower()]).type
    if not pa.types.is_timestamp(kind) and not pa.types.is_date(kind):
        raise SourceError(
            f"The event_time {stream.event_time} of the stream {stream.name} is {spark_name(kind)}; it must be "
            "TIMESTAMP, TIMESTAMP_NTZ or DATE."
        )


def check_condition(stream: str, name: str, condition: str, schema: pa.Schema) -> None:
    """Raise CheckError if a check of a stream could not be the text of a rule.

    This is so if it is no condition over these columns, is not repeatable, or reads more than its row.
    """
    from rules_index.errors import RuleError
    from rules_index.language.compiler import Compiler
    from rules_index.language.scope import Scope

    try:
        Compiler(Scope(schema)).compile(condition)
    except RuleError as error:
        where = f" at position {error.position}" if error.position is not None else ""
        raise CheckError(f"The check {name} of the stream {stream} cannot be used: {error.message}{where}") from None


def refused_checks(stream: Stream, schema: pa.Schema) -> Iterator[str]:
    """A sentence for each check of a stream that no run can use."""
    for name, condition in stream.checks.items():
        try:
            check_condition(stream.name, name, condition, schema)
        except CheckError as error:
            yield str(error)
