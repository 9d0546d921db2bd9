"""The verb report: one self-contained HTML page for each scope."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa

import rules_index as ri
from pipelines.errors import PipelineError
from pipelines.reporting.contents import contents
from pipelines.reporting.page import page
from pipelines.scopes import scope_of, scopes_of
from pipelines.workspace import Workspace


@dataclass(frozen=True, slots=True)
class ReportResult:
    """The page of one scope; `error` says why it could not be written. seconds: how long it took."""

    scope: str
    file: str | None = None
    rules: int = 0
    rows: int = 0
    findings: int = 0
    rejects: int = 0
    seconds: float = 0.0
    error: str | None = None


def report_scopes(workspace: Workspace, scopes: Sequence[str] | None, folder: Path) -> list[ReportResult]:
    """Write `<scope>.html` into the folder for each named scope, by default for all.

    A failure of one does not stop the others. The lake is not written, and Spark is started only for sources and lakes
    in a catalog. PipelineError if the folder cannot be created; ConfigurationError for an unknown scope.
    """
    names = list(dict.fromkeys(scopes)) if scopes is not None else scopes_of(workspace)
    for name in names:
        scope_of(workspace, name)
    _make(folder)
    return [_report(workspace, name, folder) for name in names]


def write_page(found: Mapping[str, Any], folder: Path) -> Path:
    """Write `<scope>.html` with these contents, atomically; PipelineError if it cannot be written."""
    _make(folder)
    file = folder / f"{found['scope']}.html"
    written = file.with_name(f".{file.name}.part")
    try:
        written.write_text(page(found), encoding="utf-8")
        written.replace(file)
    except OSError as error:
        raise PipelineError(f"The page {file} cannot be written: {error.strerror or error}.") from error
    return file


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PipelineError(f"The folder {folder} cannot be made: {error.strerror or error}.") from error


def _report(workspace: Workspace, name: str, folder: Path) -> ReportResult:
    started = time.perf_counter()
    workspace.progress(f"looking at {name}")
    try:
        found = contents(workspace, name)
        file = write_page(found, folder)
    except (PipelineError, ri.RulesIndexError, pa.ArrowException, pl.exceptions.PolarsError, OSError) as error:
        return ReportResult(name, error=str(error))
    return ReportResult(
        name,
        str(file),
        found["all_rules"],
        found["all_rows"],
        found["all_findings"],
        found["all_rejects"],
        time.perf_counter() - started,
    )
