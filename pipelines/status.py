"""The verb status: where each stream stands, read without a JVM where the lake and its sources have paths."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pipelines.compile import compile_is_due
from pipelines.config import Stream, is_catalog_name
from pipelines.errors import PipelineError, SourceError
from pipelines.index_store import StoredIndex, newest_index
from pipelines.lake import open_delta
from pipelines.runs import MicroBatch, last_batch
from pipelines.tag import newest_source_version, next_position
from pipelines.workspace import Workspace


@dataclass(frozen=True, slots=True)
class ScopeStatus:
    """One stream's standing. Lags are None where they are not known; `problem` says what stands in the way."""

    scope: str
    rules_version: int | None
    index_version: int | None
    fingerprint: str | None
    engine: str | None
    engine_reason: str | None
    rules: int | None
    rejects: int
    compile_due: bool
    source_version: int | None
    tagged_version: int | None
    lag_versions: int | None
    lag_rows: int | None
    last_batch: int | None
    last_state: str | None
    last_rows: int | None
    last_started_at: datetime | None
    problem: str | None = None


def status(workspace: Workspace) -> list[ScopeStatus]:
    """The standing of every stream, in the configuration's order; MissingTableError before `deltatag init`."""
    version = workspace.lake.version("rules")
    rejects = workspace.lake.arrow("rule_rejects", ["scope"])["scope"].to_pylist()
    return [
        _stream_status(workspace, stream, version, rejects.count(stream.name))
        for stream in workspace.configuration.streams.values()
    ]


def _stream_status(workspace: Workspace, stream: Stream, rules_version: int, rejects: int) -> ScopeStatus:
    problems: list[str] = []
    stored: StoredIndex | None = None
    last: MicroBatch | None = None
    due = True
    source_version: int | None = None
    try:
        last = last_batch(workspace.lake, stream.name)
        stored = newest_index(workspace.lake, stream.name)
        source_version = newest_source_version(workspace, stream)
        due = compile_is_due(workspace, stream.name)
    except PipelineError as error:
        problems.append(str(error))
    begun = last is not None and "end" in last.plan
    tagged_version = last.source_version if begun and last is not None and last.state == "done" else None
    versions = rows = None
    if source_version is not None:
        first = next_position(last).version if begun and last is not None else 0
        versions = max(source_version + 1 - first, 0)
        rows = _rows_behind(workspace, stream, last if begun else None)
    return ScopeStatus(
        scope=stream.name,
        rules_version=rules_version,
        index_version=stored.rules_version if stored else None,
        fingerprint=stored.fingerprint if stored else None,
        engine=stored.engine if stored else None,
        engine_reason=stored.statistics.get("engine_reason") if stored else None,
        rules=stored.statistics.get("rules") if stored else None,
        rejects=rejects,
        compile_due=due,
        source_version=source_version,
        tagged_version=tagged_version,
        lag_versions=versions,
        lag_rows=rows,
        last_batch=last.batch if last else None,
        last_state=last.state if last else None,
        last_rows=last.rows if last else None,
        last_started_at=last.started_at if last else None,
        problem="; ".join(problems) or None,
    )


def _rows_behind(workspace: Workspace, stream: Stream, last: MicroBatch | None) -> int | None:
    """Rows that the source's log counts behind the last micro-batch; None where it does not say."""
    if is_catalog_name(stream.source):
        return None
    try:
        table = open_delta(stream.source, None, "a source", "")
        if last is None:
            if stream.start.kind != "earliest":
                return None
            return _sum(table.get_add_actions(flatten=True), "num_records")
        start = next_position(last)
        if start.snapshot:
            return None
        behind = 0
        for commit in table.history():
            if commit.get("version", -1) < start.version:
                break
            metrics: dict[str, Any] = commit.get("operationMetrics") or {}
            added = metrics.get("numOutputRows", metrics.get("num_added_rows"))
            if added is None and commit.get("operation") in ("WRITE", "STREAMING UPDATE", "MERGE"):
                return None
            behind += int(added or 0) if commit.get("operation") not in ("OPTIMIZE", "VACUUM END") else 0
        return behind
    except (PipelineError, SourceError, ValueError, KeyError):
        return None


def _sum(actions: Any, name: str) -> int | None:
    import polars as pl

    column = pl.DataFrame(actions)[name]
    return None if column.null_count() else int(column.sum())
