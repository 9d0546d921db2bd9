"""Finds out what has changed in the rules without reading them all.

This needs a mark in `rule_rejects`, which says for which version of `rules` each index is up to date, and the change
data feed of `rules` since then. If something else than rules has changed, or anything is missing, all rules are read
and compiled instead.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import polars as pl

from pipelines.compiling.changes import RuleChanges, RulesTable, changes_since
from pipelines.compiling.rejects import Mark, compile_rejects_of, is_of_row, newest_mark, stored_rejects
from pipelines.compiling.results import Counts, columns_of, refuses_otherwise, settings_of, too_many
from pipelines.errors import PipelineError
from pipelines.lake.index_store import StoredIndex, newest_index
from pipelines.origin import origin_of
from pipelines.rule_set import DUPLICATE_ID
from pipelines.scopes import Scope, scope_of, scopes_of
from pipelines.value_lists import list_versions
from pipelines.workspace import Workspace


@dataclass(frozen=True, slots=True)
class KnownRules:
    """What is known of the rules without reading them all.

    mark: the newest mark, brought to the version that is compiled; changes: the changes since then; indexes: the stored
    index of each scope; stored: all rows of `rule_rejects`; of_lists: scopes whose rules name lists that have changed
    since they were compiled.
    """

    mark: Mark
    changes: RuleChanges
    indexes: Mapping[str, StoredIndex]
    stored: pl.DataFrame
    of_lists: Collection[str] = ()

    @property
    def of_row(self) -> pl.DataFrame:
        """The rules of the newest version that are rejected for their row alone."""
        return pl.concat([self.changes.unchanged(self.stored.filter(is_of_row())), self.changes.rules.rejects])

    def of_library(self, scopes: set[str]) -> pl.DataFrame:
        """The library's rejects among the current rules of some scopes."""
        of_scopes = self.stored.filter(pl.col("scope").is_in(list(scopes)) & ~is_of_row())
        unchanged = self.changes.unchanged(of_scopes)
        others = of_scopes.join(unchanged, on=["scope", "rule_id"], how="anti")
        return pl.concat([unchanged, compile_rejects_of(others, scopes, self.changes.rules)])

    def counts(self, name: str, rules: int, rejected: int) -> Counts:
        """The counts of a scope. rules: how many are in its index; rejected: how many the library rejected."""
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
        rules = self.indexes[name].rules
        return too_many(scope, self.counts(name, rules, self.of_library({name}).height)) is not None


def known_rules(workspace: Workspace, engines: Mapping[str, str]) -> KnownRules | None:
    """What is known of the rules of some scopes. engines: the wanted engine of each, by name.

    None if all rules must be read: they are few, too many have changed, or something else than rules has.
    """
    lake, names = workspace.lake, scopes_of(workspace)
    try:
        table = RulesTable.of(lake)
        mark = newest_mark(lake) if table.is_large else None
        if mark is None or mark.table != table.id or mark.scopes != sorted(names):
            return None
        if not table.holds(lake, mark.version, mark.commit):
            return None
        indexes: dict[str, StoredIndex] = {}
        rejects = stored_rejects(lake)
        widened: set[str] = set()
        version = mark.version
        for name, engine in engines.items():
            stored, scope = newest_index(lake, name), scope_of(workspace, name)
            sha256, held_at = mark.holds.get(name, ("", 0))
            if stored is None or stored.sha256 != sha256 or not _is_as_before(scope, stored, engine):
                return None
            if refuses_otherwise(scope, stored, rejects.filter(pl.col("scope") == name)):
                return None
            if stored.columns != columns_of(scope.columns()):
                widened.add(name)
            indexes[name], version = stored, min(version, held_at)
        rows = mark.rows if version == mark.version else None
        changes = changes_since(lake, list(names), table, version, rows, workspace.configuration.annotates)
        if changes is None or (changes.rules.rejects["error"] == DUPLICATE_ID).any():
            return None
        of_lists = {name for name, stored in indexes.items() if _has_other_lists(workspace, stored)}
        mark = replace(mark, version=table.version, rows=table.rows, commit=table.commit)
        known = KnownRules(mark, changes, indexes, rejects, of_lists)
        # a rejected rule may read a new column, or name a list that has changed
        return known if known.of_library(widened | of_lists).is_empty() else None
    except (PipelineError, OSError):
        return None


def _has_other_lists(workspace: Workspace, stored: StoredIndex) -> bool:
    return list_versions(workspace.configuration, stored.lists) != stored.lists


def _is_as_before(scope: Scope, stored: StoredIndex, engine: str) -> bool:
    """True if, apart from rules and new columns, nothing has changed since the scope's index was compiled.

    False also if the index depends on more than its own rules: kept rules, or an origin.
    """
    return (
        stored.statistics.get("settings") == settings_of(scope, engine)
        and stored.columns.items() <= columns_of(scope.columns()).items()
        and not stored.kept
        and stored.lists.keys() <= scope.workspace.configuration.lists.keys()
        and origin_of(scope) is None
    )
