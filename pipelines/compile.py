"""The verb compile: the `rules` table -> `rule_index` and `rule_rejects`."""

from __future__ import annotations

import hashlib
import io
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa

import rules_index as ri
from pipelines.analyse import spark_analyser
from pipelines.clashes import KEPT, clash_notice, current_rules
from pipelines.errors import PipelineError, TableError
from pipelines.lake.index_store import (
    StoredIndex,
    fetch_index,
    file_sha256,
    newest_index,
    read_index,
    store_index,
    update_statistics,
)
from pipelines.lake.lake import Lake, arrow_schema, delta_rs_uri, first_line
from pipelines.lake.tables import RULE_REJECTS
from pipelines.origin import origin_of
from pipelines.recovery.survival import step
from pipelines.rule_set import (
    REJECT_SCHEMA,
    ROW_ERRORS,
    RULE_COLUMNS,
    UNKNOWN_SCOPE,
    RuleSet,
    as_rejects,
    read_rules,
)
from pipelines.runners.needs import of_derived
from pipelines.scopes import Scope, scope_of, scopes_of
from pipelines.scratch import indexes_folder
from pipelines.workspace import Workspace
from rules_index.index.artifact import FORMAT_VERSION
from rules_index.memory import release_freed_memory

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class ScopeResult:
    """What compiling one scope came to.

    `state` is "compiled" (a new index was written), "unchanged" (the stored one still holds), "held" (some
    rule was rejected and `on_reject` is "hold": the last good index stays) or "failed" (`error` says why).
    `rules` counts the enabled rules of the scope, `rejects` those of them that are not in the index.
    """

    scope: str
    state: str
    rules_version: int
    rules: int = 0
    rejects: int = 0
    fingerprint: str | None = None
    engine: str | None = None
    bytes: int = 0
    seconds: float = 0.0
    error: str | None = None


def compile_scopes(
    workspace: Workspace, scopes: Sequence[str] | None = None, force: bool = False, engine: str | None = None
) -> list[ScopeResult]:
    """Compile the named scopes, by default every stream and join; one result each, a failure does not stop the others.

    `rule_rejects` is brought to the version of `rules` that was compiled. An index goes to `rule_index` in
    one commit, and only where its fingerprint or engine is not the stored one's, or `force` is set (which also drops
    the scope's older indexes, damaged ones among them). Where it is, the stored index's statistics are brought up
    to date with what was compiled. engine: in place of the configured one.
    """
    lake, names = workspace.lake, scopes_of(workspace)
    due = [scope_of(workspace, name) for name in (scopes if scopes is not None else names)]
    rules = current_rules(workspace)
    before = _stored_rejects(lake)
    rejects, results = [rules.rejects], []
    for scope in due:
        workspace.progress(f"compiling the rules of {scope.name}")
        chosen = engine or workspace.configuration.engine_of(scope.name)
        result, rejected = _compile_scope(scope, rules, before, force, chosen)
        results.append(result)
        rejects.append(rejected)
    rejects[0] = _told_again(workspace, rules).rejects
    others = set(names) - {scope.name for scope in due}
    rejects.append(_compile_rejects_of(before, others, rules))
    _write_rejects(lake, pl.concat(rejects), rules.version)
    return results


def _told_again(workspace: Workspace, rules: RuleSet) -> RuleSet:
    """The same rules, once they are compiled: one that was to go on may have been rejected, and then does not."""
    again = rules if rules.kept.is_empty() else current_rules(workspace)
    return again if again.version == rules.version else rules


def compile_is_due(workspace: Workspace, name: str) -> bool:
    """True if the scope has no index, or its rules, its columns' types or the index format have changed since.

    So it is where too many of its rules are rejected, as long as they are: compiling it says so.
    """
    scope = scope_of(workspace, name)
    stored = newest_index(workspace.lake, name)
    if stored is None:
        return True
    rules = current_rules(workspace)
    mine = _compile_rejects_of(_stored_rejects(workspace.lake), {name}, rules).height
    content = _rules_hash(scope, rules, workspace.configuration.engine_of(name))
    holds = _still_holds(stored, content, scope.columns(), mine)
    return not holds or _too_many(scope, rules, mine) is not None


