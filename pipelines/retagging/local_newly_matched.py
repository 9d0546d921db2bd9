"""Finds rows that match only now, by threads of this process.

With `output = "matched"` the tagged table lacks the rows that no rule matched. They are read from the source again, and
those that a rule matches now are written.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pipelines.errors import NeedsSparkError
from pipelines.lake.add_actions import may_match
from pipelines.lake.column_types import nullable
from pipelines.retagging.indexes import index_without_spark
from pipelines.retagging.newly_matched import (
    history_of,
    left_rows_out,
    refuse_removed,
    restart_advice,
    with_lists,
)
from pipelines.retagging.rematch import Rematch, widened
from pipelines.runners.local_runner import LocalRunner
from pipelines.runners.spark_required import why_spark_evaluates
from pipelines.sources.lost_files import reporting_lost_files
from pipelines.writing.files import discard
from rules_index.workers.newly_matched import write_newly_matched

if TYPE_CHECKING:
    import polars as pl

    from pipelines.lake.index_histories import History, IndexHistories
    from pipelines.lake.runs import MicroBatch
    from pipelines.scopes import StreamScope
    from pipelines.sources.positions import Add, Slice
    from pipelines.sources.source import Source
    from rules_index.index.compiled import CompiledRules
    from rules_index.workers.task import Task


@dataclass
class NewlyMatchedFiles:
    """Rows that were written to files which belong to no version of the table yet. entries: `add` actions, as JSON."""

    rows: int = 0
    entries: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _FileGroup:
    """Files of several micro-batches that are read in the same way, so that many small micro-batches give few files.

    history: the indexes that tagged the rows; taken: the slice of the first micro-batch; checks: its plan, which says
    which rows went to quarantine; adds: the files that may have rows that match.
    """

    history: History
    schema: pa.Schema
    taken: Slice
    checks: Mapping[str, Any]
    adds: list[Add] = field(default_factory=list)


def columns_then(runner: LocalRunner, source: Source, version: int) -> pa.Schema:
    """The source's newest columns, followed by those that it had at a version and has lost since. NeedsSparkError if a
    column had another type then."""
    now = runner.columns(source, source.version)
    runner.check_features(source, version)
    then = runner.columns(source, version)
    if any(each.name in now.names and now.field(each.name).type != each.type for each in then):
        raise NeedsSparkError("a column of its source had another type when rows were tagged")
    return nullable(pa.schema([*now, *(each for each in then if each.name not in now.names)]))


class LocalNewlyMatched:
    """Finds and writes the rows of one stream that match only now."""

    def __init__(self, scope: StreamScope, rematch: Rematch, task: Task, schema: pa.Schema) -> None:
        """rematch: has the index of the rules that differ; task: how rows of the tagged table are written; schema: the
        columns of the tagged table."""
        self.scope, self.rematch, self.task, self.schema = scope, rematch, task, schema
        self.stream = scope.stream
        self._runner = LocalRunner(scope.workspace, scope.stream)

    def write(
        self, batches: Sequence[MicroBatch], histories: IndexHistories, bases: Mapping[History, pl.DataFrame]
    ) -> NewlyMatchedFiles:
        """Write the rows of some micro-batches that match only now. bases: the rules that tagged the rows of each
        history.

        NeedsSparkError if only Spark reads the source or evaluates a rule; SourceError if the source no longer holds
        the rows of a micro-batch. No file is left behind after an error.
        """
        written, compiled = NewlyMatchedFiles(), self.rematch.compiled
        if compiled is None:
            return written
        source = self._runner.open_source()
        groups = self._groups(source, batches, histories, compiled)
        refuse_removed(source, self.stream, batches, (add for group in groups for add in group.adds))
        former = {history: self._indexes_of(bases[history], compiled) for history in {each.history for each in groups}}
        try:
            for group in groups:
                with reporting_lost_files(source, tuple(group.adds), restart_advice(self.stream)):
                    self._write(source, group, compiled, former[group.history], written)
        except BaseException:
            discard(self.task, {"tagged": written.entries})
            raise
        return written

    def _groups(
        self, source: Source, batches: Iterable[MicroBatch], histories: IndexHistories, compiled: CompiledRules
    ) -> list[_FileGroup]:
        """The files that may have such rows, grouped by how they are read."""
        groups: dict[tuple[History, str, str], _FileGroup] = {}
        schemas: dict[int, pa.Schema] = {}
        conditions = widened(compiled)
        for batch in left_rows_out(batches):
            taken, plan = source.retake(batch.plan), batch.plan
            adds = [each for each in taken.files if conditions is None or may_match(each[1], conditions)]
            if not adds:
                continue
            if taken.schema_version not in schemas:
                schemas[taken.schema_version] = columns_then(self._runner, source, taken.schema_version)
            schema, history = schemas[taken.schema_version], history_of(self.stream, histories, batch)
            checks = json.dumps([plan["key"], plan["checks"]]) if plan["quarantined"] else ""
            group = _FileGroup(history, schema, taken, plan)
            groups.setdefault((history, schema.to_string(), checks), group).adds.extend(adds)
        return list(groups.values())

    def _write(
        self,
        source: Source,
        group: _FileGroup,
        compiled: CompiledRules,
        former: Sequence[CompiledRules],
        written: NewlyMatchedFiles,
    ) -> None:
        """Write the rows of one group that match only now."""

        def work(batches: Iterator[pa.RecordBatch]) -> int:
            """Write those of one piece; returns how many."""
            rows, entries = write_newly_matched(
                compiled, former, self.rematch.replaced, self.task, self.schema, batches
            )
            written.entries.extend(json.dumps({"add": entry}) for entry in entries)
            return rows

        taken = replace(group.taken, files=tuple(group.adds))
        with self._runner.in_zone(compiled.time_zone):
            written.rows += sum(self._runner.each_accepted(source, taken, group.schema, group.checks, work))

    def _indexes_of(self, rules: pl.DataFrame, compiled: CompiledRules) -> list[CompiledRules]:
        """Indexes of the rules that tagged rows, in parts if they had different values of the same list."""
        columns, event_time = self.scope.columns(), self.scope.event_time
        indexes = []
        for part, lists in with_lists(self.stream, rules, self.rematch.changes.lists):
            index = index_without_spark(part, columns, event_time, compiled.time_zone, lists)
            if index is None:
                raise NeedsSparkError(
                    "a rule that tagged its rows does not compile with the columns that its source has now"
                )
            if reason := why_spark_evaluates(index):
                raise NeedsSparkError(reason)
            indexes.append(index)
        return indexes
