"""The last edits of the rules table, from its history, and what each of them changed in one scope."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import zip_longest
from typing import Any
from zoneinfo import ZoneInfo

import polars as pl

from pipelines.authoring.versions import Changes, changes_between, rules_of
from pipelines.errors import PipelineError
from pipelines.lake.authors import author_of
from pipelines.lake.lake import Lake

MOST_EDITS = 20
_MOST_LISTED = 10


def edits_of(lake: Lake, scope: str, zone: ZoneInfo) -> list[dict[str, Any]]:
    """The last versions of `rules`, newest first: time, operation, user, and the scope's changes.

    The changes are how many rules were added, removed and changed, with some of these rules. The list ends at a version
    whose files no longer exist.
    """
    history = sorted(lake.delta("rules").history(MOST_EDITS + 1), key=lambda each: -each["version"])
    edits: list[dict[str, Any]] = []
    after: pl.DataFrame | None = None
    # commits of some writers say nothing about themselves, and are not in the history
    for newer, older in zip_longest(history, history[1:]):
        try:
            after = _rules(lake, scope, newer["version"]) if after is None else after
            before = _rules(lake, scope, older["version"]) if older is not None else after.clear()
        except PipelineError:
            break
        if older is not None or newer["version"] == 0:
            edits.append(_edit(newer, changes_between(before, after), zone))
        after = before
    return edits[:MOST_EDITS]


def _rules(lake: Lake, scope: str, version: int) -> pl.DataFrame:
    return rules_of(lake, lake.delta("rules", version)).filter(pl.col("scope") == scope)


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
