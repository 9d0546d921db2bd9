"""The verb run, for schedulers: compiles, tags, re-tags and joins what is due, once, with quality gates.

Each step is imported only when it is due, since most scheduled runs find nothing to do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Protocol

from pipelines.compiling.due import refusals_are_due
from pipelines.due import join_is_due, retag_is_due, scopes_to_compile, tag_is_due
from pipelines.errors import PipelineError, SparkEndedError, as_failure
from pipelines.lake.runs import last_batch
from pipelines.recovery.jvm_restart import step
from pipelines.recovery.lost_rows import lost_or_restored_rows
from pipelines.settings.model import Join, Stream
from pipelines.workspace import Workspace

if TYPE_CHECKING:
    from pipelines.compiling.results import ScopeResult
    from pipelines.join import JoinResult
    from pipelines.maintaining.outcome import TableMaintenance
    from pipelines.retag import RetagResult
    from pipelines.tag import TagResult


class Gates(Protocol):
    """The quality gates of a run. Each returns None to pass, or one paragraph that says why it is closed."""

    def before_compile(self, workspace: Workspace) -> str | None:
        """Check the rules table; if closed, nothing is compiled, and nothing is tagged with the older rules either."""

    def before_tag(self, workspace: Workspace, stream: Stream) -> str | None:
        """Check a stream's source; if closed, the stream is not tagged."""

    def after_tag(self, workspace: Workspace, stream: Stream) -> str | None:
        """Check a stream's tagged table; if closed, the run has failed."""

    def before_join(self, workspace: Workspace, join: Join) -> str | None:
        """Check the sources of a join's streams; if closed, they are not joined."""

    def after_join(self, workspace: Workspace, join: Join) -> str | None:
        """Check a join's tagged table; if closed, the run has failed."""


class OpenGates:
    """Gates that are always open."""

    def before_compile(self, workspace: Workspace) -> str | None:
        """Pass."""

    def before_tag(self, workspace: Workspace, stream: Stream) -> str | None:
        """Pass."""

    def after_tag(self, workspace: Workspace, stream: Stream) -> str | None:
        """Pass."""

    def before_join(self, workspace: Workspace, join: Join) -> str | None:
        """Pass."""

    def after_join(self, workspace: Workspace, join: Join) -> str | None:
        """Pass."""


@dataclass(slots=True)
class RunReport:
    """What one run did.

    failures: one paragraph for each scope, stream, join or gate that failed, by name; maintained: the tables that were
    maintained after the work. A failure there does not fail the run.
    """

    compiled: list[ScopeResult] = field(default_factory=list)
    tagged: list[TagResult] = field(default_factory=list)
    joined: list[JoinResult] = field(default_factory=list)
    retagged: list[RetagResult] = field(default_factory=list)
    maintained: list[TableMaintenance] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)


def run_due(workspace: Workspace, gates: Gates) -> RunReport:
    """Compile the scopes, tag and re-tag the streams and run the joins that are due.

    A failure of one does not stop the others.
    """
    report = RunReport()
    _compile_due(workspace, gates, report)
    for stream in workspace.configuration.streams.values():
        _unless_failed(workspace, report, stream.name, partial(_tag_due, workspace, stream, gates, report))
        _unless_failed(workspace, report, stream.name, partial(_retag_due, workspace, stream, report))
    _join_due(workspace, gates, report)
    written = [each.stream for each in report.tagged if each.batches] + [each.join for each in report.joined]
    if written:
        from pipelines.maintain import maintain_after

        report.maintained = maintain_after(workspace, written)
    return report


def _unless_failed(workspace: Workspace, report: RunReport, name: str, action: Callable[[], str | None]) -> None:
    """Take a step of a scope and record its failure; do nothing if the scope, or the gate of the rules, has failed."""
    if "rules" in report.failures or name in report.failures:
        return
    try:
        with step(workspace, f"take a step of {name}"):
            failure = action()
    except Exception as error:
        failure = str(as_failure(error))
    if failure is not None:
        report.failures[name] = failure


def _compile_due(workspace: Workspace, gates: Gates, report: RunReport) -> None:
    due = scopes_to_compile(workspace)
    if not due and not _refusals_are_due(workspace):
        return
    try:
        with step(workspace, "judge the rules"):
            reason = gates.before_compile(workspace)
    except SparkEndedError as error:
        reason = str(error)
    if reason is not None:
        report.failures["rules"] = reason
        return
    from pipelines.compile import compile_scopes
    from pipelines.compiling.results import RejectsNotWrittenError

    try:
        report.compiled = compile_scopes(workspace, due)
    except RejectsNotWrittenError as error:
        # the indexes are right: the table only says which rules are not in them
        report.compiled, report.failures["rule_rejects"] = error.results, str(error)
    report.failures |= {r.scope: r.error for r in report.compiled if r.error is not None}


def _refusals_are_due(workspace: Workspace) -> bool:
    try:
        return refusals_are_due(workspace)
    except PipelineError:
        return False  # the same error stops all scopes


def _tag_due(workspace: Workspace, stream: Stream, gates: Gates, report: RunReport) -> str | None:
    """Tag a stream between its gates; returns why one of them is closed, or why it stopped behind a micro-batch."""
    if not tag_is_due(workspace, stream.name):
        return _loss(workspace, stream)
    reason = gates.before_tag(workspace, stream)
    if reason is not None:
        return reason
    from pipelines.tag import tag_stream

    stopped: list[TagResult] = []
    try:
        report.tagged.append(tag_stream(workspace, stream.name, stopped=stopped))
    except Exception as error:
        if not stopped:
            raise
        reason = str(as_failure(error))
    report.tagged += stopped
    return _both(reason, gates.after_tag(workspace, stream))


def _loss(workspace: Workspace, scope: Stream | Join) -> str | None:
    """A message if written rows are gone: not to say so before new rows come would call the tables complete."""
    return lost_or_restored_rows(workspace, scope, last_batch(workspace.lake, scope.name))


def _both(first: str | None, second: str | None) -> str | None:
    """Two reasons, of which there may be none, as one."""
    return " ".join(each for each in (first, second) if each is not None) or None


def _retag_due(workspace: Workspace, stream: Stream, report: RunReport) -> None:
    """Re-tag the stream's earlier rows if its policy asks for it."""
    if retag_is_due(workspace, stream):
        from pipelines.retag import retag_due

        report.retagged.append(retag_due(workspace, stream))


def _join_due(workspace: Workspace, gates: Gates, report: RunReport) -> None:
    """Run the joins that are due together, between the gates of each."""
    ready: list[Join] = []

    def before(join: Join) -> str | None:
        """Add a join to `ready` if it is due and its gate is open; else returns why the gate is closed."""
        if not join_is_due(workspace, join.name):
            return _loss(workspace, join)
        reason = gates.before_join(workspace, join)
        ready.extend([join] if reason is None else [])
        return reason

    for join in workspace.configuration.joins.values():
        _unless_failed(workspace, report, join.name, partial(before, join))
    if not ready:
        return
    from pipelines.join import join_together

    report.joined, failures = join_together(workspace, [join.name for join in ready])
    report.failures |= {name: str(error) for name, error in failures.items()}
    for join in ready:
        # what was joined before a join stopped is judged, too
        stopped = report.failures.pop(join.name, None) if any(join.name == r.join for r in report.joined) else None
        _unless_failed(workspace, report, join.name, partial(gates.after_join, workspace, join))
        if reason := _both(stopped, report.failures.get(join.name)):
            report.failures[join.name] = reason
