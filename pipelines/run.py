"""The verb run: gates, compile, tag, re-tag and join of whatever is due, once; what a scheduler calls.

Each step is imported where it is due: most runs that a scheduler starts find nothing to do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Protocol

from pipelines.compiling.due import refusals_are_due
from pipelines.due import join_is_due, retag_is_due, scopes_to_compile, tag_is_due
from pipelines.errors import PipelineError, SparkEndedError
from pipelines.recovery.survival import step
from pipelines.settings.model import Join, Stream
from pipelines.workspace import Workspace
from rules_index.errors import RulesIndexError

if TYPE_CHECKING:
    from pipelines.compiling.results import ScopeResult
    from pipelines.join import JoinResult
    from pipelines.retag import RetagResult
    from pipelines.tag import TagResult
    from pipelines.upkeep.outcome import Upkept


class Gates(Protocol):
    """What stands between the steps of a run. Each gives None to pass, or in one paragraph why it is shut."""

    def before_compile(self, workspace: Workspace) -> str | None:
        """Judge the rules table; shut, nothing is compiled, and nothing is tagged with what came before its edits."""

    def before_tag(self, workspace: Workspace, stream: Stream) -> str | None:
        """Judge a stream's source; shut, the stream is not tagged."""

    def after_tag(self, workspace: Workspace, stream: Stream) -> str | None:
        """Judge a stream's tagged table; shut, the run has failed."""

    def before_join(self, workspace: Workspace, join: Join) -> str | None:
        """Judge the sources of a join's streams; shut, they are not joined."""

    def after_join(self, workspace: Workspace, join: Join) -> str | None:
        """Judge a join's tagged table; shut, the run has failed."""


class OpenGates:
    """Gates that let everything pass."""

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
    """What one run did; `failures` has a paragraph for each scope, stream, join or gate that failed, by its name.

    maintained: the tables that it has kept small beside its work; that one of them was not fails no run.
    """

    compiled: list[ScopeResult] = field(default_factory=list)
    tagged: list[TagResult] = field(default_factory=list)
    joined: list[JoinResult] = field(default_factory=list)
    retagged: list[RetagResult] = field(default_factory=list)
    maintained: list[Upkept] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)


def run_due(workspace: Workspace, gates: Gates) -> RunReport:
    """Compile the scopes, tag and re-tag the streams and run the joins that are due.

    A failure of one stops none of the others.
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
    """Take the step of a scope whose rules are in force, and note why it failed; else its rows wait for its rules."""
    if "rules" in report.failures or name in report.failures:
        return
    try:
        with step(workspace, f"take a step of {name}"):
            failure = action()
    except (PipelineError, RulesIndexError) as error:
        failure = str(error)
    if failure is not None:
        report.failures[name] = failure


def _compile_due(workspace: Workspace, gates: Gates, report: RunReport) -> None:
    due = scopes_to_compile(workspace)
    if not due and not _refusals_are_due(workspace):
        return
    try:
        with step(workspace, "judge the rules"):
            shut = gates.before_compile(workspace)
    except SparkEndedError as error:
        shut = str(error)
    if shut is not None:
        report.failures["rules"] = shut
        return
    from pipelines.compile import compile_scopes

    report.compiled = compile_scopes(workspace, due)
    report.failures |= {r.scope: r.error for r in report.compiled if r.error is not None}


def _refusals_are_due(workspace: Workspace) -> bool:
    try:
        return refusals_are_due(workspace)
    except PipelineError:
        return False  # what stands in the way stops all scopes, too


def _tag_due(workspace: Workspace, stream: Stream, gates: Gates, report: RunReport) -> str | None:
    """Tag a stream between its gates; gives why one of them is shut."""
    if not tag_is_due(workspace, stream.name):
        return None
    shut = gates.before_tag(workspace, stream)
    if shut is None:
        from pipelines.tag import tag_stream

        report.tagged.append(tag_stream(workspace, stream.name))
        shut = gates.after_tag(workspace, stream)
    return shut


def _retag_due(workspace: Workspace, stream: Stream, report: RunReport) -> None:
    """Bring the stream's earlier rows up to date, as far as its policy asks for it."""
    if retag_is_due(workspace, stream):
        from pipelines.retag import retag_due

        report.retagged.append(retag_due(workspace, stream))


def _join_due(workspace: Workspace, gates: Gates, report: RunReport) -> None:
    """Run the joins that are due together, between the gates of each."""
    ready: list[Join] = []

    def before(join: Join) -> str | None:
        if not join_is_due(workspace, join.name):
            return None
        shut = gates.before_join(workspace, join)
        ready.extend([join] if shut is None else [])
        return shut

    for join in workspace.configuration.joins.values():
        _unless_failed(workspace, report, join.name, partial(before, join))
    if not ready:
        return
    from pipelines.join import join_together

    report.joined, failures = join_together(workspace, [join.name for join in ready])
    report.failures |= {name: str(error) for name, error in failures.items()}
    for join in ready:
        _unless_failed(workspace, report, join.name, partial(gates.after_join, workspace, join))
