"""Reads the rows of earlier micro-batches from a source again, by Spark, with the columns that the source has now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions

from pipelines.lake.runs import last_batch
from pipelines.sources.slices import slice_frame, slice_schema
from pipelines.sources.source_names import followed_columns, names_of
from pipelines.table_definitions import tagged_table
from pipelines.writing.quarantine import is_accepted
from rules_index.names import back_quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from pipelines.sources.positions import Slice
    from pipelines.sources.source import Source
    from pipelines.workspace import Workspace


def accepted_rows(workspace: Workspace, source: Source, taken: Slice, plan: Mapping[str, Any]) -> DataFrame:
    """The rows of a slice that did not go to quarantine.

    They have the columns that the source has now, which are NULL if it got them later, and those that it has lost
    since. STRUCTs have the fields that they got later if the tagged table has them, too. plan: that of the micro-batch
    which took the slice.
    """
    then, now = (names_of(slice_schema(source, version)) for version in (taken.schema_version, source.version))
    within = {path for path in now.values() if len(path) > 1}
    tagged = names_of(workspace.lake.frame(tagged_table(source.name)).schema).values() if within else ()
    if then.items() <= now.items() and within.issubset(tagged):
        taken = replace(taken, schema_version=source.version)
    rows = slice_frame(source, taken)
    if plan["quarantined"]:
        rows = rows.filter(is_accepted(workspace.spark, plan["key"], plan["checks"]))
    renamed = {path[0]: now[stored][0] for stored, path in then.items() if len(path) == 1 and stored in now}
    # all at once: withColumnsRenamed takes one after the other, and names may have moved from column to column
    names = {name: renamed.get(name, name) for name in rows.columns}
    now_named = {new.lower() for new in renamed.values()}
    kept = [(old, new) for old, new in names.items() if old in renamed or new.lower() not in now_named]
    rows = rows.select(*(functions.col(back_quoted(old)).alias(new) for old, new in kept))
    return with_later_columns(rows, source)


def refuse_other_names(workspace: Workspace, source: Source) -> None:
    """Raises SourceChangedError if columns were renamed since the last micro-batch, but not in the tagged table: a name
    in a rule, or in that table, might then mean another column."""
    last = last_batch(workspace.lake, source.name)
    before, tables = None if last is None else last.plan, [tagged_table(source.name)]
    followed_columns(workspace, source, source.version, before, tables, f"tag {source.name}")


def with_later_columns(rows: DataFrame, source: Source) -> DataFrame:
    """The rows, with NULL in each column of the source's newest version that they lack, since rules may read it."""
    held = {name.lower() for name in rows.columns}
    later = [field for field in slice_schema(source, source.version).fields if field.name.lower() not in held]
    return rows.withColumns({field.name: functions.lit(None).cast(field.dataType) for field in later})
