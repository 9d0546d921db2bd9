"""Says why an index lacks a rule that somebody asks about."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from pipelines.duplicate_ids import current_rules
from rules_index.names import did_you_mean
from rules_index.printable import escaped

if TYPE_CHECKING:
    import pyarrow as pa

    from pipelines.workspace import Workspace


def why_absent(workspace: Workspace, scope: str, rule_id: str | int, version: int | None, indexed: pa.Array) -> str:
    """A sentence, after a blank, on what the newest version of `rules` says about a rule that an index lacks.

    version: the version of `rules` that was explained, None for the newest index; indexed: the ids of the index. If no
    rule has the id, the most similar one of those that the index lacks is named. Empty if this version has the rule.
    """
    rules, has_id = current_rules(workspace), pl.col("rule_id").cast(pl.String) == str(rule_id)
    valid = rules.valid.filter(has_id)["scope"].to_list()
    if scope in valid:
        return "" if rules.version == version else f" Explain it with --rules-version {rules.version}."
    says = f" In version {rules.version} of the rules it is"
    for message in rules.rejects.filter(has_id, pl.col("scope") == scope)["message"]:
        return f"{says} rejected: {message}"
    if valid:
        return f"{says} a rule of {escaped(valid[0])}."
    names = [each.name for each in workspace.lake.delta("rules").schema().fields]
    ids = workspace.lake.arrow("rules", [name for name in names if name.lower() == "rule_id"]).column(0)
    listed = pl.Series(ids.cast("string")).drop_nulls()
    if (listed == str(rule_id)).any():
        return f"{says} disabled."
    others = listed.filter(~listed.is_in(pl.Series(indexed.cast("string")).implode()))
    return f" No rule has this id in version {rules.version} of the rules{did_you_mean(rule_id, others)}"
