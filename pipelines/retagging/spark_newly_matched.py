"""Finds rows that match only now, by Spark.

With `output = "matched"` the tagged table lacks the rows that no rule matched. They are read from the source again, and
those that a rule matches now are written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, functions

from pipelines.errors import TableError
from pipelines.lake.index_histories import History, IndexHistories
from pipelines.lake.runs import MicroBatch
from pipelines.retagging.indexes import index_of, matcher_of
from pipelines.retagging.newly_matched import (
    history_of,
    left_rows_out,
    refuse_removed,
    restart_advice,
    with_lists,
)
from pipelines.retagging.spark_source_rows import accepted_rows, refuse_other_names
from pipelines.sources.lost_files import reporting_lost_files
from pipelines.sources.pushdown import Matchable
from pipelines.sources.source import Source, open_source
from pipelines.writing.annotated_rows import with_annotations
from pipelines.writing.matching import Matcher
from rules_index.names import back_quoted

if TYPE_CHECKING:
    import polars as pl

    import rules_index as ri
    from pipelines.retagging.rematch import Rematch
    from pipelines.scopes import StreamScope

_IDS = "deltatag:new"
_UNREAD = "BYTE_STREAM_SPLIT"


@dataclass(frozen=True, slots=True)
class NewlyMatched:
    """Rows of the source that match only now, with the ids of the rules that match them; rows: how many.

    None of the rules in their index history matches them, so the tagged table lacks them.
    """

    frame: DataFrame
    rows: int


class NewlyMatchedSearch:
    """Finds the rows of one stream that match only now."""

    def __init__(self, scope: StreamScope, rematch: Rematch, histories: IndexHistories) -> None:
        """rematch: has the index of the rules that differ; histories: those of the stream's micro-batches."""
        self.scope, self.rematch, self.histories = scope, rematch, histories
        self.workspace, self.stream = scope.workspace, scope.stream

    def find(
        self, batches: Sequence[MicroBatch], bases: Mapping[History, pl.DataFrame], stamps: Mapping[str, Any]
    ) -> NewlyMatched | None:
        """Find the rows of these micro-batches that match only now; None if there are none.

        bases: the rules that tagged the rows of each history; stamps: values of the columns that tagging adds, except
        ids, annotations and source_version. SourceError if the source no longer holds the rows of a micro-batch.
        """
        if self.rematch.compiled is None or self.rematch.matcher is None:
            return None
        source = open_source(self.workspace.spark, self.stream)
        refuse_other_names(self.workspace, source)
        matchable = Matchable(self.workspace.spark, source, self.rematch.compiled)
        groups: dict[History, list[DataFrame]] = {}
        files = []
        for batch in left_rows_out(batches):
            found = self._slice(source, matchable, batch)
            if found is not None:
                groups.setdefault(history_of(self.stream, self.histories, batch), []).append(found[0])
                files += found[1]
        refuse_removed(source, self.stream, batches, files)
        frames = [self._newly_matched(group, bases[history]) for history, group in groups.items()]
        if not frames:
            return None
        together = _united(frames).withColumnRenamed(_IDS, "rule_ids")
        together = with_annotations(together, self.rematch.annotations)
        for name, value in stamps.items():
            together = together.withColumn(name, functions.lit(value))
        with (
            reporting_lost_files(source, tuple(files), restart_advice(self.stream)),
            self.trial_limit(files),
            self._explained_encoding(),
        ):
            count = together.count()
        return NewlyMatched(together, count) if count else None

    @contextmanager
    def _explained_encoding(self) -> Iterator[None]:
        """Turn Spark's error about a Parquet encoding that only the library reads into a TableError."""
        try:
            yield
        except Exception as error:
            if _UNREAD not in str(error):
                raise
            raise TableError(
                f"Spark, which looks for rows of {self.stream.name} that match only now, does not read the encoding "
                f"{_UNREAD} of columns of the source. {restart_advice(self.stream)}holds now."
            ) from error

    def trial_limit(self, files: list[Any]) -> Any:
        """A time limit for Spark to evaluate derived predicates on the rows of files."""
        from pipelines.recovery.jvm_restart import batch_time_limit

        derived = len(self.rematch.compiled.derived) if self.rematch.compiled is not None else 0
        return batch_time_limit(self.workspace, f"retag {self.stream.name}", tuple(files), derived)

    def _slice(self, source: Source, matchable: Matchable, batch: MicroBatch) -> tuple[DataFrame, list[Any]] | None:
        """The rows of a micro-batch that a rule can match and that did not go to quarantine, and their files; None if
        no file can have such rows."""
        taken = source.retake(batch.plan)
        if matchable.condition is not None:
            taken = replace(taken, files=matchable.files(taken))
        if not taken.files:
            return None
        rows = accepted_rows(self.workspace, source, taken, batch.plan)
        if matchable.condition is not None:
            rows = rows.filter(matchable.condition)
        return rows, list(taken.files)

    def _newly_matched(self, group: list[DataFrame], base: pl.DataFrame) -> DataFrame:
        """The rows that a rule that differs matches, but no rule of the base; with the matched ids as column `_IDS`."""
        rows = _united(group)
        names = [functions.col(back_quoted(name)) for name in rows.columns]
        assert self.rematch.matcher is not None and self.rematch.compiled is not None
        matched = self.rematch.matcher.with_inputs(rows).select(*names, self.rematch.matcher.rule_ids().alias(_IDS))
        matched = matched.filter(functions.size(f"`{_IDS}`") > 0)
        kept = [*names, functions.col(f"`{_IDS}`")]
        for before in self._matchers(base, self.rematch.compiled):
            compared = before.with_inputs(matched).select(*kept, before.rule_ids().alias("deltatag:old"))
            matched = compared.filter(functions.size("`deltatag:old`") == 0).drop("deltatag:old")
        return matched

    def _matchers(self, base: pl.DataFrame, compiled: ri.CompiledRules) -> Iterator[Matcher]:
        """Matchers of the rules of the base, in parts if they had different values of the same list."""
        advice = f"{restart_advice(self.stream)}holds now."
        for part, lists in with_lists(self.stream, base, self.rematch.changes.lists):
            index = index_of(self.scope, part, self.scope.event_time, compiled.time_zone, lists, advice)
            yield matcher_of(self.scope, index, self.rematch.id_type)


def _united(frames: list[DataFrame]) -> DataFrame:
    """The union of the frames by name; columns that a frame lacks are NULL."""
    found = frames[0]
    for each in frames[1:]:
        found = found.unionByName(each, allowMissingColumns=True)
    return found
