"""Finds the rules that have changed since a version of `rules`, by the table's change data feed."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import polars as pl
import pyarrow as pa

from pipelines.errors import PipelineError
from pipelines.lake.lake import Lake, rows_in
from pipelines.lake.reading import arrow_reads
from pipelines.rule_set import RuleSet, read_rules

LEAST_RULES = 10_000
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
    rules     those of them that are enabled now
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
    """What the log says of the table `rules`: its id, its newest version, how many rows it has."""

    id: str
    version: int
    rows: int | None

    @classmethod
    def of(cls, lake: Lake) -> RulesTable:
        """The table of a lake; TableError if there is none."""
        table = lake.delta("rules")
        return cls(str(table.metadata().id), int(table.version()), rows_in(table))

    @property
    def is_large(self) -> bool:
        """True if reading only the changes is worth while."""
        return self.rows is not None and self.rows >= LEAST_RULES


def changes_since(lake: Lake, scopes: Collection[str], table: RulesTable, version: int) -> RuleChanges | None:
    """The changes after a version of `rules`; None if the feed is no longer readable, or there are too many."""
    try:
        found = _touched(lake, table, version)
        if found is None:
            return None
        ids, nameless, of_scopes = found
        rules = read_rules(lake, list(scopes), table.version, ids, nameless)
    except PipelineError:
        return None
    # a rule without an id is in no index
    refused = rules.rejects.filter(pl.col("rule_id").is_not_null())
    here = pl.concat([rules.valid.select("scope"), refused.select("scope")])["scope"]
    return RuleChanges(ids, nameless, {*of_scopes, *here.drop_nulls().to_list()}, rules)


def _touched(lake: Lake, table: RulesTable, version: int) -> tuple[pa.Array, bool, set[str]] | None:
    """The ids of all rows that were written or removed after a version, whether some lack an id, and their scopes."""
    opened = lake.delta("rules", table.version)
    names = {field.name.lower(): field for field in opened.schema().fields}
    id_type = pa.int64() if getattr(names["rule_id"].type, "type", "") == "long" else pa.string()
    # the reader of the feed knows neither deletion vectors nor column mapping
    if not 0 <= table.version - version <= MOST_VERSIONS or not arrow_reads(opened):
        return None
    parts: list[pa.Table] = []
    if version < table.version:
        columns = [names[name].name for name in ("rule_id", "scope")]
        limit = MOST_CHANGED * (table.rows or 0)
        try:
            feed = opened.load_cdf(starting_version=version + 1, ending_version=table.version, columns=columns)
            for batch in pa.RecordBatchReader.from_stream(feed):
                part = pa.Table.from_batches([batch]).rename_columns(["rule_id", "scope"])
                parts.append(part.cast(pa.schema([("rule_id", id_type), ("scope", pa.string())])))
                if sum(map(len, parts)) > 4 * limit:
                    return None
        except MemoryError:
            raise
        except Exception:  # the reader of the feed raises no narrower class if a file is gone
            return None
    schema = pa.schema([("rule_id", id_type), ("scope", pa.string())])
    touched = pl.DataFrame(pa.concat_tables([schema.empty_table(), *parts]))
    ids = touched["rule_id"].drop_nulls().unique().sort()
    if len(ids) > MOST_CHANGED * (table.rows or 0):
        return None
    scopes = touched.filter(pl.col("rule_id").is_not_null())["scope"].drop_nulls().unique().to_list()
    return ids.to_arrow().cast(id_type), touched["rule_id"].has_nulls(), set(scopes)
