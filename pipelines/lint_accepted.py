"""Accepted findings of lint: each holds until its rule changes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import polars as pl
import pyarrow as pa

from pipelines.errors import not_written
from pipelines.lake.lake import arrow_schema
from pipelines.lake.version_rows import rules_at
from pipelines.rule_set import in_years_of_python
from pipelines.table_definitions import LINT_ACCEPTED
from pipelines.workspace import Workspace

_OF_RULES = ("rule_id", "scope", "expression", "owner", "valid_from", "valid_to")


def rule_rows(workspace: Workspace, scope: str, version: int, ids: Iterable[str]) -> dict[str, dict[str, Any]]:
    """The rows of some rules of a scope in a version of `rules`, by id as text.

    They have the columns that lint shows or that decide what a rule says.
    """
    rules = pl.DataFrame(pl.from_arrow(rules_at(workspace.lake, version))).rename(str.lower)
    rules = rules.select([name for name in _OF_RULES if name in rules.columns]).with_columns(
        pl.col("rule_id").cast(pl.String)
    )
    chosen = rules.filter((pl.col("scope") == scope) & pl.col("rule_id").is_in(sorted(set(ids))))
    return {row["rule_id"]: row for row in in_years_of_python(chosen).to_dicts()}


def fingerprint(rule: Mapping[str, Any]) -> str:
    """SHA-256, in hex, of what a rule says: its text and its validity."""
    parts = [rule.get("expression"), *(_time(rule.get(name)) for name in ("valid_from", "valid_to"))]
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else moment.astimezone(UTC).isoformat()


def accepted_in(workspace: Workspace, scope: str) -> set[tuple[str, str, str]]:
    """The accepted findings of a scope: rule id as text, kind, and fingerprint of the rule when it was accepted."""
    if not workspace.lake.exists(LINT_ACCEPTED.name):
        return set()
    rows = workspace.lake.arrow(
        LINT_ACCEPTED.name, ["rule_id", "kind", "rule_sha256"], filters=[("scope", scope)]
    ).to_pylist()
    return {(row["rule_id"], row["kind"], row["rule_sha256"]) for row in rows}


def accept(
    workspace: Workspace, scope: str, rule_id: str, kind: str, rule: Mapping[str, Any], reason: str | None
) -> None:
    """Record a finding as accepted, in one commit; TableError if the table cannot be written."""
    from deltalake import exceptions, write_deltalake

    lake, schema = workspace.lake, arrow_schema(LINT_ACCEPTED)
    row = {
        "scope": scope,
        "rule_id": rule_id,
        "kind": kind,
        "rule_sha256": fingerprint(rule),
        "reason": reason,
        "accepted_at": datetime.now(UTC),
    }
    lake.create(LINT_ACCEPTED.name)
    table = lake.writable(LINT_ACCEPTED.name)
    try:
        # "merge": others may have added columns to the table, which are NULL
        write_deltalake(table, pa.Table.from_pylist([row], schema=schema), mode="append", schema_mode="merge")
    except (exceptions.DeltaError, OSError) as error:
        raise not_written(f"The table {LINT_ACCEPTED.name} could not be written", error) from error
