"""Decides when a VACUUM of a table is due and what it keeps, and shortens logs."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from pipelines.lake.table_cache import local_folder
from pipelines.maintaining.retention import keeps_log_for, readers_of, time_to_keep
from pipelines.maintaining.small_files import files_of
from pipelines.table_definitions import CHECKPOINT_EVERY_IN_STORE

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from pipelines.workspace import Workspace

COMMITS = 100
"""Number of commits of a table after which a run vacuums it."""
_LOG = "_delta_log"
_DIGITS, _NAME = 20, 25
"""Length of a commit's file name: of the version in it, and of the whole name."""
END = "VACUUM END"
"""The operation of a commit that records what a VACUUM has removed."""


def hours_to_keep(workspace: Workspace, name: str, commits: int) -> int | None:
    """The retention, in hours, of a VACUUM that is due; None if none is due, or if it is unknown what readers need.

    A VACUUM is due if the table has had `commits` commits since the last one (not checked if `commits` is 1), and its
    folder has an old file that the newest version does not name (assumed for a table that is not in a folder). For a
    table in an object store, whose files would all have to be listed, it is only due if `commits` is 1.
    """
    if commits > 1 and workspace.lake.is_in_store:
        return None
    table = workspace.lake.delta(name)
    if table.version() < commits:
        return None
    keep = time_to_keep(workspace, table, readers_of(workspace, name))
    if keep is None or not _holds_older(workspace, name, table, datetime.now(UTC) - keep):
        return None
    if commits > 1 and any(commit.get("operation") == END for commit in table.history(commits)):
        return None
    return math.ceil(keep / timedelta(hours=1))


def _holds_older(workspace: Workspace, name: str, table: DeltaTable, before: datetime) -> bool:
    folder = None if workspace.lake.settings.root is None else local_folder(workspace.lake.uri(name))
    if folder is None:
        return True
    named = {os.path.basename(unquote(file.path)) for file in files_of(table)}
    for path, folders, files in os.walk(folder):
        folders[:] = [each for each in folders if each != _LOG]
        if any(each not in named and _is_older(os.path.join(path, each), before) for each in files):
            return True
    return False


def _is_older(path: str, before: datetime) -> bool:
    """Whether a file is older than a time; False if another run has removed it meanwhile."""
    try:
        return os.path.getmtime(path) < before.timestamp()
    except FileNotFoundError:
        return False


def removed_by_vacuum(table: DeltaTable) -> int:
    """How many files the last commit of a table has removed, if it is a VACUUM; else 0."""
    newest: Mapping[str, Any] = next(iter(table.history(1)), {})
    if newest.get("operation") != END:
        return 0
    return int((newest.get("operationMetrics") or {}).get("numDeletedFiles", 0))


def shorten_log(workspace: Workspace, name: str) -> None:
    """Write a checkpoint, and remove commits that are older than the table's log retention.

    Nothing is removed if a reader still needs older commits. A short log in an object store is left as it is: it is
    read by fewer requests than a checkpoint. Raises what deltalake raises.
    """
    table = workspace.lake.writable(name)
    if workspace.lake.is_in_store and table.version() < CHECKPOINT_EVERY_IN_STORE:
        return
    table.create_checkpoint()
    if not keeps_log_for(table, time_to_keep(workspace, table, readers_of(workspace, name))):
        return
    table.cleanup_metadata()
    folder = None if workspace.lake.settings.root is None else local_folder(workspace.lake.uri(name))
    log = None if folder is None else Path(folder, _LOG)
    if log is not None and log.is_dir():
        # delta-rs leaves Spark's checksum files of removed commits behind
        first = min((path.name for path in log.glob("*.json") if len(path.name) == _NAME), default="")
        for path in log.glob("*.crc"):
            if path.name[:_DIGITS] < first[:_DIGITS]:
                path.unlink(missing_ok=True)
