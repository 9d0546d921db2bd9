"""The verb compile: the `rules` table -> `rule_index` and `rule_rejects`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa

import rules_index as ri
from pipelines.analyse import analyser_of
from pipelines.annotated import annotate_of
from pipelines.compiling.changes import RulesTable
from pipelines.compiling.due import counts_of, rules_hash, still_holds, versions_of
from pipelines.compiling.incremental import compile_changes
from pipelines.compiling.known_rules import known_rules
from pipelines.compiling.rejects import Mark, compile_rejects_of, newest_mark, stored_rejects, write_rejects
from pipelines.compiling.results import (
    RejectsNotWrittenError,
    ScopeResult,
    columns_of,
    held_result,
    indexed_result,
    library_rejects,
    settings_of,
    too_many,
    zone_notices,
)
from pipelines.compiling.storing import save_to_temporary_file, sound_index, store
from pipelines.duplicate_ids import current_rules
from pipelines.error_texts import why_full
from pipelines.errors import PipelineError, TableError, as_failure, not_written
from pipelines.lake.index_store import (
    KEPT,
    LIST_FILES,
    LISTS,
    StoredIndex,
    fetch_index,
    newest_index,
    update_statistics,
)
from pipelines.lake.lake import Lake
from pipelines.origin import origin_of
from pipelines.recovery.jvm_restart import step
from pipelines.rule_set import RuleSet
from pipelines.runners.spark_required import why_spark_evaluates
from pipelines.scopes import Scope, scope_of, scopes_of
from pipelines.value_lists import HeldLists, read_lists
from pipelines.workspace import Workspace
from rules_index.index.artifact import FORMAT_VERSION
from rules_index.kernel_cache import is_cold
from rules_index.memory import release_freed_memory

if TYPE_CHECKING:
    from rules_index.domains.value_lists import AnyList


def compile_scopes(
    workspace: Workspace, scopes: Sequence[str] | None = None, force: bool = False, engine: str | None = None
) -> list[ScopeResult]:
    """Compile the named scopes, by default every stream and join; one result each. A failure does not stop the others.

    `rule_rejects` is brought to the version of `rules` that was compiled. An index is written to `rule_index` in one
    commit if its fingerprint or engine differs from the stored index's, or if `force` is set, which also drops the
    scope's older indexes, damaged ones included. Otherwise only the stored index's statistics are updated. `engine`
    replaces the configured one.
    """
    lake, names = workspace.lake, scopes_of(workspace)
    due = [scope_of(workspace, name) for name in (scopes if scopes is not None else names)]
    engines = {scope.name: engine or workspace.configuration.engine_of(scope.name) for scope in due}
    known = None if force else known_rules(workspace, engines)
    if known is not None:
        changed = compile_changes(workspace, due, known)
        _write_rejects(lake, changed.rejects, changed.mark.version, changed.mark, changed.results)
        return changed.results
    rules = current_rules(workspace)
    before = stored_rejects(lake)
    rejects, results = [rules.rejects], []
    for scope in due:
        before_it = "deltatag's kernels (once for this installation) and " if is_cold() else ""
        workspace.progress(f"compiling {before_it}the rules of {scope.name}")
        result, rejected = _compile_scope(scope, rules, before, force, engines[scope.name])
        results.append(result)
        rejects.append(rejected)
    rejects[0] = _read_again(workspace, rules).rejects
    others = set(names) - {scope.name for scope in due}
    rejects.append(compile_rejects_of(before, others, rules))
    _write_rejects(lake, rejects, rules.version, _mark(workspace, rules, results), results)
    return results


def _write_rejects(
    lake: Lake, rejects: Sequence[pl.DataFrame], version: int, mark: Mark | None, results: list[ScopeResult]
) -> None:
    """Bring `rule_rejects` up to date; RejectsNotWrittenError, with the results, if it cannot be written."""
    try:
        write_rejects(lake, rejects, version, mark)
    except TableError as error:
        raise RejectsNotWrittenError(str(error), results) from error


def _mark(workspace: Workspace, rules: RuleSet, results: Sequence[ScopeResult]) -> Mark | None:
    """The mark of what was compiled; None for a small table of rules, whose mark is never read."""
    table = RulesTable.of(workspace.lake, rules.version)
    if not table.is_large:
        return None
    names, before = sorted(scopes_of(workspace)), newest_mark(workspace.lake)
    holds = {}
    if before is not None and before.table == table.id and table.holds(workspace.lake, before.version, before.commit):
        holds = dict(before.holds)
    for result in results:
        stored = newest_index(workspace.lake, result.scope) if result.state in ("compiled", "unchanged") else None
        if stored is not None and (stored.fingerprint, stored.engine) == (result.fingerprint, result.engine):
            holds[result.scope] = (stored.sha256, rules.version)
    held = {name: each for name, each in holds.items() if name in names}
    return Mark(table.id, rules.version, table.rows, table.commit, names, held)


def _read_again(workspace: Workspace, rules: RuleSet) -> RuleSet:
    """The same rules, read again once they are compiled: a kept rule that was rejected is no longer kept.

    Returns `rules` itself if it has no kept rules, or the table has a newer version by now.
    """
    again = rules if rules.kept.is_empty() else current_rules(workspace)
    return again if again.version == rules.version else rules


def _compile_scope(
    scope: Scope, rules: RuleSet, before: pl.DataFrame, force: bool, engine: str
) -> tuple[ScopeResult, pl.DataFrame]:
    """The scope's result, and the library's rejects among its rules."""
    started = time.perf_counter()
    kept = compile_rejects_of(before, {scope.name}, rules)
    try:
        with step(scope.workspace, f"compile {scope.name}"):
            result, rejected = _bring_up_to_date(scope, rules, kept, force, engine)
    except Exception as error:
        reason = str(error if isinstance(error, OSError) else as_failure(error))
        if isinstance(error, OSError) and why_full(error):
            reason = str(not_written(f"The index of {scope.name} cannot be written", error))
        result = ScopeResult(scope.name, "failed", rules.version, rules.enabled(scope.name), error=reason)
        rejected = kept
    return replace(result, seconds=time.perf_counter() - started), rejected


def _bring_up_to_date(
    scope: Scope, rules: RuleSet, kept: pl.DataFrame, force: bool, engine: str
) -> tuple[ScopeResult, pl.DataFrame]:
    """Like `_compile_scope`, but errors are raised. kept: the library's stored rejects among the current rules."""
    lake, name, settings = scope.workspace.lake, scope.name, scope.workspace.configuration.rules
    schema = scope.columns()
    content = rules_hash(scope, rules, engine, versions_of(scope, rules))
    stored = None if force else sound_index(lake, name)
    known, kept_ids = stored.implied_by if stored is not None else None, rules.kept_of(name)
    if stored is not None and still_holds(scope, stored, content, schema, kept):
        counts = counts_of(rules, name, kept.height)
        failed = too_many(scope, counts)
        if failed is not None:
            return failed, kept
        implied_by, _ = _implied(scope, rules.accepted(name, kept), known)
        # a rule that is kept, or no longer, may be the one that the index has anyway
        of_kept = {KEPT: kept_ids} if kept_ids != stored.kept else {}
        update_statistics(lake, stored, {**implied_by, **of_kept})
        return indexed_result("unchanged", stored, counts), kept
    held_lists = _held_lists(lake, stored)
    lists, versions = read_lists(scope.workspace.configuration, rules.of_scope(name)["expression"], held_lists)
    of_scope = rules.of_scope(name)
    compiled = _compiled(scope, of_scope, schema, engine, lists)
    rejected = library_rejects(compiled, name)
    implied_by, refused = _implied(scope, rules.accepted(name, rejected), known if _is(stored, compiled) else None)
    if refused.height:
        rejected = pl.concat([rejected, refused])
        of_scope = of_scope.filter(~pl.col("rule_id").cast(pl.String).is_in(refused["rule_id"].implode()))
        compiled = _compiled(scope, of_scope, schema, engine, lists)
    lost = kept_ids.keys() & set(rejected["rule_id"])
    if lost:
        # what is stored must describe the rules that the next compile finds, and it does not find these
        return _bring_up_to_date(scope, rules.without_kept(name, lost), kept, force, engine)
    counts = counts_of(rules, name, rejected.height)
    failed = too_many(scope, counts)
    if failed is not None:
        return failed, rejected
    if counts.rejected and settings.on_reject == "hold":
        return held_result(name, counts, stored), rejected
    found = {
        "rules_sha256": rules_hash(scope, rules, engine, versions),
        "settings": settings_of(scope, engine),
        "columns": columns_of(schema),
        "rejected": rejected.height,
        "needs_spark": why_spark_evaluates(compiled) or "",
        KEPT: kept_ids,
        LISTS: versions,
        **implied_by,
    }
    notices = zone_notices(scope, stored)
    if stored is not None and _is(stored, compiled):
        update_statistics(lake, stored, found)
        return replace(indexed_result("unchanged", stored, counts), notices=notices), rejected
    statistics = {**compiled.stats, "format_version": FORMAT_VERSION, LIST_FILES: compiled.list_files, **found}
    fingerprint, built, path = compiled.fingerprint, compiled.engine, save_to_temporary_file(compiled)
    # the index is saved in its file: free its memory for writing the table
    del compiled
    release_freed_memory()
    written = store(lake, path, name, rules.version, fingerprint, built, statistics, force)
    return replace(indexed_result("compiled", written, counts), notices=notices), rejected


