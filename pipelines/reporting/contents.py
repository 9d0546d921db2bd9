"""Gathers the contents of a scope's report: rules, matches over time, findings, rejects, edits and runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import islice
from typing import Any
from zoneinfo import ZoneInfo

import polars as pl

from pipelines.authoring.versions import rules_of
from pipelines.lake.index_store import newest_index
from pipelines.lake.runs import DONE, MicroBatch, newest_first
from pipelines.lint import lint_scopes
from pipelines.reporting.counting import MOST_ROWS, RowCounts, TaggedRows, count, together
from pipelines.reporting.edits import edits_of
from pipelines.scopes import JoinScope, Scope, StreamScope, scope_of
from pipelines.table_definitions import tagged_table
from pipelines.workspace import Workspace

MOST_RULES = 5_000
"""Maximum number of rules that a page lists: a browser can still sort and search so many."""
MOST_TOGETHER = 24
MOST_RUNS = 60
_MOST_TEXTS = 1_000
_TEXT = 2_000


def contents(workspace: Workspace, name: str) -> dict[str, Any]:
    """The contents of one scope's report, as JSON values; times are in the configured zone."""
    scope = scope_of(workspace, name)
    zone = ZoneInfo(workspace.configuration.rules.time_zone)
    time_name, times = _times(scope)
    rules = _rules(workspace, name)
    counted, pairs, notes = _counted(workspace, name, times, set(rules["rule_id"]))
    runs = list(islice(newest_first(workspace.lake, name), MOST_RUNS))[::-1]
    found = lint_scopes(workspace, [name])[0]
    if found.error:
        notes.append(f"The rules could not be examined: {found.error}")
    if found.accepted:
        notes.append(f"{len(found.accepted):,} findings are accepted until their rules change, and not listed.")
    rejects = _rejects(workspace, name)
    errors = next((run.errors for run in reversed(runs) if run.state == DONE), {})
    findings = [asdict(each) for each in found.findings]
    shown = _shown(rules, counted, {str(each["rule_id"]) for each in findings})
    if len(shown) < rules.height:
        notes.append(
            f"Of {rules.height:,} rules {len(shown):,} are listed: those with findings, then those that match most."
        )
    index = newest_index(workspace.lake, name)
    return {
        "scope": name,
        "kind": "stream" if isinstance(scope, StreamScope) else "join",
        "made_at": _local(datetime.now(UTC), zone),
        "zone": zone.key,
        "rules_version": found.rules_version,
        "engine": index.engine if index else None,
        "index_version": index.rules_version if index else None,
        "all_rules": rules.height,
        "rows": counted.rows if counted else 0,
        "all_rows": counted.all_rows if counted else 0,
        "matched": counted.matched if counted else 0,
        "time_name": time_name,
        "unit": counted.periods.unit if counted else "",
        "starts": counted.periods.starts if counted else (),
        "rows_over_time": counted.rows_over_time if counted else (),
        "matched_over_time": counted.matched_over_time if counted else (),
        "rules": [_rule(rule, counted, errors, zone) for rule in shown],
        "together": pairs,
        "findings": [_shortened(each) for each in findings[:_MOST_TEXTS]],
        "all_findings": len(findings),
        "rejects": [_shortened(each) for each in rejects[:_MOST_TEXTS]],
        "all_rejects": len(rejects),
        "runs": [_run(each, zone) for each in runs],
        "edits": edits_of(workspace.lake, name, zone),
        "notes": notes,
    }


def _times(scope: Scope) -> tuple[str, list[tuple[str, ...]]]:
    """The name of a row's time, and the paths of columns: the time is the latest of their values.

    For a stream this is the event time, or else when the row was tagged; for a join the streams' event times.
    """
    if isinstance(scope, JoinScope):
        paths = [(stream.name, stream.event_time) for stream in scope.streams if stream.event_time]
        return f"the latest of {', '.join(map('.'.join, paths))}", [*paths]
    column = scope.event_time or "tagged_at"
    return column, [(column,)]


