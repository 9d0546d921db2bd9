"""The verb compile: the `rules` table -> `rule_index` and `rule_rejects`."""

from __future__ import annotations

import difflib
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
from pipelines.errors import PipelineError, TableError
from pipelines.index_store import StoredIndex, fetch_index, file_sha256, newest_index, read_index, store_index
from pipelines.lake import Lake, arrow_schema, delta_rs_uri, first_line
from pipelines.scopes import Scope, scope_of, scopes_of
from pipelines.session import scratch_folder
from pipelines.tables import RULE_REJECTS
from pipelines.workspace import Workspace
from rules_index.compile import FORMAT_VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping

_REJECT_COLUMNS = ["scope", "rule_id", "error", "message", "position"]
_REJECT_SCHEMA = {
    "scope": pl.String,
    "rule_id": pl.String,
    "error": pl.String,
    "message": pl.String,
    "position": pl.Int32,
}


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


@dataclass(frozen=True, slots=True)
class RuleSet:
    """The enabled rules of one version of `rules`.

    `sound` has the columns rule_id, scope, expression, valid_from, valid_to and no NULL, repeated id or
    unknown scope; `rejects` (scope, rule_id as text, error, message, position) has all the others.
    """

    version: int
    sound: pl.DataFrame
    rejects: pl.DataFrame

    def of_scope(self, scope: str) -> pl.DataFrame:
        """The sound rules of a scope, by ascending id."""
        found = self.sound.filter(pl.col("scope") == scope)
        return found if found["rule_id"].is_sorted() else found.sort("rule_id")

    def enabled(self, scope: str) -> int:
        """How many enabled rules the scope has, sound or not."""
        return sum(frame.filter(pl.col("scope") == scope).height for frame in (self.sound, self.rejects))


def compile_scopes(workspace: Workspace, scopes: Sequence[str] | None = None, force: bool = False) -> list[ScopeResult]:
    """Compile the named scopes, by default every stream and join; one result each, a failure does not stop the others.

    `rule_rejects` is brought to the version of `rules` that was compiled. An index goes to `rule_index` in
    one commit, and only where its fingerprint is not the stored one's, or `force` is set (which also drops
    the scope's older indexes, damaged ones among them).
    """
    lake, names = workspace.lake, scopes_of(workspace)
    due = [scope_of(workspace, name) for name in (scopes if scopes is not None else names)]
    rules = read_rules(lake, names)
    before = _stored_rejects(lake)
    rejects, results = [rules.rejects], []
    for scope in due:
        workspace.progress(f"compiling the rules of {scope.name}")
        result, rejected = _compile_scope(scope, rules, before, force)
        results.append(result)
        rejects.append(rejected)
    others = set(names) - {scope.name for scope in due}
    rejects.append(_compile_rejects_of(before, others, rules))
    _write_rejects(lake, pl.concat(rejects), rules.version)
    return results


def compile_is_due(workspace: Workspace, name: str) -> bool:
    """True if the scope has no index, or its rules, its columns' types or the index format have changed since."""
    scope = scope_of(workspace, name)
    stored = newest_index(workspace.lake, name)
    if stored is None:
        return True
    rules = read_rules(workspace.lake, scopes_of(workspace))
    mine = _compile_rejects_of(_stored_rejects(workspace.lake), {name}, rules).height
    return not _still_holds(stored, _rules_hash(scope, rules), scope.columns(), mine)


def read_rules(lake: Lake, scopes: Sequence[str]) -> RuleSet:
    """The enabled rules of the newest version of `rules`; TableError if the table has not the columns it needs."""
    table = lake.delta("rules")
    version = int(table.version())
    columns = {field.name.lower(): field.name for field in table.schema().fields}
    for name in ("rule_id", "scope", "expression"):
        if name not in columns:
            raise TableError(f"The table rules at {lake.uri('rules')} has no column {name}, which every rule needs.")
    wanted = ["rule_id", "scope", "expression", "valid_from", "valid_to", "enabled"]
    found = [columns[name] for name in wanted if name in columns]
    frame = pl.DataFrame(pl.from_arrow(lake.arrow("rules", found, version=version)))
    frame = frame.rename({columns[name]: name for name in wanted if name in columns})
    for name in wanted[3:]:
        if name not in frame.columns:
            frame = frame.with_columns(pl.lit(None, pl.Boolean if name == "enabled" else None).alias(name))
    _check_types(lake, frame)
    enabled = frame.filter(pl.col("enabled").fill_null(True)).drop("enabled")
    return _sort_out(version, enabled, scopes)


