"""Metadata of a tagged table from the table `runs` and the sources: recent micro-batches, and lag."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

import dagster as dg

if TYPE_CHECKING:
    from pipelines.lake.runs import MicroBatch
    from pipelines.workspace import Workspace

_SHOWN = 60
"""Maximum number of micro-batches in a plot, and in statistics on owners."""


def history_metadata(workspace: Workspace, scope: str) -> dict[str, Any]:
    """A plot of the last micro-batches, and the scope's lag behind its sources, if known."""
    from pipelines.errors import PipelineError
    from pipelines.status import lag_of

    shown: dict[str, Any] = {}
    try:
        batches = last_batches(workspace, scope)
        if batches:
            from assets.plots import rows_and_matches

            shown["rows_and_matches"] = dg.MetadataValue.md(rows_and_matches(scope, batches))
        versions, rows = lag_of(workspace, scope)
        shown |= {"lag_versions": versions} if versions is not None else {}
        shown |= {"lag_rows": rows} if rows is not None else {}
    except PipelineError:
        pass  # missing metadata must not fail a step that has written
    return shown


def last_batches(workspace: Workspace, scope: str, most: int = _SHOWN) -> list[MicroBatch]:
    """The last finished micro-batches, ascending, back to a restart or to folded micro-batches."""
    from pipelines.lake.runs import DONE, FOLDED, newest_first

    found: list[MicroBatch] = []
    for batch in islice(newest_first(workspace.lake, scope), most):
        if batch.plan.get("reset") or FOLDED in batch.plan:
            break
        found += [batch] if batch.state == DONE else []
    return found[::-1]
