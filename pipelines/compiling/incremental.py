"""Compiles only changed rules, and updates the stored indexes with them.

Module `known_rules` finds out what has changed.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

import rules_index as ri
from pipelines.analyse import analyser_of
from pipelines.compiling.changes import RuleChanges
from pipelines.compiling.known_rules import KnownRules
from pipelines.compiling.rejects import Mark
from pipelines.compiling.results import (
    ScopeResult,
    columns_of,
    held_result,
    indexed_result,
    library_rejects,
    too_many,
)
from pipelines.compiling.storing import save_to_temporary_file, store
from pipelines.errors import PipelineError
from pipelines.lake.index_store import BASE_FILE, LIST_FILES, LISTS, StoredIndex, fetch_index, update_statistics
from pipelines.recovery.jvm_restart import step
from pipelines.rule_set import ANNOTATED_BY, RULE_COLUMNS
from pipelines.runners.spark_required import why_spark_evaluates
from pipelines.scopes import Scope, scopes_of
from pipelines.value_lists import HeldLists, Versions, read_lists
from pipelines.workspace import Workspace
from rules_index.index.artifact import FORMAT_VERSION


@dataclass(frozen=True, slots=True)
class CompiledChanges:
    """One result per scope, the rejects of all scopes, and the mark to store with them."""

    results: list[ScopeResult]
    rejects: list[pl.DataFrame]
    mark: Mark


def compile_changes(workspace: Workspace, due: Sequence[Scope], known: KnownRules) -> CompiledChanges:
    """Bring the scopes in `due` up to date; `known` must have the index of each."""
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
    return CompiledChanges(results, rejects, replace(known.mark, holds=holds))


def _compile_scope(scope: Scope, known: KnownRules) -> tuple[ScopeResult, pl.DataFrame, StoredIndex | None]:
    """The scope's result, the library's rejects among its rules, and their index; None if no index has these rules."""
    started = time.perf_counter()
    stored: StoredIndex | None = None
    rejected = known.of_library({scope.name})
    try:
        with step(scope.workspace, f"compile {scope.name}"):
            result, rejected, stored = _bring_up_to_date(scope, known, rejected)
    except (PipelineError, ri.RulesIndexError, OSError) as error:
        counts = known.counts(scope.name, known.indexes[scope.name].rules, rejected.height)
        result = ScopeResult(scope.name, "failed", counts.version, counts.enabled, error=str(error))
    return replace(result, seconds=time.perf_counter() - started), rejected, stored


def _bring_up_to_date(
    scope: Scope, known: KnownRules, kept: pl.DataFrame
) -> tuple[ScopeResult, pl.DataFrame, StoredIndex | None]:
    """Like `_compile_scope`, but errors are raised. kept: the library's rejects that are stored for the scope."""
    lake, name, changes = scope.workspace.lake, scope.name, known.changes
    stored = known.indexes[name]
    path = fetch_index(lake, stored)
    if not known.has_changed(name):
        counts = known.counts(name, stored.rules, kept.height)
        return too_many(scope, counts) or indexed_result("unchanged", stored, counts), kept, stored
    updated, named, versions = _updated(scope, stored, path, changes)
    rejected = pl.concat([changes.unchanged(kept), named])
    counts = known.counts(name, len(updated), rejected.height)
    failed = too_many(scope, counts)
    if failed is not None:
        return failed, rejected, None
    if counts.rejected and scope.workspace.configuration.rules.on_reject == "hold":
        return held_result(name, counts, stored), rejected, None
    if updated.fingerprint == stored.fingerprint:
        update_statistics(lake, stored, {LISTS: versions, "columns": columns_of(scope.columns())})
        return indexed_result("unchanged", stored, counts), rejected, stored
    statistics = {
        **updated.stats,
        "format_version": FORMAT_VERSION,
        "settings": stored.statistics["settings"],
        "columns": columns_of(scope.columns()),
        "rejected": rejected.height,
        "needs_spark": why_spark_evaluates(updated) or "",
        LISTS: versions,
        LIST_FILES: updated.list_files,
        **({BASE_FILE: updated.base_file.name} if updated.base_file is not None else {}),
    }
    fingerprint, built = updated.fingerprint, updated.engine
    written = store(
        lake, save_to_temporary_file(updated), name, changes.version, fingerprint, built, statistics, force=False
    )
    return indexed_result("compiled", written, counts), rejected, written


def _updated(
    scope: Scope, stored: StoredIndex, path: Path, changes: RuleChanges
) -> tuple[ri.CompiledRules, pl.DataFrame, Versions]:
    """The index at `path` updated with the changes, the new rejects, and the versions of the lists that rules name."""
    compiled, configuration = ri.load(path), scope.workspace.configuration
    annotated_by = ANNOTATED_BY if configuration.annotations_of(scope.name) else []
    changed = changes.rules.of_scope(scope.name).select(RULE_COLUMNS + annotated_by)
    ids = pl.Series("rule_id", changes.ids)
    gone = pl.DataFrame({"rule_id": ids.filter(~ids.is_in(changed["rule_id"].implode()))})
    edits = pl.concat([changed.cast({"rule_id": ids.dtype}), gone], how="diagonal_relaxed")
    # unchanged rules may name these lists
    texts = pl.Series([f"LIST('{name}')" for name in stored.lists], dtype=pl.String)
    held = HeldLists.of(compiled, stored.lists)
    lists, versions = read_lists(configuration, pl.concat([texts, changed["expression"]]), held)
    schema = scope.columns()
    updated = compiled.update(edits.to_arrow(), analyser_of(scope), scope.sample(schema), lists, schema)
    rejected, now = library_rejects(compiled, scope.name), library_rejects(updated, scope.name)
    # a changed list may cause rejects among rules that have not changed
    named = now.filter(pl.col("rule_id").is_in(changes.names.implode()))
    new = now.join(rejected, on="rule_id", how="anti").filter(~pl.col("rule_id").is_in(named["rule_id"].implode()))
    return updated, pl.concat([named, new]), versions
