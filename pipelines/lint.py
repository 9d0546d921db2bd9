"""The verb lint: finds suspicious rules of a scope, by the rules alone, by its source and by its last runs."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
import pyarrow.compute as pc

import rules_index as ri
from pipelines.annotated import refused_for_annotations
from pipelines.duplicate_ids import current_rules
from pipelines.errors import PipelineError, TableError
from pipelines.lake.runs import DONE, MicroBatch, batches
from pipelines.lake.tagged_ids import IDS, CodedIds, MatchCounts, coded, tagged_rows
from pipelines.lake.version_rows import is_small, rules_at
from pipelines.lint_accepted import accept, accepted_in, fingerprint, rule_rows
from pipelines.lint_kinds import DEAD, HARM, IMPLIED_BY_STREAM, NOISY, OUT_OF_RANGE, RUN_TIME_ERRORS
from pipelines.lint_origins import origin_proposal, possible_origins
from pipelines.origin import IndexedRules
from pipelines.rule_set import NEEDS_SPARK, RULE_COLUMNS, RuleSet
from pipelines.scopes import Scope, StreamScope, scope_of, scopes_of
from pipelines.sources.value_ranges import SourceRange, source_ranges
from pipelines.table_definitions import tagged_table
from pipelines.value_lists import ListReader
from pipelines.workspace import Workspace
from rules_index.implication.disjoint_rules import disjoint_rules
from rules_index.implication.kinds import (
    ALWAYS_RAISES,
    CONTRADICTION,
    MAY_RAISE,
    NEVER_TRUE,
    NULL_TEXT,
    PADDED_TEXT,
    REJECTED,
    TAUTOLOGY,
    UNIT,
    UNKNOWN_VALUE,
)
from rules_index.names import did_you_mean

RUNS, NOISY_SHARE = 10, 0.5
"""How many of the last micro-batches count, and the share of their rows from which a rule is noisy."""
_EXPLAIN_NO_MATCH = (REJECTED, CONTRADICTION, OUT_OF_RANGE, ALWAYS_RAISES, NEVER_TRUE, UNKNOWN_VALUE)
"""Kinds of findings that already say why a rule matches nothing."""
_EXPLAIN_RANGE = (UNKNOWN_VALUE, UNIT, PADDED_TEXT, NULL_TEXT, ALWAYS_RAISES)
"""Kinds of findings that say more about a constant than that it is out of range."""
LEAST_ROWS = 100
"""Minimum number of rows that a rule must have been tried on before it is called dead or noisy."""

_NUMBER = re.compile(r"^(-?[\d.]+(?:E-?\d+)?)(?:BD|D)$")
"""A DECIMAL or DOUBLE literal; messages show the number without the suffix."""
_FAILURES = (PipelineError, ri.RulesIndexError, OSError)


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding, of `rules_index.lint` or of a kind in `lint_kinds`.

    rule_id: None for a finding about a whole stream; position, text: the part of the expression that is concerned, and
    its 0-based offset, None for the whole rule; expression, owner: the rule's, if the table has them.
    """

    rule_id: str | int | None
    kind: str
    message: str
    other_ids: tuple[str | int, ...] = ()
    position: int | None = None
    text: str | None = None
    expression: str | None = None
    owner: str | None = None


@dataclass(frozen=True, slots=True)
class LintResult:
    """The findings of one scope, the most harmful first, and the accepted ones; `error` says why lint failed."""

    scope: str
    rules_version: int
    rules: int = 0
    findings: tuple[Finding, ...] = ()
    accepted: tuple[Finding, ...] = ()
    seconds: float = 0.0
    error: str | None = None


