"""Who reads a table of deltatag's as a source, and what of its past each of them still needs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pipelines.lake.runs import DONE, RESET, MicroBatch, last_batch
from pipelines.settings.source_streams import canonical_place
from pipelines.sources.positions import position_from_plan

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from pipelines.settings.model import Stream
    from pipelines.workspace import Workspace

_FILES, _LOG = "delta.deletedFileRetentionDuration", "delta.logRetentionDuration"
_DEFAULT = {_FILES: timedelta(days=7), _LOG: timedelta(days=30)}
_MARGIN = timedelta(days=1)
"""How far the clocks of a commit and of what it removes may be apart, and more."""
_INTERVAL = re.compile(r"(?:interval\s+)?(\d+)\s+(week|day|hour|minute|second)s?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Reader:
    """A stream or a join that takes rows from a table.

    since     files that commits from this version on have removed are still read; None where all are read as they
              stand now
    for_good  whether it never moves on, since it finds earlier rows in the files that each commit has added
    """

    name: str
    since: int | None
    for_good: bool = False


def readers_of(workspace: Workspace, table: str) -> list[Reader]:
    """The streams and joins of the configuration whose source is a table of the lake, by whatever way they name it."""
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
    # earlier rows are read from the files of the version before
    return Reader(name, position.version if position.snapshot else max(position.version - 1, 0))


def _at_start(stream: Stream) -> int | None:
    """Where a stream begins that has taken nothing yet; from the newest version on nothing of the past is needed."""
    return None if stream.start.kind == "earliest" else stream.start.value if stream.start.kind == "version" else 0


def time_to_keep(workspace: Workspace, table: DeltaTable, readers: list[Reader]) -> timedelta | None:
    """How long files stay that a commit has removed: as long as the configuration or the table says, and as readers
    that are behind need them. None where that cannot be told, so that none may go."""
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
    """Whether what a table's own retention keeps of its log goes back as far as `time_to_keep` says."""
    own = _of_property(table, _LOG)
    return keep is not None and own is not None and keep <= own


def _of_property(table: DeltaTable, name: str) -> timedelta | None:
    """The time that a property of a table names, or Delta's default; None for one that is not understood."""
    text = table.metadata().configuration.get(name)
    if text is None:
        return _DEFAULT[name]
    known = _INTERVAL.fullmatch(text.strip())
    return None if known is None else timedelta(**{f"{known[2].lower()}s": int(known[1])})