def refusals_are_due(workspace: Workspace) -> bool:
    """True if other rules are refused for their row alone, which no scope's index tells, than `rule_rejects` says."""
    keys = ["scope", "rule_id", "error"]
    told = _stored_rejects(workspace.lake).filter(pl.col("error").is_in(ROW_ERRORS)).select(keys)
    return not read_rules(workspace.lake, scopes_of(workspace)).rejects.select(keys).sort(keys).equals(told.sort(keys))


def refusals_notice(workspace: Workspace) -> str:
    """What people should know of rules that no stream and no join has, and of ids that clash; "" where there are none,
    or none can be read."""
    try:
        rules = current_rules(workspace)
    except PipelineError:
        return ""
    return " ".join(filter(None, (_rules_of_no_scope(rules), clash_notice(rules))))


def _rules_of_no_scope(rules: RuleSet) -> str:
    lost = rules.rejects.filter((pl.col("error") == UNKNOWN_SCOPE) | pl.col("scope").is_null())
    if lost.is_empty():
        return ""
    first = lost.row(0, named=True)
    count = "1 rule is" if lost.height == 1 else f"{lost.height:,} rules are"
    return f"{count} of no stream or join (see the table rule_rejects); {first['rule_id']}: {first['message']}"


def _compile_scope(
    scope: Scope, rules: RuleSet, before: pl.DataFrame, force: bool, engine: str
) -> tuple[ScopeResult, pl.DataFrame]:
    """The scope's result, and those of its rules that the library refused."""
    started = time.perf_counter()
    kept = _compile_rejects_of(before, {scope.name}, rules)
    try:
        with step(scope.workspace, f"compile {scope.name}"):
            result, rejected = _bring_up_to_date(scope, rules, kept, force, engine)
    except (PipelineError, ri.RulesIndexError, OSError) as error:
        result = ScopeResult(scope.name, "failed", rules.version, rules.enabled(scope.name), error=str(error))
        rejected = kept
    return replace(result, seconds=time.perf_counter() - started), rejected


def _bring_up_to_date(
    scope: Scope, rules: RuleSet, kept: pl.DataFrame, force: bool, engine: str
) -> tuple[ScopeResult, pl.DataFrame]:
    lake, name, settings = scope.workspace.lake, scope.name, scope.workspace.configuration.rules
    schema = scope.columns()
    content = _rules_hash(scope, rules, engine)
    stored = None if force else _sound_index(lake, name)
    known = stored.statistics.get("implied_by") if stored is not None else None
    if stored is not None and _still_holds(stored, content, schema, kept.height):
        failed = _too_many(scope, rules, kept.height)
        if failed is not None:
            return failed, kept
        update_statistics(lake, stored, _implied_by(scope, rules.accepted(name, kept), known))
        return _result("unchanged", stored, rules, name, kept.height), kept
    compiled = ri.compile_rules(
        rules.of_scope(name).select(RULE_COLUMNS).to_arrow(),
        schema,
        engine,
        event_time=scope.event_time,
        time_zone=settings.time_zone,
        analyse=spark_analyser(scope),
        sample=scope.sample(schema),
    )
    kept_ids = rules.kept_of(name)
    rejected = _library_rejects(compiled, name).filter(~pl.col("rule_id").is_in(list(kept_ids)))
    failed = _too_many(scope, rules, rejected.height)
    if failed is not None:
        return failed, rejected
    count = rules.refused(name) + rejected.height
    if count and settings.on_reject == "hold":
        held = ScopeResult(name, "held", rules.version, rules.enabled(name), count)
        if stored is None:
            return held, rejected
        return replace(held, fingerprint=stored.fingerprint, engine=stored.engine, bytes=stored.bytes), rejected
    is_known = stored is not None and (stored.fingerprint, stored.engine) == (compiled.fingerprint, compiled.engine)
    found = {
        "rules_sha256": content,
        "columns": {field.name: str(field.type) for field in schema},
        "rejected": rejected.height,
        "needs_spark": of_derived(compiled) or "",
        **({KEPT: kept_ids} if kept_ids else {}),
        **_implied_by(scope, rules.accepted(name, rejected), known if is_known else None),
    }
    if stored is not None and is_known:
        update_statistics(lake, stored, found)
        return _result("unchanged", stored, rules, name, rejected.height), rejected
    statistics = {**compiled.stats, "format_version": FORMAT_VERSION, **found}
    fingerprint, built, path = compiled.fingerprint, compiled.engine, _saved(compiled)
    # the index is in its file, and what is written to the table needs memory, too
    del compiled
    release_freed_memory()
    written = _store(lake, path, name, rules.version, fingerprint, built, statistics, force)
    return _result("compiled", written, rules, name, rejected.height), rejected


