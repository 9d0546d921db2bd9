"""The verb run: gates, compile and tag of whatever is due, once; what a scheduler calls."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from pipelines.compile import ScopeResult, compile_is_due, compile_scopes
from pipelines.config import Stream
from pipelines.errors import PipelineError
from pipelines.tag import TagResult, tag_is_due, tag_stream
from pipelines.workspace import Workspace
from rules_index import RulesIndexError


class Gates(Protocol):
    """What stands between the steps of a run. Each gives None to pass, or in one paragraph why it is shut."""

    def before_compile(self, workspace: Workspace) -> str | None:
        """Judge the rules table; shut, nothing is compiled, and nothing is tagged with what came before its edits."""

    def before_tag(self, workspace: Workspace, stream: Stream) -> str | None:
        """Judge a stream's source; shut, the stream is not tagged."""

    def after_tag(self, workspace: Workspace, stream: Stream) -> str | None:
        """Judge a stream's tagged table; shut, the run has failed."""


class OpenGates:
    """Gates that let everything pass."""

    def before_compile(self, workspace: Workspace) -> str | None:
        """Pass."""

    def before_tag(self, workspace: Workspace, stream: Stream) -> str | None:
        """Pass."""

    def after_tag(self, workspace: Workspace, stream: Stream) -> str | None:
        """Pass."""


@dataclass(slots=True)
class RunReport:
    """What one run did; `failures` has a paragraph for each scope, stream or gate that failed, by its name."""

    compiled: list[ScopeResult] = field(default_factory=list)
    tagged: list[TagResult] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)


def run_due(workspace: Workspace, gates: Gates) -> RunReport:
    """Compile the scopes and tag the streams that are due; a failure of one does not stop the others."""
    report = RunReport()
    _compile_due(workspace, gates, report)
    for stream in workspace.configuration.streams.values():
        if "rules" in report.failures or stream.name in report.failures:
            continue  # its rows wait for rules that are in force
        try:
            _tag_due(workspace, stream, gates, report)
        except (PipelineError, RulesIndexError) as error:
            report.failures[stream.name] = str(error)
    return report


def _compile_due(workspace: Workspace, gates: Gates, report: RunReport) -> None:
    due = []
    for scope in workspace.configuration.streams:
        try:
            if compile_is_due(workspace, scope):
                due.append(scope)
        except PipelineError:
            due.append(scope)  # compiling it says in its result what stands in the way
    if not due:
        return
    shut = gates.before_compile(workspace)
    if shut is not None:
        report.failures["rules"] = shut
        return
    report.compiled = compile_scopes(workspace, due)
    report.failures |= {r.scope: r.error for r in report.compiled if r.error is not None}


def _tag_due(workspace: Workspace, stream: Stream, gates: Gates, report: RunReport) -> None:
    if not tag_is_due(workspace, stream.name):
        return
    shut = gates.before_tag(workspace, stream)
    if shut is None:
        report.tagged.append(tag_stream(workspace, stream.name))
        shut = gates.after_tag(workspace, stream)
    if shut is not None:
        report.failures[stream.name] = shut
