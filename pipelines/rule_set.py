"""Reads the enabled rules of one version of `rules`, and finds those that are rejected for their row alone.

That is before they are compiled: for a duplicate id, a missing value or an unknown scope.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.errors import TableError
from pipelines.lake.lake import Lake
from pipelines.lake.version_rows import rules_at
from rules_index.arrays import as_lists
from rules_index.language.coercion import spark_type
from rules_index.names import did_you_mean

RULE_COLUMNS = ["rule_id", "expression", "valid_from", "valid_to"]
"""The columns of a rule that are compiled."""
ANNOTATED_BY = ["priority", "labels", "severity"]
"""The further columns from which annotations are made."""
_BOUND = pl.Datetime("us", "UTC")
_KEPT_BYTES = 16 << 20
"""Maximum bytes of rules that stay in memory for the next scope."""
_YEARS = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
KEPT_SCHEMA = {"scope": pl.String, "rule_id": pl.String, "version": pl.Int64}
REJECT_SCHEMA = {
    "scope": pl.String,
    "rule_id": pl.String,
    "error": pl.String,
    "message": pl.String,
    "position": pl.Int32,
}
"""Columns of rejects; the rule's id is text."""


UNKNOWN_SCOPE, DUPLICATE_ID = "UNKNOWN_SCOPE", "DUPLICATE_ID"
NEEDS_SPARK, NOT_IMPLIED = "NEEDS_SPARK", "NOT_IMPLIED"
SHOWN = 200
"""Maximum characters of a rule's id, scope or text in a message: each may have millions, and every run prints it."""
_LONGEST_NUMBER = 30
"""The longest text that is read as a number: longer than any BIGINT, and short enough for Python's `int`."""
ROW_ERRORS = (DUPLICATE_ID, "MISSING_VALUE", UNKNOWN_SCOPE)
"""Errors for which a rule is rejected by its row alone."""


@dataclass(frozen=True, slots=True)
class RuleSet:
    """The enabled rules of one version of `rules`.

    valid: the columns rule_id, scope, expression, valid_from, valid_to and, on request, those of `ANNOTATED_BY`
    (labels as a list of key and value). None of the first three is NULL, no id is repeated, and each scope exists.
    rejects: all other rules (scope, rule_id as text, error, message, position). kept (scope, rule_id as text, version):
    rules in `valid` that are taken from an older version of `rules`, since their ids are duplicate now.
    """

    version: int
    valid: pl.DataFrame
    rejects: pl.DataFrame
    kept: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=KEPT_SCHEMA))

    def of_scope(self, scope: str) -> pl.DataFrame:
        """The valid rules of a scope, by ascending id."""
        found = self.valid.filter(pl.col("scope") == scope)
        return found if found["rule_id"].is_sorted() else found.sort("rule_id")

    def accepted(self, scope: str, rejected: pl.DataFrame) -> pl.DataFrame:
        """The valid rules of a scope that the library did not reject, with the columns of `RULE_COLUMNS`."""
        refused = pl.col("rule_id").cast(pl.String).is_in(rejected["rule_id"].implode())
        return self.of_scope(scope).filter(~refused).select(RULE_COLUMNS)

    def refused(self, scope: str) -> int:
        """How many enabled rules of the scope are rejected for their row alone."""
        return self.rejects.filter(pl.col("scope") == scope).height

    def enabled(self, scope: str) -> int:
        """How many enabled rules the scope has, valid or not."""
        valid = self.valid.filter(pl.col("scope") == scope).height - len(self.kept_of(scope))
        return valid + self.refused(scope)

    def kept_of(self, scope: str) -> dict[str, int]:
        """The ids of the scope's kept rules, each with its version of `rules`."""
        of_scope = self.kept.filter(pl.col("scope") == scope)
        return dict(zip(of_scope["rule_id"], of_scope["version"], strict=True))

    def without_kept(self, scope: str, ids: Collection[str]) -> RuleSet:
        """The rules without these kept ones of a scope."""
        dropped = (pl.col("scope") == scope) & pl.col("rule_id").cast(pl.String).is_in(list(ids))
        return replace(self, valid=self.valid.filter(~dropped), kept=self.kept.filter(~dropped))