def _check_types(lake: Lake, frame: pl.DataFrame) -> None:
    expected = {"scope": pl.String, "expression": pl.String, "enabled": pl.Boolean}
    for name, kind in expected.items():
        if frame.schema[name] != kind:
            raise TableError(f"The column {name} of {lake.uri('rules')} is {frame.schema[name]}; it must be {kind}.")
    if frame.schema["rule_id"] not in (pl.String, pl.Int64):
        kind_found = frame.schema["rule_id"]
        raise TableError(f"The column rule_id of {lake.uri('rules')} is {kind_found}; it must be STRING or BIGINT.")


def _sort_out(version: int, enabled: pl.DataFrame, scopes: Sequence[str]) -> RuleSet:
    """Part the rules that can be handed to the library from those that are refused for their row alone."""
    missing = pl.any_horizontal(pl.col("rule_id", "scope", "expression").is_null())
    ids = enabled["rule_id"].drop_nulls().sort()
    repeated = pl.col("rule_id").is_in(ids.filter(ids == ids.shift(1)).unique().implode())
    unknown = ~pl.col("scope").is_in(list(scopes))
    error = (
        pl.when(repeated)
        .then(pl.lit("DUPLICATE_ID"))
        .when(missing)
        .then(pl.lit("MISSING_VALUE"))
        .when(unknown)
        .then(pl.lit("UNKNOWN_SCOPE"))
    )
    judged = enabled.with_columns(error=error)
    names = {name: pl.when(pl.col(name).is_null()).then(pl.lit(name)) for name in ("rule_id", "scope", "expression")}
    listed = pl.concat_str(list(names.values()), separator=", ", ignore_nulls=True)
    refused = judged.filter(pl.col("error").is_not_null())
    refused = refused.with_columns(listed=listed, count=pl.len().over("rule_id"))
    messages = {
        "DUPLICATE_ID": pl.format(
            "{} enabled rules have the id {}; give each its own, or disable all but one.", "count", "rule_id"
        ),
        "MISSING_VALUE": pl.format("The rule has NULL as its {}; every rule needs one.", "listed"),
        "UNKNOWN_SCOPE": pl.col("scope").map_elements(lambda scope: _unknown_scope(scope, scopes), pl.String),
    }
    message = pl.coalesce(*(pl.when(pl.col("error") == code).then(text) for code, text in messages.items()))
    rejects = refused.select(
        "scope", pl.col("rule_id").cast(pl.String), "error", message=message, position=pl.lit(None, pl.Int32)
    ).cast(_REJECT_SCHEMA)  # type: ignore[arg-type]
    sound = judged.filter(pl.col("error").is_null()).drop("error")
    return RuleSet(version, sound, rejects)


def _unknown_scope(scope: str, scopes: Sequence[str]) -> str:
    close = difflib.get_close_matches(scope, scopes, 1)
    hint = f"did you mean {close[0]}?" if close else f"the scopes are: {', '.join(sorted(scopes)) or 'none'}."
    return f"There is no stream or join named {scope}; {hint}"


def _compile_scope(scope: Scope, rules: RuleSet, before: pl.DataFrame, force: bool) -> tuple[ScopeResult, pl.DataFrame]:
    """The scope's result, and those of its rules that the library refused."""
    started = time.perf_counter()
    kept = _compile_rejects_of(before, {scope.name}, rules)
    try:
        result, rejected = _bring_up_to_date(scope, rules, kept, force)
    except (PipelineError, ri.RulesIndexError, OSError) as error:
        result = ScopeResult(scope.name, "failed", rules.version, rules.enabled(scope.name), error=str(error))
        rejected = kept
    return replace(result, seconds=time.perf_counter() - started), rejected


