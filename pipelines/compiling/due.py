"""Decides whether a scope's rules must be compiled: whether compiling again would give another index."""

from __future__ import annotations

import hashlib
import io
from typing import Any

import polars as pl
import pyarrow as pa

from pipelines.compiling.known_rules import known_rules
from pipelines.compiling.rejects import compile_rejects_of, is_of_row, stored_rejects
from pipelines.compiling.results import Counts, columns_of, refuses_otherwise, settings_of, too_many
from pipelines.duplicate_ids import current_rules
from pipelines.lake.index_store import StoredIndex, newest_index
from pipelines.rule_set import ANNOTATED_BY, RuleSet, read_rules
from pipelines.scopes import Scope, scope_of, scopes_of
from pipelines.value_lists import Versions, list_versions, lists_named
from pipelines.workspace import Workspace


def compile_is_due(workspace: Workspace, name: str) -> bool:
    """True if the scope has no index, or its rules, its columns' types or the index format have changed since.

    Also true while too many of its rules are rejected, so that each run reports it.
    """
    scope, engine = scope_of(workspace, name), workspace.configuration.engine_of(name)
    known = known_rules(workspace, {name: engine})
    if known is not None:
        return known.is_due(scope)
    stored = newest_index(workspace.lake, name)
    if stored is None:
        return True
    rules = current_rules(workspace)
    rejects = compile_rejects_of(stored_rejects(workspace.lake), {name}, rules)
    content = rules_hash(scope, rules, engine, versions_of(scope, rules))
    holds = still_holds(scope, stored, content, scope.columns(), rejects)
    return not holds or too_many(scope, counts_of(rules, name, rejects.height)) is not None


def refusals_are_due(workspace: Workspace) -> bool:
    """True if `rule_rejects` does not list the rules that are now rejected for their row alone.

    No index depends on them, so `compile_is_due` does not notice them.
    """
    keys = ["scope", "rule_id", "error"]
    listed = stored_rejects(workspace.lake).filter(is_of_row()).select(keys)
    known = known_rules(workspace, {})
    if known is None:  # read as for the scopes, so that these rules are known already
        annotated = workspace.configuration.annotates
        found = read_rules(workspace.lake, scopes_of(workspace), annotated=annotated).rejects
    else:
        found = known.of_row
    return not found.select(keys).sort(keys).equals(listed.sort(keys))


def counts_of(rules: RuleSet, name: str, rejected: int) -> Counts:
    """The counts of a scope; rejected: how many of its valid rules the library rejected."""
    return Counts(rules.version, rules.enabled(name), rules.refused(name) + rejected)


def versions_of(scope: Scope, rules: RuleSet) -> Versions:
    """The current versions of the value lists that the scope's rules name."""
    configuration = scope.workspace.configuration
    return list_versions(configuration, lists_named(configuration, rules.of_scope(scope.name)["expression"]))


def rules_hash(scope: Scope, rules: RuleSet, engine: str, lists: Versions) -> str:
    """SHA-256, in hex, of all inputs of a compile except the source's columns."""
    of_scope = rules.of_scope(scope.name)
    if not scope.workspace.configuration.annotations_of(scope.name):
        of_scope = of_scope.drop(ANNOTATED_BY, strict=False)
    sink = _Digest()
    with pa.ipc.new_stream(pa.PythonFile(sink, "w"), of_scope.clear().to_arrow().schema) as writer:
        # in slices, since a copy of all texts takes memory; the slices do not depend on how the frame is chunked
        for part in of_scope.iter_slices(_HASHED_RULES):
            writer.write_table(part.to_arrow().combine_chunks())
    sink.write(repr(settings_of(scope, engine)).encode())
    if lists:
        sink.write(repr(sorted(lists.items())).encode())
    return sink.digest.hexdigest()


_HASHED_RULES = 1 << 16


class _Digest(io.RawIOBase):
    """A writable file that only computes the SHA-256 of its bytes."""

    def __init__(self) -> None:
        self.digest = hashlib.sha256()

    def writable(self) -> bool:
        """Always."""
        return True

    def write(self, data: Any) -> int:
        """Add bytes to the digest."""
        self.digest.update(data)
        return len(data)


def still_holds(scope: Scope, stored: StoredIndex, content: str, schema: pa.Schema, rejects: pl.DataFrame) -> bool:
    """True if compiling again would give the stored index.

    content: the `rules_hash` of the current rules; schema: the scope's columns; rejects: the library's stored rejects
    among these rules.
    A new column does not affect rules that compiled without it, but a rejected rule may compile with it.
    """
    if stored.statistics.get("rules_sha256") != content or stored.rejected != rejects.height:
        return False
    if refuses_otherwise(scope, stored, rejects):
        return False
    now, then = columns_of(schema), stored.columns
    if any(now.get(name) != kind for name, kind in then.items()):
        return False
    return rejects.is_empty() or len(now) == len(then)
