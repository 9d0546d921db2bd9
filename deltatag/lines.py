"""The lines that the verbs print about their results."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from deltatag.output import counted, paragraph

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pipelines.compiling.results import ScopeResult
    from pipelines.join import JoinResult
    from pipelines.maintaining.outcome import TableMaintenance
    from pipelines.report import ReportResult
    from pipelines.retag import RetagResult
    from pipelines.status import ScopeStatus
    from pipelines.tag import TagResult
    from quality.findings import GateResult

_NAMED = 3
"""Number of rules with errors that the line of a stream names."""
_LONGEST_ID = 60
"""Maximum characters of an id in that line."""


def compile_line(result: ScopeResult) -> str:
    """The result of compiling a scope, and its notices; "" if it failed, since failures are printed elsewhere."""
    if result.error is not None:
        return ""
    states = {
        "compiled": "compiled",
        "unchanged": "unchanged",
        "held": "held back because of rejected rules (on_reject = hold)",
    }
    rejects = f", {result.rejects:,} rejected (see the table rule_rejects)" if result.rejects else ""
    engine = f", engine {result.engine}" if result.engine else ""
    size = f", {result.bytes / 1024:,.0f} KiB" if result.bytes else ""
    line = (
        f"{result.scope}: {states[result.state]}, {counted(result.rules, 'rule')}{rejects}{engine}{size}, "
        f"rules version {result.rules_version}, {result.seconds:.1f} s"
    )
    return "\n".join([line, *map(paragraph, result.notices)])


def report_line(result: ReportResult) -> str:
    """The path of a scope's page, with counts; "" if it failed."""
    if result.error is not None:
        return ""
    about = f"{counted(result.rules, 'rule')}, {counted(result.findings, 'finding')}, {result.rejects:,} rejected"
    return f"{result.scope}: {result.file}: {about}, {counted(result.rows, 'tagged row')}, {result.seconds:.1f} s"


def tag_line(result: TagResult) -> str:
    """The result of tagging a stream, and its notices."""
    if not result.batches:
        return "\n".join(map(paragraph, result.notices)) or f"{result.stream}: nothing new"
    quarantined = f", {result.quarantined:,} in quarantine" if result.quarantined else ""
    raised = f", {_errors_text(result.errors)}" if result.errors else ""
    line = (
        f"{result.stream}: {counted(result.rows, 'row')}, {counted(result.matches, 'match')}{quarantined}{raised}, "
        f"rules version {result.rules_version}, source version {result.source_version}, {result.seconds:.1f} s"
    )
    return "\n".join([line, *map(paragraph, result.notices)])


def _errors_text(errors: Mapping[str, int]) -> str:
    """How many rules raised errors, with the rows of those that raised most."""
    most = sorted(errors.items(), key=lambda each: (-each[1], str(each[0])))[:_NAMED]
    ids = (str(rule) for rule, _ in most)
    shown = (each if len(each) <= _LONGEST_ID else f"{each[: _LONGEST_ID - 3]}..." for each in ids)
    named = ", ".join(f"{rule} on {count:,}" for rule, (_, count) in zip(shown, most, strict=True))
    more = ", ..." if len(errors) > _NAMED else ""
    return f"errors on rows of {counted(len(errors), 'rule')} ({named}{more})"


def retag_line(result: RetagResult, into: str | None = None) -> str:
    """The result of a re-tag, and its notices. into: the separate table that it wrote, if any."""
    name = result.scope if into is None else f"{result.scope} into {into}"
    line = (
        f"{name}: {counted(result.rows_changed, 'row')} changed, {counted(result.files_read, 'file')} read, "
        f"{counted(result.files_written, 'file')} written, rules version {result.rules_version}, {result.seconds:.1f} s"
    )
    lines = [line] if result.rules_version is not None else []
    return "\n".join([*lines, *map(paragraph, result.notices)])


def join_line(result: JoinResult) -> str:
    """The result of a join, and its notices."""
    if not result.batches:
        return f"{result.join}: nothing new"
    quarantined = f", {result.quarantined:,} in quarantine" if result.quarantined else ""
    versions = ", ".join(f"{stream} v{version}" for stream, version in result.source_versions.items())
    line = (
        f"{result.join}: {counted(result.rows, 'row')} of {versions}, {counted(result.joined, 'joined row')}, "
        f"{counted(result.matches, 'match')}{quarantined}, rules version {result.rules_version}, {result.seconds:.1f} s"
    )
    return "\n".join([line, *map(paragraph, result.notices)])


def maintain_line(result: TableMaintenance) -> str:
    """The result of maintaining a table, and its notes."""
    parts = [f"{counted(result.files, 'file')}, {size_text(result.bytes)}"]
    if result.merged:
        parts.append(f"{counted(result.merged, 'file')} merged into {result.into:,}")
    if result.rows:
        parts.append(f"{counted(result.rows, 'row')} {'folded' if result.table == 'runs' else 'deleted'}")
    if result.removed:
        parts.append(f"{counted(result.removed, 'old file')} removed")
    failed = [f"not maintained: {result.error}"] if result.error is not None else []
    return "\n".join([f"{result.table}: {', '.join(parts)}", *map(paragraph, [*result.notes, *failed])])


def size_line(status: ScopeStatus) -> str:
    """The size of a scope's tables, and for which of them maintenance is due."""
    files, size = counted(status.files or 0, "file"), size_text(status.bytes or 0)
    due = f"; maintenance is due for {', '.join(status.maintenance_due)}" if status.maintenance_due else ""
    return f"{status.scope}, tables: {files}, {size}{due}."


def size_text(size: int) -> str:
    """A size in bytes as text for people."""
    return f"{size / 2**20:,.1f} MiB" if size >= 1 << 20 else f"{size / 1024:,.1f} KiB"


def gate_summary(result: GateResult) -> dict[str, Any]:
    """The result of a gate for JSON: its measures, and the failed expectations."""
    failed = [asdict(finding) for finding in result.findings if not finding.success]
    report = str(result.report) if result.report else None
    return {"gate": result.gate, "passed": result.passed, "failed": failed, "measures": result.measures, "docs": report}


def gate_lines(result: GateResult) -> str:
    """The result of a gate as lines: how many expectations were met, and its warnings."""
    met = sum(finding.success for finding in result.findings)
    lines = [f"quality of {result.gate}: {met} of {len(result.findings)} expectations met"]
    return "\n".join([*lines, *(f"  warning: {paragraph(finding.message)}" for finding in result.warnings)])


def version_text(version: int | None) -> str:
    """A version of a table as text; "-" for None."""
    return "-" if version is None else f"v{version}"


def lag_text(versions: int | None, rows: int | None) -> str:
    """The lag of a scope behind its source as text; "-" if it is unknown."""
    if versions is None:
        return "-"
    if versions == 0:
        return "nothing"
    return counted(versions, "version") + (f", {counted(rows, 'row')}" if rows is not None else "")


def none_configured(kind: str) -> str:
    """The line if no stream, or no join, is configured."""
    return f"No {kind} is configured yet: name one under [{kind}s] in the configuration."
