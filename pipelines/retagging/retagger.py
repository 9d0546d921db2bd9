"""One re-tag of one stream's tables: planned in `runs`, written exactly once, recorded as done."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import polars as pl

from pipelines.annotated import check_widened
from pipelines.errors import NeedsSparkError, RestartedError, SourceError, TableError
from pipelines.lake.append_only import refuse_append_only
from pipelines.lake.delta_log import ChangedTableError
from pipelines.lake.index_histories import (
    AFTER,
    ALL,
    NEW_RULES,
    IndexHistories,
    Snapshots,
    histories_to_retag,
    index_of_step,
    is_retagged,
    retag_application,
    retag_scope,
    snapshots,
    spans_after,
    taken_batches,
)
from pipelines.lake.index_store import StoredIndex, index_to_tag_with, newest_index
from pipelines.lake.runs import PLANNED, MicroBatch, last_batch, record_done, record_plan, revise
from pipelines.lake.table_log import table_log
from pipelines.origin import IndexedRules, origin_of
from pipelines.recovery.attempts import now_after
from pipelines.retagging.changes import Changes, RuleSets
from pipelines.retagging.local_tables import LocalTables
from pipelines.retagging.lost_texts import refuse_lost_texts
from pipelines.retagging.newly_matched import left_rows_out, refuse_other_output
from pipelines.retagging.row_range import range_of
from pipelines.retagging.tables import ChangedFiles, Tables, why_spark_retags
from pipelines.runners.choice import report_spark, runner_of
from pipelines.runners.spark_required import why_spark_writes
from pipelines.scopes import Scope, StreamScope
from pipelines.sources.source import SAME_ROWS
from pipelines.table_definitions import matches_table, tagged_table

if TYPE_CHECKING:
    from pipelines.settings.model import Stream

_ATTEMPTS = 10
"""Maximum number of attempts of a re-tag if other writers remove files from the tables in the meantime."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The figures of a re-tag, as in `RetagResult`."""

    rules_version: int | None
    files_read: int = 0
    files_written: int = 0
    rows_changed: int = 0
    notices: tuple[str, ...] = ()

    def plus(self, other: Outcome) -> Outcome:
        """The sum with the figures of an earlier run's re-tag that this run has finished."""
        return Outcome(
            self.rules_version,
            self.files_read + other.files_read,
            self.files_written + other.files_written,
            self.rows_changed + other.rows_changed,
        )


@dataclass(frozen=True, slots=True)
class _Work:
    """What a re-tag has to do, by the state of the tables when it was read.

    stored: the newest index; at: the versions of the tables; histories: the indexes that tagged their rows; changes:
    the rules that differ.
    """

    stored: StoredIndex
    at: Snapshots
    histories: IndexHistories
    changes: Changes
    undone: bool = False


