"""One run over one scope: the steps of a micro-batch that are the same for streams and for joins.

A micro-batch is planned in `runs`, written, and recorded as done. One that an earlier run has planned comes first. It
is planned again if nothing of it is written and there is a newer index, or if a predicate of it ends Spark.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.errors import IndexOutdatedError, SparkEndedError, TableError
from pipelines.lake.append_only import refuse_append_only
from pipelines.lake.index_store import StoredIndex, load_planned, newest_index
from pipelines.lake.runs import (
    DONE,
    PLANNED,
    RESET,
    MicroBatch,
    abandon,
    check_id_type,
    plan_reset,
    record_done,
    record_plan,
    record_reset,
)
from pipelines.recovery.attempts import Attempts, described_inputs, holds_nothing, plan_anew, suspects_after
from pipelines.recovery.lost_rows import lost_rows, restored_rows

if TYPE_CHECKING:
    import rules_index as ri
    from pipelines.lake.lake import Lake


class MicroBatchRun:
    """The steps that runs over a stream and over a join share."""

    def __init__(
        self,
        lake: Lake,
        scope: str,
        command: str,
        tables: Sequence[str],
        rule_tables: Sequence[str],
        fence: Callable[[str, Sequence[str], int], list[str]],
        spark_ended: bool,
    ) -> None:
        """tables: those of the scope; rule_tables: those of them whose rows depend on the rules, the tagged rows last;
        fence: fences off a series in tables, and returns those that hold its micro-batch; spark_ended: an attempt at
        the scope's last micro-batch has just ended Spark."""
        self.lake, self.tables, self._rule_tables = lake, tables, rule_tables
        self._scope, self._command = scope, command
        self._fence, self._spark_ended = fence, spark_ended
        self._matches: str | None = None
        """The scope's table of matches, if the configuration keeps one."""
        self._indexes: dict[str, tuple[StoredIndex, ri.CompiledRules, Path]] = {}
        self._attempts: Attempts | None = None

    def _index(self, fingerprint: str) -> tuple[StoredIndex, ri.CompiledRules, Path]:
        if fingerprint not in self._indexes:
            self._indexes[fingerprint] = load_planned(self.lake, self._scope, fingerprint, self._command)
        return self._indexes[fingerprint]

    def _reset_tables(self, last: MicroBatch | None, restart: bool, empty: Callable[[], None]) -> MicroBatch | None:
        """Empty the tables if `restart` is set, or if an earlier run planned it but did not finish; None if not.

        TableError if the table of tagged rows is gone: made again, it would lack the rows of earlier micro-batches. The
        same if it holds rows of which `runs` has no record: these would be tagged once more. Or if a table is in a
        state from before its last rows, or is to be emptied and only takes new rows.
        """
        loss = lost_rows(self.lake, self._rule_tables[-1], last, self._command, self._matches)
        loss = loss or restored_rows(self.lake, self._scope, self.tables, self._command, self._matches)
        if restart or (last is not None and last.state == RESET):
            refuse_append_only(self.lake, self.tables, "a restart replaces")
        # a run that died before its first plan leaves an empty table, whose columns may no longer be its source's
        if restart and (last is not None or loss or self.lake.exists(self._rule_tables[-1])):
            last = plan_reset(self.lake, self._scope, last)
        if last is None or last.state != RESET:
            if loss:
                raise TableError(loss)
            return None
        for series in abandon(self.lake, last):
            self._fence(series, self.tables, last.batch)
        empty()
        return record_reset(self.lake, last)

    def _common_plan(self, last: MicroBatch | None, stored: StoredIndex) -> dict[str, Any]:
        """The entries that the plan after `last` has for any scope; TableError if rule ids have another type now."""
        id_type = self.lake.rule_id_type()
        check_id_type(last, id_type, f"{self._command} --restart")
        from_scratch = last is None or last.plan.get("reset", False)
        series = uuid.uuid4().hex if last is None or from_scratch else last.plan["series"]
        return {"series": series, "id_type": id_type, **suspects_after(last, stored)}

    def _record_plan(
        self, last: MicroBatch | None, plan: dict[str, Any], stored: StoredIndex, source_version: int | None
    ) -> MicroBatch:
        """Plan the micro-batch after `last`; if another run was first, its plan is returned."""
        batch = MicroBatch(
            scope=self._scope,
            batch=0 if last is None else last.batch + 1,
            state=PLANNED,
            plan=plan,
            rules_version=stored.rules_version,
            fingerprint=stored.fingerprint,
            source_version=source_version,
            started_at=datetime.now(UTC),
        )
        return record_plan(self.lake, batch)

    def _newer_index(self, batch: MicroBatch, fits: Callable[[StoredIndex], bool]) -> StoredIndex | None:
        """The newest index, if it is another one than a planned micro-batch has and can replace it; else None.

        It can if nothing of the micro-batch is written yet and it fits the rows. fits: whether it does; may also raise
        IndexOutdatedError if it does not.
        """
        newest = newest_index(self.lake, self._scope)
        if newest is None or newest.fingerprint == batch.fingerprint:
            return None
        can_keep_its_own = "given_up" not in batch.plan and self._is_readable(str(batch.fingerprint))
        if can_keep_its_own and not holds_nothing(self.lake, batch, self.tables):
            return None
        try:
            return newest if fits(newest) else None
        except IndexOutdatedError:
            return None

    def _is_readable(self, fingerprint: str) -> bool:
        """Whether this version of deltatag can read an index."""
        try:
            self._index(fingerprint)
        except IndexOutdatedError:
            return False
        return True

    def _with_index(
        self,
        batch: MicroBatch,
        newest: StoredIndex | None,
        changes: Callable[[StoredIndex], Mapping[str, Any]] = lambda _: {},
    ) -> MicroBatch:
        """The micro-batch, planned again with the index `newest`; unchanged if that is None.

        If an earlier run has begun to plan it again and did not finish, it is planned again in any case, with its own
        index if `newest` is None. changes: the further changes of the plan for an index.
        """
        if newest is None and "given_up" not in batch.plan:
            return batch
        stored = newest or self._index(str(batch.fingerprint))[0]
        batch = self._plan_anew(batch, stored, {"left_out": [], **changes(stored)})
        self._spark_ended = False
        return batch

    def _plan_anew(self, batch: MicroBatch, stored: StoredIndex, changes: Mapping[str, Any]) -> MicroBatch:
        return plan_anew(self.lake, batch, self.tables, self._rule_tables, stored, changes, self._fence)

    def _begin_attempt(self, batch: MicroBatch, match: Callable[[MicroBatch, frozenset[str]], None]) -> MicroBatch:
        """Count one more attempt at a planned micro-batch; returns it without the predicates that end Spark.

        match: matches the rows without the given inputs, and writes nothing.
        """
        stored, compiled, _ = self._index(str(batch.fingerprint))
        attempts = self._attempts = Attempts(self.lake, batch, compiled, self._spark_ended)
        failing = attempts.begin(lambda without: match(attempts.batch, without))
        batch = attempts.batch
        if not failing:
            return batch
        listed = [*batch.plan.get("left_out", []), *described_inputs(compiled, failing)]
        return self._plan_anew(batch, stored, {"left_out": listed})

    @contextmanager
    def _explained_end(self) -> Iterator[None]:
        """Complete the error of an attempt that ends Spark with what a search has found."""
        try:
            yield
        except SparkEndedError as error:
            if self._attempts is None:
                raise
            raise self._attempts.explain_error(error) from error

    def _record_done(self, batch: MicroBatch, started: float, **figures: Any) -> MicroBatch:
        """Record a micro-batch as done, with its figures; `started`: the time when writing began."""
        done = replace(batch, state=DONE, seconds=round(time.perf_counter() - started, 3), **figures)
        record_done(self.lake, done)
        self._attempts, self._spark_ended = None, False
        return done