def _implied_by(scope: Scope, accepted: pl.DataFrame, known: str | None) -> dict[str, str]:
    """What the statistics say of the scope's origin: the index whose rules imply the accepted ones, where any must.

    Raises what `Origin.implies_now` raises.
    """
    origin = origin_of(scope)
    found = origin.implies_now(accepted, known) if origin is not None else None
    return {"implied_by": found} if found is not None else {}


def _too_many(scope: Scope, rules: RuleSet, rejected: int) -> ScopeResult | None:
    """How the compile fails where the scope's share of rejected rules is above the limit; None where it is not.

    rejected: how many of the scope's sound rules the library rejected.
    """
    name, limit = scope.name, scope.workspace.configuration.rules.max_reject_share
    count, enabled = rules.refused(name) + rejected, rules.enabled(name)
    if not enabled or count / enabled <= limit:
        return None
    message = (
        f"{count} of the {enabled} rules of {name} were rejected, more than max_reject_share = {limit} allows; the "
        f"index stays as it was. See them with: deltatag sql \"SELECT * FROM rule_rejects WHERE scope = '{name}'\""
    )
    return ScopeResult(name, "failed", rules.version, enabled, count, error=message)


def _result(state: str, stored: StoredIndex, rules: RuleSet, name: str, rejected: int) -> ScopeResult:
    rejects = rules.refused(name) + rejected
    return ScopeResult(
        name, state, rules.version, rules.enabled(name), rejects, stored.fingerprint, stored.engine, stored.bytes
    )


def _sound_index(lake: Lake, name: str) -> StoredIndex | None:
    """The scope's newest index, if its bytes are whole; a damaged one must be compiled anew by force."""
    stored = newest_index(lake, name)
    if stored is not None:
        fetch_index(lake, stored) if stored.bytes > _CHECKED_BYTES else read_index(lake, stored)
    return stored


_CHECKED_BYTES = 64 << 20
"""Indexes up to this size are read from the table and checked whenever the scope is compiled."""


def _rules_hash(scope: Scope, rules: RuleSet, engine: str) -> str:
    """SHA-256 of all that a compile takes in, the source's columns aside."""
    mine = rules.of_scope(scope.name)
    sink = _Digest()
    with pa.ipc.new_stream(pa.PythonFile(sink, "w"), mine.clear().to_arrow().schema) as writer:
        # part by part, since a copy of all texts takes memory; however they lie, the parts are the same
        for part in mine.iter_slices(_HASHED_RULES):
            writer.write_table(part.to_arrow().combine_chunks())
    settings = (FORMAT_VERSION, scope.workspace.configuration.rules.time_zone, scope.event_time, engine)
    sink.write(repr(settings).encode())
    return sink.digest.hexdigest()