def read_rules(
    lake: Lake,
    scopes: Sequence[str],
    version: int | None = None,
    ids: pa.Array | None = None,
    nameless: bool = False,
    annotated: bool = False,
) -> RuleSet:
    """The enabled rules of a version of `rules`, by default the newest.

    The rules of the newest version are kept, unless they are large: a run asks for them for each scope, and after many
    edits they are in many files. ids: only rules with one of these ids and, if `nameless`, those without an id;
    annotated: with the columns of `ANNOTATED_BY`. TableError if the table cannot be read, or lacks a column or has one
    of a wrong type.
    """
    table, asked = lake.delta("rules", version), (tuple(scopes), annotated)
    is_kept = version is None and ids is None
    kept = lake.rules_read  # one look, since another thread may replace it
    if is_kept and kept is not None and kept[0] is table and kept[1] == asked:
        known: RuleSet = kept[2]
        return known
    version = int(table.version())
    columns = {field.name.lower(): field.name for field in table.schema().fields}
    for name in ("rule_id", "scope", "expression"):
        if name not in columns:
            raise TableError(f"The table rules at {lake.uri('rules')} has no column {name}, which every rule needs.")
    wanted = ["rule_id", "scope", "expression", "valid_from", "valid_to", "enabled"]
    wanted += ANNOTATED_BY if annotated else []
    found = [columns[name] for name in wanted if name in columns]
    if ids is None and lake.rule_files_read is not None:
        read = rules_at(lake, version, found)
    elif ids is not None and not len(ids) and not nameless:
        read = pa.schema(table.schema()).empty_table().select(found)
    else:
        chosen = None if ids is None else _has_id(columns["rule_id"], ids, nameless)
        read = lake.arrow("rules", found, chosen, version)
    frame = pl.DataFrame(pl.from_arrow(pa.table([as_lists(each) for each in read.columns], read.column_names)))
    frame = frame.rename({columns[name]: name for name in wanted if name in columns})
    for name in wanted[3:]:
        if name not in frame.columns:
            frame = frame.with_columns(pl.lit(None, pl.Boolean if name == "enabled" else None).alias(name))
    _check_types(lake, frame)
    if annotated and frame.schema["severity"] not in (pl.String, pl.Null):
        # whoever may add rows may also add this column: with another type it must only refuse rules that have a value
        wrong = pl.lit(f"{spark_type(frame['severity'])}, not STRING")
        frame = frame.with_columns(severity=pl.when(pl.col("severity").is_not_null()).then(wrong))
    if annotated and frame.schema["priority"].is_float():  # as pandas writes whole numbers, some of which are missing
        priority = frame["priority"].fill_nan(None)
        if (priority.drop_nulls() == priority.drop_nulls().round()).all():
            frame = frame.with_columns(priority.clip(-(1 << 62), 1 << 62).cast(pl.Int64))
    enabled = frame.filter(pl.col("enabled").fill_null(True)).drop("enabled")
    rules = _sort_out(version, enabled, scopes)
    if is_kept and enabled.estimated_size() <= _KEPT_BYTES:
        lake.rules_read = table, asked, rules
    return rules


def _has_id(column: str, ids: pa.Array, nameless: bool) -> pc.Expression:
    # cast to the type of the ids: delta-rs gives string views, which Arrow does not compare with strings
    named = pc.field(column).cast(ids.type)
    return pc.is_in(named, ids) | named.is_null() if nameless else pc.is_in(named, ids)


