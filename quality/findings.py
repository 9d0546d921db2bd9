"""The expectations and results of a quality gate, as plain values that do not need Great Expectations."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ERROR = "error"
"""Severity of a structural fault, or of a share above its limit: it closes the gate."""
WARNING = "warning"
"""Severity of a fault that does not close the gate, as in single rules or rows, which are rejected or quarantined one
by one."""

MatchesByRule = tuple[tuple[Any, int], ...]
"""Matches of each rule id, most first."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """One expectation about measures.

    `kind` is the name of an expectation class of Great Expectations, `arguments` are its arguments.
    """

    name: str
    severity: str
    description: str
    kind: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one expectation; `observed` is the observed value, `message` is for people."""

    expectation: str
    severity: str
    success: bool
    observed: Any
    message: str


@dataclass(frozen=True, slots=True)
class GateResult:
    """What one gate found.

    gate: the name of the checked table; measures: the counts and shares behind the findings; counts: for a tagged
    table, the matches of each rule id, most first; report: the page of Data Docs, None if none was written; error: why
    nothing could be judged, None if it was.
    """

    gate: str
    findings: tuple[Finding, ...]
    measures: Mapping[str, Any] = field(default_factory=dict)
    counts: MatchesByRule = ()
    report: Path | None = None
    error: str | None = None

    @property
    def passed(self) -> bool:
        """True unless an expectation of severity ERROR failed."""
        return not self.failures

    @property
    def failures(self) -> tuple[Finding, ...]:
        """The failed expectations that close the gate."""
        return tuple(f for f in self.findings if not f.success and f.severity == ERROR)

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """The failed expectations that do not close the gate."""
        return tuple(f for f in self.findings if not f.success and f.severity == WARNING)

    @property
    def reason(self) -> str | None:
        """Why the gate is closed, in one paragraph; None if it is open."""
        if self.passed:
            return None
        if self.error:
            return f"The quality gate of {self.gate} is closed, since nothing could be judged. {_sentence(self.error)}"
        messages = " ".join(f"Expected: {_sentence(finding.message)}" for finding in self.failures)
        where = f" Data Docs: {self.report}" if self.report else ""
        return f"The quality gate of {self.gate} is closed. {messages}{where}"

    def table(self) -> str:
        """The findings as a Markdown table, failed ones first."""
        rows = sorted(self.findings, key=lambda finding: (finding.success, finding.severity != ERROR))
        return markdown_table(
            ("expectation", "result", "severity", "message"),
            [(f.expectation, "passed" if f.success else "FAILED", f.severity, f.message) for f in rows],
        )


def markdown_table(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A Markdown table. Values are shown as they are, but cut, and with blanks and line ends as single spaces."""
    lines = [" | ".join(names), " | ".join("---" for _ in names)]
    lines += [" | ".join(_cell(value) for value in row) for row in rows]
    return "\n".join(f"| {line} |" for line in lines)


_MARKUP = re.compile(r"[\\`*\[<|~&]|(?<![^\W_])_|_(?![^\W_])")
"""Matches what Markdown would not show, such as the tag in `a<b AND c>d`; a `_` within a word stays."""


_LONGEST = 2_000
"""Maximum characters of a cell: a rule may have a million, and Dagster keeps the tables of every run."""


def _cell(value: Any) -> str:
    text = str(value)
    text = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
    return " ".join(_MARKUP.sub(r"\\\g<0>", text).split())


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."
