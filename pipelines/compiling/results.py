"""The result of compiling a scope, and the inputs of its index besides rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl
import pyarrow as pa

import rules_index as ri
from pipelines.annotated import annotate_of
from pipelines.errors import TableError
from pipelines.lake.index_store import StoredIndex
from pipelines.origin import origin_of
from pipelines.rule_set import NEEDS_SPARK, NOT_IMPLIED, as_rejects
from pipelines.runners.choice import why_spark_rules_are_refused
from pipelines.scopes import Scope
from pipelines.settings.model import LOCAL
from rules_index.index.artifact import FORMAT_VERSION, LANGUAGE_VERSION


@dataclass(frozen=True, slots=True)
class ScopeResult:
    """The result of compiling one scope.

    `state` is "compiled" (a new index was written), "unchanged" (the stored index is still right), "held" (a rule was
    rejected and `on_reject` is "hold": the last good index stays) or "failed" (`error` says why). `rules` counts the
    enabled rules of the scope, `rejects` how many of these are not in the index; `bytes` is the size of the index;
    `notices` are sentences that people should read.
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
    notices: tuple[str, ...] = ()


class RejectsNotWrittenError(TableError):
    """The scopes are compiled, with these `results`, but `rule_rejects` cannot be written."""

    def __init__(self, message: str, results: list[ScopeResult]) -> None:
        super().__init__(message)
        self.results = results


@dataclass(frozen=True, slots=True)
class Counts:
    """How many rules of a scope are enabled at a version of `rules`, and how many of those are rejected."""

    version: int
    enabled: int
    rejected: int


def too_many(scope: Scope, counts: Counts) -> ScopeResult | None:
    """The failure of a compile if the scope's share of rejected rules exceeds the limit; None if it does not."""
    name, limit = scope.name, scope.workspace.configuration.rules.max_reject_share
    if not counts.enabled or counts.rejected / counts.enabled <= limit:
        return None
    see = f"deltatag sql \"SELECT * FROM rule_rejects WHERE scope = '{name}'\""
    message = (
        f"{counts.rejected:,} of the {counts.enabled:,} rules of {name} were rejected, more than max_reject_share = "
        f"{limit} allows; the index stays as it was. See them with: {see}"
    )
    return ScopeResult(name, "failed", counts.version, counts.enabled, counts.rejected, error=message)


def held_result(name: str, counts: Counts, stored: StoredIndex | None) -> ScopeResult:
    """The result if rules are rejected and the last good index, if any, is held."""
    return _of("held", name, counts, stored)


def indexed_result(state: str, stored: StoredIndex, counts: Counts) -> ScopeResult:
    """The result with an index that is up to date."""
    return _of(state, stored.scope, counts, stored)


def _of(state: str, name: str, counts: Counts, stored: StoredIndex | None) -> ScopeResult:
    of_index = () if stored is None else (stored.fingerprint, stored.engine, stored.bytes)
    return ScopeResult(name, state, counts.version, counts.enabled, counts.rejected, *of_index)


def library_rejects(compiled: ri.CompiledRules, scope: str) -> pl.DataFrame:
    """The rules that the library rejected."""
    found = pl.DataFrame(pl.from_arrow(compiled.rejects))
    return as_rejects(found.with_columns(scope=pl.lit(scope)))


def settings_of(scope: Scope, engine: str) -> list[Any]:
    """The inputs of an index besides the rules and the source's columns; engine: the configured one."""
    configuration = scope.workspace.configuration
    annotate = annotate_of(configuration, scope.name)
    others = [annotate.settings] if annotate is not None else []
    return [[FORMAT_VERSION, LANGUAGE_VERSION], configuration.rules.time_zone, scope.event_time, engine, *others]


def zone_notices(scope: Scope, stored: StoredIndex | None) -> tuple[str, ...]:
    """A sentence if the stored index was compiled with another time zone; two configurations of one lake that differ in
    it would compile in turn for ever."""
    then = next(iter((stored.statistics.get("settings") or [])[1:2]), None) if stored is not None else None
    now = scope.workspace.configuration.rules.time_zone
    if then in (None, now):
        return ()
    text = (
        f"{scope.name}: its rules were compiled with time_zone = {then} before, and now with {now}. If you have not "
        "changed it, another configuration of this lake has the other one, and each compiles what the other has "
        "compiled: write the same time_zone in both."
    )
    return (text,)


def refuses_otherwise(scope: Scope, stored: StoredIndex, rejects: pl.DataFrame) -> bool:
    """True if other rules may be refused now than when the scope's index was compiled.

    That is the case if rules that need Spark are ruled out since then, or no longer, or if a rule was not implied by
    another stream's, and those have changed. rejects: the library's stored rejects of the scope's rules.
    """
    if (rejects["error"] == NOT_IMPLIED).any():
        origin = origin_of(scope)
        if origin is None or origin.newest() != stored.implied_by:
            return True
    if scope.workspace.configuration.lake.runner == LOCAL:
        return bool(stored.needs_spark)
    waits = bool((rejects["error"] == NEEDS_SPARK).any())
    return waits and why_spark_rules_are_refused(scope.workspace, scope.name) is None


def columns_of(schema: pa.Schema) -> Mapping[str, str]:
    """The source's columns in the form of an index's statistics: type by name."""
    return {field.name: str(field.type) for field in schema}
