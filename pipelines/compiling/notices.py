"""Sentences for people on rules that are rejected for their row alone."""

from __future__ import annotations

import polars as pl

from pipelines.compiling.known_rules import known_rules
from pipelines.duplicate_ids import current_rules, duplicate_notice
from pipelines.errors import PipelineError
from pipelines.rule_set import SHOWN, UNKNOWN_SCOPE
from pipelines.workspace import Workspace


def refusals_notice(workspace: Workspace) -> str:
    """Sentences on rules of unknown scopes and on duplicate ids; "" if there are none, or rules cannot be read."""
    try:
        rejects = _rejected_for_their_row(workspace)
    except PipelineError:
        return ""
    return " ".join(filter(None, (_scope_notice(_of_no_scope(rejects)), duplicate_notice(rejects))))


def rules_of_no_scope(workspace: Workspace) -> list[str | int | None]:
    """The ids of enabled rules of no stream or join. PipelineError if rules cannot be read."""
    found: list[str | int | None] = _of_no_scope(_rejected_for_their_row(workspace))["rule_id"].to_list()
    return found


def _rejected_for_their_row(workspace: Workspace) -> pl.DataFrame:
    known = known_rules(workspace, {})
    rejects = current_rules(workspace).rejects if known is None else known.of_row
    return rejects.sort("rule_id", "scope", nulls_last=True)


def _of_no_scope(rejects: pl.DataFrame) -> pl.DataFrame:
    return rejects.filter((pl.col("error") == UNKNOWN_SCOPE) | pl.col("scope").is_null())


def _scope_notice(found: pl.DataFrame) -> str:
    if found.is_empty():
        return ""
    first = found.row(0, named=True)
    name = str(first["rule_id"])[:SHOWN]
    count = "1 rule belongs" if found.height == 1 else f"{found.height:,} rules belong"
    return f"{count} to no stream or join (see the table rule_rejects); {name}: {first['message']}"
