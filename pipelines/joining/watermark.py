"""The watermark of a join: the event time before which new rows come too late, and go to quarantine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def watermark(plan: Mapping[str, Any]) -> int | None:
    """The event time, in microseconds, before which new rows come too late by a plan; None if none do.

    Rows that a source held when the join began, or was restarted, did not come late: their files are in any order.
    """
    lateness, latest = plan["lateness"], plan["latest"]
    if any(side["position"]["snapshot"] and side["slice"] is not None for side in plan["sides"].values()):
        return None
    return None if lateness is None or latest is None else int(latest) - int(lateness)


def later_time(one: int | None, other: int | None) -> int | None:
    """The later of two event times; None if both are unknown."""
    return max((time for time in (one, other) if time is not None), default=None)


def late_reason(lateness: int) -> str:
    """The reason in quarantine of a row that came too late; lateness in microseconds."""
    return f"the row came later than the lateness of {lateness / 1e6:g} s allows"
