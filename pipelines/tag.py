"""The verb tag: new rows of a stream's source -> quarantine, matches and tagged rows, exactly once.

Before a micro-batch writes any row, everything that decides its rows is planned in `runs`. The three tables are then
written in a fixed order. Each commit carries the micro-batch's number as Delta's `txnVersion`, so the writes are
idempotent: a repetition after a crash skips every table that already has the number.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pipelines.annotated import check_compiled
from pipelines.errors import CheckError, NeedsSparkError, QuarantineShareError
from pipelines.lake.column_types import stored_names
from pipelines.lake.index_store import StoredIndex, index_to_tag_with
from pipelines.lake.runs import PLANNED, MicroBatch, last_batch
from pipelines.recovery.attempts import holds_nothing, notices
from pipelines.recovery.jvm_restart import step, surviving
from pipelines.recovery.lost_rows import kept_matches, lost_quarantine
from pipelines.recovery.micro_batch import MicroBatchRun
from pipelines.runners.choice import going_on_with_spark, runner_of
from pipelines.runners.runner import Job, Runner
from pipelines.settings.model import Stream
from pipelines.sources.columns import check_columns, refused_checks
from pipelines.sources.lost_files import refuse_lost_files, reporting_lost_rows, without_lost_files
from pipelines.sources.only_joined import is_only_joined, notice
from pipelines.sources.positions import Slice, position_from_plan
from pipelines.sources.slices import has_no_null, rows_of
from pipelines.sources.source import Source
from pipelines.table_definitions import matches_table, quarantine_table, tagged_table
from pipelines.workspace import Workspace
from pipelines.writing.inputs import check_inputs

if TYPE_CHECKING:
    import pyarrow as pa

    import rules_index as ri
    from pipelines.origin import Origin


@dataclass(frozen=True, slots=True)
class TagResult:
    """What one run over a stream did; `batches` is 0 if nothing was due.

    rows: how many were taken from the source; quarantined: how many of these were not tagged; errors: for each rule, on
    how many rows one of its predicates raised an error; notices: sentences that people should read.
    """

    stream: str
    batches: int = 0
    rows: int = 0
    matches: int = 0
    quarantined: int = 0
    errors: Mapping[str, int] = field(default_factory=dict)
    rules_version: int | None = None
    fingerprint: str | None = None
    source_version: int | None = None
    seconds: float = 0.0
    notices: tuple[str, ...] = ()

    def plus(self, batch: MicroBatch) -> TagResult:
        """This result with one more micro-batch added."""
        return TagResult(
            self.stream,
            self.batches + 1,
            self.rows + (batch.rows or 0),
            self.matches + (batch.matches or 0),
            self.quarantined + (batch.quarantined or 0),
            dict(Counter(self.errors) + Counter(batch.errors)),
            batch.rules_version,
            batch.fingerprint,
            batch.source_version,
            notices=(*self.notices, *notices(self.stream, batch)),
        )


def tag_stream(
    workspace: Workspace,
    name: str,
    restart: bool = False,
    skip_changes: bool = False,
    stopped: list[TagResult] | None = None,
) -> TagResult:
    """Tag everything that is new in the stream's source, up to its newest version.

    restart: empty the stream's tables and begin again at its start; skip_changes: skip commits of the source that
    changed or removed rows, instead of stopping at the first of them; stopped: gets the result of the micro-batches
    that were done before an error is raised, if there are any. A predicate that ends Spark is left out of the
    micro-batch in which it does so (pipelines.recovery.attempts). A stream that only joins read is not tagged
    (pipelines.sources.only_joined), except with `restart`.
    Raises NoIndexError, SourceError, SourceChangedError, QuarantineShareError and others of pipelines.errors.
    """
    started = time.perf_counter()
    stream, result = workspace.configuration.stream(name), TagResult(name)
    if not restart and is_only_joined(workspace, name):
        return replace(result, notices=(notice(workspace, name),))

    runner = runner_of(workspace, stream)
    last = last_batch(workspace.lake, name) if restart else None

    def run_due(runner: Runner, restart: bool) -> None:
        """Run the micro-batches that are due with a runner, again after each end of Spark, and add them to `result`."""

        def attempt(spark_ended: bool) -> None:
            """Run them until Spark ends, if it does. spark_ended: the attempt before has ended it."""
            nonlocal result
            with step(workspace, f"tag {name}"), runner.session():
                tagger = _Tagger(workspace, stream, runner, spark_ended)
                for batch in tagger.batches(restart and not spark_ended, skip_changes):
                    result = result.plus(batch)

        surviving(workspace, [name], attempt)

    try:
        try:
            run_due(runner, restart)
        except NeedsSparkError as reason:
            # a restart that has begun is planned in `runs`, and must not be planned again
            restart = restart and last_batch(workspace.lake, name) == last
            run_due(going_on_with_spark(workspace, stream, reason), restart)
    except Exception:
        if stopped is not None and result.batches:
            stopped.append(replace(result, seconds=time.perf_counter() - started))
        raise
    return replace(result, seconds=time.perf_counter() - started)


class _Tagger(MicroBatchRun):
    """One run over one stream."""

    def __init__(self, workspace: Workspace, stream: Stream, runner: Runner, spark_ended: bool = False) -> None:
        """spark_ended: an attempt at the stream's last micro-batch has just ended Spark."""
        rule_tables = [matches_table(stream), tagged_table(stream)]
        tables, command = [quarantine_table(stream), *rule_tables], f"deltatag tag {stream.name}"
        super().__init__(workspace.lake, stream.name, command, tables, rule_tables, runner.fence, spark_ended)
        self.workspace, self.stream, self.runner = workspace, stream, runner
        self._matches = kept_matches(stream)
        self._origin: Origin | None = None
        if stream.source_stream is not None:
            from pipelines.origin import Origin

            self._origin = Origin(workspace, stream)

    def batches(self, restart: bool, skip_changes: bool) -> Iterator[MicroBatch]:
        """Run the micro-batches that are due; yields each as it is in `runs` once it is done."""
        last = last_batch(self.lake, self.stream.name)
        source: Source | None = self._source_to_restart(skip_changes) if restart else None
        reset = self._reset_tables(last, restart, self._empty)
        if reset is not None:
            last = reset
            yield last
        if last is not None and last.state == PLANNED:
            source = self.runner.open_source()
            last = self._finish_planned(source, last, skip_changes)
            yield last
        source = source or self.runner.open_source()
        while True:
            taken = self._take(source, last, skip_changes)
            if taken is None:
                return
            stored = index_to_tag_with(self.lake, self.stream.name)
            if skip_changes:
                taken = without_lost_files(source, taken)
            with self._zone_of(stored.fingerprint), self._reporting_lost_rows(source, taken):
                taken, batch = self._plan(source, taken, stored, last)
            with self._reporting_lost_rows(source, taken):
                last = self._execute(source, taken, batch, resumed=False)
            yield last

    def _source_to_restart(self, skip_changes: bool) -> Source:
        """The source, once nothing is found that would stop the first slice: the tables would be empty until it is
        mended. Raises NoIndexError, SourceError, CheckError and others of pipelines.errors."""
        source = self.runner.open_source()
        taken = self._take(source, None, skip_changes)
        stored = index_to_tag_with(self.lake, self.stream.name)
        columns = self.runner.columns(source, source.version if taken is None else taken.schema_version)
        self._check(source, columns, self._index(stored.fingerprint)[1])
        for refused in refused_checks(self.stream, columns):
            raise CheckError(refused)
        if taken is None:
            return source
        if skip_changes:
            taken = without_lost_files(source, taken)
        else:
            otherwise = f", or skip their rows with: {self._command} --restart --skip-changes"
            refuse_lost_files(source, taken.files, self.stream, otherwise)
        if self.stream.max_quarantine_share < 1:
            with self._zone_of(stored.fingerprint):
                self._refused(source, taken, self._checks())
        return source

    def _check(self, source: Source, columns: pa.Schema, compiled: ri.CompiledRules) -> None:
        """Raise an error of pipelines.errors if the stream or an index does not fit these columns of the source."""
        check_columns(self.stream, columns)
        check_inputs(compiled, columns, self.stream.name, lambda: self.runner.columns(source, source.version))
        check_compiled(compiled, self.stream.annotations, self.stream.name)

    def _take(self, source: Source, last: MicroBatch | None, skip_changes: bool) -> Slice | None:
        """The next slice of the source; None if nothing is new."""
        stream = self.stream
        if last is None or last.plan.get("reset"):
            first = source.first_position(stream.start)
            if first.version > source.version:
                self.workspace.progress(
                    f"{stream.name}: its start is later than version {source.version}, the newest of its source"
                )
            return source.take(first, None, stream.max_bytes_per_batch, skip_changes, reached=False)
        position = position_from_plan(last.plan["end"])
        return source.take(position, last.plan["table_id"], stream.max_bytes_per_batch, skip_changes)

    def _zone_of(self, fingerprint: str) -> AbstractContextManager[None]:
        """Use the time zone of an index's rules; the configured one may have changed since."""
        return self.runner.in_zone(self._index(fingerprint)[1].time_zone)

    def _plan(
        self, source: Source, taken: Slice, stored: StoredIndex, last: MicroBatch | None
    ) -> tuple[Slice, MicroBatch]:
        """Check everything that could stop a slice, then write its plan; returns the slice and the plan.

        If another run has planned the micro-batch before, its slice and its plan are returned.
        """
        stream = self.stream
        columns = self.runner.columns(source, taken.schema_version)
        common = self._common_plan(last, stored)
        before = None if last is None or last.plan.get("reset") else last.plan
        kept = [table(stream) for table in (tagged_table, matches_table, quarantine_table)]
        followed = self.runner.followed(source, taken.schema_version, before, kept, f"tag {stream.name}")
        self._check(source, columns, self._index(stored.fingerprint)[1])
        if last is not None and (lost := lost_quarantine(self.lake, stream, self._command)):
            self.workspace.progress(lost)
        self.runner.prepare(source, taken.schema_version, common["id_type"])
        checks = self._checks()
        rows, refused = self._refused(source, taken, checks)
        plan = {
            **taken.to_plan(),
            **followed,
            **checks,
            **common,
            "event_time": stream.event_time,
            "output": stream.output,
            "matches": stream.keeps_matches,
            "rows": rows,
            "quarantined": refused,
        }
        if self._origin is not None:
            plan["implied_by"] = _implied_by(self._origin, source, taken, stored, last)
        source_version = taken.end.version - (0 if taken.end.index or taken.end.snapshot else 1)
        recorded = self._record_plan(last, plan, stored, source_version)
        return (taken if recorded.plan == plan else source.retake(recorded.plan)), recorded

    def _checks(self) -> dict[str, Any]:
        """The entries of a plan by which rows go to quarantine."""
        return {"key": list(self.stream.key), "checks": dict(self.stream.checks)}

    def _refused(self, source: Source, taken: Slice, checks: Mapping[str, Any]) -> tuple[int | None, int]:
        """How many rows the slice has (None if they need not be counted), and how many of them go to quarantine."""
        if not self.stream.can_quarantine or not taken.files:
            return (None if taken.files else 0), 0
        known = rows_of(taken.files)
        stored = stored_names(source.log.fields(source.snapshot(taken.schema_version)))
        key = [stored.get(name.lower(), name) for name in checks["key"]]
        if not checks["checks"] and known is not None and has_no_null(taken.files, key):
            return known, 0  # no row needs to be read: by these statistics, a scan of Spark would skip all files
        found = self.runner.refused(source, taken, checks)
        rows, refused = found.rows, found.refused
        limit = self.stream.max_quarantine_share
        if rows and refused / rows > limit:
            raise QuarantineShareError(
                f"{refused:,} of the next {rows:,} rows of {self.stream.name} would go to quarantine, more than "
                f"max_quarantine_share = {limit} allows; none of them was tagged. Correct the source or the checks, or "
                f"raise the share in [streams.{self.stream.name}] of {self.workspace.configuration.path}."
            )
        return rows, refused

    def _reporting_lost_rows(self, source: Source, taken: Slice) -> AbstractContextManager[None]:
        """Turn an error that is due to deleted source files into one that says so."""
        return reporting_lost_rows(source, taken.files)

    def _finish_planned(self, source: Source, batch: MicroBatch, skip_changes: bool) -> MicroBatch:
        """Finish a micro-batch that an earlier run, or an earlier attempt of this one, has planned.

        With `skip_changes`, deleted source files are left out if nothing of the micro-batch is written yet.
        """
        taken = source.retake(batch.plan)
        left = without_lost_files(source, taken) if skip_changes and not taken.lost else taken
        if left is not taken and holds_nothing(self.lake, batch, self.tables):
            with self._zone_of(str(batch.fingerprint)):
                rows, refused = self._refused(source, left, batch.plan)
            stored, taken = self._index(str(batch.fingerprint))[0], left
            batch = self._plan_anew(batch, stored, {**left.to_plan(), "rows": rows, "quarantined": refused})
        with self._reporting_lost_rows(source, taken):
            return self._resume(source, taken, batch)

    def _resume(self, source: Source, taken: Slice, batch: MicroBatch) -> MicroBatch:
        """Write a planned micro-batch, with the newest index if nothing of it is written yet, and without predicates
        that have been found to end Spark."""

        def fits(newest: StoredIndex) -> bool:
            """Whether the slice has the columns that an index reads; IndexOutdatedError if not."""
            columns = self.runner.columns(source, taken.schema_version)
            check_inputs(self._index(newest.fingerprint)[1], columns, self.stream.name)
            return True

        def changes(stored: StoredIndex) -> dict[str, Any]:
            """The entries of the plan that depend on the index."""
            origin = self._origin
            return {} if origin is None else {"implied_by": _implied_by(origin, source, taken, stored, None)}

        batch = self._with_index(batch, self._newer_index(batch, fits) if taken.files else None, changes)
        if taken.files:
            batch = self._begin_attempt(batch, lambda planned, without: self._match(source, taken, planned, without))
        with self._explained_end():
            return self._execute(source, taken, batch, resumed=True)

    def _match(self, source: Source, taken: Slice, batch: MicroBatch, without: frozenset[str]) -> None:
        """Match the slice and write nothing; the derived columns in `without` are left out."""
        with self._zone_of(str(batch.fingerprint)):
            self.runner.match(self._job(source, taken, batch), without)

    def _job(self, source: Source, taken: Slice, batch: MicroBatch) -> Job:
        return Job(source, taken, batch, *self._index(str(batch.fingerprint)))

    def _execute(self, source: Source, taken: Slice, batch: MicroBatch, resumed: bool) -> MicroBatch:
        """Write the micro-batch as planned, and record it as done."""
        started = time.perf_counter()
        self.workspace.progress(
            f"{self.stream.name}: micro-batch {batch.batch}, {len(taken.files):,} files, {taken.bytes / 2**20:,.1f} MiB"
        )
        figures: dict[str, Any] = {"rows": 0, "matches": 0, "errors": {}}
        if taken.files:
            with self._zone_of(str(batch.fingerprint)):
                figures = self.runner.write(self._job(source, taken, batch), resumed)
        return self._record_done(
            batch,
            started,
            rows=figures["rows"],
            matches=figures["matches"],
            quarantined=batch.plan["quarantined"],
            errors=figures["errors"],
        )

    def _empty(self) -> None:
        """Empty the stream's tables."""
        source = self.runner.open_source()
        self.runner.prepare(source, source.version, self.lake.rule_id_type(), from_scratch=True)


def _implied_by(
    origin: Origin, source: Source, taken: Slice, stored: StoredIndex, last: MicroBatch | None
) -> list[str]:
    """Proves that the origin left out no row of the slice that a rule matches; returns its indexes' fingerprints."""
    same = last is not None and last.fingerprint == stored.fingerprint
    before: list[str] = last.plan.get("implied_by", []) if last is not None and same else []
    known = {*before, stored.implied_by}
    return origin.implies_taken(source, taken, stored, known) or before
