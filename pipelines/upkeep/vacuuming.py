"""When a VACUUM of a table is due, and how long it leaves what no version names."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

from pipelines.upkeep.readers import readers_of, time_to_keep
from pipelines.upkeep.small_files import files_of

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from pipelines.workspace import Workspace

COMMITS = 100
"""Commits of a table after which a run removes what no version names."""
_LOG = "_delta_log"
_VACUUM = "VACUUM END"


def hours_to_keep(workspace: Workspace, name: str, commits: int) -> int | None:
    """The hours that a VACUUM which is due is to leave; None where none is, or it cannot be told what is needed.

    It is due where the table has so many commits since the last one, and its folder an old file that the newest version
    does not name; of a table without a folder this is not asked.
    """
    table = workspace.lake.delta(name)
    if table.version() < commits:
        return None
    keep = time_to_keep(workspace, table, readers_of(workspace, name))
    if keep is None or not _holds_older(workspace, name, table, datetime.now(UTC) - keep):
        return None
    if any(commit.get("operation") == _VACUUM for commit in table.history(commits)):
        return None
    return math.ceil(keep / timedelta(hours=1))


def _holds_older(workspace: Workspace, name: str, table: DeltaTable, before: datetime) -> bool:
    if workspace.lake.settings.root is None:
        return True
    place = urlparse(workspace.lake.uri(name))
    if place.scheme not in ("", "file"):
        return True
    folder = unquote(place.path) if place.scheme else workspace.lake.uri(name)
    named = {os.path.basename(unquote(file.path)) for file in files_of(table)}
    for path, folders, files in os.walk(folder):
        folders[:] = [each for each in folders if each != _LOG]
        if any(each not in named and os.path.getmtime(os.path.join(path, each)) < before.timestamp() for each in files):
            return True
    return False


def removed_by_vacuum(table: DeltaTable) -> int:
    """Files that the last commit of a table, if that is of a VACUUM, has removed."""
    newest: Mapping[str, Any] = next(iter(table.history(1)), {})
    if newest.get("operation") != _VACUUM:
        return 0
    return int((newest.get("operationMetrics") or {}).get("numDeletedFiles", 0))
