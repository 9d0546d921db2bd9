"""The verb status: where each scope stands, read without a JVM where the lake has a root."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from pipelines.workspace import Workspace


@dataclass(frozen=True, slots=True)
class ScopeStatus:
    """One stream's standing. Lags are None where they are not known; `problem` says what stands in the way."""

    scope: str
    rules_version: int | None
    index_version: int | None
    fingerprint: str | None
    engine: str | None
    compile_due: bool
    rejects: int
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
    """The standing of every stream, in the configuration's order."""
    raise NotImplementedError
