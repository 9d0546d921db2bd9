"""The table `rule_rejects`, and the mark in its commits that says which rules it describes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

import polars as pl

from pipelines.errors import TableError, not_written
from pipelines.lake.lake import Lake, arrow_schema
from pipelines.rule_set import REJECT_SCHEMA, ROW_ERRORS, RuleSet, as_rejects
from pipelines.table_definitions import RULE_REJECTS

_MARK = "deltatag.rules"
"""Key of the mark in a commit's metadata."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Which rules a commit to `rule_rejects` describes.

    table, version, rows, commit: of `rules`, as in `changes.RulesTable`; scopes: all scopes; holds: for each scope, the
    SHA-256 of its index and a version of `rules` for which that index is up to date.
    """

    table: str
    version: int
    rows: int | None
    commit: str | None
    scopes: list[str]
    holds: dict[str, tuple[str, int]] = field(default_factory=dict)


def newest_mark(lake: Lake) -> Mark | None:
    """The mark of the newest commit; None if something else than `compile` wrote it, or its log entry is gone."""
    from deltalake import exceptions

    try:
        (commit,) = lake.delta("rule_rejects").history(1)
        found = json.loads(commit[_MARK])
        holds = {str(scope): (str(sha256), int(version)) for scope, (sha256, version) in found["holds"].items()}
        version, rows, commit = int(found["version"]), found["rows"], found["commit"]
        return Mark(str(found["table"]), version, rows, commit, list(map(str, found["scopes"])), holds)
    except (exceptions.DeltaError, OSError, TableError, ValueError, LookupError, TypeError, AttributeError):
        return None


def stored_rejects(lake: Lake) -> pl.DataFrame:
    """All of `rule_rejects`."""
    return as_rejects(pl.DataFrame(pl.from_arrow(lake.arrow("rule_rejects", list(REJECT_SCHEMA)))))


def is_of_row() -> pl.Expr:
    """An expression that is TRUE for rules rejected for their row alone."""
    return pl.col("error").is_in(ROW_ERRORS)


def compile_rejects_of(stored: pl.DataFrame, scopes: set[str], rules: RuleSet) -> pl.DataFrame:
    """The library's stored rejects of current rules of `scopes`.

    Rules that are kept while their id is duplicate are left out: they are listed as DUPLICATE_ID.
    """
    of_scopes, keys = stored.filter(pl.col("scope").is_in(list(scopes)) & ~is_of_row()), ["scope", "rule_id"]
    if of_scopes.is_empty():
        return of_scopes
    known = rules.valid.select("scope", pl.col("rule_id").cast(pl.String))
    return of_scopes.join(known, on=keys, how="semi").join(rules.kept, on=keys, how="anti")


def write_rejects(lake: Lake, rejects: Sequence[pl.DataFrame], version: int, mark: Mark | None) -> None:
    """Replace the rows of `rule_rejects` in one commit that carries the mark; write nothing if nothing changes."""
    from deltalake import CommitProperties, exceptions, write_deltalake

    columns = ["scope", "rule_id", "rules_version", "error", "message", "position"]
    rows = pl.concat(rejects).with_columns(rules_version=pl.lit(version, pl.Int64)).select(columns)
    rows = rows.sort("scope", "rule_id", "error", nulls_last=False)
    stored = pl.DataFrame(pl.from_arrow(lake.arrow("rule_rejects", columns))).cast(rows.schema)
    is_same = stored.sort("scope", "rule_id", "error", nulls_last=False).equals(rows)
    if is_same and (mark is None or mark == newest_mark(lake)):
        return
    table = rows.to_arrow().cast(arrow_schema(RULE_REJECTS))
    marked = CommitProperties(custom_metadata={} if mark is None else {_MARK: json.dumps(asdict(mark))})
    target = lake.writable("rule_rejects")
    try:
        # "merge": others may have added columns to the table, which are NULL
        write_deltalake(target, table, mode="overwrite", schema_mode="merge", commit_properties=marked)
    except (exceptions.DeltaError, OSError) as error:
        raise not_written(f"The table rule_rejects at {lake.uri('rule_rejects')} cannot be written", error) from error