def lint_scopes(
    workspace: Workspace, scopes: Sequence[str] | None = None, runs: int = RUNS, noisy: float = NOISY_SHARE
) -> list[LintResult]:
    """Lint the rules of the named scopes, by default of all; a failure of one does not stop the others.

    runs: how many of the last micro-batches to look back at; noisy: the share of rows from which a rule is noisy.
    Nothing is written, and Spark is started only for sources and lakes in a catalog.
    """
    names = scopes_of(workspace)
    due = [scope_of(workspace, name) for name in (scopes if scopes is not None else names)]
    if is_small(workspace.lake.delta("rules")):
        # whole rows, which are kept: `rule_rows` and others need columns that are not compiled
        rules_at(workspace.lake, workspace.lake.version("rules"))
    rules = current_rules(workspace)
    lists = ListReader(workspace.configuration)
    return [_lint_scope(scope, rules, lists, runs, noisy) for scope in due]


def _lint_scope(scope: Scope, rules: RuleSet, lists: ListReader, runs: int, noisy: float) -> LintResult:
    started = time.perf_counter()
    scope.workspace.progress(f"looking at the rules of {scope.name}")
    count = rules.enabled(scope.name)
    try:
        found = [*_rejected(scope, rules)]
        usable = _usable(scope, rules, found)
        found += _of_streams(scope, rules, usable, lists)
        found += _of_rules(scope, usable, lists)
        found += _of_source(scope, usable, found, lists)
        found += _of_runs(scope, usable, found, runs, noisy)
        shown, accepted = _with_rules(scope, rules.version, sorted(found, key=_sort_key))
    except _FAILURES as error:
        return LintResult(scope.name, rules.version, count, error=str(error))
    return LintResult(scope.name, rules.version, count, tuple(shown), tuple(accepted), time.perf_counter() - started)


def _sort_key(finding: Finding) -> tuple[int, bool, bool, str | int]:
    """Sorts by harm, then by id: none first, then text (the ids of rejects always are text), then numbers."""
    number = isinstance(finding.rule_id, int)
    named = finding.rule_id is not None
    return HARM[finding.kind], named, number, finding.rule_id if finding.rule_id is not None else ""


def _with_rules(scope: Scope, version: int, found: Sequence[Finding]) -> tuple[list[Finding], list[Finding]]:
    """The findings with their rules' texts and owners: those to show, and the accepted ones."""
    rows = rule_rows(scope.workspace, scope.name, version, (str(each.rule_id) for each in found))
    accepted = accepted_in(scope.workspace, scope.name)
    parted: tuple[list[Finding], list[Finding]] = ([], [])
    for each in found:
        row = rows.get(str(each.rule_id), {})
        is_accepted = (str(each.rule_id), each.kind, fingerprint(row)) in accepted
        parted[is_accepted].append(replace(each, expression=row.get("expression"), owner=row.get("owner")))
    return parted


def accept_finding(workspace: Workspace, rule_id: str, kind: str, reason: str | None = None) -> Finding:
    """Accept the finding of one kind about a rule until the rule changes; returns the finding.

    An accepted finding stays accepted. `reason` is for people. TableError if lint has no such finding, or fails.
    """
    rules = current_rules(workspace)
    scopes = rules.valid.filter(pl.col("rule_id").cast(pl.String) == rule_id)["scope"].to_list()
    scopes += rules.rejects.filter(pl.col("rule_id") == rule_id)["scope"].to_list()
    known = [name for name in dict.fromkeys(scopes) if name in scopes_of(workspace)]
    if not known:
        hint = did_you_mean(rule_id, rules.valid["rule_id"])
        raise TableError(f"No enabled rule of a stream or a join has the id {rule_id}{hint}")
    for name in known:
        (result,) = lint_scopes(workspace, [name])
        if result.error is not None:
            raise TableError(result.error)
        of_rule = [each for each in result.findings if str(each.rule_id) == rule_id]
        found = next((each for each in of_rule if each.kind == kind), None)
        if found is not None:
            row = rule_rows(workspace, name, result.rules_version, [rule_id])[rule_id]
            accept(workspace, name, rule_id, kind, row, reason)
            return found
        before = next((e for e in result.accepted if str(e.rule_id) == rule_id and e.kind == kind), None)
        if before is not None:
            return before
    kinds = ", ".join(dict.fromkeys(each.kind for each in of_rule)) or "nothing"
    raise TableError(f"Lint finds no `{kind}` in rule {rule_id}; it finds {kinds}.")