def _bring_up_to_date(
    scope: Scope, rules: RuleSet, kept: pl.DataFrame, force: bool
) -> tuple[ScopeResult, pl.DataFrame]:
    lake, name, settings = scope.workspace.lake, scope.name, scope.workspace.configuration.rules
    schema = scope.columns()
    content = _rules_hash(scope, rules)
    refused = rules.rejects.filter(pl.col("scope") == name).height
    stored = None if force else _sound_index(lake, name)
    if stored is not None and _still_holds(stored, content, schema, kept.height):
        return _result("unchanged", stored, rules, name, refused + kept.height), kept
    compiled = ri.compile_rules(
        rules.of_scope(name).select("rule_id", "expression", "valid_from", "valid_to").to_arrow(),
        schema,
        event_time=scope.event_time,
        time_zone=settings.time_zone,
        analyse=spark_analyser(scope),
        sample=scope.sample(schema),
    )
    rejected = _library_rejects(compiled, name)
    count = refused + rejected.height
    if rules.enabled(name) and count / rules.enabled(name) > settings.max_reject_share:
        message = _too_many(name, count, rules.enabled(name), settings.max_reject_share)
        return ScopeResult(name, "failed", rules.version, rules.enabled(name), count, error=message), rejected
    if count and settings.on_reject == "hold":
        held = ScopeResult(name, "held", rules.version, rules.enabled(name), count)
        if stored is None:
            return held, rejected
        return replace(held, fingerprint=stored.fingerprint, engine=stored.engine, bytes=stored.bytes), rejected
    if stored is not None and stored.fingerprint == compiled.fingerprint:
        return _result("unchanged", stored, rules, name, count), rejected
    statistics = {
        **compiled.stats,
        "format_version": FORMAT_VERSION,
        "rules_sha256": content,
        "columns": {field.name: str(field.type) for field in schema},
    }
    written = _store(lake, compiled, name, rules.version, statistics, force)
    return _result("compiled", written, rules, name, count), rejected


def _too_many(name: str, count: int, enabled: int, limit: float) -> str:
    return (
        f"{count} of the {enabled} rules of {name} were rejected, more than max_reject_share = {limit} allows; the "
        f"index stays as it was. See them with: deltatag sql \"SELECT * FROM rule_rejects WHERE scope = '{name}'\""
    )


def _result(state: str, stored: StoredIndex, rules: RuleSet, name: str, rejects: int) -> ScopeResult:
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


def _rules_hash(scope: Scope, rules: RuleSet) -> str:
    """SHA-256 of all that a compile takes in, the source's columns aside."""
    table = rules.of_scope(scope.name).to_arrow()
    sink = _Digest()
    with pa.ipc.new_stream(pa.PythonFile(sink, "w"), table.schema) as writer:
        writer.write_table(table.combine_chunks())
    settings = (FORMAT_VERSION, scope.workspace.configuration.rules.time_zone, scope.event_time)
    sink.write(repr(settings).encode())
    return sink.digest.hexdigest()


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


def _store(
    lake: Lake, compiled: ri.CompiledRules, name: str, version: int, statistics: Mapping[str, Any], force: bool
) -> StoredIndex:
    """Write the index, and keep its file under the name by which `tag` looks for it."""
    folder = scratch_folder() / "indexes"
    folder.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=folder)
    os.close(handle)
    path = Path(temporary)
    try:
        compiled.save(path)
        stored = store_index(lake, name, version, compiled.fingerprint, compiled.engine, path, statistics, force)
        os.replace(path, folder / f"{file_sha256(path)}.index")
    finally:
        path.unlink(missing_ok=True)
    return stored


def _library_rejects(compiled: ri.CompiledRules, scope: str) -> pl.DataFrame:
    found = pl.DataFrame(pl.from_arrow(compiled.rejects))
    return found.select(
        pl.lit(scope).alias("scope"), pl.col("rule_id").cast(pl.String), "error", "message", "position"
    ).cast(_REJECT_SCHEMA)  # type: ignore[arg-type]


def _stored_rejects(lake: Lake) -> pl.DataFrame:
    table = lake.arrow("rule_rejects", _REJECT_COLUMNS)
    return pl.DataFrame(pl.from_arrow(table)).cast(_REJECT_SCHEMA)  # type: ignore[arg-type]


def _compile_rejects_of(stored: pl.DataFrame, scopes: set[str], rules: RuleSet) -> pl.DataFrame:
    """Of the stored rejects those that the library gave for rules of `scopes` which are still there."""
    mine = stored.filter(pl.col("scope").is_in(list(scopes)))
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
