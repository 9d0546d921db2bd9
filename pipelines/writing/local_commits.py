"""Commits of files that this process has written, with the number of their micro-batch; and the fence before them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pipelines.errors import TableError
from pipelines.lake.table_log import table_log
from pipelines.lake.transaction_ids import app_of, application, is_done

if TYPE_CHECKING:
    from pipelines.lake.lake import Lake


def commit_files(
    lake: Lake, name: str, plan: Mapping[str, Any], number: int, entries: Sequence[str], remove: Callable[[], None]
) -> bool:
    """Commit files (their `add` actions as JSON) to a table, as micro-batch `number` of the plan's series.

    Returns False if a concurrent run was first. `remove` deletes the files; it is called then, and where the commit
    fails with a TableError, which is raised: they would take space that is needed to go on.
    """
    app = app_of(plan, name)
    try:
        entered = table_log(lake.uri(name)).append(entries, app, number)
    except TableError:
        if not is_done(lake, name, app, number):
            remove()
        raise
    if not entered:
        remove()
    return bool(entered)


def fence_off(lake: Lake, series: str, names: Sequence[str], number: int) -> list[str]:
    """Have no run commit micro-batch `number` of a series to these tables any more; returns those that hold it."""
    return [
        name
        for name in filter(lake.exists, names)
        if table_log(lake.uri(name)).fence(application(series, name), number)
    ]