def _rejected(scope: Scope, rules: RuleSet) -> Iterable[Finding]:
    """Rules rejected for their rows or severities, and those that were rejected for a part that only Spark evaluates
    when this version was compiled."""
    stored = pl.DataFrame(pl.from_arrow(scope.workspace.lake.arrow("rule_rejects")))
    by_spark = stored.filter(
        (pl.col("scope") == scope.name)
        & (pl.col("rules_version") == rules.version)
        & pl.col("error").is_in(["ANALYSIS", NEEDS_SPARK])
    )
    kept = rules.kept_of(scope.name)
    # the rows of a duplicate id share one reject
    by_row = rules.rejects.filter(pl.col("scope") == scope.name).unique(maintain_order=True)
    for frame in (by_row, by_spark):
        for each in frame.iter_rows(named=True):
            consequence = "" if each["rule_id"] in kept else ", so it matches nothing"
            message = f"The rule is not compiled{consequence} ({each['error']}): {each['message']}"
            yield Finding(each["rule_id"], REJECTED, message, position=each["position"])
    for rule_id, error in refused_for_annotations(
        scope.workspace.configuration, scope.name, rules.of_scope(scope.name)
    ):
        if rule_id not in kept:
            message = f"The rule is not compiled, so it matches nothing ({error.error}): {error.message}"
            yield Finding(rule_id, REJECTED, message)


def _usable(scope: Scope, rules: RuleSet, rejected: Iterable[Finding]) -> pl.DataFrame:
    """The rules of a scope that are not among the rejected ones."""
    refused = [each.rule_id for each in rejected]
    valid = rules.of_scope(scope.name).select(RULE_COLUMNS)
    return valid.filter(~pl.col("rule_id").cast(pl.String).is_in(refused)) if refused else valid


def _of_streams(scope: Scope, rules: RuleSet, usable: pl.DataFrame, lists: ListReader) -> Iterable[Finding]:
    """A finding if the stream could read another stream's tagged rows."""
    if not isinstance(scope, StreamScope):
        return
    workspace = scope.workspace
    theirs = {}
    for stream in possible_origins(workspace.configuration, scope.stream):
        other = StreamScope(workspace, stream)
        valid = _usable(other, rules, _rejected(other, rules))
        theirs[stream.name] = _with_lists(workspace, valid, rules, stream.event_time, lists)
    if not theirs:
        return
    mine = _with_lists(workspace, usable, rules, scope.event_time, lists)
    proposal = origin_proposal(workspace, scope.stream, mine, theirs, scope.columns())
    if proposal is not None:
        yield Finding(None, IMPLIED_BY_STREAM, proposal)


def _with_lists(
    workspace: Workspace, usable: pl.DataFrame, rules: RuleSet, event_time: str | None, lists: ListReader
) -> IndexedRules:
    zone = workspace.configuration.rules.time_zone
    return IndexedRules(usable, rules.version, event_time, zone, lists=lists.read(usable["expression"]))


def _of_rules(scope: Scope, rules: pl.DataFrame, lists: ListReader) -> Iterable[Finding]:
    """The findings of the library, by the rules alone."""
    zone = scope.workspace.configuration.rules.time_zone
    known = scope.known_values(rules["expression"].to_list())
    named = lists.read(rules["expression"])
    found = ri.lint(rules.to_arrow(), scope.columns(), scope.event_time, zone, known, named)
    for each in found.drop_columns(["example"]).to_pylist():
        others = tuple(each.pop("other_ids"))
        yield Finding(**each, other_ids=others)


