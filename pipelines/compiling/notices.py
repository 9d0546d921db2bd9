"""Sentences for people on rules that are rejected for their row alone."""

from __future__ import annotations

import polars as pl

from pipelines.compiling.known_rules import known_rules
from pipelines.duplicate_ids import current_rules, duplicate_notice
from pipelines.errors import PipelineError
from pipelines.rule_set import UNKNOWN_SCOPE
from pipelines.workspace import Workspace


def refusals_notice(workspace: Workspace) -> str:
    """Sentences on rules of unknown scopes and on duplicate ids; "" if there are none, or rules cannot be read."""
    try:
        known = known_rules(workspace, {})
        rejects = current_rules(workspace).rejects if known is None else known.of_row
    except PipelineError:
        return ""
    rejects = rejects.sort("rule_id", "scope", nulls_last=True)
    return " ".join(filter(None, (_rules_of_no_scope(rejects), duplicate_notice(rejects))))


def _rules_of_no_scope(rejects: pl.DataFrame) -> str:
    found = rejects.filter((pl.col("error") == UNKNOWN_SCOPE) | pl.col("scope").is_null())
    if found.is_empty():
        return ""
    first = found.row(0, named=True)
    count = "1 rule is" if found.height == 1 else f"{found.height:,} rules are"
    return f"{count} of no stream or join (see the table rule_rejects); {first['rule_id']}: {first['message']}"
