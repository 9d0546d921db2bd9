"""The definition of a join: the part of the configuration that decides which rows join."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipelines.settings.model import Join, Stream


def definition_of(join: Join, streams: Mapping[str, Stream]) -> dict[str, Any]:
    """The definition of a join, as JSON values."""
    return {
        "streams": list(join.streams),
        "on": {name: list(columns) for name, columns in join.on.items()},
        "window": dict(join.window),
        "event_time": {name: stream.event_time for name, stream in streams.items()},
    }


def definition_changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """The differences between two definitions, for people; "" if there are none."""
    changed = [name for name in now if before.get(name) != now[name]]
    return "; ".join(f"{name} was {before.get(name)}, is {now[name]}" for name in changed)