def _of_source(scope: Scope, rules: pl.DataFrame, known: Sequence[Finding], lists: ListReader) -> list[Finding]:
    """Findings on rules that no row of the source can match, by the files' statistics.

    A rule is left out if a `known` finding explains the same constant better.
    """
    if not isinstance(scope, StreamScope):
        return []
    schema = scope.columns()
    ranges = source_ranges(scope.stream, schema)
    if not ranges:
        return []
    condition = " AND ".join(each.condition for each in ranges.values())
    zone = scope.workspace.configuration.rules.time_zone
    named = lists.read(rules["expression"])
    explained: dict[str | int | None, list[str]] = {}
    for each in known:
        if each.kind in _EXPLAIN_RANGE:
            explained.setdefault(each.rule_id, []).append((each.text or "").lower())
    return [
        Finding(rule_id, OUT_OF_RANGE, _range_message(ranges.get(column or "")))
        for rule_id, column in disjoint_rules(rules, schema, condition, scope.event_time, zone, named).items()
        if column is None or not any(column.lower() in text for text in explained.get(rule_id, ()))
    ]


def _range_message(known: SourceRange | None) -> str:
    advice = (
        "Check whether the rule's constants have the column's unit and spelling, or whether such rows will still come."
    )
    if known is None:
        return f"No row of the source can match the rule: its columns have no such values. {advice}"
    if known.low is None:
        return f"No row of the source can match the rule: its column {known.column} is NULL on every row. {advice}"
    low, high = (_NUMBER.sub(r"\1", each or "") for each in (known.low, known.high))
    if low == high:
        values = f"is {low} on every row" if not known.null else f"is {low} or NULL on every row"
    else:
        values = f"has values from {low} to {high}, {'and NULL' if known.null else 'and no NULL'}"
    return f"No row of the source can match the rule: its column {known.column} {values}. {advice}"


def _of_runs(scope: Scope, rules: pl.DataFrame, known: Sequence[Finding], runs: int, noisy: float) -> Iterable[Finding]:
    """Rules that raised errors in the last micro-batch with rows, and rules that matched no row, or too many, since
    they changed.

    Only the last `runs` micro-batches count. Rules whose behaviour a `known` finding explains are left out.
    """
    done = [each for each in batches(scope.workspace.lake, scope.name) if each.state == DONE]
    if not done:
        return
    ids = {str(each): each for each in rules["rule_id"].to_list()}
    explained = {each.rule_id for each in known if each.kind in _EXPLAIN_NO_MATCH}
    raising = {each.rule_id for each in known if each.kind in (ALWAYS_RAISES, MAY_RAISE)}
    last = next((each for each in reversed(done) if each.rows), done[-1])
    for rule_id, rows in last.errors.items():
        if rule_id in ids and rows:
            explained.add(ids[rule_id])
            if ids[rule_id] in raising:
                continue
            yield Finding(ids[rule_id], RUN_TIME_ERRORS, _errors_message(rows, last.rows or 0))
    if not isinstance(scope, StreamScope):
        return
    window = [each.rules_version for each in done[-runs:] if each.rules_version is not None]
    if not window:
        return
    always = {each.rule_id for each in known if each.kind == TAUTOLOGY}
    counts = _matches(scope, min(window), done)
    for rule_id, since in _unchanged_since(scope, rules, window).items():
        looked_at = [each for each in done if each.rules_version is not None and each.rules_version >= since]
        tagged = sum((each.rows or 0) - (each.quarantined or 0) for each in looked_at)
        versions = counts.get(rule_id, {})
        matched = sum(count for (version, _), count in versions.items() if version >= since)
        of_these = sum(count for (_, first_version), count in versions.items() if first_version >= since)
        if tagged < LEAST_ROWS:
            continue
        if matched == 0 and rule_id not in explained:
            yield Finding(rule_id, DEAD, _dead_message(tagged, looked_at))
        elif of_these >= noisy * tagged and rule_id not in always:
            yield Finding(rule_id, NOISY, _noisy_message(of_these, tagged))


