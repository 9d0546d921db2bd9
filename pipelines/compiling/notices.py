"""What people should know of rules whose row alone refuses them, in a sentence or two."""

from __future__ import annotations

import polars as pl

from pipelines.clashes import clash_notice, current_rules
from pipelines.compiling.known_rules import known_rules
from pipelines.errors import PipelineError
from pipelines.rule_set import UNKNOWN_SCOPE
from pipelines.workspace import Workspace


def refusals_notice(workspace: Workspace) -> str:
    """What people should know of rules that no stream and no join has, and of ids that clash; "" where there are none,
    or none can be read."""
    try:
        known = known_rules(workspace, {})
        rejects = current_rules(workspace).rejects if known is None else known.of_row
    except PipelineError:
        return ""
    rejects = rejects.sort("rule_id", "scope", nulls_last=True)
    return " ".join(filter(None, (_rules_of_no_scope(rejects), clash_notice(rejects))))


def _rules_of_no_scope(rejects: pl.DataFrame) -> str:
    lost = rejects.filter((pl.col("error") == UNKNOWN_SCOPE) | pl.col("scope").is_null())
    if lost.is_empty():
        return ""
    first = lost.row(0, named=True)
    count = "1 rule is" if lost.height == 1 else f"{lost.height:,} rules are"
    return f"{count} of no stream or join (see the table rule_rejects); {first['rule_id']}: {first['message']}"
