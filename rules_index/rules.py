"""The rules as people hand them over: a table or pairs, brought into one form."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias
from zoneinfo import ZoneInfo

import polars as pl
import pyarrow as pa

from rules_index.errors import RuleError, RulesIndexError

RuleId: TypeAlias = str | int
Rules: TypeAlias = pa.Table | pa.RecordBatch | pl.DataFrame | Iterable[tuple[RuleId, str]]


@dataclass(frozen=True, slots=True)
class Rule:
    """One enabled rule; bounds in microseconds since the epoch, None for unbounded."""

    rule_id: RuleId
    expression: str
    valid_from: int | None = None
    valid_to: int | None = None


@dataclass
class Rejects:
    """Rules that do not compile, with the reason and the 0-based position in the text."""

    rows: list[tuple[RuleId | None, str, str, int | None]] = field(default_factory=list)

    def add(self, rule_id: RuleId | None, error: RuleError) -> None:
        """Records why a rule is refused."""
        self.rows.append((rule_id, error.error, error.message, error.position))

    def table(self, id_type: pa.DataType) -> pa.Table:
        """Columns rule_id, error, message, position; by rule id."""
        rows = sorted(
            self.rows,
            key=lambda row: (
                row[0] is not None,
                row[0] if row[0] is not None else 0,
                row[1:3],
            ),
        )
        schema = pa.schema(
            [
                ("rule_id", id_type),
                ("error", pa.string()),
                ("message", pa.string()),
                ("position", pa.int64()),
            ]
        )
        return pa.table(
            [pa.array([row[i] for row in rows], schema.field(i).type) for i in range(4)],
            schema=schema,
        )


def read_rules(rules: Rules, time_zone: str) -> tuple[list[Rule], Rejects, pa.DataType]:
    """The enabled rules by ascending id, those refused for their form, and the type of ids.

    Every row of a repeated id is refused. Raises `RulesIndexError` where the ids are of mixed types or a
    column is missing.
    """
    rows = _rows(rules, time_zone)
    id_type = _id_type(row.rule_id for row in rows)
    rejects = Rejects()
    by_id: dict[RuleId, list[Rule]] = {}
    for row in rows:
        if row.rule_id is None:
            rejects.add(
                None,
                RuleError(
                    "NO_ID",
                    "The rule has no rule_id; give it one that no other rule has.",
                ),
            )
        else:
            by_id.setdefault(row.rule_id, []).append(row)
    kept: list[Rule] = []
    for rule_id, same in by_id.items():
        if len(same) > 1:
            message = f"rule_id {rule_id!r} stands in {len(same)} enabled rules; ids must be unique."
            for _ in same:
                rejects.add(rule_id, RuleError("DUPLICATE_ID", message))
        elif same[0].expression is None:
            rejects.add(rule_id, RuleError("NO_EXPRESSION", "The rule has no expression."))
        else:
            kept.append(same[0])
    kept.sort(key=lambda rule: rule.rule_id)
    return kept, rejects, id_type


def _id_type(ids: Iterable[Any]) -> pa.DataType:
    kinds = {type(rule_id) for rule_id in ids if rule_id is not None}
    if kinds <= {str}:
        return pa.string()
    if kinds == {int}:
        return pa.int64()
    names = " and ".join(sorted(kind.__name__ for kind in kinds))
    raise RulesIndexError(f"Rule ids must be all strings or all integers; these are {names}.")


def _rows(rules: Rules, time_zone: str) -> list[Rule]:
    if isinstance(rules, pl.LazyFrame):
        rules = rules.collect()
    if isinstance(rules, pl.DataFrame):
        rules = rules.to_arrow()
    if isinstance(rules, pa.RecordBatch):
        rules = pa.Table.from_batches([rules])
    if not isinstance(rules, pa.Table):
        return [Rule(rule_id, expression) for rule_id, expression in rules]
    for required in ("rule_id", "expression"):
        if required not in rules.column_names:
            raise RulesIndexError(f"The rules have no column {required}; they need rule_id and expression.")
    columns = {name: rules.column(name).to_pylist() for name in ("rule_id", "expression")}
    count = rules.num_rows
    enabled = _column(rules, "enabled", count)
    since, until = (
        _instants(rules, "valid_from", time_zone),
        _instants(rules, "valid_to", time_zone),
    )
    return [
        Rule(columns["rule_id"][i], columns["expression"][i], since[i], until[i])
        for i in range(count)
        if enabled[i] is not False
    ]


def _column(table: pa.Table, name: str, count: int) -> list[Any]:
    return table.column(name).to_pylist() if name in table.column_names else [None] * count


def _instants(table: pa.Table, name: str, time_zone: str) -> list[int | None]:
    """Microseconds since the epoch; a timestamp without a zone is read in `time_zone`."""
    if name not in table.column_names or pa.types.is_null(table.schema.field(name).type):
        return [None] * table.num_rows
    column = table.column(name)
    if not pa.types.is_timestamp(column.type):
        raise RulesIndexError(f"The rules' column {name} is {column.type}; it must be a timestamp.")
    if column.type.tz is not None:
        return column.cast(pa.timestamp("us", column.type.tz), safe=False).cast(pa.int64()).to_pylist()
    zone = ZoneInfo(time_zone)

    def instant(value: datetime | None) -> int | None:
        if value is None:
            return None
        aware = value.replace(tzinfo=zone)
        return int(aware.timestamp()) * 1_000_000 + value.microsecond

    return [instant(value) for value in column.cast(pa.timestamp("us"), safe=False).to_pylist()]
