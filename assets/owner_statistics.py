"""Statistics on the owners of a scope's rules: rules, rejects, errors."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import dagster as dg

from assets.history import last_batches

if TYPE_CHECKING:
    from pipelines.workspace import Workspace

_SHOWN = 50
_NOBODY = "(nobody)"


def owners_metadata(workspace: Workspace, scope: str) -> dict[str, Any]:
    """A table of the owners of the scope's enabled rules; empty if no rule has one, or `rules` cannot be read."""
    from pipelines.errors import PipelineError
    from quality.findings import markdown_table

    try:
        rows = owners_of(workspace, scope)
    except PipelineError:
        return {}
    if not any(owner != _NOBODY for owner, *_ in rows):
        return {}
    table = markdown_table(("owner", "rules", "rejected", "rows with errors"), rows[:_SHOWN])
    return {"owners": dg.MetadataValue.md(table), "owners_count": sum(owner != _NOBODY for owner, *_ in rows)}


def owners_of(workspace: Workspace, scope: str) -> list[tuple[str, int, int, int]]:
    """For each owner: numbers of enabled rules, of rejected rules, and of recent rows on which a rule raised an error.

    Owners with the most rules come first; rules without an owner come last.
    """
    import polars as pl

    from pipelines.authoring.versions import rules_of
    from pipelines.table_definitions import RULE_REJECTS

    lake = workspace.lake
    enabled = rules_of(lake, lake.delta("rules")).filter(
        pl.col("scope") == scope, pl.col("enabled").fill_null(value=True)
    )
    rejected = set(map(str, lake.arrow(RULE_REJECTS.name, ["rule_id"], [("scope", scope)])["rule_id"].to_pylist()))
    raised = Counter[str]()
    for batch in last_batches(workspace, scope):
        raised.update(batch.errors)
    counts: dict[str, list[int]] = {}
    for rule_id, owner in enabled.select(pl.col("rule_id").cast(pl.String), "owner").iter_rows():
        figures = counts.setdefault(owner or _NOBODY, [0, 0, 0])
        figures[0] += 1
        figures[1] += str(rule_id) in rejected
        figures[2] += raised[str(rule_id)]
    found = [(owner, rules, bad, rows) for owner, (rules, bad, rows) in counts.items()]
    return sorted(found, key=lambda each: (each[0] == _NOBODY, -each[1], each[0]))
