"""A re-tag by Spark, which can read and write all tables of Delta, and evaluate all rules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import rules_index as ri
from pipelines.lake.index_store import StoredIndex, fetch_index
from pipelines.lake.runs import MicroBatch
from pipelines.retagging.held_types import refuse_other_types
from pipelines.retagging.indexes import former_index, index_of, matcher_of
from pipelines.retagging.rematch import Rematch
from pipelines.retagging.spark_matches import Matches
from pipelines.retagging.spark_newly_matched import NewlyMatched, NewlyMatchedSearch
from pipelines.retagging.spark_rows import TaggedRows
from pipelines.retagging.tables import ChangedFiles, Stamps
from pipelines.scopes import Scope, StreamScope
from pipelines.spark.session import in_time_zone
from pipelines.table_definitions import tagged_table
from pipelines.writing.matching import Matcher

if TYPE_CHECKING:
    import polars as pl

    from pipelines.lake.index_histories import History, IndexHistories, Snapshots
    from pipelines.origin import IndexedRules
    from pipelines.retagging.changes import Changes
    from rules_index.workers.retagged_rows import RowRange


class SparkTables:
    """The tables of one scope, for one set of rules that differ, worked on by jobs of the workspace's Spark session."""

    def __init__(
        self,
        scope: Scope,
        changes: Changes,
        stored: StoredIndex,
        indexed: IndexedRules,
        rows: RowRange | None,
        only_matched: bool,
    ) -> None:
        """stored: the newest index; indexed: its rules; rows: those to match again, None for all; only_matched: rows
        that lose their last id are deleted."""
        self.scope, self.changes, self.stored, self.indexed = scope, changes, stored, indexed
        self.workspace, self.lake, self.id_type = (
            scope.workspace,
            scope.workspace.lake,
            scope.workspace.lake.rule_id_type(),
        )
        self._rows, self._only_matched = rows, only_matched
        self._newly_matched: NewlyMatched | None = None

    @contextmanager
    def session(self) -> Iterator[None]:
        """A context in which deltatag's own session is the active one, in the time zone of the rules."""
        with self.workspace.active_session() as spark, in_time_zone(spark, self.indexed.time_zone):
            self.tagged = TaggedRows(self.workspace, self.scope.name, self._missing())
            self.rematch = self._rematch()
            refuse_other_types(self.scope, self.tagged.columns(), self.rematch.compiled)
            yield

    def find(self, version: int) -> ChangedFiles:
        """Find the files of a version in which rows change."""
        return self.tagged.find(version, self.rematch)

    def find_newly_matched(
        self,
        batches: Sequence[MicroBatch],
        histories: IndexHistories,
        bases: Mapping[History, pl.DataFrame],
        stamps: Mapping[str, Any],
    ) -> int:
        """Find the rows of micro-batches that match only now, for `write` to add; returns how many."""
        assert isinstance(self.scope, StreamScope)
        self._newly_matched = NewlyMatchedSearch(self.scope, self.rematch, histories).find(batches, bases, stamps)
        return self._newly_matched.rows if self._newly_matched is not None else 0

    def write(self, found: ChangedFiles, stamps: Stamps, app: str, number: int, marks: Sequence[str]) -> int | None:
        """Rewrite the found files with the rows' new ids, and add the rows that match only now."""
        further = self._newly_matched.frame if self._newly_matched is not None else None
        return self.tagged.write(found, self.rematch, stamps, self._only_matched, further, app, number, marks)

    def follow(self, at: Snapshots, rules_version: int, app: str, number: int, others_came: bool) -> None:
        """Replace the matches of the rules that differ by those that the tagged table has. others_came: rows tagged by
        another index came after the re-tag."""
        tagged = TaggedRows(self.workspace, self.scope.name, self.tagged.missing)
        matches = Matches(self.workspace, self.scope.name, tagged)
        matches.replace(at, self.rematch, rules_version, app, number, others_came)

    def _rematch(self) -> Rematch:
        changes, spark = self.changes, self.workspace.spark
        columns = self.workspace.configuration.annotations_of(self.scope.name)
        annotations = self.indexed.annotations.chosen(columns) if self.indexed.annotations is not None else None
        if changes.everything and changes.rules.is_empty():  # the only thing known is that any rule may differ
            return Rematch(changes, self.id_type, rows=self._rows, annotations=annotations)
        if changes.everything:
            path = fetch_index(self.lake, self.stored)
            compiled = ri.load(path)
            return Rematch(
                changes,
                self.id_type,
                compiled,
                Matcher(spark, compiled, path, self.id_type),
                None,
                self._rows,
                annotations,
            )
        former = self._former()
        if changes.rules.is_empty():
            return Rematch(changes, self.id_type, None, None, former, self._rows, annotations)
        self.workspace.progress(f"{self.scope.name}: compiling the {changes.rules.height:,} rules that differ")
        indexed = self.indexed
        compiled = index_of(self.scope, changes.rules, indexed.event_time, indexed.time_zone, indexed.lists)
        matcher = matcher_of(self.scope, compiled, self.id_type)
        return Rematch(changes, self.id_type, compiled, matcher, former, self._rows, annotations)

    def _former(self) -> ri.CompiledRules | None:
        # if columns have other types now, statistics do not show which files former rules matched rows of
        if not isinstance(self.scope, StreamScope) or self.changes.types_changed:
            return None
        former, columns = self.changes.former, self.scope.columns()
        return former_index(former, columns, self.indexed.event_time, self.indexed.time_zone)

    def _missing(self) -> list[tuple[str, Any]]:
        """The columns, with Spark's types, that the source has and the tagged table lacks."""
        if not isinstance(self.scope, StreamScope):
            return []
        held = {name.lower() for name in self.lake.frame(tagged_table(self.scope.name)).columns}
        fields = self.scope.no_rows().schema.fields
        return [(field.name, field.dataType) for field in fields if field.name.lower() not in held]
