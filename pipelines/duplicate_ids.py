"""Duplicate ids: while several enabled rules share an id, the rule that was compiled last stays in force."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

import rules_index as ri
from pipelines.errors import PipelineError
from pipelines.indexed_rules import indexed_rules
from pipelines.lake.index_store import StoredIndex, fetch_index, newest_index
from pipelines.rule_set import ANNOTATED_BY, DUPLICATE_ID, SHOWN, RuleSet, read_rules
from pipelines.scopes import scopes_of

if TYPE_CHECKING:
    from pipelines.workspace import Workspace


def current_rules(workspace: Workspace) -> RuleSet:
    """The enabled rules of the newest version of `rules`; for each duplicate id, the rule that was compiled last.

    This is the rule in the scope's newest index. A duplicate id has no rule if the scope has no index, or if the index
    lacks the rule (it may have been rejected). If rows are annotated, it also has none if the version of `rules` from
    which the index was compiled is no longer readable.
    """
    annotated = workspace.configuration.annotates
    rules = read_rules(workspace.lake, scopes_of(workspace), annotated=annotated)
    duplicates = rules.rejects.filter(pl.col("error") == DUPLICATE_ID)
    for scope, ids in duplicates.group_by("scope", maintain_order=True).agg(pl.col("rule_id").unique()).iter_rows():
        if scope in scopes_of(workspace):
            rules = _with_last_good(workspace, rules, scope, ids)
    return rules


def duplicate_notice(rejects: pl.DataFrame) -> str:
    """A sentence for people on the duplicate ids among rejects; "" if there are none."""
    duplicates = rejects.filter(pl.col("error") == DUPLICATE_ID)
    if duplicates.is_empty():
        return ""
    ids = duplicates["rule_id"].unique(maintain_order=True)
    shared = "1 id is" if len(ids) == 1 else f"{len(ids):,} ids are"
    first = f"{ids[0][:SHOWN]}: {duplicates['message'][0]}"
    return f"{shared} shared by several enabled rules (see the table rule_rejects); {first}"


def rules_of_index(workspace: Workspace, stored: StoredIndex) -> pl.DataFrame:
    """The valid rules that an index was compiled from, with the `version` of `rules` that each was taken from.

    Raises what `read_rules` raises if one of these versions is gone.
    """
    kept, found = stored.kept, []
    for version in sorted({stored.rules_version, *kept.values()}):
        annotated = workspace.configuration.annotates
        rules = read_rules(workspace.lake, scopes_of(workspace), version, annotated=annotated).of_scope(stored.scope)
        wanted = pl.col("rule_id").cast(pl.String).is_in([each for each, other in kept.items() if other == version])
        if version != stored.rules_version:
            rules = rules.filter(wanted)
        found.append(rules.with_columns(pl.lit(version, pl.Int64).alias("version")))
    return pl.concat(found).sort("rule_id")


def _with_last_good(workspace: Workspace, rules: RuleSet, scope: str, ids: list[str]) -> RuleSet:
    try:
        index = newest_index(workspace.lake, scope)
        if index is None:
            return rules
        kept = _as_compiled(workspace, index, pl.Series(ids).cast(rules.valid.schema["rule_id"]))
    except (PipelineError, ri.RulesIndexError):
        return rules
    return rules if kept.is_empty() else _added(rules, kept)


def _as_compiled(workspace: Workspace, index: StoredIndex, ids: pl.Series) -> pl.DataFrame:
    """The rules with these ids from which an index was compiled, with the columns of `rules_of_index`.

    Ids that the index lacks are left out; all are if rule ids have another type now.
    """
    found = indexed_rules(ri.load(fetch_index(workspace.lake, index)), ids.to_list())
    if found["rule_id"].dtype != ids.dtype:
        return found.clear()
    names, versions = found["rule_id"].cast(pl.String), index.kept
    version = [versions.get(name, index.rules_version) for name in names]
    found = found.with_columns(scope=pl.lit(index.scope), version=pl.Series(version, dtype=pl.Int64))
    if workspace.configuration.annotates:
        # the index keeps no priority, labels and severity: take them from that version of `rules`, which may have been
        # replaced by another table's, so only for rules with the same text
        rows = rules_of_index(workspace, index).select("rule_id", "expression", *ANNOTATED_BY)
        found = found.join(rows, on=["rule_id", "expression"], how="inner", maintain_order="left")
    return found


def _added(rules: RuleSet, kept: pl.DataFrame) -> RuleSet:
    """The rules together with the kept ones; the messages of the duplicate ids' rejects say what stays in force."""
    notes = kept.select(
        "scope",
        pl.col("rule_id").cast(pl.String),
        error=pl.lit(DUPLICATE_ID),
        goes_on=pl.format(
            " Until then the rule applies as in version {} of rules: {}",
            "version",
            pl.col("expression").str.head(SHOWN),
        ),
    )
    rejects = rules.rejects.join(notes, on=["scope", "rule_id", "error"], how="left", maintain_order="left")
    message = pl.col("message") + pl.col("goes_on").fill_null("")
    return replace(
        rules,
        valid=pl.concat([rules.valid, kept.select(rules.valid.columns)], how="vertical_relaxed"),
        rejects=rejects.with_columns(message).drop("goes_on"),
        kept=pl.concat([rules.kept, notes.select("scope", "rule_id").with_columns(kept["version"])]),
    )
