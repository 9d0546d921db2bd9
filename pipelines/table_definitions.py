"""The definitions of deltatag's tables, as data: columns with type and meaning, properties, partitions.

Types are Spark's names. The tables of a stream take their other columns from the stream's source.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

CHUNK_BYTES = 8 << 20
"""Maximum bytes of an index in one row of `rule_index`."""

_DELTA_RS = {"delta.enableDeletionVectors": "false", "delta.checkpointInterval": "10"}
"""Every table stays readable by delta-rs, whatever the platform's defaults are. A process opens a table by reading the
commits since the last checkpoint; by default delta-rs writes one only every 100 commits."""
CHECKPOINT_EVERY_IN_STORE = 50
"""Number of commits between checkpoints of deltatag's tables in an object store. delta-rs reads a checkpoint by a dozen
requests, one after the other, and commits many at a time."""
_LONG = "interval 3650 days"
_BOOKS = {**_DELTA_RS, "delta.logRetentionDuration": "interval 7 days"}
"""Properties of tables that every run writes and whose older versions no one needs."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name, its Spark type, what it means, and whether a row must have it."""

    name: str
    type: str
    comment: str
    required: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """One table: `grain` says what a row is."""

    name: str
    grain: str
    columns: tuple[Column, ...]
    properties: dict[str, str] = field(default_factory=dict)
    partition_by: tuple[str, ...] = ()

    def column(self, name: str) -> Column:
        """The column of this name; KeyError if there is none."""
        return next((c for c in self.columns if c.name == name), None) or _no_column(self.name, name)


def _no_column(table: str, name: str) -> Column:
    raise KeyError(f"{table}.{name}")


RULES = Table(
    "rules",
    "one rule",
    (
        Column("rule_id", "string", "The rule's name, unique among enabled rules.", True),
        Column(
            "scope",
            "string",
            "The stream or the join whose columns the rule reads.",
            True,
        ),
        Column(
            "expression",
            "string",
            "A Boolean Spark SQL expression over the scope's columns.",
            True,
        ),
        Column("enabled", "boolean", "FALSE switches the rule off; NULL counts as TRUE."),
        Column(
            "valid_from",
            "timestamp",
            "First event time for which the rule holds; NULL: unbounded.",
        ),
        Column(
            "valid_to",
            "timestamp",
            "First event time for which it holds no longer; NULL: unbounded.",
        ),
        Column("priority", "int", "The lowest comes first, NULL last; for `first_rule_id`."),
        Column(
            "labels",
            "map<string,string>",
            "What people group by; for `labels` and `severity` of tagged rows.",
        ),
        Column("owner", "string", "Who answers for the rule."),
        Column("description", "string", "What the rule is for."),
    ),
    {
        **_DELTA_RS,
        "delta.enableChangeDataFeed": "true",
        "delta.logRetentionDuration": _LONG,
        "delta.deletedFileRetentionDuration": _LONG,
    },
)

OPTIONAL_OF_RULES = (Column("severity", "string", "The rule's severity; NULL: that of its labels."),)
"""Columns that `rules` does not have at first, but that people may add to it."""

RULE_REJECTS = Table(
    "rule_rejects",
    "one rule of the current version that did not compile",
    (
        Column("scope", "string", "The rule's scope as written."),
        Column("rule_id", "string", "The rule's id as written."),
        Column("rules_version", "bigint", "The version of `rules` that was compiled.", True),
        Column("error", "string", "A stable code such as SYNTAX or UNKNOWN_COLUMN.", True),
        Column("message", "string", "What is wrong and what to do.", True),
        Column("position", "int", "0-based offset in the expression; NULL if unknown."),
    ),
    _BOOKS,
)

