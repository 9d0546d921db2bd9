"""The verb maintain: keeps the files of deltatag's own tables few and their logs short.

Compaction commits change no data. Files that readers of a table, a repeated micro-batch or a join may still need are
kept until these have moved on. Work that conflicts with another process is postponed.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pipelines.error_texts import why_denied, why_full
from pipelines.errors import PipelineError, as_failure, not_written
from pipelines.maintaining import lake_tables
from pipelines.maintaining import scope_tables as tables
from pipelines.maintaining.outcome import TableMaintenance
from pipelines.maintaining.small_files import files_of
from pipelines.recovery.jvm_restart import step
from pipelines.table_definitions import LAKE_TABLES, scope_tables
from pipelines.workspace import Workspace


def maintain(workspace: Workspace) -> list[TableMaintenance]:
    """Maintain every table of the lake; a failure of one does not stop the others."""
    return [_kept_up(workspace, name, scope, in_run=False) for name, scope in _tables(workspace)]


def maintain_after(workspace: Workspace, scopes: Iterable[str]) -> list[TableMaintenance]:
    """Maintain the tables that a run has just written, if maintenance is due.

    Compaction takes a bounded time, however large a table is; VACUUM runs every so many commits. Nothing is done if
    the configuration turns automatic maintenance off. Returns the tables that changed or failed.
    """
    if not workspace.lake.settings.maintenance.automatic:
        return []
    done = []
    for name, scope in _tables(workspace, scopes):
        if name != "rules" and _due(workspace, name):
            done.append(_kept_up(workspace, name, scope, in_run=True))
    return [each for each in done if each.changed or each.notes or each.error]


@dataclass(frozen=True, slots=True)
class TableSizes:
    """Files and bytes of the newest versions of a scope's tables; None if there is no table.

    due: the tables that the next run, or maintain, will compact or vacuum.
    """

    files: int | None = None
    bytes: int | None = None
    due: tuple[str, ...] = ()


def table_sizes(workspace: Workspace, scope: str) -> TableSizes:
    """The sizes of a scope's tables, by their logs."""
    names = _existing(workspace, scope)
    if not names:
        return TableSizes()
    files = [file for name in names for file in files_of(workspace.lake.delta(name))]
    due = tuple(name for name in names if _due(workspace, name))
    return TableSizes(len(files), sum(file.size for file in files), due)


def _due(workspace: Workspace, name: str) -> list[str]:
    """What is due for a table in a run."""
    try:
        return lake_tables.due(workspace, name) if name in LAKE_TABLES else tables.due(workspace, name, in_run=True)
    except PipelineError:
        return []  # code that needs the table reports the error


def _kept_up(workspace: Workspace, name: str, scope: str | None, in_run: bool) -> TableMaintenance:
    workspace.progress(f"maintaining the table {name}")
    started = time.perf_counter()
    try:
        with step(workspace, f"maintain the table {name}"):
            if scope is None:
                done = lake_tables.keep_up(workspace, name, in_run)
            else:
                done = tables.keep_up(workspace, scope, name, in_run)
    except Exception as error:  # such as a full disk while files are merged
        if isinstance(error, OSError) and (why_denied(error) or why_full(error)):
            error = not_written(f"The table {name} at {workspace.lake.uri(name)} cannot be maintained", error)
        done = TableMaintenance(name, error=str(as_failure(error)))
    done.seconds = round(time.perf_counter() - started, 3)
    return done


def _tables(workspace: Workspace, scopes: Iterable[str] | None = None) -> Iterator[tuple[str, str | None]]:
    """The existing tables, each with its stream or join; the lake's own tables come first, with None."""
    yield from ((name, None) for name in LAKE_TABLES)
    configuration = workspace.configuration
    for scope in [*configuration.streams, *configuration.joins] if scopes is None else scopes:
        yield from ((name, scope) for name in _existing(workspace, scope))


def _existing(workspace: Workspace, scope: str) -> list[str]:
    names = scope_tables(scope, is_join=scope in workspace.configuration.joins)
    return [name for name in names if workspace.lake.exists(name)]
