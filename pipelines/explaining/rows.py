"""Finds rows that satisfy a condition in a tagged table or a source; without a JVM if delta-rs can read it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa

import rules_index as ri
from pipelines.error_texts import first_line
from pipelines.errors import ConfigurationError, SourceError
from pipelines.lake.column_types import nullable
from pipelines.lake.lake import open_delta
from pipelines.lake.reading import as_dataset, zoned_partitions
from pipelines.scopes import JOINED_TIME, JoinScope, Scope, StreamScope
from pipelines.settings.configuration import is_catalog_name
from pipelines.table_definitions import quarantine_table, tagged_table
from pipelines.value_lists import read_lists
from rules_index.names import column_key, field_key, path_parts, spelled

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from pipelines.workspace import Workspace

BATCH_ROWS = 1 << 16
TAGGED_WITH = ("rules_version", "index_fingerprint")
"""The columns by which a tagged row names the rules that tagged it."""


@dataclass(frozen=True)
class MatchingRows:
    """Rows with the columns of a scope and, if tagged, of `TAGGED_WITH`.

    has_more: further rows satisfy the condition; note: why rows of a source have no tags, for people.
    """

    rows: pa.Table
    has_more: bool
    note: str = ""


def rows_where(workspace: Workspace, scope: Scope, columns: pa.Schema, condition: str, limit: int) -> MatchingRows:
    """At most `limit` rows that satisfy a condition: tagged rows or, if none of them does, rows of the source.

    columns: the scope's columns. A join's rows are then joined from its sources. ConfigurationError for an invalid
    condition; SourceError if neither delta-rs nor Spark can read the rows, or Spark would have to join them.
    """
    schema = nullable(pa.schema([field for field in columns if field.name != JOINED_TIME]))
    zone, (lists, _) = (
        workspace.configuration.rules.time_zone,
        read_lists(workspace.configuration, pl.Series([condition])),
    )
    compiled = ri.compile_rules([("where", condition)], schema, time_zone=zone, lists=lists)
    for reject in compiled.rejects.to_pylist():
        where = "" if reject["position"] is None else f" (at character {reject['position'] + 1})"
        raise ConfigurationError(f"The condition of --where is refused{where}: {reject['error']}: {reject['message']}")
    name = tagged_table(scope.name)
    if workspace.lake.exists(name):
        tagged = pa.schema([*schema, ("rules_version", pa.int64()), ("index_fingerprint", pa.string())])
        place = _StoredTable(workspace, f"the table {name}", workspace.lake.uri(name), False)
        found = _found(place, tagged, compiled, limit)
        if found.rows.num_rows:
            return found
    if isinstance(scope, JoinScope):
        from pipelines.explaining.pairs import joined_rows_where

        batches = joined_rows_where(scope, compiled, limit + 1)
        rows = pa.concat_tables([schema.empty_table(), *(_completed(pa.table(each), schema) for each in batches)])
        return MatchingRows(rows.slice(0, limit), rows.num_rows > limit)
    assert isinstance(scope, StreamScope)
    stream = scope.stream
    place = _StoredTable(workspace, f"the source of {stream.name}", stream.source, is_catalog_name(stream.source))
    found = _found(place, schema, compiled, limit)
    return (
        replace(found, note=_why_untagged(workspace, scope, schema, compiled, limit)) if found.rows.num_rows else found
    )


def _why_untagged(
    workspace: Workspace, scope: StreamScope, schema: pa.Schema, compiled: ri.CompiledRules, limit: int
) -> str:
    """A sentence on why no tagged row satisfies the condition, though rows of the source do."""
    name = quarantine_table(scope.name)
    if workspace.lake.exists(name):
        place = _StoredTable(workspace, f"the table {name}", workspace.lake.uri(name), False)
        rows = _found(place, pa.schema([*schema, ("reason", pa.string())]), compiled, limit).rows
        if rows.num_rows:
            reasons = sorted(set(rows.column("reason").to_pylist()))
            return (
                f"No tagged row satisfies the condition. {name} has such rows, which get no tags: {'; '.join(reasons)}."
            )
    unmatched = ", or they match no rule" if scope.stream.output == "matched" else ""
    return (
        "No tagged row satisfies the condition. Rows of the source are explained, with the newest rules: they are not "
        f"tagged yet, or were skipped{unmatched}."
    )


@dataclass(frozen=True)
class _StoredTable:
    """A Delta table by its path, URI or name in a catalog."""

    workspace: Workspace
    what: str
    uri: str
    in_catalog: bool

    def dataset(self) -> Any:
        """The table as an Arrow dataset; None if only Spark can read it."""
        if self.in_catalog:
            return None
        table = open_delta(self.uri, None, self.what, "Write it first.")
        if zoned_partitions(table, self.workspace.configuration.rules.time_zone):
            return None
        try:
            return as_dataset(table)
        except Exception:  # delta-rs names a feature of the table that it does not know
            return None

    def frame(self) -> DataFrame:
        """The table as a Spark DataFrame."""
        reader = self.workspace.spark.read.format("delta")
        return reader.table(self.uri) if self.in_catalog else reader.load(self.uri)


def _found(place: _StoredTable, schema: pa.Schema, compiled: ri.CompiledRules, limit: int) -> MatchingRows:
    dataset = None if compiled.derived else place.dataset()
    if dataset is None:
        rows = _through_spark(place, schema, compiled, limit + 1)
    else:
        try:
            # a tagged table lacks columns that were added to the source since
            parts = [schema.empty_table(), *_scanned(dataset, schema, compiled, limit + 1)]
        except (OSError, pa.ArrowException) as error:
            raise SourceError(f"{place.what} cannot be read: {first_line(error)}") from error
        rows = pa.concat_tables(parts)
    return MatchingRows(rows.slice(0, limit), rows.num_rows > limit)


def _scanned(dataset: Any, schema: pa.Schema, compiled: ri.CompiledRules, wanted: int) -> Iterator[pa.Table]:
    """At most `wanted` rows that satisfy the condition.

    Late materialisation: the columns of the condition are read first, all others only for the matching rows.
    """
    known = pa.schema([schema.field(name) for name in _read(compiled, schema) or schema.names[:1]])
    read = _held(dataset.schema.names, known) or dataset.schema.names[:1]
    present = _held(dataset.schema.names, schema)
    for file in dataset.get_fragments():
        start = 0
        for batch in file.to_batches(dataset.schema, columns=read, batch_size=BATCH_ROWS):
            table = _completed(pa.Table.from_batches([batch]), known)
            matched = np.flatnonzero(np.diff(compiled.match_ordinals(table)[0]))[:wanted]
            if len(matched):
                wanted -= len(matched)
                yield _completed(file.scanner(dataset.schema, columns=present).take(pa.array(start + matched)), schema)
            if not wanted:
                return
            start += batch.num_rows


def _read(compiled: ri.CompiledRules, schema: pa.Schema) -> list[str]:
    """The columns that the condition reads, in the spelling of the schema."""
    named = [spelled(schema.names, path_parts(leaf.name)[0], column_key) for leaf in compiled.inputs]
    return sorted({name for name in named if name is not None})


def _held(names: Sequence[str], schema: pa.Schema) -> list[str]:
    """The columns of a schema that are among `names`, in the spelling that they have there."""
    return [name for each in schema.names if (name := spelled(names, each, column_key)) is not None]


def _completed(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table with the columns and types of a schema. Names may differ in case; columns that it lacks are NULL."""
    columns = []
    for field in schema:
        name = spelled(table.column_names, field.name, column_key)
        if name is None:
            columns.append(pa.nulls(table.num_rows, field.type))
            continue
        chunks = [_respelled(chunk, field.type) for chunk in table.column(name).chunks]
        columns.append(pa.chunked_array(chunks, None if chunks else field.type).cast(field.type))
    return pa.Table.from_arrays(columns, schema=schema)


