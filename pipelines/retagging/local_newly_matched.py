"""Rows that the tagged table lacks since no rule matched them, where only matched rows are written: those that rules
match now, from the source, by threads of this process."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from pipelines.errors import NeedsSparkError
from pipelines.lake.add_actions import may_match
from pipelines.lake.column_types import nullable
from pipelines.retagging.indexes import index_without_spark
from pipelines.retagging.newly_matched import check_lists, history_of, left_rows_out, way_out
from pipelines.retagging.rematch import Rematch, widened
from pipelines.runners.local_runner import LocalRunner
from pipelines.runners.spark_required import of_derived
from pipelines.sources.lost_files import telling_lost_files
from rules_index.workers.newly_matched import write_newly_matched

if TYPE_CHECKING:
    import polars as pl

    from pipelines.lake.runs import MicroBatch
    from pipelines.retagging.index_histories import History, IndexHistories
    from pipelines.scopes import StreamScope
    from pipelines.sources.positions import Add, Slice
    from pipelines.sources.source import Source
    from rules_index.index.compiled import CompiledRules
    from rules_index.workers.task import Task


@dataclass
class Written:
    """Rows in files that belong to no version of the table yet; entries: `add` actions, as JSON."""

    rows: int = 0
    entries: list[str] = field(default_factory=list)


class LocalNewlyMatched:
    """Finds and writes such rows of one stream."""

    def __init__(self, scope: StreamScope, rematch: Rematch, task: Task, schema: pa.Schema) -> None:
        """rematch: by the index of the rules that differ; task: how rows of the tagged table, which has the columns of
        `schema`, are written."""
        self.scope, self.rematch, self.task, self.schema = scope, rematch, task, schema
        self.stream = scope.stream
        self._runner = LocalRunner(scope.workspace, scope.stream)

    def write(
        self, batches: Iterable[MicroBatch], histories: IndexHistories, bases: Mapping[History, pl.DataFrame]
    ) -> Written:
        """Those of some micro-batches; bases: the rules by which these were tagged.

        NeedsSparkError where only Spark reads the source or evaluates a rule; SourceError where the source does not
        show the rows of a micro-batch any more.
        """
        written, compiled = Written(), self.rematch.compiled
        if compiled is None:
            return written
        source = self._runner.open_source()
        former: dict[History, CompiledRules] = {}
        conditions = widened(compiled)
        for batch in left_rows_out(batches):
            taken = source.retake(batch.plan)
            adds = tuple(each for each in taken.files if conditions is None or may_match(each[1], conditions))
            if not adds:
                continue
            history = history_of(self.stream, histories, batch)
            if history not in former:
                former[history] = self._index_of(bases[history], compiled)
            with telling_lost_files(source, adds, way_out(self.stream)):
                self._write(source, taken, adds, batch, compiled, former[history], written)
        return written

    def _write(
        self, source: Source, taken: Slice, adds: tuple[Add, ...], batch: MicroBatch, compiled: CompiledRules,
        former: CompiledRules, written: Written,
    ) -> None:  # fmt: skip
        """Write those of one micro-batch, of whose files `adds` may have any."""
        schema = self._columns(source, taken)
        work = partial(write_newly_matched, compiled, former, self.rematch.replaced, self.task, self.schema)
        with self._runner.in_zone(compiled.time_zone):
            done = self._runner.each_accepted(source, replace(taken, files=adds), schema, batch.plan, work)
        for rows, entries in done:
            written.rows += rows
            written.entries += [json.dumps({"add": entry}) for entry in entries]

    def _columns(self, source: Source, taken: Slice) -> pa.Schema:
        """The source's columns, and those that it had when a slice was taken and has not any more."""
        now = self._runner.columns(source, source.version)
        then = self._runner.columns(source, taken.schema_version)
        if any(each.name in now.names and now.field(each.name).type != each.type for each in then):
            raise NeedsSparkError("a column of its source had another type when rows were tagged")
        return nullable(pa.schema([*now, *(each for each in then if each.name not in now.names)]))

    def _index_of(self, rules: pl.DataFrame, compiled: CompiledRules) -> CompiledRules:
        """An index of the rules that rows were tagged by."""
        lists = [*compiled.lists.values()]
        check_lists(self.stream, rules, lists)
        columns, event_time = self.scope.columns(), self.scope.event_time
        found = index_without_spark(rules, columns, event_time, compiled.time_zone, lists)
        if found is None:
            raise NeedsSparkError(
                "a rule that tagged its rows does not compile with the columns that its source has now"
            )
        if reason := of_derived(found):
            raise NeedsSparkError(reason)
        return found
