"""What a run does, in which order, and what a failure stops: the steps are replaced by a record of their calls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipelines import compile, due, join, run, tag
from pipelines.compiling.results import ScopeResult
from pipelines.errors import PipelineError, SourceError
from pipelines.join import JoinResult
from pipelines.run import OpenGates, run_due
from pipelines.settings.configuration import parse_configuration
from pipelines.tag import TagResult
from pipelines.workspace import Workspace
from tests.lakes import make_tables

STREAM = {"source": "lake/x", "event_time": "at"}
JOIN = {"streams": ["a", "b"], "on": ["k"], "window": "1 hour"}


class Steps(OpenGates):
    """Gates that note what they are asked, beside steps that note what they do."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[str] = []
        self.due = {"a", "b", "j1", "j2"}
        self.wrong: dict[str, Exception | str] = {}
        self.stop_late = False
        for name, step in {
            "compile_is_due": self._compile_is_due,
            "refusals_are_due": lambda _: False,
            "compile_scopes": self._compile,
            "tag_is_due": lambda _, name: name in self.due,
            "join_is_due": lambda _, name: name in self.due,
            "tag_stream": self._tag,
            "join_together": self._join,
        }.items():
            places = {"compile_is_due": due, "compile_scopes": compile, "tag_stream": tag, "join_together": join}
            monkeypatch.setattr(places.get(name, run), name, step)

    def before_tag(self, workspace: Workspace, stream: Any) -> str | None:
        return self._shut(f"before {stream.name}")

    def after_tag(self, workspace: Workspace, stream: Any) -> str | None:
        return self._shut(f"after {stream.name}")

    def before_join(self, workspace: Workspace, join: Any) -> str | None:
        return self._shut(f"before {join.name}")

    def after_join(self, workspace: Workspace, join: Any) -> str | None:
        return self._shut(f"after {join.name}")

    def _shut(self, call: str) -> str | None:
        self.calls.append(call)
        found = self.wrong.get(call)
        return found if isinstance(found, str) else None

    def _compile_is_due(self, _: Any, scope: str) -> bool:
        if isinstance(self.wrong.get(scope), Exception):
            raise self.wrong[scope]  # type: ignore[misc]
        return scope in self.due

    def _noted(self, verb: str, name: str) -> str:
        self.calls.append(verb + name)
        found = self.wrong.get(verb + name)
        if isinstance(found, Exception):
            raise found
        return name

    def _tag(self, _: Any, name: str, stopped: list[TagResult]) -> TagResult:
        stopped += [TagResult(name, 1)] * self.stop_late
        return TagResult(self._noted("tag ", name))

    def _join(self, _: Any, names: list[str]) -> tuple[list[JoinResult], dict[str, Exception]]:
        self.calls += [f"join {name}" for name in names]
        wrong = {name: self.wrong.get(f"join {name}") for name in names}
        failures = {name: error for name, error in wrong.items() if isinstance(error, Exception)}
        return [JoinResult(name) for name in names if name not in failures or self.stop_late], failures

    def _compile(self, _: Any, scopes: list[str]) -> list[ScopeResult]:
        self.calls.append(f"compile {' '.join(scopes)}")
        errors = {scope: self.wrong.get(f"compile {scope}") for scope in scopes}
        return [ScopeResult(scope, "failed" if e else "compiled", 1, error=e) for scope, e in errors.items()]  # type: ignore[arg-type]


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    return Steps(monkeypatch)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    document = {"lake": {"root": "lake"}, "streams": {"a": STREAM, "b": STREAM}, "joins": {"j1": JOIN, "j2": JOIN}}
    found = Workspace(parse_configuration(document, tmp_path / "deltatag.toml"))
    make_tables(found)
    return found


ALL = ["a", "b", "j1", "j2"]
TAGGED = ["before a", "tag a", "after a", "before b", "tag b", "after b"]
JOINED = ["before j1", "before j2", "join j1", "join j2", "after j1", "after j2"]


def test_everything_is_compiled_then_streams_are_tagged_then_joins_run_together_between_their_gates(
    steps: Steps, workspace: Workspace
) -> None:
    report = run_due(workspace, steps)
    assert steps.calls == [f"compile {' '.join(ALL)}", *TAGGED, *JOINED]
    assert [result.stream for result in report.tagged] == ["a", "b"]
    assert [result.join for result in report.joined] == ["j1", "j2"]
    assert report.failures == {}


