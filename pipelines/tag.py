"""The verb tag: what is new in a stream's source -> quarantine, matches and tagged rows, exactly once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pipelines.workspace import Workspace


@dataclass(frozen=True, slots=True)
class TagResult:
    """What one run over a stream did; `batches` is 0 where nothing was due."""

    stream: str
    batches: int = 0
    rows: int = 0
    matches: int = 0
    quarantined: int = 0
    errors: Mapping[str, int] = field(default_factory=dict)
    rules_version: int | None = None
    fingerprint: str | None = None
    source_version: int | None = None
    seconds: float = 0.0


def tag_stream(workspace: Workspace, name: str) -> TagResult:
    """Tag everything that is new in the stream's source; ends when the source's newest version is done.

    Raises NoIndexError, SourceError, SourceChangedError, QuarantineShareError and others of pipelines.errors.
    """
    raise NotImplementedError


def tag_is_due(workspace: Workspace, name: str) -> bool:
    """True if the source has a version that no micro-batch has taken, or the last micro-batch is unfinished."""
    raise NotImplementedError