def _compiled(
    scope: Scope, rules: pl.DataFrame, schema: pa.Schema, engine: str, lists: Sequence[AnyList]
) -> ri.CompiledRules:
    """The index of these rules of the scope."""
    configuration = scope.workspace.configuration
    return ri.compile_rules(
        rules.drop("scope").to_arrow(),
        schema,
        engine,
        event_time=scope.event_time,
        time_zone=configuration.rules.time_zone,
        analyse=analyser_of(scope),
        sample=scope.sample(schema),
        annotate=annotate_of(configuration, scope.name),
        lists=lists,
    )


def _is(stored: StoredIndex | None, compiled: ri.CompiledRules) -> bool:
    """True if the stored index is the compiled one."""
    return stored is not None and (stored.fingerprint, stored.engine) == (compiled.fingerprint, compiled.engine)


def _implied(scope: Scope, accepted: pl.DataFrame, known: str | None) -> tuple[dict[str, str], pl.DataFrame]:
    """The statistics' entry `implied_by`, and the rejects of rules that another stream's do not imply.

    The entry is the fingerprint of the origin's index whose rules imply the accepted ones. Both are empty if there is
    no origin, or nothing must be implied. Raises what `Origin.implies_now` raises.
    """
    origin = origin_of(scope)
    if origin is None:
        return {}, accepted.clear()
    found, refused = origin.implies_now(accepted, known)
    return ({"implied_by": found} if found is not None else {}), refused


def _held_lists(lake: Lake, stored: StoredIndex | None) -> HeldLists | None:
    """The value lists that a stored index holds; None if it holds none, or this version cannot read it."""
    if stored is None or not stored.lists:
        return None
    try:
        return HeldLists.of(ri.load(fetch_index(lake, stored)), stored.lists)
    except (PipelineError, ri.ArtifactError):
        return None
