"""The quality gates between the steps of a run: before compiling, before and after tagging, before and after joining.

Each gate evaluates its suites over their measures. Great Expectations also runs the suites, and writes their pages, if
a gate is closed or the caller wants pages (`Pages`). Otherwise it is not imported, since that takes longer than
everything else in a gate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING

from pipelines.errors import ConfigurationError, PipelineError
from pipelines.pages import DATA_DOCS, page_folder
from pipelines.sources.only_joined import is_only_joined
from pipelines.spark.failures import explained
from pipelines.table_definitions import tagged_table
from quality import joined, rules, sources, tagged
from quality.documents import is_page_due, note_verdicts
from quality.evaluation import MeasuredSuites, evaluate
from quality.findings import ERROR, Expectation, Finding, GateResult
from quality.validation import validate
from quality.written import unjudged

if TYPE_CHECKING:
    from pipelines.settings.model import Join, Stream
    from pipelines.workspace import Workspace

_STEP = "read what is to be judged"
"""For messages about an error of Spark in a gate: what could not be done."""


class Pages(Enum):
    """Which gates get pages in Data Docs."""

    CLOSED = "closed"
    """Gates that are closed."""
    CHANGED = "changed"
    """Those, and gates with a suite whose page is missing, is older than a day, or has other results."""
    ALL = "all"


def rules_gate(workspace: Workspace, pages: Pages = Pages.CLOSED) -> GateResult:
    """Check the newest version of the rules table."""
    workspace.progress("judging the rules table")
    expected = rules.expectations(workspace.configuration)
    return _gated(workspace, rules.NAME, expected, lambda: rules.suites(workspace), pages)


def source_gate(workspace: Workspace, stream: str, pages: Pages = Pages.CLOSED) -> GateResult:
    """Check a stream's source, and its rows that are not tagged yet."""
    workspace.progress(f"judging the source of {stream}")
    configured = workspace.configuration.stream(stream)
    expected = sources.expectations(configured)
    return _gated(workspace, stream, expected, lambda: sources.suites(workspace, configured), pages)


def joined_source_gate(workspace: Workspace, join: Join, of_stream: GateResult) -> GateResult:
    """Check only what a join needs of a source, and the rows that the join has not taken yet.

    of_stream: the result of the source's own gate, which is closed; its page of Data Docs serves for this gate, too.
    """
    stream = of_stream.gate
    name = f"{stream} for {join.name}"
    workspace.progress(f"judging the source of {name}")
    configured = sources.as_joined(workspace.configuration.stream(stream))
    try:
        with explained(_STEP):
            measured = sources.suites(workspace, configured, join)
    except PipelineError as error:
        return _unjudged(name, sources.expectations(configured), error)
    return GateResult(name, evaluate(measured.suites), measured.measures, report=of_stream.report)


def tagged_gate(workspace: Workspace, stream: str, newest: int = 1, pages: Pages = Pages.CLOSED) -> GateResult:
    """Check what a stream wrote since it was checked last, but at least the last `newest` micro-batches."""
    workspace.progress(f"judging the tagged rows of {stream}")
    configured = workspace.configuration.stream(stream)
    name, expected = tagged_table(configured), tagged.expectations(configured)
    if is_only_joined(workspace, stream):
        return _unneeded(name, expected)

    def measure() -> MeasuredSuites:
        return tagged.suites(workspace, configured, max(newest, unjudged(workspace.lake, stream)))

    return _gated(workspace, name, expected, measure, pages)


def joined_gate(workspace: Workspace, name: str, newest: int = 1, pages: Pages = Pages.CLOSED) -> GateResult:
    """Check what a join wrote since it was checked last, but at least the last `newest` micro-batches."""
    workspace.progress(f"judging the joined rows of {name}")
    join = workspace.configuration.joins[name]
    expected = joined.expectations(workspace.configuration, join)

    def measure() -> MeasuredSuites:
        return joined.suites(workspace, join, max(newest, unjudged(workspace.lake, name)))

    return _gated(workspace, tagged_table(name), expected, measure, pages)


