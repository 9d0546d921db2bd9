"""Versions of the table `rules`: the rules of one, the changes between two, and the history of one rule."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.errors import PipelineError, TableError
from pipelines.lake.authors import author_of
from pipelines.lake.lake import Lake, arrow_schema
from pipelines.lake.reading import arrow_reads, as_dataset, as_texts, read_rows
from pipelines.lake.tagged_ids import IDS, coded, tagged_rows
from pipelines.lake.version_rows import is_small, rows_of_versions, rules_at
from pipelines.rule_set import bigint_of, in_years_of_python
from pipelines.table_definitions import OPTIONAL_OF_RULES, RULES, tagged_table
from pipelines.workspace import Workspace
from rules_index.language.coercion import spark_type
from rules_index.names import did_you_mean

WHOLE_RULES = replace(RULES, columns=(*RULES.columns, *OPTIONAL_OF_RULES))
"""The table `rules` with all columns that it can have."""
COLUMNS = tuple(column.name for column in WHOLE_RULES.columns)
_OPTIONAL = tuple(column.name for column in OPTIONAL_OF_RULES)
MOST_VERSIONS = 10_000
"""Maximum number of versions of a table that a rule's history looks at, the newest first."""
Counts = dict[int, int]
"""Rows that a rule matched in one version of a tagged table, by the version of `rules` that tagged them."""
MOST_REWRITES = 10
"""Maximum number of re-tags and restarts of a stream before each of which a rule's history counts matches."""


@dataclass(frozen=True, slots=True)
class Changes:
    """Added, changed and removed rules with all columns; `changed` also has each old value, as `NAME_before`."""

    added: pl.DataFrame
    changed: pl.DataFrame
    removed: pl.DataFrame

    def differing(self, row: Mapping[str, Any]) -> list[str]:
        """The columns in which a row of `changed` differs."""
        return [name for name in COLUMNS[1:] if _comparable(row[name]) != _comparable(row[f"{name}_before"])]


def names_of(columns: Iterable[str]) -> dict[str, str]:
    """A table's columns by their lower-case names."""
    return {name.lower(): name for name in columns}


def columns_in(table: Any) -> tuple[str, ...]:
    """The columns that rules can have in this version of `rules`: `COLUMNS` without the optional ones that it lacks."""
    known = names_of(field.name for field in table.schema().fields)
    return tuple(name for name in COLUMNS if name in known or name not in _OPTIONAL)


class ColumnTypeError(TableError):
    """A column of a version of `rules` has values that cannot be read as the type that it has now."""


def rules_of(lake: Lake, table: Any) -> pl.DataFrame:
    """The rows of a version of `rules` with all of `COLUMNS`; columns that the table lacks are NULL.

    Bounds are `in_years_of_python`. TableError if the version can no longer be read, or has a column that cannot be
    read as the type that it has now.
    """
    from deltalake import exceptions

    try:
        if is_small(table):
            rows = rules_at(lake, table.version())
        else:
            rows = as_texts(as_dataset(table).to_table()) if arrow_reads(table) else read_rows(table)
        # in one chunk: a table of many files has as many, each of which takes Polars half a millisecond
        frame = pl.DataFrame(pl.from_arrow(rows.combine_chunks()))
    except (exceptions.DeltaError, OSError, pa.ArrowException) as error:
        raise lake.unreadable("rules", table.version(), error) from error
    return _with_all_columns(lake, frame, table.version())


def rules_of_versions(
    lake: Lake, versions: Sequence[int], rule_id: str | int | None = None
) -> Iterator[tuple[int, pl.DataFrame | PipelineError]]:
    """Yields each of these versions of `rules`, which ascend, with what `rules_of` gives or the error that it raises.

    rule_id: only the rules with this id. Each file is read once, however many versions have it. If no rule has changed
    between two versions, the same object is yielded for both.
    """
    rows: pa.Table | None = None
    for version, found in rows_of_versions(lake, "rules", versions, lambda schema: _has_id(schema, rule_id)):
        if isinstance(found, PipelineError):
            rows = None
            yield version, found
            continue
        if rows is None or (found is not rows and not found.equals(rows)):
            rows = found
            try:
                rules = _with_all_columns(lake, pl.DataFrame(pl.from_arrow(found)), version)
            except PipelineError as error:
                rows = None
                yield version, error
                continue
            rules = rules if rule_id is None else rules.filter(pl.col("rule_id") == rule_id)
        yield version, rules


def _has_id(schema: pa.Schema, rule_id: str | int | None) -> pc.Expression | None:
    """The condition that a rule has this id; None for all rules, or if ids had another type in these columns."""
    field = schema.field(names_of(schema.names)["rule_id"]) if "rule_id" in names_of(schema.names) else None
    value = pa.scalar(rule_id)
    if field is None or field.type != value.type:
        return None
    # cast, since a file may hold string views, which Arrow does not compare with strings
    return pc.field(field.name).cast(value.type) == value