class Retagger:
    """One re-tag of a scope."""

    def __init__(self, scope: Scope, since: str | None, until: str | None, mode: str = ALL) -> None:
        """since, until: bounds of the event time, as given on the command line; mode: `ALL` or `NEW_RULES`.

        Raises ConfigurationError if the scope cannot be re-tagged by a range, or if a bound is not a time.
        """
        self.scope, self.name, self.mode = scope, scope.name, mode
        self.workspace, self.lake = scope.workspace, scope.workspace.lake
        self.since, self.until = since, until
        self.stream: Stream | None = scope.stream if isinstance(scope, StreamScope) else None
        self.id_type = self.lake.rule_id_type()
        self._rule_sets = RuleSets(self.workspace, self.name)
        self.rows = range_of(scope, since, until)
        self._needs_spark: NeedsSparkError | None = None

    def run(self) -> Outcome:
        """Finish the re-tag that an earlier run has planned, then do what is due. A run may be killed at any moment,
        and repeated."""
        last = last_batch(self.lake, retag_scope(self.name))
        finished = Outcome(None)
        if last is None or last.state != PLANNED:
            last = None
        else:
            last, written = self._take_over(last)
            if written:
                finished, last = self._finish(last), None
        work = self._work()
        if last is None and work.changes.is_empty:
            self._record_as_current(work)
            return replace(finished, rules_version=work.stored.rules_version)
        return self._retag(work, last).plus(finished)

    def _work(self) -> _Work:
        """Read what there is to do from the newest index, the tables and `runs`."""
        stored = index_to_tag_with(self.lake, self.name)
        at = snapshots(self.lake, self.name, self._keeps_matches)
        is_range = (self.since, self.until) != (None, None)
        now, undone = histories_to_retag(self.lake, self.name, at.through, is_range)
        changes = self._rule_sets.changes(now.distinct | undone, stored, self.mode)
        if self.stream is None and (changes.everything or not changes.rules.is_empty()):
            raise TableError(
                f"Rules of {self.name} were compiled after this re-tag began, and may match pairs of rows that are not "
                f"stored. Start it again: deltatag retag {self.name}"
            )
        return _Work(stored, at, now, changes, bool(undone))

    @property
    def _keeps_matches(self) -> bool:
        return self.stream is not None and self.stream.keeps_matches

    @property
    def _only_matched(self) -> bool:
        return self.stream is None or self.stream.output == "matched"

    def _record_as_current(self, work: _Work) -> None:
        """Record in `runs` that all rows are tagged by the newest index, if it does not say so yet."""
        same = all(index_of_step(history[-1]) == work.stored.fingerprint for history in work.histories.distinct)
        if (not same or work.undone) and self.since is None and self.until is None:
            self._done(record_plan(self.lake, self._planned(work, None, {})), Outcome(work.stored.rules_version), 0.0)

    def _tables(self, stored: StoredIndex, changes: Changes) -> Tables:
        """The tables for this process if it can do the re-tag, else for Spark. TableError if no re-tag is possible."""
        if isinstance(self.scope, StreamScope):
            refuse_lost_texts(self.scope, changes)
        indexed = IndexedRules.of(self.workspace, stored)
        table, columns = tagged_table(self.name), self.workspace.configuration.annotations_of(self.name)
        check_widened(self.name, (each.name for each in self.lake.delta(table).schema().fields), columns, self.id_type)
        replaced = [table, matches_table(self.name)] if self._keeps_matches else [table]
        refuse_append_only(self.lake, replaced, "a re-tag replaces")
        if self._needs_spark is None:
            try:
                return LocalTables.of(self.scope, stored, changes, indexed, self.rows)
            except NeedsSparkError as error:
                self._needs_spark = error
        report_spark(self.workspace, f"the re-tag of {self.name}", self._needs_spark)
        from pipelines.retagging.spark_tables import SparkTables

        return SparkTables(self.scope, changes, stored, indexed, self.rows, self._only_matched)

    def _retag(self, work: _Work, planned: MicroBatch | None) -> Outcome:
        """Match the rows again and write what changes. Starts over from the tables' newest versions if other writers
        have removed files in the meantime."""
        started, conflicts = time.perf_counter(), 0
        while True:
            if self.stream is not None and not work.changes.is_empty:
                refuse_other_output(self.stream, taken_batches(self.lake, self.name, work.at.through))
            tables = self._tables(work.stored, work.changes)
            with tables.session():
                found = tables.find(work.at.tagged)
                try:
                    newly_matched = self._newly_matched(work, tables)
                except NeedsSparkError as error:
                    self._needs_spark = error  # once: Spark's tables do not raise it
                    continue
                rows = found.rows_changed + newly_matched
                batch = self._record(work, planned, {"files_read": found.files_read, "rows_changed": rows})
                try:
                    written = self._write(work, tables, found, newly_matched, batch) if rows else 0
                except TableError as error:
                    conflicts += 1
                    if conflicts == _ATTEMPTS or not _is_conflict(error):
                        raise
                    work, planned = self._work(), batch
                    continue
                batch = replace(batch, plan={**batch.plan, "files_written": written})
                if (rows or work.undone) and work.at.matches is not None:
                    self._follow(tables, batch)
            seconds = time.perf_counter() - started
            return self._done(batch, Outcome(work.stored.rules_version, found.files_read, written, rows), seconds)

    def _write(self, work: _Work, tables: Tables, found: ChangedFiles, newly_matched: int, batch: MicroBatch) -> int:
        """Write the changes to the tagged table, in one commit; returns the number of files added.

        RestartedError if another run has fenced off this re-tag.
        """
        stamps: dict[str, Any] = {}
        if self.mode == ALL:
            stamps = {"rules_version": work.stored.rules_version, "index_fingerprint": work.stored.fingerprint}
        same_rows = not newly_matched and not (self._only_matched and found.rows_emptied)
        name = tagged_table(self.name)
        app = retag_application(batch.plan["series"], name)
        written = tables.write(found, stamps, app, batch.batch, (SAME_ROWS,) if same_rows else ())
        if written is None and not is_retagged(self.lake, batch.plan, name, batch.batch):
            raise RestartedError(
                f"Another run re-tags {self.name} meanwhile; this one ends here, and has written nothing."
            )
        return written or 0

    def _follow(self, tables: Tables, batch: MicroBatch) -> None:
        """Bring the table of matches in line with the tagged table, unless it already holds the re-tag."""
        name = matches_table(self.name)
        for attempt in range(_ATTEMPTS):
            if is_retagged(self.lake, batch.plan, name, batch.batch):
                return
            at = snapshots(self.lake, self.name, keeps_matches=True)
            app = retag_application(batch.plan["series"], name)
            try:
                came = takewhile(
                    lambda each: each.batch > batch.plan["through"], taken_batches(self.lake, self.name, at.through)
                )
                others_came = any(each.fingerprint != batch.fingerprint for each in came)
                tables.follow(at, int(batch.rules_version or 0), app, batch.batch, others_came)
                return
            except TableError as error:
                if attempt == _ATTEMPTS - 1 or not _is_conflict(error):
                    raise

    def _finish(self, batch: MicroBatch) -> Outcome:
        """Finish a re-tag whose rows are already in the tagged table: write the matches, and record it as done."""
        plan = batch.plan
        earlier = Retagger(self.scope, plan.get("since"), plan.get("until"), plan["mode"])
        stored = newest_index(self.lake, self.name, batch.fingerprint)
        changes: Changes | None = None
        if stored is not None:
            try:
                histories = [tuple(history) for history in plan["chains"]]
                changes = self._rule_sets.changes(histories, stored, plan["mode"])
            except (SourceError, TableError):
                changes = None
        if changes is None:
            no_rules = pl.DataFrame(schema={"rule_id": pl.String if self.id_type == "string" else pl.Int64})
            changes = Changes(no_rules, no_rules, (), everything=True)
        if self._keeps_matches and self.lake.exists(matches_table(self.name)):
            tables = earlier._tables(stored or index_to_tag_with(self.lake, self.name), changes)
            with tables.session():
                earlier._follow(tables, batch)
        read, written, rows = (int(plan.get(key, 0)) for key in ("files_read", "files_written", "rows_changed"))
        return self._done(batch, Outcome(batch.rules_version, read, written, rows), 0.0)

    def _newly_matched(self, work: _Work, tables: Tables) -> int:
        """Find the rows that match only now, if unmatched rows are not stored; returns how many. TableError if it is
        not known which rows are stored."""
        if self.stream is None or not self._only_matched or work.changes.rules.is_empty():
            return 0
        if work.changes.everything or work.changes.types_changed:
            why = "the index that tagged them no longer exists or gave the same rules another meaning"
            if work.changes.types_changed:
                why = "rules that tagged them name columns that have other types now"
            raise TableError(
                f"Which rows of {self.name} are in its table, which has only matched ones, is not known: {why}. "
                f"Tag everything again with: deltatag tag {self.name} --restart"
            )
        batches = list(taken_batches(self.lake, self.name, work.at.through))
        self._refuse_rows_left_out_by_origin(batches, work.stored)
        bases: dict[tuple[str, ...], pl.DataFrame] = {}
        for history in work.histories.distinct:
            rules = self._rule_sets.of_history(history)
            assert rules is not None  # else `everything` would be set
            bases[history] = rules
        stamps = {
            "rules_version": work.stored.rules_version,
            "index_fingerprint": work.stored.fingerprint,
            "tagged_at": datetime.now(UTC),
        }
        return tables.find_newly_matched(batches, work.histories, bases, stamps)

    def _refuse_rows_left_out_by_origin(self, batches: Iterable[MicroBatch], stored: StoredIndex) -> None:
        """Raise NotImpliedError or SourceError if the stream reads another one's tagged rows, and that one may have
        left out rows of these micro-batches that a rule matches now."""
        origin, known = origin_of(self.scope), {stored.implied_by}
        if origin is None:
            return
        assert self.stream is not None
        if self._needs_spark is None:
            runner = runner_of(self.workspace, self.stream)
        else:
            from pipelines.runners.spark_runner import SparkRunner

            runner = SparkRunner(self.workspace, self.stream)
        with runner.session():
            source = runner.open_source()
            for batch in left_rows_out(batches):
                taken = source.retake(batch.plan)
                known.update(origin.implies_taken(source, taken, stored, known, later_commits=True))

    def _planned(self, work: _Work, planned: MicroBatch | None, figures: dict[str, int]) -> MicroBatch:
        """The plan of a re-tag, with the number and the series of `planned` if that is given; nothing is written."""
        before = last_batch(self.lake, retag_scope(self.name))
        plan: dict[str, Any] = {
            "mode": self.mode,
            "since": self.since,
            "until": self.until,
            "through": work.at.through,
            "tagged_version": work.at.tagged,
            "chains": sorted(map(list, work.histories.distinct)),
            "series": uuid.uuid4().hex,
            **figures,
        }
        if self.mode == NEW_RULES and self.since is None and self.until is None:
            replaced = work.changes.former["rule_id"].unique()
            after = spans_after(work.histories, work.stored.fingerprint, replaced, self._rule_sets.folded)
            plan[AFTER] = [[last, sorted(map(list, histories))] for last, histories in after]
        if planned is not None:
            plan |= {key: planned.plan[key] for key in ("series", "given_up") if key in planned.plan}
        return MicroBatch(
            scope=retag_scope(self.name),
            batch=planned.batch if planned is not None else 0 if before is None else before.batch + 1,
            state=PLANNED,
            plan=plan,
            rules_version=work.stored.rules_version,
            fingerprint=work.stored.fingerprint,
            source_version=None,
            started_at=datetime.now(UTC),
        )

    def _record(self, work: _Work, planned: MicroBatch | None, figures: dict[str, int]) -> MicroBatch:
        """Write the plan of a re-tag, in place of `planned`, by which nothing was written, if that is given.

        RestartedError if another run has planned a re-tag first.
        """
        wanted = self._planned(work, planned, figures)
        if planned is None:
            recorded = record_plan(self.lake, wanted)
            if recorded.plan != wanted.plan:
                raise RestartedError(f"Another run re-tags {self.name} at the same time; this one ends here.")
            return recorded
        index = {"rules_version": wanted.rules_version, "fingerprint": wanted.fingerprint}
        return revise(self.lake, planned, wanted.plan, started_at=now_after(planned.started_at), **index)

    def _take_over(self, last: MicroBatch) -> tuple[MicroBatch, bool]:
        """Take over a re-tag that an earlier run has planned.

        Returns its plan, and whether its rows are already in the tagged table. If not, the plan has a new series, and
        the earlier run can no longer write the rows.
        """
        name, plan = tagged_table(self.name), last.plan
        if is_retagged(self.lake, plan, name, last.batch):
            return last, True
        former = [plan["series"], *plan.get("given_up", [])]
        replanned = {**plan, "series": uuid.uuid4().hex, "given_up": former}
        batch = revise(self.lake, last, replanned, started_at=now_after(last.started_at))
        written = [series for series in former if self._fence(retag_application(series, name), last.batch)]
        if written:
            batch = revise(
                self.lake, batch, {**replanned, "series": written[0]}, started_at=now_after(batch.started_at)
            )
        return batch, bool(written)

    def _fence(self, app: str, number: int) -> bool:
        """Fence off a re-tag: no run can write its rows any more. True if the tagged table already held them."""
        name = tagged_table(self.name)
        if why_spark_retags(self.workspace) is None and why_spark_writes(self.lake, [name]) is None:
            return table_log(self.lake.uri(name)).fence(app, number)
        from pipelines.spark.delta_internals import TableLog
        from pipelines.spark.failures import run

        with self.workspace.active_session() as spark:
            log = TableLog(spark, self.lake.uri(name))
            return bool(run(partial(log.fence, app, number), f"take over a re-tag of {name}"))

    def _done(self, batch: MicroBatch, outcome: Outcome, seconds: float) -> Outcome:
        """Record a re-tag as done; returns its outcome."""
        rows = outcome.rows_changed
        done = replace(batch, rows=rows, matches=0, quarantined=0, seconds=round(seconds, 3))
        record_done(self.lake, done)
        return outcome


def _is_conflict(error: TableError) -> bool:
    """Whether another writer interfered, so that it helps to start over from the tables' newest versions."""
    cause = error.__cause__
    text = f"{type(cause).__name__} {cause}"
    return isinstance(error, ChangedTableError) or any(
        each in text for each in ("Concurrent", "MetadataChanged", "ProtocolChanged")
    )
