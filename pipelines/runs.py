"""The micro-batches of each stream and join: planned before the first write, done after the last."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pipelines.lake import Lake

PLANNED = "planned"
DONE = "done"
RESET = "reset"


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """One row of `runs`. `plan` is what the source gave for it; the figures are None until it is done."""

    scope: str
    batch: int
    state: str
    plan: Mapping[str, Any]
    rules_version: int | None
    fingerprint: str | None
    source_version: int | None
    started_at: datetime
    rows: int | None = None
    matches: int | None = None
    quarantined: int | None = None
    errors: Mapping[str, int] = field(default_factory=dict)
    seconds: float | None = None


def last_batch(lake: Lake, scope: str) -> MicroBatch | None:
    """The scope's micro-batch of the highest number, whatever its state; None before the first."""
    raise NotImplementedError


def batches(lake: Lake, scope: str | None = None) -> list[MicroBatch]:
    """All micro-batches (of one scope), ascending by scope and number."""
    raise NotImplementedError


def record_plan(lake: Lake, batch: MicroBatch) -> MicroBatch:
    """Write a plan. Where another process has planned the same number first, its plan is returned instead."""
    raise NotImplementedError


def record_done(lake: Lake, batch: MicroBatch) -> None:
    """Write the state and figures of a micro-batch that has ended; repeating it changes nothing."""
    raise NotImplementedError
