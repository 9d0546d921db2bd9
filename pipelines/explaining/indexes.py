"""Finds the index that tagged a row, or the index of a version of the rules, with the texts of its rules."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa

import rules_index as ri
from pipelines.duplicate_ids import current_rules, rules_of_index
from pipelines.errors import IndexDamagedError, IndexOutdatedError, PipelineError
from pipelines.lake.index_store import StoredIndex, fetch_index, newest_index
from pipelines.rule_set import RULE_COLUMNS, read_rules
from pipelines.scopes import Scope, scopes_of
from pipelines.value_lists import read_lists
from pipelines.writing.inputs import check_inputs
from rules_index.compiling.rule_columns import read_rules as in_columns
from rules_index.index.rule_texts import RuleTexts

if TYPE_CHECKING:
    from pipelines.workspace import Workspace


class Indexes:
    """The indexes of a scope; each is opened once."""

    def __init__(self, workspace: Workspace, scope: Scope, columns: pa.Schema) -> None:
        """columns: the scope's columns."""
        self._workspace, self._scope, self._columns = workspace, scope, columns
        self._opened: dict[tuple[int | None, str | None], ri.CompiledRules] = {}

    def index_of(self, version: int | None, fingerprint: str | None = None) -> ri.CompiledRules:
        """The stored index of a fingerprint or of a version of the rules, by default the newest.

        If it is no longer stored, or this version of deltatag cannot read it, those rules are compiled now. Raises what
        reading that version of the rules raises.
        """
        key = (version, fingerprint)
        if key not in self._opened:
            self._opened[key] = self._stored(version, fingerprint) or self._compiled(version)
        return self._opened[key]

    def _stored(self, version: int | None, fingerprint: str | None) -> ri.CompiledRules | None:
        lake, name = self._workspace.lake, self._scope.name
        try:
            stored = newest_index(lake, name, fingerprint, None if fingerprint else version)
            if stored is None:
                return None
            compiled = ri.load(fetch_index(lake, stored))
            check_inputs(compiled, self._columns, name)
            return compiled if compiled.texts is not None else self._with_texts(compiled, stored)
        except (ri.ArtifactError, IndexDamagedError, IndexOutdatedError):
            return None

    def _with_texts(self, compiled: ri.CompiledRules, stored: StoredIndex) -> ri.CompiledRules | None:
        """An index without texts, completed with those of its version of `rules`; None if they cannot be read."""
        try:
            rules = rules_of_index(self._workspace, stored)
        except PipelineError:
            return None
        ids = pl.Series(pl.from_arrow(compiled.ids))
        chosen = rules.filter(pl.col("rule_id").is_in(ids.implode())).select(RULE_COLUMNS)
        columns, _ = in_columns(chosen.to_arrow(), compiled.time_zone)
        if not columns.ids.equals(compiled.ids):
            return None
        texts = RuleTexts.pack(columns.expressions, columns.valid_from, columns.valid_to, self._columns)
        return replace(compiled, texts=texts)

    def _compiled(self, version: int | None) -> ri.CompiledRules:
        workspace = self._workspace
        workspace.progress(f"compiling the rules of {self._scope.name}")
        if version is None:
            rules = current_rules(workspace)
        else:
            rules = read_rules(workspace.lake, scopes_of(workspace), version)
        chosen = rules.of_scope(self._scope.name).select(RULE_COLUMNS)
        lists, _ = read_lists(workspace.configuration, chosen["expression"])
        return ri.compile_rules(
            chosen.to_arrow(),
            self._columns,
            event_time=self._scope.event_time,
            time_zone=workspace.configuration.rules.time_zone,
            lists=lists,
        )
