"""The watermark of a join: the event time before which new rows come too late, and go to quarantine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def watermark(plan: Mapping[str, Any]) -> int | None:
    """The event time, in microseconds, before which new rows come too late by a plan; None if none do.

    Rows that a source held when the join began, or was restarted, did not come late: their files are in any order.
    """
    lateness, latest = plan["lateness"], plan.get("latest_before", plan["latest"])
    if any(side["position"]["snapshot"] and side["slice"] is not None for side in plan["sides"].values()):
        return None
    return None if lateness is None or latest is None else int(latest) - int(lateness)


def times_taken(
    last: Mapping[str, Any] | None, sides: Mapping[str, Any], versions: Mapping[str, int]
) -> dict[str, Any]:
    """The entries of a plan about event times; last: the plan of the previous micro-batch, versions: of the sources.

    latest: the latest time of all rows taken; held: the versions of the sources now; latest_before: the time that
    decides who comes too late. It becomes the latest time once all rows are taken that the sources held at the previous
    plan. A stream with many rows may need more micro-batches for these than another stream, whose rows are then later:
    its own rows do not come late for that.
    """
    if last is None:
        return {"latest": None, "latest_before": None, "held": dict(versions)}
    latest, held = last.get("latest"), last.get("held", {})
    is_taken = all(
        side["position"]["version"] > held.get(name, -1) or last["sides"][name]["slice"] is None
        for name, side in sides.items()
    )
    return {"latest": latest, "latest_before": latest if is_taken else last["latest_before"], "held": dict(versions)}


def later_time(one: int | None, other: int | None) -> int | None:
    """The later of two event times; None if both are unknown."""
    return max((time for time in (one, other) if time is not None), default=None)


def late_reason(lateness: int) -> str:
    """The reason in quarantine of a row that came too late; lateness in microseconds."""
    return f"the row came later than the lateness of {lateness / 1e6:g} s allows"
