"""Refuses rules that read texts which a tagged table has lost: an empty text as a partition value is stored as NULL."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa

from pipelines.errors import TableError
from pipelines.lake.added_files import action_rows, files_in
from pipelines.lake.lake import open_delta
from pipelines.retagging.indexes import index_without_spark
from pipelines.settings.configuration import is_catalog_name
from pipelines.table_definitions import tagged_table
from rules_index.names import path_parts

if TYPE_CHECKING:
    from pipelines.retagging.changes import Changes
    from pipelines.scopes import StreamScope


def refuse_lost_texts(scope: StreamScope, changes: Changes) -> None:
    """TableError if rules that differ may read a lost text.

    That is a STRING column by which the tagged table is partitioned, but not the source, with NULL as the value of some
    partition: the rows there may have had an empty text.
    """
    table = scope.workspace.lake.delta(tagged_table(scope.name))
    partitions = {name.lower() for name in table.metadata().partition_columns}
    if not partitions or changes.rules.is_empty():
        return
    schema = scope.columns()
    texts = {field.name.lower() for field in schema if pa.types.is_string(field.type)} & partitions
    if texts and not is_catalog_name(scope.stream.source):
        source = open_delta(scope.stream.source, None, "a source", "")
        texts -= {name.lower() for name in source.metadata().partition_columns}
    lost = {
        name.lower()
        for add in action_rows(files_in(table))
        for name, value in (add.get("partition") or {}).items()
        if value is None
    } & texts
    if not lost:
        return
    numbered = changes.rules.with_columns(rule_id=pl.int_range(changes.rules.height))
    compiled = index_without_spark(numbered, schema, scope.event_time, scope.workspace.configuration.rules.time_zone)
    read = lost if compiled is None else {path_parts(leaf.name)[0].lower() for leaf in compiled.inputs if not leaf.text}
    derived = compiled is not None and any(leaf.text for leaf in compiled.inputs)
    if (read & lost) or derived:
        column = sorted(read & lost or lost)[0]
        raise TableError(
            f"{scope.name} cannot be re-tagged by rules that read {column}: its tagged table is partitioned by it, and "
            "has NULL where the source may have an empty text. Tag everything again with: deltatag tag "
            f"{scope.name} --restart"
        )
