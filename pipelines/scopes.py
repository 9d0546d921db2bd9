"""Scopes: what rules are written over, a stream's columns or one STRUCT column per stream of a join."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from pipelines.errors import ConfigurationError, SourceError
from pipelines.lake.column_types import spark_name
from pipelines.settings.model import Join, Stream
from pipelines.sources.columns import check_columns, check_event_time, check_named_columns, source_columns
from pipelines.sources.only_joined import joins_of
from pipelines.table_definitions import tagged_table
from rules_index.names import did_you_mean

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from pipelines.workspace import Workspace
    from rules_index.implication.mistakes.known_values import KnownValues
    from rules_index.index.code_matrix import Sample

JOINED_TIME = "_event_time"
"""The column of a joined row's event time (the latest one among its rows) in the index of a join."""


class Scope(ABC):
    """What compiling rules needs to know about the rows that they are written over."""

    def __init__(self, workspace: Workspace, name: str) -> None:
        self.workspace, self.name = workspace, name

    @property
    @abstractmethod
    def event_time(self) -> str | None:
        """The column that validity bounds are compared with; None if there is none."""

    @abstractmethod
    def columns(self) -> pa.Schema:
        """The columns that rules may name; SourceError if the source is missing or unusable."""

    @abstractmethod
    def no_rows(self) -> DataFrame:
        """A DataFrame with these columns and no rows, for analysing expressions in Spark."""

    @abstractmethod
    def sample(self, columns: pa.Schema) -> Sample | None:
        """A function that reads some rows, by which the engine is chosen; None for a join."""

    @abstractmethod
    def known_values(self, expressions: Sequence[str]) -> dict[str, KnownValues]:
        """The values of the source's rows in the columns that expressions name; empty if they cannot be read."""


class StreamScope(Scope):
    """The columns of a stream's source."""

    def __init__(self, workspace: Workspace, stream: Stream) -> None:
        super().__init__(workspace, stream.name)
        self.stream = stream

    @property
    def event_time(self) -> str | None:
        """The stream's event time."""
        return self.stream.event_time

    def columns(self) -> pa.Schema:
        """The source's columns."""
        schema = source_columns(self.workspace, self.stream)
        # a stream that only joins read is not tagged, so that its source may have the columns of tagged rows
        check = check_named_columns if joins_of(self.workspace, self.name) else check_columns
        check(self.stream, schema)
        return schema

    def no_rows(self) -> DataFrame:
        """The source as a DataFrame without files."""
        return _without_files(self.workspace, self.stream)

    def sample(self, columns: pa.Schema) -> Sample | None:
        """A function that reads rows of the source."""
        from pipelines.sources.sample import source_sample

        return source_sample(self.stream, columns)

    def known_values(self, expressions: Sequence[str]) -> dict[str, KnownValues]:
        """Values of all of the source's rows, or of a sample."""
        from pipelines.sources.known_values import source_values

        return source_values(self.stream, self.columns(), expressions)