_HASHED_RULES = 1 << 16


class _Digest(io.RawIOBase):
    """A file of which only the SHA-256 is kept."""

    def __init__(self) -> None:
        self.digest = hashlib.sha256()

    def writable(self) -> bool:
        """Always."""
        return True

    def write(self, data: Any) -> int:
        """Adds bytes to the digest."""
        self.digest.update(data)
        return len(data)


def _still_holds(stored: StoredIndex, content: str, schema: pa.Schema, rejects: int) -> bool:
    """True if compiling again would give the stored index.

    A new column changes nothing for rules that were understood without it, but may cure one that was refused.
    """
    if stored.statistics.get("rules_sha256") != content or stored.statistics.get("rejected") != rejects:
        return False
    now = {field.name: str(field.type) for field in schema}
    then: Mapping[str, str] = stored.statistics.get("columns", {})
    if any(now.get(name) != kind for name, kind in then.items()):
        return False
    return rejects == 0 or len(now) == len(then)


def _saved(compiled: ri.CompiledRules) -> Path:
    """A file of the index, for `_store`."""
    handle, temporary = tempfile.mkstemp(dir=indexes_folder())
    os.close(handle)
    path = Path(temporary)
    try:
        compiled.save(path)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return path


def _store(
    lake: Lake,
    path: Path,
    name: str,
    version: int,
    fingerprint: str,
    engine: str,
    statistics: Mapping[str, Any],
    force: bool,
) -> StoredIndex:
    """Write the index, and keep its file under the name by which `tag` looks for it."""
    try:
        stored = store_index(lake, name, version, fingerprint, engine, path, statistics, force)
        if file_sha256(path) == stored.sha256:
            os.replace(path, path.with_name(f"{stored.sha256}.index"))
    finally:
        path.unlink(missing_ok=True)
    return stored


def _library_rejects(compiled: ri.CompiledRules, scope: str) -> pl.DataFrame:
    found = pl.DataFrame(pl.from_arrow(compiled.rejects))
    return as_rejects(found.with_columns(scope=pl.lit(scope)))


def _stored_rejects(lake: Lake) -> pl.DataFrame:
    return as_rejects(pl.DataFrame(pl.from_arrow(lake.arrow("rule_rejects", list(REJECT_SCHEMA)))))


def _compile_rejects_of(stored: pl.DataFrame, scopes: set[str], rules: RuleSet) -> pl.DataFrame:
    """Of the stored rejects those that the library gave for rules of `scopes` which are still there."""
    mine = stored.filter(pl.col("scope").is_in(list(scopes)) & ~pl.col("error").is_in(ROW_ERRORS))
    if mine.is_empty():
        return mine
    known = rules.sound.select("scope", pl.col("rule_id").cast(pl.String))
    return mine.join(known, on=["scope", "rule_id"], how="semi")


def _write_rejects(lake: Lake, rejects: pl.DataFrame, version: int) -> None:
    """Make `rule_rejects` these rows, in one commit; nothing is written where nothing changes."""
    from deltalake import exceptions, write_deltalake

    columns = ["scope", "rule_id", "rules_version", "error", "message", "position"]
    rows = rejects.with_columns(rules_version=pl.lit(version, pl.Int64)).select(columns)
    rows = rows.sort("scope", "rule_id", "error", nulls_last=False)
    stored = pl.DataFrame(pl.from_arrow(lake.arrow("rule_rejects", columns))).cast(rows.schema)
    if stored.sort("scope", "rule_id", "error", nulls_last=False).equals(rows):
        return
    table = rows.to_arrow().cast(arrow_schema(RULE_REJECTS))
    try:
        write_deltalake(delta_rs_uri(lake.uri("rule_rejects")), table, mode="overwrite")
    except (exceptions.DeltaError, OSError) as error:
        raise TableError(f"The table rule_rejects cannot be written: {first_line(error)}") from error