def test_what_is_not_due_is_left_alone(steps: Steps, workspace: Workspace) -> None:
    steps.due = {"j2"}
    report = run_due(workspace, steps)
    assert steps.calls == ["compile j2", "before j2", "join j2", "after j2"]
    assert report.tagged == []
    steps.due, steps.calls = set(), []
    report = run_due(workspace, steps)
    assert (steps.calls, report.joined, report.failures) == ([], [], {})


@pytest.mark.parametrize("step", ["tag a", "join j1"])
def test_a_failure_stops_none_of_the_others(steps: Steps, workspace: Workspace, step: str) -> None:
    steps.wrong[step] = SourceError("it is gone")
    report = run_due(workspace, steps)
    name = step.split()[1]
    assert report.failures == {name: "it is gone"}
    assert steps.calls[1:] == [call for call in [*TAGGED, *JOINED] if call != f"after {name}"]


@pytest.mark.parametrize("step", ["tag a", "join j1"])
def test_what_was_done_before_a_failure_is_judged_and_told(steps: Steps, workspace: Workspace, step: str) -> None:
    name = step.split()[1]
    steps.due, steps.stop_late = {name}, True
    steps.wrong = {step: SourceError("It is gone."), f"after {name}": "It is wrong."}
    report = run_due(workspace, steps)
    assert report.failures == {name: "It is gone. It is wrong."}
    assert [*report.tagged, *report.joined] == [TagResult("a", 1) if name == "a" else JoinResult("j1")]
    assert steps.calls[-1] == f"after {name}"


def test_a_shut_gate_before_a_join_keeps_it_from_running_and_one_behind_it_fails_the_run(
    steps: Steps, workspace: Workspace
) -> None:
    steps.wrong = {"before j1": "no such source", "after j2": "not what it should be"}
    report = run_due(workspace, steps)
    assert report.failures == {"j1": "no such source", "j2": "not what it should be"}
    assert steps.calls[-4:] == ["before j1", "before j2", "join j2", "after j2"]
    assert [result.join for result in report.joined] == ["j2"]


def test_rows_wait_for_rules_that_could_not_be_compiled(steps: Steps, workspace: Workspace) -> None:
    steps.wrong = {"compile a": "too many rejects", "compile j2": "keys cannot be compared"}
    report = run_due(workspace, steps)
    assert report.failures == {"a": "too many rejects", "j2": "keys cannot be compared"}
    assert steps.calls[1:] == [*TAGGED[3:], "before j1", "join j1", "after j1"]


def test_a_scope_that_cannot_be_judged_is_compiled_to_tell_why(steps: Steps, workspace: Workspace) -> None:
    steps.due = set()
    steps.wrong["j1"] = PipelineError("unreadable")
    run_due(workspace, steps)
    assert steps.calls == ["compile j1"]


def test_nothing_is_tagged_or_joined_while_the_gate_of_the_rules_is_shut(steps: Steps, workspace: Workspace) -> None:
    steps.before_compile = lambda workspace: "no rule has an id"  # type: ignore[method-assign]
    report = run_due(workspace, steps)
    assert report.failures == {"rules": "no rule has an id"}
    assert steps.calls == []


def test_a_stream_runs_behind_the_one_whose_tagged_rows_it_reads_and_takes_what_is_there_where_that_fails(
    steps: Steps, tmp_path: Path
) -> None:
    streams = {"few": {"source_stream": "b"}, "b": {"source_stream": "a"}, "a": STREAM}
    workspace = Workspace(
        parse_configuration({"lake": {"root": "lake"}, "streams": streams}, tmp_path / "deltatag.toml")
    )
    steps.due = {"a", "b", "few"}
    steps.wrong["tag b"] = SourceError("it is gone")
    report = run_due(workspace, steps)
    assert steps.calls[0] == "compile a b few"
    assert [call for call in steps.calls if call.startswith("tag")] == ["tag a", "tag b", "tag few"]
    assert report.failures == {"b": "it is gone"}
