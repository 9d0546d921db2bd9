"""Compiling what has changed: the stored indexes are updated, and only changed rules are read.

It takes a mark in `rule_rejects` that says for which version of `rules` each index holds, the change feed of `rules`
since then, and nothing else that has changed. Whatever is missing, all rules are read and compiled instead.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

import rules_index as ri
from pipelines.analyse import spark_analyser
from pipelines.clashes import KEPT
from pipelines.compiling.changes import RuleChanges, RulesTable, changes_since
from pipelines.compiling.rejects import Mark, compile_rejects_of, is_of_row, newest_mark, stored_rejects
from pipelines.compiling.results import (
    Counts,
    ScopeResult,
    columns_of,
    held,
    indexed,
    library_rejects,
    settings_of,
    too_many,
)
from pipelines.compiling.storing import saved, store
from pipelines.errors import PipelineError
from pipelines.lake.index_store import StoredIndex, fetch_index, newest_index, update_statistics
from pipelines.origin import origin_of
from pipelines.recovery.survival import step
from pipelines.rule_set import DUPLICATE_ID, RULE_COLUMNS
from pipelines.runners.needs import of_derived
from pipelines.scopes import Scope, scope_of, scopes_of
from pipelines.value_lists import LISTS, Held, Versions, list_versions, read_lists
from pipelines.workspace import Workspace
from rules_index.index.artifact import FORMAT_VERSION


@dataclass(frozen=True, slots=True)
class KnownRules:
    """What is known of the rules without reading them all; `told` is all of `rule_rejects` as it stands;
    `of_lists` are the scopes whose rules name lists that hold other values than when they were compiled."""

    mark: Mark
    changes: RuleChanges
    indexes: Mapping[str, StoredIndex]
    told: pl.DataFrame
    of_lists: Collection[str] = ()

    @property
    def of_row(self) -> pl.DataFrame:
        """The rules of the newest version that are refused for their row alone."""
        return pl.concat([self.changes.unchanged(self.told.filter(is_of_row())), self.changes.rules.rejects])

    def of_library(self, scopes: set[str]) -> pl.DataFrame:
        """What the library refused of scopes' rules that are still there."""
        mine = self.told.filter(pl.col("scope").is_in(list(scopes)) & ~is_of_row())
        unchanged = self.changes.unchanged(mine)
        others = mine.join(unchanged, on=["scope", "rule_id"], how="anti")
        return pl.concat([unchanged, compile_rejects_of(others, scopes, self.changes.rules)])

    def counts(self, name: str, rules: int, rejected: int) -> Counts:
        """Of a scope with so many rules in its index, and so many that the library rejected."""
        refused = rejected + self.of_row.filter(pl.col("scope") == name).height
        return Counts(self.changes.version, rules + refused, refused)

    def has_changed(self, name: str) -> bool:
        """True if rules of a scope, or lists that they name, may have changed since its index was compiled."""
        return name in self.changes.scopes or name in self.of_lists

    def is_due(self, scope: Scope) -> bool:
        """True if what a scope's index is compiled from may have changed, or too many of its rules are rejected."""
        name = scope.name
        if self.has_changed(name):
            return True
        rules = int(self.indexes[name].statistics["rules"])
        return too_many(scope, self.counts(name, rules, self.of_library({name}).height)) is not None


def known_rules(workspace: Workspace, engines: Mapping[str, str]) -> KnownRules | None:
    """What is known of the rules of some scopes (by name, the engine that is asked for); None where they must all be
    read: they are few, or much has changed, or something else than rules."""
    lake, names = workspace.lake, scopes_of(workspace)
    try:
        table = RulesTable.of(lake)
        mark = newest_mark(lake) if table.is_large else None
        if mark is None or mark.table != table.id or mark.scopes != sorted(names):
            return None
        indexes: dict[str, StoredIndex] = {}
        widened: set[str] = set()
        version = mark.version
        for name, engine in engines.items():
            stored, scope = newest_index(lake, name), scope_of(workspace, name)
            sha256, held_at = mark.holds.get(name, ("", 0))
            if stored is None or stored.sha256 != sha256 or not _is_as_before(scope, stored, engine):
                return None
            if stored.statistics.get("columns") != columns_of(scope.columns()):
                widened.add(name)
            indexes[name], version = stored, min(version, held_at)
        changes = changes_since(lake, list(names), table, version)
        if changes is None or (changes.rules.rejects["error"] == DUPLICATE_ID).any():
            return None
        of_lists = {name for name, stored in indexes.items() if _has_other_lists(workspace, stored)}
        known = KnownRules(mark, changes, indexes, stored_rejects(lake), of_lists)
        # a rule that changed, or was refused, may read a column that has come since, or name a list that has changed
        again = known.of_library(widened | of_lists)
        return known if widened.isdisjoint(changes.scopes) and again.is_empty() else None
    except (PipelineError, OSError):
        return None


def _has_other_lists(workspace: Workspace, stored: StoredIndex) -> bool:
    before: Versions = stored.statistics.get(LISTS, {})
    return list_versions(workspace.configuration, before) != before