class QualityGates:
    """The gates of one run, with the methods that `pipelines.run` calls; `results` has what they found, in order."""

    def __init__(self, pages: Pages = Pages.CLOSED) -> None:
        self._pages = pages
        self.results: list[GateResult] = []

    def before_compile(self, workspace: Workspace) -> str | None:
        """Check the rules table; returns None to pass, or why the gate is closed."""
        return self._keep(rules_gate(workspace, self._pages))

    def before_tag(self, workspace: Workspace, stream: Stream) -> str | None:
        """Check a stream's source; returns None to pass, or why the gate is closed."""
        return self._keep(source_gate(workspace, stream.name, self._pages))

    def after_tag(self, workspace: Workspace, stream: Stream) -> str | None:
        """Check what was tagged since the last such gate; returns None to pass, or why the gate is closed."""
        return self._keep(tagged_gate(workspace, stream.name, pages=self._pages))

    def before_join(self, workspace: Workspace, join: Join) -> str | None:
        """Check the sources of the join's streams; returns None to pass, or why a gate is closed.

        The gate of each stream is evaluated once per run. If it is closed, only what the join itself needs of the
        source decides.
        """
        reasons = [self._joined_source(workspace, name, join) for name in join.streams]
        return " ".join(reason for reason in reasons if reason is not None) or None

    def _joined_source(self, workspace: Workspace, stream: str, join: Join) -> str | None:
        """Why a stream's source is closed to a join; None if it is open."""
        found = next((result for result in self.results if result.gate == stream), None)
        if found is None:
            found = source_gate(workspace, stream, self._pages)
            self._keep(found)
        return None if found.passed else self._keep(joined_source_gate(workspace, join, found))

    def after_join(self, workspace: Workspace, join: Join) -> str | None:
        """Check what was joined since the last such gate; returns None to pass, or why the gate is closed."""
        return self._keep(joined_gate(workspace, join.name, pages=self._pages))

    def _keep(self, result: GateResult) -> str | None:
        self.results.append(result)
        return result.reason


def _gated(
    workspace: Workspace,
    name: str,
    expected: Sequence[Expectation],
    measure: Callable[[], MeasuredSuites],
    pages: Pages,
) -> GateResult:
    """The result of a gate. measure: reads the tables."""
    try:
        with explained(_STEP):
            measured = measure()
    except PipelineError as error:
        return _unjudged(name, expected, error)
    folder = page_folder(workspace.configuration, DATA_DOCS)
    found = GateResult(name, evaluate(measured.suites), measured.measures, measured.counts)
    due = pages is Pages.CHANGED and any(is_page_due(folder, suite) for suite in measured.suites)
    if due or pages is Pages.ALL or not found.passed:
        findings, report = validate(folder, measured.suites)
        found = replace(found, findings=findings, report=report)
    else:
        found = replace(found, report=note_verdicts(folder, measured.suites))
    measured.note_judged()
    return found


def _unneeded(name: str, expected: Sequence[Expectation]) -> GateResult:
    """The result for a table that is not written, since only joins read the stream: everything passes."""
    why = "Only joins need the stream's rows, and none is tagged."
    return GateResult(name, tuple(Finding(e.name, e.severity, True, None, why) for e in expected))


def _unjudged(name: str, expected: Sequence[Expectation], error: PipelineError) -> GateResult:
    """The result for a table that cannot be read: every expectation fails, and the first one says why."""
    if isinstance(error, ConfigurationError):
        raise error
    findings = [Finding(expected[0].name, ERROR, False, None, str(error))]
    findings += [Finding(e.name, e.severity, False, None, "This could not be judged.") for e in expected[1:]]
    return GateResult(name, tuple(findings), error=str(error))
