"""How long rows of a stream's source have been waiting to be tagged, by the source's log alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from pipelines.lake.lake import open_delta
from pipelines.lake.runs import last_batch
from pipelines.settings.configuration import is_catalog_name
from pipelines.settings.model import Stream
from pipelines.sources.only_joined import is_only_joined
from pipelines.status import position_of
from pipelines.workspace import Workspace

_WITHOUT_ROWS = ("OPTIMIZE", "VACUUM", "DELETE", "SET ", "UNSET ", "ADD ", "DROP ", "CHANGE ", "RENAME ", "UPGRADE ")
"""Prefixes of operations that add no row."""
_ADDED = ("numOutputRows", "num_added_rows", "numTargetRowsInserted", "num_target_rows_inserted")
"""Operation metrics that count added rows, as Spark and delta-rs name them."""


@dataclass(frozen=True, slots=True)
class WaitingCommits:
    """The commits of a source that added rows which are not tagged yet.

    since: the time of the first of them, None if there is none; known: False if only Spark can read the log.
    """

    commits: int = 0
    since: datetime | None = None
    known: bool = True

    def longer_than(self, microseconds: int, now: datetime) -> bool:
        """Whether a row has been waiting for more than this many microseconds."""
        return self.since is not None and now - self.since > timedelta(microseconds=microseconds)


def waiting_rows(workspace: Workspace, stream: Stream) -> WaitingCommits:
    """The untagged commits of a stream's source; none for a source that only joins read.

    MissingTableError or TableError if the source cannot be opened.
    """
    if is_catalog_name(stream.source):
        return WaitingCommits(known=False)
    if is_only_joined(workspace, stream.name):
        return WaitingCommits()
    table = open_delta(stream.source, None, "a source", "")
    position, table_id = position_of(workspace, stream, last_batch(workspace.lake, stream.name))
    if table_id is not None and str(table.metadata().id) != table_id:
        position = None
    first = position.version if position is not None else stream.start.value if stream.start.kind == "version" else 0
    behind = int(table.version()) + 1 - first
    if behind <= 0:
        return WaitingCommits()
    from_time = stream.start.value / 1e6 if position is None and stream.start.kind == "timestamp" else 0.0
    held = [commit for commit in table.history(behind) if commit.get("version", first) >= first]
    # rows may be waiting since a commit that the log no longer has: since the oldest one that it has, at the latest
    oldest = held[-1] if held and held[-1].get("version", first) > first else None
    times = [
        commit["timestamp"] / 1e3
        for commit in held
        if "timestamp" in commit and (_brings_rows(commit) or commit is oldest)
    ]
    times = [time for time in times if time >= from_time]
    return WaitingCommits(len(times), datetime.fromtimestamp(min(times), UTC) if times else None)


def _brings_rows(commit: Mapping[str, Any]) -> bool:
    """Whether a commit has added rows; assumed if the log does not say."""
    if str(commit.get("operation", "")).startswith(_WITHOUT_ROWS):
        return False
    metrics: Mapping[str, Any] = commit.get("operationMetrics") or {}
    counts = [int(metrics[name]) for name in _ADDED if metrics.get(name) is not None]
    return any(counts) if counts else commit.get("operation") != "CREATE TABLE"
