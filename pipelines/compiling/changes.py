"""Finds the rules that have changed since a version of `rules`, by the table's change data feed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa

from pipelines.errors import PipelineError
from pipelines.lake.lake import Lake, rows_in
from pipelines.lake.reading import arrow_reads
from pipelines.rule_set import RuleSet, read_rules

if TYPE_CHECKING:
    from deltalake import DeltaTable

LEAST_RULES = 2_000
"""Rows of `rules` from which the change feed is read; a smaller table is read as a whole, which is fast."""
MOST_CHANGED = 0.1
"""Share of changed rules above which all rules are read."""
MOST_VERSIONS = 1_000
"""Maximum number of versions whose changes are read: each is one file or more."""


@dataclass(frozen=True, slots=True)
class RuleChanges:
    """The rules that have changed, or may have, since a version of `rules`.

    ids       their ids, [changed rules] string or int64
    nameless  True if some of them have no id: then all rules without an id count as changed
    scopes    the scopes that these rules have, or had before
    rules     the changed rules that are enabled now
    """

    ids: pa.Array
    nameless: bool
    scopes: Collection[str]
    rules: RuleSet

    @property
    def version(self) -> int:
        """The version of `rules` that is compiled."""
        return self.rules.version

    @property
    def names(self) -> pl.Series:
        """The ids as text."""
        return pl.Series("rule_id", self.ids).cast(pl.String)

    def unchanged(self, rejects: pl.DataFrame) -> pl.DataFrame:
        """The rejects whose rules have not changed."""
        has_changed = pl.col("rule_id").is_in(self.names.implode()).fill_null(self.nameless)
        return rejects.filter(~has_changed)


@dataclass(frozen=True, slots=True)
class RulesTable:
    """What the log says of a version of the table `rules`.

    id: the table's; rows: how many there are, None if unknown; commit: what identifies the version's commit, see
    `_commit`.
    """

    id: str
    version: int
    rows: int | None
    commit: str | None

    @classmethod
    def of(cls, lake: Lake, version: int | None = None) -> RulesTable:
        """A version of the table of a lake, by default the newest; TableError if there is none."""
        table = lake.delta("rules", version)
        return cls(str(table.metadata().id), int(table.version()), rows_in(table), _commit(table, int(table.version())))

    def holds(self, lake: Lake, version: int, commit: str | None) -> bool:
        """True if `version`, with this commit, is this version or an earlier one of the same history.

        An older copy of the table that was put in its place has the same id, but reuses the numbers of later versions.
        """
        return commit is not None and _commit(lake.delta("rules", self.version), version) == commit

    @property
    def is_large(self) -> bool:
        """True if reading only the changes is worth while."""
        return self.rows is not None and self.rows >= LEAST_RULES


def _commit(table: DeltaTable, version: int) -> str | None:
    """A SHA-256 that distinguishes a version's commit from others with the same number; None if the log lacks it."""
    from deltalake import exceptions

    back = int(table.version()) - version
    try:
        found = table.history(back + 1)[-1] if 0 <= back <= MOST_VERSIONS else {}
    except (exceptions.DeltaError, OSError, IndexError):
        return None
    if found.get("version") != version or "timestamp" not in found:
        return None
    return hashlib.sha256(json.dumps(found, sort_keys=True, default=str).encode()).hexdigest()


def changes_since(
    lake: Lake,
    scopes: Collection[str],
    table: RulesTable,
    version: int,
    rows: int | None = None,
    annotated: bool = False,
) -> RuleChanges | None:
    """The changes after a version of `rules`; None if the feed is no longer readable, or there are too many.

    rows: how many rows that version has, if known; annotated: as for `read_rules`. The result is None, too, if the
    changes do not add up to the current number of rows, since a writer may have left some out of the feed. It is kept:
    a run asks for it for each scope.
    """
    asked = table, tuple(scopes), version, rows, annotated
    kept = lake.changes_read  # one look, since another thread may replace it
    if kept is None or kept[0] != asked:
        kept = lake.changes_read = asked, _changes_since(lake, scopes, table, version, rows, annotated)
    found: RuleChanges | None = kept[1]
    return found


def _changes_since(
    lake: Lake, scopes: Collection[str], table: RulesTable, version: int, rows: int | None, annotated: bool
) -> RuleChanges | None:
    try:
        found = _touched(lake, table, version, rows)
        if found is None:
            return None
        ids, nameless, of_scopes = found
        rules = read_rules(lake, list(scopes), table.version, ids, nameless, annotated)
    except PipelineError:
        return None
    # a rule without an id is in no index
    refused = rules.rejects.filter(pl.col("rule_id").is_not_null())
    here = pl.concat([rules.valid.select("scope"), refused.select("scope")])["scope"]
    return RuleChanges(ids, nameless, {*of_scopes, *here.drop_nulls().to_list()}, rules)


def _touched(lake: Lake, table: RulesTable, version: int, rows: int | None) -> tuple[pa.Array, bool, set[str]] | None:
    """The ids of all rows that were written or removed after a version, whether some lack an id, and their scopes."""
    opened = lake.delta("rules", table.version)
    names = {field.name.lower(): field for field in opened.schema().fields}
    id_type = pa.int64() if getattr(names["rule_id"].type, "type", "") == "long" else pa.string()
    # the reader of the feed knows neither deletion vectors nor column mapping
    if not 0 <= table.version - version <= MOST_VERSIONS or not arrow_reads(opened):
        return None
    parts: list[pa.Table] = []
    gained = 0
    if version < table.version:
        columns = [*(names[name].name for name in ("rule_id", "scope")), "_change_type"]
        limit = MOST_CHANGED * (table.rows or 0)
        try:
            feed = opened.load_cdf(starting_version=version + 1, ending_version=table.version, columns=columns)
            for batch in pa.RecordBatchReader.from_stream(feed):
                part = pa.Table.from_batches([batch]).rename_columns(["rule_id", "scope", "_change_type"])
                kinds = part["_change_type"].cast(pa.string()).to_pylist()
                gained += kinds.count("insert") - kinds.count("delete")
                parts.append(
                    part.select(["rule_id", "scope"]).cast(pa.schema([("rule_id", id_type), ("scope", pa.string())]))
                )
                if sum(map(len, parts)) > 4 * limit:
                    return None
        except MemoryError:
            raise
        except Exception:  # the reader of the feed raises no narrower class if a file is gone
            return None
    if rows is not None and table.rows is not None and rows + gained != table.rows:
        return None
    schema = pa.schema([("rule_id", id_type), ("scope", pa.string())])
    touched = pl.DataFrame(pa.concat_tables([schema.empty_table(), *parts]))
    ids = touched["rule_id"].drop_nulls().unique().sort()
    if len(ids) > MOST_CHANGED * (table.rows or 0):
        return None
    scopes = touched.filter(pl.col("rule_id").is_not_null())["scope"].drop_nulls().unique().to_list()
    return ids.to_arrow().cast(id_type), touched["rule_id"].has_nulls(), set(scopes)