def _respelled(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """The array with the names of its fields, and of fields within these, in the spelling that they have in `wanted`: a
    cast makes a field NULL whose name differs in case."""
    if not (pa.types.is_struct(array.type) and pa.types.is_struct(wanted)):
        return array
    theirs, fields, names = [each.name for each in wanted], [], []
    for number, own in enumerate(each.name for each in array.type):
        name = spelled(theirs, own, field_key)
        part = array.field(number)
        fields.append(part if name is None else _respelled(part, wanted.field(name).type))
        names.append(own if name is None else name)
    return pa.StructArray.from_arrays(fields, names, mask=array.is_null())


def _through_spark(place: _StoredTable, schema: pa.Schema, compiled: ri.CompiledRules, wanted: int) -> pa.Table:
    """At most `wanted` rows that satisfy the condition, matched in Spark in the way that tag does."""
    from pyspark.errors import PySparkException
    from pyspark.sql import functions

    from pipelines.writing.matching import Matcher
    from rules_index.names import back_quoted

    workspace = place.workspace
    workspace.progress(f"looking through {place.what} with Spark")
    with tempfile.TemporaryDirectory() as folder, workspace.active_session() as spark:
        path = Path(folder) / f"where_{compiled.fingerprint[:16]}.index"
        compiled.save(path)
        try:
            frame = place.frame()
            present = _held(frame.columns, schema)
            matcher = Matcher(spark, compiled, path, "string")
            tested = matcher.with_inputs(frame.select(*map(back_quoted, present)))
            kept = tested.withColumn("_matched", functions.size(matcher.rule_ids())).where("_matched > 0")
            rows = kept.select(*map(back_quoted, present)).limit(wanted).toArrow()
        except PySparkException as error:
            raise SourceError(f"{place.what} cannot be searched: {first_line(error)}") from error
    return _completed(rows, schema)