class JoinScope(Scope):
    """One STRUCT column for each stream of a join, named as the stream, and the joined row's event time."""

    def __init__(self, workspace: Workspace, join: Join) -> None:
        super().__init__(workspace, join.name)
        self.join = join
        self.streams = [workspace.configuration.stream(name) for name in join.streams]

    @property
    def event_time(self) -> str | None:
        """The event time of the joined row."""
        return JOINED_TIME

    def columns(self) -> pa.Schema:
        """A STRUCT of each source's columns; SourceError also if the join's keys cannot be compared."""
        sources = {stream.name: source_columns(self.workspace, stream) for stream in self.streams}
        for stream in self.streams:
            check_event_time(stream, sources[stream.name])
        self._check_keys(sources)
        return joined_columns(sources)

    def no_rows(self) -> DataFrame:
        """A cross join of the sources as DataFrames without files."""
        from pyspark.sql import functions

        from rules_index.names import back_quoted

        joined: DataFrame | None = None
        for stream in self.streams:
            rows = _without_files(self.workspace, stream)
            side = rows.select(
                functions.struct(*(functions.col(back_quoted(c)) for c in rows.columns)).alias(stream.name)
            )
            joined = side if joined is None else joined.crossJoin(side)
        assert joined is not None
        return joined.withColumn(JOINED_TIME, functions.lit(None).cast("timestamp"))

    def sample(self, columns: pa.Schema) -> Sample | None:
        """None: a join's conjunctions are compiled per stream later, where rows are matched."""
        return None

    def known_values(self, expressions: Sequence[str]) -> dict[str, KnownValues]:
        """Values of the rows of each stream's source."""
        from pipelines.sources.known_values import joined_values, source_values

        return joined_values(
            {
                stream.name: source_values(stream, source_columns(self.workspace, stream), expressions)
                for stream in self.streams
            }
        )

    def _check_keys(self, sources: dict[str, pa.Schema]) -> None:
        """Raise SourceError for a key column that is missing, or not comparable with the other streams' key columns."""
        for place in range(len(next(iter(self.join.on.values())))):
            kinds: dict[str, list[str]] = {}
            for stream, schema in sources.items():
                column = self.join.on[stream][place]
                found = next((field for field in schema if field.name.lower() == column.lower()), None)
                if found is None:
                    is_field = "." in column and column.split(".")[0].lower() in map(str.lower, schema.names)
                    no_field = "; a key cannot be a field of a STRUCT. Give the source a column."
                    raise SourceError(
                        f"The join {self.name} joins on {stream}.{column}, but the source of {stream} has no such "
                        f"column{no_field if is_field else did_you_mean(column, schema.names)}"
                    )
                kinds.setdefault(_kind(found.type), []).append(f"{stream}.{found.name} ({spark_name(found.type)})")
            if nested := [names[0] for kind, names in kinds.items() if kind == "nested"]:
                raise SourceError(
                    f"The join {self.name} joins on {nested[0]}, and a key is one number, text, time, truth value or "
                    "row of bytes. Give the source a column of such a type."
                )
            if len(kinds) > 1:
                listed = "; ".join(f"{' and '.join(names)}" for names in kinds.values())
                raise SourceError(
                    f"The join {self.name} joins on columns that cannot be compared: {listed}. Give them one kind of "
                    "type in the sources: numbers, texts, times, truth values or bytes."
                )


def joined_columns(sources: Mapping[str, pa.Schema]) -> pa.Schema:
    """The columns of a join's rules: a STRUCT of each stream's columns, and the joined row's event time."""
    fields = [pa.field(name, pa.struct(list(schema))) for name, schema in sources.items()]
    return pa.schema([*fields, pa.field(JOINED_TIME, pa.timestamp("us", "UTC"))])


def scope_of(workspace: Workspace, name: str) -> Scope:
    """The scope of a stream or a join; ConfigurationError, which lists the known names, if there is none."""
    configuration = workspace.configuration
    if name in configuration.joins:
        return JoinScope(workspace, configuration.joins[name])
    if name in configuration.streams:
        return StreamScope(workspace, configuration.streams[name])
    known = ", ".join(scopes_of(workspace)) or "none"
    raise ConfigurationError(f"{configuration.path}: there is no scope {name!r}; the streams and joins are: {known}.")


def scopes_of(workspace: Workspace) -> list[str]:
    """The names of all scopes, streams first."""
    return [*workspace.configuration.streams, *workspace.configuration.joins]


def _kind(data_type: pa.DataType) -> str:
    """The kind of type under which keys are compared; different types of one kind are cast to the wider one."""
    t = pa.types
    if t.is_integer(data_type) or t.is_floating(data_type) or t.is_decimal(data_type):
        return "number"
    kinds = {"text": t.is_string, "truth value": t.is_boolean, "bytes": t.is_binary, "time": t.is_timestamp}
    if t.is_struct(data_type) or t.is_list(data_type) or t.is_map(data_type):
        return "nested"
    found = next((kind for kind, is_kind in kinds.items() if is_kind(data_type)), None)
    return found or ("time" if t.is_date(data_type) else str(data_type))


def _without_files(workspace: Workspace, stream: Stream) -> DataFrame:
    """A DataFrame with the source's columns and no rows; before an origin has tagged anything, its source's columns."""
    from pipelines.sources.source import open_source
    from pipelines.spark.delta_internals import COMMIT_VERSION

    if stream.source_stream is not None and not workspace.lake.exists(tagged_table(stream.source_stream)):
        return _without_files(workspace, workspace.configuration.stream(stream.source_stream))
    source = open_source(workspace.spark, stream)
    assert hasattr(source.log, "frame")
    rows: DataFrame = source.log.frame(source.log.latest(), [])
    return rows.drop(COMMIT_VERSION, *source.left_out)
