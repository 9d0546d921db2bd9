"""The definition of a join: the part of the configuration that decides which rows join."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pipelines.settings.model import Join, Stream
from pipelines.settings.section import duration_text


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
    return "; ".join(each for name in now for each in _changes(name, before.get(name), now[name]))


def _changes(name: str, before: Any, now: Any) -> Iterator[str]:
    """A clause for each difference of one entry; an entry of streams that are no longer the same has none."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for stream in (each for each in now if each in before and before[each] != now[each]):
            yield f"{name} of {stream} was {_text(name, before[stream])}, is {_text(name, now[stream])}"
    elif before != now:
        yield f"{name} was {_text(name, before)}, is {_text(name, now)}"


def _text(name: str, value: Any) -> str:
    """The value of an entry as the configuration has it."""
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return duration_text(value) if name == "window" else str(value)