def _counted(
    workspace: Workspace, name: str, times: Sequence[tuple[str, ...]], present: set[Any]
) -> tuple[RowCounts | None, dict[str, Any], list[str]]:
    """The counts of the tagged table, which rules match the same rows, and notes for the reader."""
    if not workspace.lake.exists(tagged_table(name)):
        return None, {"ids": [], "rows": []}, ["No row has been tagged yet."]
    workspace.progress(f"counting the matches of {name}")
    rows = TaggedRows(workspace.lake, tagged_table(name), times, workspace.configuration.rules.time_zone)
    counted = count(rows)
    top = sorted(present & counted.matches.keys(), key=lambda rule: (-counted.matches[rule], str(rule)))[:MOST_TOGETHER]
    pairs = {"ids": [str(rule) for rule in top], "rows": together(rows, top).tolist() if len(top) > 1 else []}
    notes = []
    if counted.rows < counted.all_rows:
        notes.append(
            f"Only the newest {counted.rows:,} of {counted.all_rows:,} rows are counted: those of the newest files "
            f"that together have {MOST_ROWS:,} rows or more."
        )
    if counted.outside:
        notes.append(f"{counted.outside:,} rows have no time, or one far from all others, and are in no plot.")
    return counted, pairs, notes


def _rules(workspace: Workspace, name: str) -> pl.DataFrame:
    """The scope's rules, disabled ones included, with all columns that a rule may have."""
    return rules_of(workspace.lake, workspace.lake.delta("rules")).filter(pl.col("scope") == name)


def _shown(rules: pl.DataFrame, counted: RowCounts | None, found: set[str]) -> list[dict[str, Any]]:
    """The rules that the page lists: those with a finding first, then by matches, descending."""
    matches = counted.matches if counted else {}
    number = pl.col("rule_id").map_elements(lambda rule: matches.get(rule, 0), pl.Int64, skip_nulls=False)
    first = pl.col("rule_id").cast(pl.String).is_in(list(found)).fill_null(True)
    ranked = rules.sort(first, number, pl.col("rule_id"), descending=[True, True, False], nulls_last=True)
    return ranked.head(MOST_RULES).to_dicts()


def _rule(
    rule: Mapping[str, Any], counted: RowCounts | None, errors: Mapping[str, int], zone: ZoneInfo
) -> dict[str, Any]:
    rule_id = rule["rule_id"]
    return {
        "id": str(rule_id),
        "expression": _cut(rule["expression"] or ""),
        "enabled": rule["enabled"] is not False,
        "owner": rule["owner"] or "",
        "description": _cut(rule["description"] or ""),
        "priority": rule["priority"],
        "labels": rule["labels"] or {},
        "valid_from": _local(rule["valid_from"], zone),
        "valid_to": _local(rule["valid_to"], zone),
        "matches": counted.matches.get(rule_id, 0) if counted else 0,
        "over_time": counted.over_time[rule_id].tolist() if counted and rule_id in counted.over_time else [],
        "errors": errors.get(str(rule_id), 0),
    }


def _rejects(workspace: Workspace, name: str) -> list[dict[str, Any]]:
    rows = workspace.lake.arrow("rule_rejects", ["scope", "rule_id", "error", "message", "position"]).to_pylist()
    return [row for row in rows if row["scope"] == name]


def _run(run: MicroBatch, zone: ZoneInfo) -> dict[str, Any]:
    figures = ("batch", "state", "rules_version", "source_version", "rows", "matches", "quarantined", "seconds")
    shown = {figure: getattr(run, figure) for figure in figures}
    return shown | {"started_at": _local(run.started_at, zone), "errors": sum(run.errors.values())}


def _shortened(row: Mapping[str, Any]) -> dict[str, Any]:
    """A finding or a reject with long texts and lists cut."""
    short: dict[str, Any] = {}
    for key, value in row.items():
        if isinstance(value, Sequence) and not isinstance(value, str):
            value = [str(each) for each in value[:20]]
        short[key] = _cut(value) if isinstance(value, str) else value
    short["rule_id"] = None if row["rule_id"] is None else str(row["rule_id"])
    return short


def _cut(text: str) -> str:
    return text if len(text) <= _TEXT else f"{text[:_TEXT]}… ({len(text):,} characters)"


def _local(time: datetime | None, zone: ZoneInfo) -> str | None:
    return None if time is None else time.astimezone(zone).strftime("%Y-%m-%d %H:%M")
