"""Updates `<stream>_matches` after a re-tag: the matches of the rules that differ become those that the tagged table
has.

This step depends only on the tables and not on the plan, so it can be repeated at any time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
from pyspark.sql import DataFrame, functions
from pyspark.sql.types import StructType

from pipelines.lake.index_histories import Snapshots
from pipelines.retagging.rematch import Rematch, matchable
from pipelines.retagging.row_range import in_range
from pipelines.retagging.spark_rows import TaggedRows
from pipelines.spark.delta_internals import COMMIT_VERSION, TableLog, snapshot_schema
from pipelines.spark.failures import run
from pipelines.table_definitions import keys_in_matches, matches_table
from rules_index.names import back_quoted
from rules_index.workers.retagged_rows import IN_RANGE

if TYPE_CHECKING:
    from pipelines.sources.positions import Add
    from pipelines.workspace import Workspace

_LISTED = 200
"""Maximum number of ids that are listed in a condition; more are joined."""


class Matches:
    """The table of matches of one stream."""

    def __init__(self, workspace: Workspace, stream: str, tagged: TaggedRows) -> None:
        self.workspace, self.name, self.tagged = workspace, matches_table(stream), tagged
        self.spark = workspace.spark
        self.log = TableLog(workspace.spark, workspace.lake.uri(self.name))
        self._stream = stream

    def replace(
        self, at: Snapshots, rematch: Rematch, rules_version: int, app: str, number: int, others_came: bool
    ) -> int:
        """Replace the matches of the rules that differ by those that the tagged table has, in one commit with
        transaction `number` of `app`. Returns the number of files added; 0 if the table already holds the transaction.

        at: versions of both tables that hold the same micro-batches; others_came: some of these came after the re-tag
        and were tagged by another index.
        """
        assert at.matches is not None
        self.workspace.progress(f"{self.name}: replacing the matches of {len(rematch.changes.ids):,} rules")
        snapshot = self.log.snapshot(at.matches)
        columns = snapshot_schema(snapshot)
        files = tuple((at.matches, add) for add in self.log.files(snapshot))
        stale = run(lambda: self._stale(files, rematch), f"look for matches in {self.name}")
        frames = [self._new_matches(at, rematch, columns, rules_version, others_came)]
        if stale:
            rows = self.log.frame(snapshot, stale).drop(COMMIT_VERSION)
            frames.append(
                self._kept(rows, rematch).select(*(functions.col(back_quoted(name)) for name in columns.names))
            )
        together = frames[0].unionByName(frames[1]) if stale else frames[0]
        written = run(
            lambda: self.log.rewrite(
                snapshot,
                [add for _, add in stale],
                [],
                [together.sortWithinPartitions("rule_id")],
                app,
                number,
            ),
            f"write the matches to {self.name}",
        )
        return written or 0

    def _stale(self, files: tuple[Add, ...], rematch: Rematch) -> list[Add]:
        """The files that have matches of the rules that differ."""
        if not files:
            return []
        numbered = [(number, add) for number, (_, add) in enumerate(files)]
        rows = self.log.frame(self.log.snapshot(files[0][0]), numbered)
        if rematch.rows is not None:
            rows = rows.filter(in_range(rematch.rows))
        found = self._replaced(rows, rematch).select(COMMIT_VERSION).distinct().collect()
        return [files[number] for number in sorted(int(row[0]) for row in found)]

    def _replaced(self, rows: DataFrame, rematch: Rematch) -> DataFrame:
        """The matches of the rules that differ."""
        if rematch.changes.everything:
            return rows
        return _joined(rows, rematch.changes.ids, rematch, "left_semi")

    def _kept(self, rows: DataFrame, rematch: Rematch) -> DataFrame:
        """The matches that stay."""
        chosen = functions.lit(True) if rematch.rows is None else in_range(rematch.rows)
        if rematch.changes.everything:
            return rows.filter(~chosen)
        marked = rows.withColumn(IN_RANGE, chosen)
        kept = _joined(marked.filter(f"`{IN_RANGE}`"), rematch.changes.ids, rematch, "left_anti")
        return kept.unionByName(marked.filter(f"NOT `{IN_RANGE}`")).drop(IN_RANGE)

    def _new_matches(
        self, at: Snapshots, rematch: Rematch, columns: StructType, rules_version: int, others_came: bool
    ) -> DataFrame:
        """The matches of the rules that differ, by the ids of the tagged rows."""
        ids: pl.Series = rematch.changes.ids if others_came else rematch.changes.rules["rule_id"]
        condition = None if others_came else matchable(rematch.compiled)
        rows = self.tagged.frame(at.tagged, self.tagged.candidates(at.tagged, None))
        if ids.is_empty() and not rematch.changes.everything:
            rows = rows.limit(0)
        elif not rematch.changes.everything and condition is not None and not self.tagged.missing:
            rows = self.tagged.frame(at.tagged, self.tagged.candidates(at.tagged, condition)).filter(condition)
        if rematch.rows is not None:
            rows = rows.filter(in_range(rematch.rows))
        keys = keys_in_matches(columns.names, rows.columns)
        read = [functions.col(back_quoted(name)) for name in (*keys, "source_version")]
        exploded = rows.select(functions.explode("rule_ids").alias("rule_id"), *read)
        if not rematch.changes.everything:
            exploded = _joined(exploded, ids, rematch, "left_semi")
        exploded = exploded.withColumn("rules_version", functions.lit(rules_version).cast("bigint"))
        found = [
            functions.col(back_quoted(field.name))
            if field.name in exploded.columns
            else functions.lit(None).cast(field.dataType).alias(field.name)
            for field in columns
        ]
        return exploded.select(*found)


def _joined(rows: DataFrame, ids: pl.Series, rematch: Rematch, how: str) -> DataFrame:
    """The rows whose `rule_id` is one of `ids` (`how`: "left_semi"), or is none of them ("left_anti")."""
    listed = ids.to_list()
    if len(listed) <= _LISTED:
        kept = functions.col("rule_id").isin(listed) if listed else functions.lit(False)
        return rows.filter(kept if how == "left_semi" else ~kept)
    table = pl.DataFrame({"rule_id": ids}).to_arrow().cast(pa.schema([("rule_id", rematch.replaced.id_type)]))
    known = rows.sparkSession.createDataFrame(table)
    return rows.join(functions.broadcast(known), "rule_id", how)