def _with_all_columns(lake: Lake, frame: pl.DataFrame, version: int) -> pl.DataFrame:
    """Rows of a version of `rules` as `rules_of` gives them."""
    known = names_of(frame.columns)
    frame = frame.select(pl.col(known[name]).alias(name) for name in COLUMNS if name in known)
    schema = pl.DataFrame(pl.from_arrow(arrow_schema(WHOLE_RULES, lake.rule_id_type()).empty_table())).schema
    missing = [pl.lit(None, schema[name]).alias(name) for name in COLUMNS if name not in known]
    typed = [_as_now(name, frame[name], schema[name], version) for name in frame.columns]
    # in one chunk: a table of several files has several, and Polars (2.1) cannot join integers to maps in these
    return in_years_of_python(pl.DataFrame(typed).with_columns(missing).select(COLUMNS)).rechunk()


def _as_now(name: str, column: pl.Series, kind: pl.DataType, version: int) -> pl.Series:
    """A column of an older version of `rules` in its current type; TableError if its values cannot be cast."""
    if column.dtype == kind:
        return column
    if name == "priority" and column.dtype.is_integer():  # of those beyond an INT, the nearest one counts
        return column.clip(-(1 << 31), (1 << 31) - 1).cast(kind)
    try:
        return column.cast(kind)
    except pl.exceptions.PolarsError:
        if name == "labels":
            return pl.Series(name, [_as_labels(value) for value in column.to_list()], kind)
        wanted = spark_type(pl.Series([], dtype=kind))
        raise ColumnTypeError(
            f"The column {name} in version {version} of the table rules is {spark_type(column)}, and must be {wanted}."
        ) from None


def _as_labels(value: Any) -> dict[str, None] | None:
    """Labels that are no map, as the index reads them, too: items of an array, or a text's parts between commas."""
    if value is None:
        return None
    items = value if isinstance(value, list) else str(value).split(",")
    return {text: None for each in items if each is not None and (text := str(each).strip(" "))}


def as_text(name: str) -> pl.Expr:
    """A column as text for comparisons, since Polars cannot compare maps."""
    if name.removesuffix("_stored").removesuffix("_before") != "labels":
        return pl.col(name).cast(pl.String)
    return pl.col(name).map_elements(_comparable, pl.String)


def in_force(rules: pl.DataFrame) -> pl.DataFrame:
    """One row for each id: an enabled one if there is one, and of several the first by scope and expression."""
    order = [~pl.col("enabled").fill_null(True), pl.col("scope"), pl.col("expression")]
    return rules.sort(order, nulls_last=True, maintain_order=True).unique("rule_id", keep="first", maintain_order=True)


def changes_between(before: pl.DataFrame, after: pl.DataFrame) -> Changes:
    """The changes between two versions of rules, by id; of a repeated id only the row in force counts."""
    before, after = in_force(before), in_force(after)
    both = after.join(before, on="rule_id", suffix="_before", nulls_equal=True)
    differs = pl.any_horizontal(as_text(name).ne_missing(as_text(f"{name}_before")) for name in COLUMNS[1:])
    return Changes(
        after.join(before, on="rule_id", how="anti", nulls_equal=True).sort("rule_id"),
        both.filter(differs).sort("rule_id"),
        before.join(after, on="rule_id", how="anti", nulls_equal=True).sort("rule_id"),
    )


def diff(workspace: Workspace, first: int, second: int) -> Changes:
    """The changes from one version of `rules` to another; TableError if one of them cannot be read."""
    lake = workspace.lake
    before, after = (rules_of(lake, lake.delta("rules", version)) for version in (first, second))
    return changes_between(before, after)


def history(workspace: Workspace, rule_id: str) -> list[dict[str, Any]]:
    """The edits of one rule, newest first.

    Each has version, time, operation and user, the rule's columns after the edit (`expression` is None if the rule was
    removed), and how many rows it matched until the next edit. The list ends at a version whose files VACUUM has
    removed; the last entry then is the oldest version that is readable, and its operation and user are None. So is the
    user of an edit that names none. TableError if no version has the rule.
    """
    lake = workspace.lake
    wanted = bigint_of(rule_id) if lake.rule_id_type() == "bigint" else rule_id
    if wanted is None:
        raise TableError(f"The ids of rules are whole numbers here, and {rule_id} is not one.")
    entries: list[dict[str, Any]] = []
    newer: dict[str, Any] | None = None
    for commit, row in _versions(lake, wanted):
        if newer is not None and newer["row"] != row:
            entries.append(newer)
        newer = {"commit": commit, "row": row}
    if newer is not None and newer["row"] is not None:
        oldest = newer["commit"]
        if oldest["version"]:  # the rule may be older, and this commit another's
            newer["commit"] = {name: oldest[name] for name in ("version", "timestamp")}
        entries.append(newer)
    if not entries:
        known = rules_of(lake, lake.delta("rules"))["rule_id"].drop_nulls()
        last = f", among the last {MOST_VERSIONS:,}," if lake.version("rules") >= MOST_VERSIONS else ""
        raise TableError(
            f"No version of the table rules that is kept{last} has a rule {rule_id}{did_you_mean(rule_id, known)}"
        )
    scopes = {each["row"]["scope"] for each in entries if each["row"]} - {None}  # a rule may be written without one
    matches = _matches(workspace, wanted, scopes)
    return _with_matches(entries, matches)


