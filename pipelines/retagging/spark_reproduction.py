"""Writes a stream's rows, as an older version of `rules` tags them, to a separate table, by Spark."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, functions

import rules_index as ri
from pipelines.analyse import spark_analyser
from pipelines.annotated import annotate_of
from pipelines.errors import SourceError
from pipelines.lake.added_files import files_in
from pipelines.lake.index_histories import snapshots, taken_batches
from pipelines.retagging.indexes import matcher_of
from pipelines.retagging.local_reproduction import MADE_BY, notices_of
from pipelines.retagging.newly_matched import has_all_rows
from pipelines.retagging.retagger import Outcome
from pipelines.retagging.row_range import in_range
from pipelines.retagging.spark_rows import TaggedRows
from pipelines.retagging.spark_source_rows import accepted_rows, refuse_other_names, with_later_columns
from pipelines.scopes import StreamScope
from pipelines.sources.source import open_source
from pipelines.spark.failures import run
from pipelines.spark.session import in_time_zone
from pipelines.table_definitions import TAGGED_COLUMNS, Column, tagged_columns, tagged_table
from pipelines.value_lists import read_lists
from pipelines.writing.annotated_rows import annotation_columns_of
from pipelines.writing.configured_tables import ConfiguredTable, column_fields
from pipelines.writing.spark_tables import create_table
from rules_index.names import back_quoted

if TYPE_CHECKING:
    import polars as pl

    from pipelines.workspace import Workspace
    from rules_index.workers.retagged_rows import RowRange


def reproduce_by_spark(
    scope: StreamScope, rules: pl.DataFrame, rules_version: int, table: str, in_time: RowRange | None
) -> Outcome:
    """Write the rows of a stream to a separate table, with the ids that these rules give them.

    in_time: the rows to write, None for all.
    """
    workspace, lake = scope.workspace, scope.workspace.lake
    zone, id_type = workspace.configuration.rules.time_zone, lake.rule_id_type()
    with workspace.active_session() as spark, in_time_zone(spark, zone):
        lists, _ = read_lists(workspace.configuration, rules["expression"])
        compiled = ri.compile_rules(
            rules.to_arrow(),
            scope.columns(),
            event_time=scope.event_time,
            time_zone=zone,
            analyse=spark_analyser(scope),
            annotate=annotate_of(workspace.configuration, scope.name),
            lists=lists,
        )
        matcher = matcher_of(scope, compiled, id_type)
        rows, files = _rows(scope)
        rows = rows if in_time is None else rows.filter(in_range(in_time))
        held = {name.lower() for name in lake.frame(tagged_table(scope.name)).columns}
        held -= {*TAGGED_COLUMNS, *scope.stream.annotations}
        names = [name for name in rows.columns if name.lower() in held]
        columns = [functions.col(back_quoted(name)) for name in names]
        rows = with_later_columns(rows, open_source(spark, scope.stream))
        ids = matcher.with_inputs(rows).select(*columns, matcher.rule_ids().alias("rule_ids"), "source_version")
        annotated = annotation_columns_of(compiled.annotations, functions.col("rule_ids"))
        made = ids.select(
            *columns,
            "rule_ids",
            *(column.alias(name) for name, column in annotated),
            functions.lit(rules_version).cast("bigint").alias("rules_version"),
            functions.lit(compiled.fingerprint).alias("index_fingerprint"),
            "source_version",
            functions.current_timestamp().alias("tagged_at"),
        )
        if scope.stream.output == "matched":
            made = made.filter(functions.size("rule_ids") > 0)
        _write(workspace, table, made, tagged_columns(id_type, scope.stream.annotations))
        adds = files_in(lake.delta(table))
    written = sum(adds["num_records"].to_pylist()) if adds.num_rows else 0
    notices = notices_of(scope, compiled, rules_version)
    return Outcome(rules_version, files, int(adds.num_rows), int(written), notices)


def _rows(scope: StreamScope) -> tuple[DataFrame, int]:
    """The rows of the tagged table or, if that lacks unmatched rows, of the source; and the number of files read."""
    stream, workspace = scope.stream, scope.workspace
    at = snapshots(workspace.lake, stream.name, keeps_matches=False)
    if has_all_rows(stream, taken_batches(workspace.lake, stream.name, at.through)):
        rows = TaggedRows(workspace, stream.name)
        files = rows.candidates(at.tagged, None)
        return rows.frame(at.tagged, files), len(files)
    source, frames, count = open_source(workspace.spark, stream), [], 0
    refuse_other_names(workspace, source)
    for batch in taken_batches(workspace.lake, stream.name, at.through):
        taken = source.retake(batch.plan)
        if not taken.files:
            continue
        frames.append(accepted_rows(workspace, source, taken, batch.plan))
        count += len(taken.files)
    if not frames:
        raise SourceError(f"No row of {stream.name} has been processed yet, so there is none to tag.")
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames), count


def _write(workspace: Workspace, table: str, rows: DataFrame, columns_added: tuple[Column, ...]) -> None:
    """Replace the table's rows in one commit; the table is created with a property that marks it if there is none."""
    lake = workspace.lake
    if not lake.exists(table):
        added = column_fields(columns_added)
        names = {field["name"] for field in added}
        columns = [field for field in rows.schema.jsonValue()["fields"] if field["name"] not in names]
        create_table(workspace, table, ConfiguredTable(table, [*columns, *added]).definition)
        statement = f"ALTER TABLE {lake.sql_name(table)} SET TBLPROPERTIES ('{MADE_BY}' = 'true')"
        run(lambda: workspace.spark.sql(statement), f"make the table {table}")

    def write() -> Any:
        """Replace the table's rows and columns."""
        writer = rows.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
        return (
            writer.save(lake.uri(table)) if lake.settings.root is not None else writer.saveAsTable(lake.sql_name(table))
        )

    run(write, f"write the table {table}")