def _check_types(lake: Lake, frame: pl.DataFrame) -> None:
    expected = {"scope": "STRING", "expression": "STRING", "enabled": "BOOLEAN", "rule_id": "STRING or BIGINT"}
    expected |= dict.fromkeys(("valid_from", "valid_to"), "TIMESTAMP or TIMESTAMP_NTZ")
    for name, kinds in expected.items():
        found = spark_type(frame[name])
        if name.startswith("valid") and frame.schema[name] == pl.Null:
            continue
        if found not in kinds.split(" or "):
            raise TableError(f"The column {name} of {lake.uri('rules')} is {found}; it must be {kinds}.")


def in_years_of_python(rules: pl.DataFrame) -> pl.DataFrame:
    """The rules with the nearest bound that Python has in place of one outside its years 1 to 9999 in UTC, such as
    9999-12-31 23:59:59 in New York."""
    bounds = [name for name in ("valid_from", "valid_to") if rules.schema.get(name) == _BOUND]
    return rules.with_columns(pl.col(bounds).clip(*_YEARS))


def _sort_out(version: int, enabled: pl.DataFrame, scopes: Sequence[str]) -> RuleSet:
    """Separate the rules that can be compiled from those that are rejected for their row alone."""
    missing = pl.any_horizontal(pl.col("rule_id", "scope", "expression").is_null())
    ids = enabled["rule_id"].drop_nulls().sort()
    repeated = pl.col("rule_id").is_in(ids.filter(ids == ids.shift(1)).unique().implode())
    unknown = ~pl.col("scope").is_in(list(scopes))
    error = (
        pl.when(repeated)
        .then(pl.lit(DUPLICATE_ID))
        .when(missing)
        .then(pl.lit("MISSING_VALUE"))
        .when(unknown)
        .then(pl.lit(UNKNOWN_SCOPE))
    )
    judged = enabled.with_columns(error=error)
    names = {name: pl.when(pl.col(name).is_null()).then(pl.lit(name)) for name in ("rule_id", "scope", "expression")}
    listed = pl.concat_str(list(names.values()), separator=", ", ignore_nulls=True)
    refused = judged.filter(pl.col("error").is_not_null())
    refused = refused.with_columns(listed=listed, count=pl.len().over("rule_id"))
    messages = {
        DUPLICATE_ID: pl.format(
            "{} enabled rules have the id {}; give each its own, or disable all but one.",
            "count",
            pl.col("rule_id").cast(pl.String).str.head(SHOWN),
        ),
        "MISSING_VALUE": pl.format(
            "The rule has NULL (or bytes that are not UTF-8) as its {}; every rule needs one.", "listed"
        ),
        UNKNOWN_SCOPE: pl.col("scope").map_elements(lambda scope: unknown_scope(scope, scopes), pl.String),
    }
    message = pl.coalesce(*(pl.when(pl.col("error") == code).then(text) for code, text in messages.items()))
    rejects = as_rejects(refused.with_columns(message=message, position=None))
    valid = judged.filter(pl.col("error").is_null()).drop("error")
    return RuleSet(version, valid, rejects)


def as_rejects(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame with the columns of `REJECT_SCHEMA`, in that order and with those types."""
    return frame.select(pl.col(name).cast(kind) for name, kind in REJECT_SCHEMA.items())


def bigint_of(text: str) -> int | None:
    """The id that a text gives if the ids of rules are BIGINT; None if it gives none."""
    found = int(text) if text.removeprefix("-").isdecimal() and len(text) <= _LONGEST_NUMBER else 1 << 63
    return found if -(1 << 63) <= found < 1 << 63 else None


def unknown_scope(scope: str, scopes: Sequence[str]) -> str:
    """The message for a rule of a scope that is not among the configured ones. A name with blanks at its ends is in
    quotes."""
    hint = did_you_mean(scope, scopes, f"; the scopes are: {', '.join(sorted(scopes)) or 'none'}.")
    shown = scope[:SHOWN] if scope and scope == scope.strip() else repr(scope[:SHOWN])
    return f"There is no stream or join named {shown}{hint}"