def _matches(
    scope: StreamScope, rules_version: int, done: Sequence[MicroBatch]
) -> dict[Any, dict[tuple[int, int], int]]:
    """How many rows each rule matched, by the version of `rules` that tagged them, from `rules_version` on, and the
    version by which their micro-batch tagged them. The second one is lower where a re-tag has matched rows again."""
    wanted = pc.field("rules_version") >= rules_version
    series = [each for each in done if each.plan.get("series") == done[-1].plan.get("series")]
    taken = [(each.source_version, each.rules_version) for each in series]
    known = [(end, version) for end, version in taken if end is not None and version is not None]
    ends, first_versions = np.array([*known, (np.iinfo(np.int64).max, 0)], np.int64).T
    lake, name = scope.workspace.lake, tagged_table(scope.stream)
    counted: dict[tuple[int, int], MatchCounts] = {}
    for batch in tagged_rows(lake, name, [IDS, "rules_version", "source_version"], wanted):
        versions = batch.column("rules_version").to_numpy()
        places = np.searchsorted(ends, pc.fill_null(batch.column("source_version"), 0).to_numpy())
        firsts = np.minimum(first_versions[places], versions)
        matches = coded(batch.column(IDS))
        for version, first in np.unique(np.stack([versions, firsts], 1), axis=0).tolist():
            held = ((versions == version) & (firsts == first))[matches.rows]
            of_pair = CodedIds(matches.rows[held], matches.codes[held], matches.ids)
            counted.setdefault((version, first), MatchCounts()).add(of_pair)
    found: dict[Any, dict[tuple[int, int], int]] = {}
    for key, counts in counted.items():
        for rule, number in zip(counts.ids.to_pylist(), counts.counts[:, 0].tolist(), strict=True):
            found.setdefault(rule, {})[key] = number
    return found


def _unchanged_since(scope: StreamScope, rules: pl.DataFrame, versions: Sequence[int]) -> dict[Any, int]:
    """Maps each rule that has not changed since the newest of these versions to the oldest since which it is the same.

    Rules with validity bounds are left out. The search ends before a version that can no longer be read, or whose ids
    have another type.
    """
    same = rules.filter(pl.col("valid_from").is_null() & pl.col("valid_to").is_null()).select("rule_id", "expression")
    found: dict[Any, int] = {}
    for version in sorted(set(versions), reverse=True):
        try:
            before = pl.DataFrame(pl.from_arrow(rules_at(scope.workspace.lake, version)))
        except PipelineError:
            break
        before = before.rename(str.lower)
        if "enabled" in before.columns:
            before = before.filter(pl.col("enabled").fill_null(True))
        if before.schema["rule_id"] != same.schema["rule_id"]:
            break
        of_scope = before.filter(pl.col("scope") == scope.name)
        same = same.join(of_scope, on=["rule_id", "expression"], how="semi")
        found |= dict.fromkeys(same["rule_id"].to_list(), version)
    return found


def _errors_message(rows: int, all_rows: int) -> str:
    return (
        f"On {rows:,} of the {all_rows:,} rows of the last micro-batch a part of the rule could not be evaluated, and "
        "counted as NULL there: a division by zero, an overflow or a failed cast. Guard that part, or use nullif, "
        "try_cast and similar functions."
    )


def _dead_message(tagged: int, looked_at: Sequence[MicroBatch]) -> str:
    several = f"{len(looked_at)} micro-batches" if len(looked_at) > 1 else "micro-batch"
    return (
        f"The rule matched none of the {tagged:,} rows of the last {several}. Check that it says what was meant, and "
        "disable it if it is no longer needed."
    )


def _noisy_message(matched: int, tagged: int) -> str:
    return (
        f"The rule matched {matched:,} of the last {tagged:,} rows, {matched / tagged:.0%}. If it was meant to single "
        "out rows, narrow it."
    )