def _versions(lake: Lake, rule_id: str | int) -> list[tuple[dict[str, Any], dict[str, Any] | None]]:
    """Each version's commit and the rule's row in it (None if it has none), newest first.

    Ends before the first version that cannot be read, except that one with a column of a wrong type is left out: it was
    never compiled. PipelineError if this is the newest one.
    """
    commits = {int(each["version"]): each for each in lake.delta("rules").history(MOST_VERSIONS)}
    found: list[tuple[dict[str, Any], dict[str, Any] | None]] = []
    rules: pl.DataFrame | PipelineError | None = None
    row: dict[str, Any] | None = None
    for version, read in rules_of_versions(lake, sorted(commits), rule_id):
        if isinstance(read, PipelineError):
            if version == max(commits):
                raise read
            if not isinstance(read, ColumnTypeError):
                found.clear()
        else:
            if read is not rules:
                row = next(iter(in_force(read).to_dicts()), None)
            found.append((commits[version], row))
        rules = read
    return found[::-1]


def _with_matches(entries: list[dict[str, Any]], scopes: Sequence[Sequence[Counts]]) -> list[dict[str, Any]]:
    """The entries with their counts: an edit counts the matches of all versions up to the next edit.

    scopes: for each scope the counts in the versions of its tagged table. A row that was tagged again by the same text
    is in several of them, under other versions of `rules`. So the counts are not added: for each edit, the version of
    the table with the most rows counts.
    """
    found: list[dict[str, Any]] = []
    until: float = float("inf")
    for entry in entries:
        commit, row = entry["commit"], entry["row"]
        version = commit["version"]
        counted = sum(
            max(sum(count for tagged, count in each.items() if version <= tagged < until) for each in tables)
            for tables in scopes
        )
        columns = {name: row[name] if row is not None else None for name in COLUMNS[1:]}
        found.append(
            {
                "version": version,
                "at": datetime.fromtimestamp(commit["timestamp"] / 1_000, UTC),
                "operation": commit.get("operation"),
                "user": author_of(commit),
                **columns,
                "matches": counted if row is not None else 0,
            }
        )
        until = version
    return found


def _matches(workspace: Workspace, rule_id: str | int, scopes: set[str]) -> list[list[Counts]]:
    """For each scope with a tagged table: rows that the rule matched, in the table now and before each re-tag."""
    found: list[list[Counts]] = []
    for scope in sorted(scopes):
        name = tagged_table(scope)
        if workspace.lake.exists(name):
            workspace.progress(f"counting the matches in {name}")
            found.append(_matches_in(workspace.lake, name, rule_id))
    return found


def _matches_in(lake: Lake, name: str, rule_id: str | int) -> list[Counts]:
    """The counts in one tagged table: in its newest version, and in those before each re-tag or restart, newest first.

    Ends before a version whose files are gone.
    """
    found: list[Counts] = []
    rewrites = [int(commit["version"]) for commit in lake.delta(name).history(MOST_VERSIONS) if _rewrites_rows(commit)]
    for looked_at in (None, *(version - 1 for version in rewrites[:MOST_REWRITES] if version)):
        try:
            found.append(_counted(lake, name, looked_at, rule_id))
        except PipelineError:  # the log or VACUUM has dropped the version
            if looked_at is None:
                raise
            break
    return found


def _counted(lake: Lake, name: str, version: int | None, rule_id: str | int) -> Counts:
    """How many rows the rule matched in a version of a tagged table, by the version of `rules` that tagged them."""
    counts: Counts = {}
    for batch in tagged_rows(lake, name, [IDS, "rules_version"], version=version):
        found = coded(batch.column(IDS))
        is_of_type = isinstance(rule_id, str) == pa.types.is_string(found.ids.type)
        place = found.ids.index(rule_id).as_py() if is_of_type else -1
        if place >= 0:
            held = batch.column("rules_version").take(pa.array(found.rows[found.codes == place]))
            for each in held.value_counts().to_pylist():
                counts[each["values"]] = counts.get(each["values"], 0) + each["counts"]
    return counts


def _rewrites_rows(commit: Mapping[str, Any]) -> bool:
    """Whether a commit tags rows again or replaces the table, so that tags by older rules are gone."""
    operation, parameters = str(commit.get("operation")), commit.get("operationParameters") or {}
    is_overwrite = str(parameters.get("mode")).lower() == "overwrite"
    return is_overwrite or any(each in operation for each in ("UPDATE", "MERGE", "DELETE", "REPLACE"))


def _comparable(value: Any) -> str:
    """A value as text for comparisons; the order of labels does not matter."""
    if value is None or isinstance(value, (str, int, bool, datetime)):
        return str(value)
    return repr(sorted(value.items()))
