"""The tables that a stream or a join has by the configuration, whichever runner makes and writes them.

Columns are in the form of the log's `schemaString`; those of sources have been made fit for another table
(`column_types.plain_fields`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pipelines.lake.folder_snapshot import Definition
from pipelines.table_definitions import (
    QUARANTINE_COLUMNS,
    Column,
    joined_columns,
    matches_columns,
    matches_keys,
    matches_table,
    quarantine_table,
    tagged_columns,
    tagged_table,
)
from pipelines.writing.table_order import UNORDERED, Order, order_of_matches, partition_columns_for, statistics_property

if TYPE_CHECKING:
    from pipelines.lake.lake import Lake
    from pipelines.settings.model import Join, Stream

PROPERTIES = {"delta.enableDeletionVectors": "false"}
"""The properties of every table of a stream or join."""
_LOG_TYPES = {"bigint": "long", "int": "integer"}

Fields = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class ConfiguredTable:
    """One table: its columns, its order if it is created, and whether the configuration keeps it."""

    name: str
    fields: Fields
    kept: bool = True
    order: Order = UNORDERED

    @property
    def definition(self) -> Definition:
        """The definition by which a new table is created."""
        properties = {**PROPERTIES, **statistics_property(self.fields, self.order)}
        return Definition(self.fields, self.order.partition_by, self.order.cluster_by, properties)


def stream_tables(
    lake: Lake, stream: Stream, source: Fields, partitions: Sequence[str], id_type: str
) -> tuple[ConfiguredTable, ...]:
    """The tables of a stream.

    source: the columns of the stream's source; partitions: the columns by which it is partitioned, and by default also
    a new `<stream>_tagged`; id_type: the type of rule ids, "string" or "bigint".
    """
    keys = matches_keys(stream.key, stream.event_time)
    by = Order(stream.cluster_by, partition_columns_for(stream, source, partitions), keys)
    tagged = [*source, *column_fields(tagged_columns(id_type, stream.annotations))]
    pairs = matches_fields(source, keys, id_type)
    return (
        ConfiguredTable(tagged_table(stream), tagged, order=by),
        ConfiguredTable(matches_table(stream), pairs, stream.keeps_matches, order_of_matches(lake)),
        ConfiguredTable(quarantine_table(stream), [*source, *column_fields(QUARANTINE_COLUMNS)], stream.can_quarantine),
    )


def planned_fields(stream: Stream, plan: Mapping[str, Any], source: Fields) -> dict[str, Fields]:
    """The columns that a planned micro-batch writes, by `tagged`, `matches` and `quarantine`; source: the source's."""
    keys, id_type = matches_keys(plan["key"], plan["event_time"]), plan["id_type"]
    return {
        "tagged": [*source, *column_fields(tagged_columns(id_type, stream.annotations))],
        "matches": matches_fields(source, keys, id_type),
        "quarantine": [*source, *column_fields(QUARANTINE_COLUMNS)],
    }


def join_tables(join: Join, sides: Mapping[str, Fields], id_type: str) -> tuple[ConfiguredTable, ...]:
    """The tables of a join; sides: the columns of the source of each stream."""
    structs = [
        {"name": name, "type": {"type": "struct", "fields": fields}, "nullable": True, "metadata": {}}
        for name, fields in sides.items()
    ]
    tagged = [*structs, *column_fields(joined_columns(id_type, join.annotations))]
    late = [*structs, *column_fields(QUARANTINE_COLUMNS)]
    return (
        ConfiguredTable(tagged_table(join), tagged),
        ConfiguredTable(quarantine_table(join), late, join.can_quarantine),
    )


def matches_fields(source: Fields, keys: Sequence[str], id_type: str) -> list[Mapping[str, Any]]:
    """The columns of `<stream>_matches`: the rule's id, the key columns of the source, the versions."""
    first, *last = column_fields(matches_columns(id_type))
    named = {field["name"].lower(): field for field in source}
    return [first, *(named[key.lower()] for key in keys), *last]


def column_fields(columns: Sequence[Column]) -> list[dict[str, Any]]:
    """Columns of deltatag's own in the form of the log's `schemaString`, with their comments."""
    found = []
    for column in columns:
        kind: Any = _LOG_TYPES.get(column.type, column.type)
        if kind.startswith("array<"):
            element = kind.removeprefix("array<").removesuffix(">")
            kind = {"type": "array", "elementType": _LOG_TYPES.get(element, element), "containsNull": True}
        found.append({"name": column.name, "type": kind, "nullable": True, "metadata": {"comment": column.comment}})
    return found
