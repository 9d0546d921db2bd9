"""The verb join: new rows on any side of a join -> quarantine and tagged joined rows, exactly once.

Joins of the same streams by the same keys run together: the rows that all of them take are read, filtered and shuffled
only once.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from pipelines.errors import NeedsSparkError, SparkEndedError, as_failure
from pipelines.joining.choice import going_on_with_spark, joins_runner
from pipelines.joining.joiner import Joiner
from pipelines.joining.notices import notices
from pipelines.joining.runner import JoinRunner, PartitionedRows, PlannedJoin
from pipelines.lake.runs import MicroBatch
from pipelines.recovery.attempts import notices as left_out_notices
from pipelines.recovery.jvm_restart import step, surviving
from pipelines.runners.choice import spark_ruled_out
from pipelines.runners.spark_required import why_spark_evaluates_newest
from pipelines.settings.model import LOCAL, Join
from pipelines.sources.source import Source
from pipelines.workspace import Workspace


@dataclass(frozen=True, slots=True)
class JoinResult:
    """What one run of a join did; `batches` is 0 if nothing was due.

    rows: new rows taken from all sides; joined: joined rows written; quarantined: rows that came too late;
    source_versions: the last version taken of each stream; notices: sentences that people should read; errors: for
    each rule, on how many rows one of its predicates was left out because it had ended Spark.
    """

    join: str
    batches: int = 0
    rows: int = 0
    joined: int = 0
    matches: int = 0
    quarantined: int = 0
    rules_version: int | None = None
    fingerprint: str | None = None
    source_versions: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    notices: tuple[str, ...] = ()
    errors: Mapping[str, int] = field(default_factory=dict)

    def plus(self, batch: MicroBatch) -> JoinResult:
        """This result with one more micro-batch added."""
        sides = batch.plan.get("sides", {})
        return JoinResult(
            self.join,
            self.batches + 1,
            self.rows + (batch.rows or 0),
            self.joined + int(batch.plan.get("joined", 0)),
            self.matches + (batch.matches or 0),
            self.quarantined + (batch.quarantined or 0),
            batch.rules_version,
            batch.fingerprint,
            {stream: _last_version(side["end"]) for stream, side in sides.items()},
            self.seconds,
            (*self.notices, *left_out_notices(self.join, batch)),
            dict(Counter(self.errors) + Counter(batch.errors)),
        )


def join_streams(workspace: Workspace, name: str, restart: bool = False, skip_changes: bool = False) -> JoinResult:
    """Join everything that is new on any side, up to the newest version of every source.

    restart: empty the join's tables and begin again at each stream's start; skip_changes: skip commits of the sources
    that changed or removed rows, instead of stopping at the first of them.
    Raises NoIndexError, SourceError, SourceChangedError, JoinChangedError and others of pipelines.errors.
    """
    results, failures = join_together(workspace, [name], restart, skip_changes)
    for error in failures.values():
        raise error
    return results[0]


def join_together(
    workspace: Workspace, names: Sequence[str], restart: bool = False, skip_changes: bool = False
) -> tuple[list[JoinResult], dict[str, Exception]]:
    """Like `join_streams`, for several joins; a failure of one does not stop the others.

    Returns the results in the order of `names`, and the errors by name. A join that failed has a result only if some of
    its micro-batches were done before.
    """
    results: dict[str, JoinResult] = {}
    failures: dict[str, Exception] = {}
    for joins in _alike(workspace, [workspace.configuration.join(name) for name in names]):
        run = _Run(workspace, joins, failures)
        while going := [join.name for join in joins if join.name not in failures]:
            try:
                surviving(workspace, going, partial(run.run_due, restart, skip_changes))
                break
            except SparkEndedError as error:
                failures[run.current] = error
            except NeedsSparkError as reason:
                run.take_spark(reason)
            except Exception as error:
                # no runner for any of them: Spark is ruled out, or cannot be started
                failures |= dict.fromkeys(going, as_failure(error))
        results |= {name: run.result_of(name) for name in run.results}
    return [results[name] for name in names if name not in failures or results[name].batches], failures


def _alike(workspace: Workspace, joins: Sequence[Join]) -> list[list[Join]]:
    """The joins in groups with the same streams and keys; joins that need Spark are grouped apart, and come last."""
    found: dict[str, list[Join]] = {}
    for join in joins:
        needs_spark = why_spark_evaluates_newest(workspace.lake, join.name) is not None
        keys = [needs_spark, join.streams, [[column.lower() for column in join.on[name]] for name in join.streams]]
        found.setdefault(json.dumps(keys), []).append(join)
    return [found[keys] for keys in sorted(found, key=lambda keys: keys.startswith("[true"))]


class _Run:
    """One run of joins over the same streams and keys."""

    def __init__(self, workspace: Workspace, joins: Sequence[Join], failures: dict[str, Exception]) -> None:
        """failures: gets the error of each join that fails."""
        self.workspace, self.joins, self.failures = workspace, joins, failures
        # its windows are the longest of all joins, so that its rows suffice for each of them
        self.widest_join = replace(
            joins[0], window={name: max(join.window[name] for join in joins) for name in joins[0].streams}
        )
        self.results = {join.name: JoinResult(join.name) for join in joins}
        self._newest: dict[str, MicroBatch] = {}
        self.current = joins[0].name
        self._runner: JoinRunner | None = None
        self._restarted: set[str] = set()

    def take_spark(self, reason: NeedsSparkError) -> None:
        """Go on with Spark because the local runner cannot."""
        going = [join.name for join in self.joins if join.name not in self.failures]
        self._runner = going_on_with_spark(self.workspace, going, reason)

    @property
    def runner(self) -> JoinRunner:
        """The runner; SparkRuledOutError if the configuration demands the local one and it cannot serve."""
        if self._runner is None:
            self._runner = joins_runner(self.workspace, self.joins)
        return self._runner

    def run_due(self, restart: bool, skip_changes: bool, spark_ended: bool) -> None:
        """Run what is due, one micro-batch of each join at a time. spark_ended: the step `current` of an earlier call
        has just ended Spark."""
        with step(self.workspace, f"join {self.current}"), self.runner.session():
            joiners = self._joiners(self.current if spark_ended else None)
            for joiner in joiners:
                name = joiner.join.name
                with self._step(name):
                    self._count(joiner, joiner.reset(restart and name not in self._restarted, skip_changes))
                    self._restarted.add(name)
            while due := self._planned(joiners, skip_changes):
                for together in _of_the_same_rows(due):
                    self._execute(together)

    def _joiners(self, ending_spark: str | None) -> list[Joiner]:
        """A joiner for each join, over the sources' newest versions. ending_spark: the join that has just ended
        Spark."""
        command = f"deltatag join {' '.join(join.name for join in self.joins)}"
        streams = [self.workspace.configuration.stream(name) for name in self.widest_join.streams]
        sources: dict[str, Source] = {}
        joiners = []
        for join in self.joins:
            if join.name in self.failures:
                continue
            with self._step(join.name):
                sources = sources or {each.name: self.runner.open_source(each, command) for each in streams}
                spark_ended = join.name == ending_spark
                joiners.append(Joiner(self.workspace, self.runner, join, self.widest_join, sources, spark_ended))
        return joiners

    def _planned(self, joiners: Sequence[Joiner], skip_changes: bool) -> list[tuple[Joiner, PlannedJoin]]:
        """The next micro-batch of each join that has one."""
        due = []
        for joiner in joiners:
            if joiner.join.name not in self.failures:
                with self._step(joiner.join.name):
                    planned = joiner.plan(skip_changes)
                    if planned is not None:
                        due.append((joiner, planned))
        return due

    def _execute(self, together: Sequence[tuple[Joiner, PlannedJoin]]) -> None:
        """Write micro-batches that read the same rows; if these cannot be read for all, each micro-batch alone."""
        partitioned = self._partitioned_rows(together)
        if partitioned is None:
            for each in together if len(together) > 1 else ():
                self._execute([each])
            return
        try:
            for joiner, planned in together:
                with self._step(joiner.join.name):
                    self._count(joiner, joiner.execute(planned, partitioned))
        finally:
            with suppress(Exception):  # Spark may have ended
                partitioned.release()

    def _partitioned_rows(self, together: Sequence[tuple[Joiner, PlannedJoin]]) -> PartitionedRows | None:
        """The rows of micro-batches; None if they cannot be read. Of a single micro-batch the failure is recorded."""
        try:
            return self.runner.partitioned_rows(self.widest_join, [planned for _, planned in together])
        except Exception as error:
            if len(together) == 1 or isinstance(error, SparkEndedError):
                self._fail(together[0][0].join.name, error)
            return None

    def _count(self, joiner: Joiner, batch: MicroBatch | None) -> None:
        if batch is not None:
            self.results[joiner.join.name] = self.results[joiner.join.name].plus(batch)
            self._newest[joiner.join.name] = batch

    def result_of(self, name: str) -> JoinResult:
        """What the run did of a join, with the notices on its last micro-batch."""
        result, batch = self.results[name], self._newest.get(name)
        about_last = notices(name, batch.plan) if batch is not None else []
        return replace(result, notices=(*about_last, *result.notices))

    @contextmanager
    def _step(self, name: str) -> Iterator[None]:
        """Time a step of one join, and record its failure, so that the other joins go on."""
        started = time.perf_counter()
        self.current = name
        try:
            with step(self.workspace, f"join {name}"):
                yield
        except Exception as error:
            self._fail(name, error)
        result = self.results[name]
        self.results[name] = replace(result, seconds=result.seconds + time.perf_counter() - started)

    def _fail(self, name: str, error: Exception) -> None:
        """Record a join's error, so that the others go on. Errors that end the runner of all joins are raised."""
        if isinstance(error, SparkEndedError):
            raise error
        if isinstance(error, NeedsSparkError):
            if self.workspace.configuration.lake.runner != LOCAL:
                raise error
            error = spark_ruled_out(self.workspace, name, error)
        self.failures[name] = as_failure(error)


def _of_the_same_rows(due: Sequence[tuple[Joiner, PlannedJoin]]) -> list[list[tuple[Joiner, PlannedJoin]]]:
    """The micro-batches in groups that read the same rows; one that is resumed stays alone."""
    found: dict[str, list[tuple[Joiner, PlannedJoin]]] = {}
    for joiner, planned in due:
        plan = planned.batch.plan
        definition = plan["definition"]
        times = [plan["latest"], plan.get("latest_before")]
        rows = [plan["sides"], plan["lateness"], times, definition["event_time"], definition["time_zone"]]
        if planned.resumed:
            # it may end Spark again, which must not be blamed on another join
            rows.append(joiner.join.name)
        found.setdefault(json.dumps(rows, sort_keys=True), []).append((joiner, planned))
    return list(found.values())


def _last_version(end: Mapping[str, Any]) -> int:
    """The last version from which rows were taken before the position `end` of a plan."""
    return int(end["version"]) - (0 if end["index"] or end["snapshot"] else 1)
