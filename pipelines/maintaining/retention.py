"""The readers of a deltatag table (streams and joins), and which of its old files they still need."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pipelines.lake.runs import DONE, RESET, MicroBatch, last_batch
from pipelines.settings.streams_over_streams import canonical_place
from pipelines.sources.positions import position_from_plan

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from pipelines.settings.model import Stream
    from pipelines.workspace import Workspace

_FILES, _LOG = "delta.deletedFileRetentionDuration", "delta.logRetentionDuration"
_DEFAULT = {_FILES: timedelta(days=7), _LOG: timedelta(days=30)}
_LONGEST = timedelta(days=365_000)
"""The longest retention that is told apart from a longer one: Python has no time much longer ago."""
_MARGIN = timedelta(days=1)
"""Margin for differences between the clocks of commits and of files."""
_PART = r"(\d+)\s+(week|day|hour|minute|second)s?"
_INTERVAL = re.compile(rf"(?:interval\s+)?{_PART}(?:\s+{_PART})*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Reader:
    """A stream or a join that reads a table.

    since     it may still read files that commits from this version on have removed; None if it only reads the newest
              version
    for_good  it needs these files for ever, since it finds earlier rows in the files that each commit has added
    """

    name: str
    since: int | None
    for_good: bool = False


def readers_of(workspace: Workspace, table: str) -> list[Reader]:
    """The configured streams and joins whose source is a table of the lake, however they spell its place."""
    configuration, lake = workspace.configuration, workspace.lake
    places = {canonical_place(lake.settings.place(table))}
    if lake.settings.root is None:
        places.add(canonical_place(lake.uri(table)))
    streams = [each for each in configuration.streams.values() if canonical_place(each.source) in places]
    found = [_stream_reader(workspace, stream) for stream in streams]
    for join in configuration.joins.values():
        last = last_batch(lake, join.name)
        found += [_join_reader(join.name, stream, last) for stream in streams if stream.name in join.streams]
    return found


def _stream_reader(workspace: Workspace, stream: Stream) -> Reader:
    last = last_batch(workspace.lake, stream.name)
    if last is None or last.state == RESET or last.plan.get("reset"):
        return Reader(stream.name, _at_start(stream))
    return Reader(stream.name, position_from_plan(last.plan["end" if last.state == DONE else "start"]).version)


def _join_reader(name: str, stream: Stream, last: MicroBatch | None) -> Reader:
    if last is None or last.state == RESET or last.plan.get("reset") or stream.name not in last.plan["sides"]:
        return Reader(name, _at_start(stream), for_good=stream.start.kind != "earliest")
    side: Mapping[str, Any] = last.plan["sides"][stream.name]
    first = position_from_plan(side["first"])
    position = position_from_plan(side["end" if last.state == DONE else "position"])
    if not first.snapshot:
        return Reader(name, first.version, for_good=True)
    # earlier rows are read from the files of the previous version
    return Reader(name, position.version if position.snapshot else max(position.version - 1, 0))


def _at_start(stream: Stream) -> int | None:
    """The first version that a new stream needs: that of its start, or 0 for a start by time, which is not looked up
    here. None if it begins with the newest version, and needs no old files."""
    return None if stream.start.kind == "earliest" else stream.start.value if stream.start.kind == "version" else 0


def time_to_keep(workspace: Workspace, table: DeltaTable, readers: list[Reader]) -> timedelta | None:
    """How long removed files are kept: by the configuration, by the table's property, and for readers that are behind.

    None if that is unknown, so that no file may be deleted.
    """
    own = _of_property(table, _FILES)
    if own is None:
        return None
    keep = max(_DEFAULT[_FILES], own, timedelta(microseconds=workspace.lake.settings.maintenance.versions))
    newest = int(table.version())
    needed = [reader.since for reader in readers if reader.since is not None and reader.since <= newest]
    if not needed:
        return keep
    oldest = min(needed)
    for commit in table.history(newest - oldest + 1):
        if commit["version"] == oldest and "timestamp" in commit:
            return max(keep, datetime.now(UTC) - datetime.fromtimestamp(commit["timestamp"] / 1000, UTC) + _MARGIN)
    return None


def keeps_log_for(table: DeltaTable, keep: timedelta | None) -> bool:
    """Whether a table's log retention covers `time_to_keep`."""
    own = _of_property(table, _LOG)
    return keep is not None and own is not None and keep <= own


def _of_property(table: DeltaTable, name: str) -> timedelta | None:
    """The duration in a table property, or Delta's default; None if it cannot be parsed."""
    text = table.metadata().configuration.get(name)
    if text is None:
        return _DEFAULT[name]
    if _INTERVAL.fullmatch(text.strip()) is None:
        return None
    parts = re.findall(_PART, text, re.IGNORECASE)
    try:
        found = sum((timedelta(**{f"{unit.lower()}s": int(count)}) for count, unit in parts), timedelta())
    except OverflowError:
        return _LONGEST
    return min(found, _LONGEST)