RULE_INDEX = Table(
    "rule_index",
    "one chunk of one scope's compiled rules",
    (
        Column("scope", "string", "The stream or the join.", True),
        Column("rules_version", "bigint", "The version of `rules` that was compiled.", True),
        Column("fingerprint", "string", "SHA-256 of what decides a match.", True),
        Column("engine", "string", "How the index organises the rules.", True),
        Column("format_version", "int", "Version of the bytes' layout.", True),
        Column("sha256", "string", "SHA-256 of the whole index's bytes.", True),
        Column("bytes", "bigint", "Length of the whole index.", True),
        Column("chunk", "int", "Number of this chunk, from 0.", True),
        Column("chunks", "int", "How many chunks the index has.", True),
        Column("data", "binary", "The bytes of this chunk, at most 8 MiB.", True),
        Column(
            "statistics",
            "string",
            "JSON: counts, sizes, seconds, and what was compiled.",
            True,
        ),
        Column("created_at", "timestamp", "When it was compiled.", True),
    ),
    {**_BOOKS, "delta.dataSkippingNumIndexedCols": "3"},
    ("scope",),
)

RUNS = Table(
    "runs",
    "one micro-batch of one stream or join",
    (
        Column("scope", "string", "The stream or the join.", True),
        Column(
            "batch",
            "bigint",
            "Number of the micro-batch, ascending from 0 in its scope.",
            True,
        ),
        Column("state", "string", "planned, done, or reset while `--restart` empties the tables.", True),
        Column(
            "plan",
            "string",
            "JSON: which part of the source the micro-batch takes.",
            True,
        ),
        Column("rules_version", "bigint", "The version of `rules` that tags it."),
        Column("fingerprint", "string", "The index that tags it."),
        Column(
            "source_version",
            "bigint",
            "The last version of the source that it takes rows from.",
        ),
        Column(
            "rows",
            "bigint",
            "Rows taken from the source, those in quarantine included.",
        ),
        Column("matches", "bigint", "(row, rule) pairs."),
        Column("quarantined", "bigint", "Rows that went to quarantine."),
        Column(
            "errors",
            "map<string,bigint>",
            "Rows on which a predicate of the rule raised, by rule_id.",
        ),
        Column(
            "seconds",
            "double",
            "How long the micro-batch took, in the run that ended it.",
        ),
        Column("started_at", "timestamp", "When it was planned.", True),
    ),
    _BOOKS,
)

LINT_ACCEPTED = Table(
    "lint_accepted",
    "one accepted finding of lint; lint reports it again once the rule changes",
    (
        Column("scope", "string", "The stream or the join.", True),
        Column("rule_id", "string", "The rule's id, as text.", True),
        Column("kind", "string", "The kind of the finding, such as implied.", True),
        Column("rule_sha256", "string", "SHA-256 of the rule's text and validity as they were.", True),
        Column("reason", "string", "Why it is in order."),
        Column("accepted_at", "timestamp", "When it was accepted.", True),
    ),
    _DELTA_RS,
)

LAKE_TABLES: dict[str, Table] = {table.name: table for table in (RULES, RULE_REJECTS, RULE_INDEX, RUNS)}
"""The tables that `deltatag init` makes."""
FIXED_TABLES: dict[str, Table] = {**LAKE_TABLES, LINT_ACCEPTED.name: LINT_ACCEPTED}
"""The tables of `deltatag init`, and those that a verb creates when it first writes them."""

ID_TYPES = ("string", "bigint")


def annotation_columns(names: Sequence[str], id_type: str) -> tuple[Column, ...]:
    """The annotation columns of these names, in the order in which tagged tables have them."""
    return tuple(column for column in _annotation_columns(id_type) if column.name in names)


def _annotation_columns(id_type: str) -> tuple[Column, ...]:
    return (
        Column("first_rule_id", id_type, "The rule of the lowest priority, of several the one of the lowest id."),
        Column("labels", "array<string>", "The labels of all of the row's rules, ascending, each once."),
        Column("severity", "string", "The highest severity of the row's rules."),
    )


def tagged_columns(id_type: str, annotations: Sequence[str] = ()) -> tuple[Column, ...]:
    """The columns that `<stream>_tagged` has besides the source's; `id_type` is the type of `rules.rule_id`."""
    return (
        Column(
            "rule_ids",
            f"array<{id_type}>",
            "Ids of the rules that the row satisfies, ascending.",
            True,
        ),
        *annotation_columns(annotations, id_type),
        Column(
            "rules_version",
            "bigint",
            "The version of `rules` that tagged the row.",
            True,
        ),
        Column("index_fingerprint", "string", "The index that tagged the row.", True),
        Column(
            "source_version",
            "bigint",
            "The version of the source that added the row's file.",
            True,
        ),
        Column("tagged_at", "timestamp", "When the row's micro-batch was planned.", True),
    )


