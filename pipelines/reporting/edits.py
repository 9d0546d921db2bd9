"""The last edits of the rules table, from its history, and what each of them changed in one scope."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import polars as pl

from pipelines.authoring.versions import Changes, ColumnTypeError, changes_between, rules_of_versions
from pipelines.errors import PipelineError
from pipelines.lake.authors import author_of
from pipelines.lake.lake import Lake

MOST_EDITS = 20
_MOST_LISTED = 10


def edits_of(lake: Lake, scope: str, zone: ZoneInfo) -> list[dict[str, Any]]:
    """The last versions of `rules`, newest first: time, operation, user, and the scope's changes.

    The changes are how many rules were added, removed and changed, with some of these rules. The list ends at a version
    whose files no longer exist. A version with a column of a wrong type is left out: it was never compiled.
    """
    commits = {int(each["version"]): each for each in lake.delta("rules").history(MOST_EDITS + 1)}
    edits: list[dict[str, Any]] = []
    before: pl.DataFrame | None = None
    # commits of some writers say nothing about themselves, and are not in the history
    for version, found in rules_of_versions(lake, sorted(commits)):
        if isinstance(found, ColumnTypeError):
            continue
        if isinstance(found, PipelineError):
            edits.clear()
            before = None
            continue
        after = found.filter(pl.col("scope") == scope)
        before = after.clear() if version == 0 else before
        if before is not None:
            edits.append(_edit(commits[version], changes_between(before, after), zone))
        before = after
    return edits[: -MOST_EDITS - 1 : -1]


def _edit(commit: dict[str, Any], found: Changes, zone: ZoneInfo) -> dict[str, Any]:
    listed = [
        {"rule_id": str(row["rule_id"]), "kind": kind, **_texts(found, kind, row)}
        for kind, frame in (("changed", found.changed), ("added", found.added), ("removed", found.removed))
        for row in frame.head(_MOST_LISTED).to_dicts()
    ]
    at = datetime.fromtimestamp(commit["timestamp"] / 1_000, UTC).astimezone(zone)
    return {
        "version": commit["version"],
        "at": at.strftime("%Y-%m-%d %H:%M"),
        "operation": commit.get("operation") or "",
        "user": author_of(commit) or "",
        "added": found.added.height,
        "removed": found.removed.height,
        "changed": found.changed.height,
        "rules": listed,
    }


def _texts(found: Changes, kind: str, row: dict[str, Any]) -> dict[str, str]:
    """The expression, for a changed rule also the old one if it differs, and the other changed columns."""
    now = (row["expression"] or "")[:500]
    if kind != "changed":
        return {"expression": now}
    was = (row["expression_before"] or "")[:500]
    others = [name for name in found.differing(row) if name != "expression"]
    shown = "; ".join(f"{name}: {row[f'{name}_before']} → {row[name]}" for name in others)
    return {"expression": now, "before": was if was != now else "", "others": shown}