def _is_as_before(scope: Scope, stored: StoredIndex, engine: str) -> bool:
    """True if all but the scope's rules, and columns that have come, is as when its index was compiled, and no other
    index has a say. Annotations are compiled with all rules alone."""
    found = stored.statistics
    columns: Mapping[str, str] = found.get("columns", {})
    return (
        found.get("settings") == settings_of(scope, engine)
        and columns.items() <= columns_of(scope.columns()).items()
        and not found.get(KEPT)
        and found.get(LISTS, {}).keys() <= scope.workspace.configuration.lists.keys()
        and not scope.workspace.configuration.annotations_of(scope.name)
        and origin_of(scope) is None
    )


@dataclass(frozen=True, slots=True)
class Compiled:
    """One result each scope, all rejects of all scopes, and the mark that goes with them."""

    results: list[ScopeResult]
    rejects: list[pl.DataFrame]
    mark: Mark


def compile_changes(workspace: Workspace, due: Sequence[Scope], known: KnownRules) -> Compiled:
    """Brings the scopes that are due, all of which are known, up to date."""
    results, rejects = [], [known.of_row]
    holds = dict(known.mark.holds)
    for scope in due:
        workspace.progress(f"compiling what has changed of the rules of {scope.name}")
        result, rejected, stored = _compile_scope(scope, known)
        results.append(result)
        rejects.append(rejected)
        if stored is not None:
            holds[scope.name] = (stored.sha256, known.changes.version)
    rejects.append(known.of_library(set(scopes_of(workspace)) - {scope.name for scope in due}))
    mark = replace(known.mark, version=known.changes.version, holds=holds)
    return Compiled(results, rejects, mark)


def _compile_scope(scope: Scope, known: KnownRules) -> tuple[ScopeResult, pl.DataFrame, StoredIndex | None]:
    """The scope's result, what the library refused of its rules, and the index of them where there is one."""
    started = time.perf_counter()
    stored: StoredIndex | None = None
    rejected = known.of_library({scope.name})
    try:
        with step(scope.workspace, f"compile {scope.name}"):
            result, rejected, stored = _bring_up_to_date(scope, known, rejected)
    except (PipelineError, ri.RulesIndexError, OSError) as error:
        counts = known.counts(scope.name, int(known.indexes[scope.name].statistics["rules"]), rejected.height)
        result = ScopeResult(scope.name, "failed", counts.version, counts.enabled, error=str(error))
    return replace(result, seconds=time.perf_counter() - started), rejected, stored


def _bring_up_to_date(
    scope: Scope, known: KnownRules, kept: pl.DataFrame
) -> tuple[ScopeResult, pl.DataFrame, StoredIndex | None]:
    lake, name, changes = scope.workspace.lake, scope.name, known.changes
    stored = known.indexes[name]
    path = fetch_index(lake, stored)
    if not known.has_changed(name):
        counts = known.counts(name, int(stored.statistics["rules"]), kept.height)
        return too_many(scope, counts) or indexed("unchanged", stored, counts), kept, stored
    updated, named, versions = _updated(scope, stored, path, changes)
    rejected = pl.concat([changes.unchanged(kept), named])
    counts = known.counts(name, len(updated), rejected.height)
    failed = too_many(scope, counts)
    if failed is not None:
        return failed, rejected, None
    if counts.rejected and scope.workspace.configuration.rules.on_reject == "hold":
        return held(name, counts, stored), rejected, None
    if updated.fingerprint == stored.fingerprint:
        update_statistics(lake, stored, {LISTS: versions})
        return indexed("unchanged", stored, counts), rejected, stored
    statistics = {
        **updated.stats,
        "format_version": FORMAT_VERSION,
        "settings": stored.statistics["settings"],
        "columns": stored.statistics["columns"],
        "rejected": rejected.height,
        "needs_spark": of_derived(updated) or "",
        LISTS: versions,
    }
    fingerprint, built = updated.fingerprint, updated.engine
    written = store(lake, saved(updated), name, changes.version, fingerprint, built, statistics, force=False)
    return indexed("compiled", written, counts), rejected, written


def _updated(
    scope: Scope, stored: StoredIndex, path: Path, changes: RuleChanges
) -> tuple[ri.CompiledRules, pl.DataFrame, Versions]:
    """The index of a file with what has changed, the rejects among that, and the versions of the lists that its rules
    name."""
    compiled, configuration = ri.load(path), scope.workspace.configuration
    mine = changes.rules.of_scope(scope.name).select(RULE_COLUMNS)
    ids = pl.Series("rule_id", changes.ids)
    gone = pl.DataFrame({"rule_id": ids.filter(~ids.is_in(mine["rule_id"].implode()))})
    told = pl.concat([mine.cast({"rule_id": ids.dtype}), gone], how="diagonal_relaxed")
    before: Versions = stored.statistics.get(LISTS, {})
    texts = pl.Series([f"LIST('{name}')" for name in before], dtype=pl.String)
    held = Held(compiled.lists, before)
    lists, versions = read_lists(configuration, pl.concat([texts, mine["expression"]]), held)
    sample = scope.sample(scope.columns())
    updated = compiled.update(told.to_arrow(), spark_analyser(scope), sample, lists)
    rejected, now = library_rejects(compiled, scope.name), library_rejects(updated, scope.name)
    # a list that has changed may have had rules rejected that have not
    named = now.filter(pl.col("rule_id").is_in(changes.names.implode()))
    new = now.join(rejected, on="rule_id", how="anti").filter(~pl.col("rule_id").is_in(named["rule_id"].implode()))
    return updated, pl.concat([named, new]), versions