def matches_columns(id_type: str) -> tuple[Column, ...]:
    """The columns of `<stream>_matches` besides the stream's key and event time: `rule_id` first, the others last."""
    return (
        Column("rule_id", id_type, "A rule that the row satisfies.", True),
        Column(
            "rules_version",
            "bigint",
            "The version of `rules` that tagged the row.",
            True,
        ),
        Column(
            "source_version",
            "bigint",
            "The version of the source that added the row's file.",
            True,
        ),
    )


def joined_columns(id_type: str, annotations: Sequence[str] = ()) -> tuple[Column, ...]:
    """The columns that `<join>_tagged` has besides one STRUCT column per stream."""
    return (
        Column("rule_ids", f"array<{id_type}>", "Ids of the rules that the joined row satisfies, ascending.", True),
        *annotation_columns(annotations, id_type),
        Column("rules_version", "bigint", "The version of `rules` that tagged the joined row.", True),
        Column("index_fingerprint", "string", "The index that tagged the joined row.", True),
        Column("tagged_at", "timestamp", "When the joined row's micro-batch was planned.", True),
    )


QUARANTINE_COLUMNS = (
    Column("reason", "string", "Why the row was not tagged.", True),
    Column("batch", "bigint", "The micro-batch that took the row.", True),
)
"""The columns that `quarantine_<stream>` has besides the source's."""


def _names(columns: Sequence[Column]) -> tuple[str, ...]:
    return tuple(column.name for column in columns)


TAGGED_COLUMNS = _names(tagged_columns("string"))
"""Names of the columns that deltatag adds to a tagged row, in their order."""
ANNOTATION_COLUMNS = _names(_annotation_columns("string"))
"""Names of the columns that a stream or join can add to tagged rows, in their order."""
MATCHES_COLUMNS = _names(matches_columns("string"))
"""Names of the columns of `<stream>_matches` besides the stream's key and event time."""

_TAGGED, _MATCHES, _QUARANTINE = "_tagged", "_matches", "quarantine_"


class _Named(Protocol):
    """A stream or a join."""

    @property
    def name(self) -> str: ...


def tagged_table(scope: _Named | str) -> str:
    """Name of the tagged table of a stream or a join."""
    return f"{_name(scope)}{_TAGGED}"


def matches_table(stream: _Named | str) -> str:
    """Name of the stream's table of (row, rule) pairs."""
    return f"{_name(stream)}{_MATCHES}"


def quarantine_table(scope: _Named | str) -> str:
    """Name of the quarantine of a stream or a join."""
    return f"{_QUARANTINE}{_name(scope)}"


def scope_tables(name: str, is_join: bool = False) -> tuple[str, ...]:
    """Names of the tables that deltatag may keep for a stream or a join."""
    tables = tagged_table(name), quarantine_table(name)
    return tables if is_join else (*tables, matches_table(name))


def is_tagged(table: str) -> bool:
    """Whether this is the name of a scope's tagged table."""
    return table.endswith(_TAGGED)


def is_matches(table: str) -> bool:
    """Whether this is the name of a stream's table of (row, rule) pairs."""
    return table.endswith(_MATCHES)


def scope_of_table(table: str) -> str:
    """The scope of one of its tables, by the table's name."""
    return re.sub(f"^{_QUARANTINE}|{_TAGGED}$|{_MATCHES}$", "", table)


def matches_keys(key: Sequence[str], event_time: str | None) -> list[str]:
    """The source's columns that `<stream>_matches` has: the key, and the event time unless the key contains it."""
    keys = list(key)
    if event_time is not None and event_time.lower() not in {name.lower() for name in keys}:
        keys.append(event_time)
    return keys


def keys_in_matches(matches: Sequence[str], tagged: Sequence[str]) -> list[str]:
    """The columns of a `<stream>_matches` whose values come from the tagged rows, wherever they are in it: keys that
    were configured later come last. Columns that others have added have no values."""
    own = {column.name for column in matches_columns("string")}
    return [name for name in matches if name in tagged and name not in own]


def _name(scope: _Named | str) -> str:
    return scope if isinstance(scope, str) else scope.name
