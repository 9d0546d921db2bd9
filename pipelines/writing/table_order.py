"""The clustering and partitioning of new tables, and the columns whose statistics the log holds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rules_index.names import back_quoted
from rules_index.workers.file_statistics import INDEXED_LEAVES

if TYPE_CHECKING:
    from pipelines.lake.lake import Lake
    from pipelines.settings.model import Stream

STATISTICS = "delta.dataSkippingStatsColumns"
"""The table property that names the columns with statistics in the log."""
LOOKED_UP = ("rules_version", "source_version", "tagged_at")
"""Columns added by deltatag that queries filter by."""


@dataclass(frozen=True, slots=True)
class Order:
    """The columns by which a new table is clustered or partitioned, and further ones that queries filter by."""

    cluster_by: Sequence[str] = ()
    partition_by: Sequence[str] = ()
    looked_up: Sequence[str] = ()


UNORDERED = Order()


def order_of_matches(lake: Lake) -> Order:
    """The order of a table of matches: clustered by rule, but not in a store, where only Spark could write it then."""
    return Order(() if lake.is_in_store else ("rule_id",), looked_up=("rule_id",))


def partition_columns_for(
    stream: Stream, fields: Sequence[Mapping[str, Any]], source: Sequence[str]
) -> tuple[str, ...]:
    """The columns by which a new tagged table is partitioned.

    They are those that the stream names. By default they are the source's, if all writers spell the values of their
    types in the same way, and the table is not clustered. fields: the source's columns, in the log's form; source: the
    columns by which it is partitioned.
    """
    named = {field["name"].lower(): field for field in fields}
    if stream.partition_by is not None:
        return tuple(named[name.lower()]["name"] for name in stream.partition_by)
    fits = not stream.cluster_by and all(is_partition_type(named[name.lower()]["type"]) for name in source)
    return tuple(source) if fits and len(source) < len(fields) else ()


def statistics_property(fields: Sequence[Mapping[str, Any]], order: Order) -> dict[str, str]:
    """The table property that names the columns with statistics; empty if all columns have them.

    If a table has more columns than Delta keeps statistics for by default, these are the columns that queries filter
    by: the keys, the columns that deltatag adds, and the first of the others.
    """
    leaves = {field["name"]: _leaf_count(field["type"]) for field in fields}
    types = {field["name"]: field["type"] for field in fields}
    if sum(leaves.values()) <= INDEXED_LEAVES:
        return {}
    asked = [name.lower() for name in (*order.cluster_by, *order.looked_up, *LOOKED_UP)]
    first = sorted(leaves, key=lambda name: name.lower() not in asked)
    partitioned = {name.lower() for name in order.partition_by}
    chosen, count = [], 0
    for name in first:
        if name.lower() in partitioned or (
            isinstance(types[name], Mapping) and types[name]["type"] in ("array", "map")
        ):
            continue
        if count + leaves[name] <= INDEXED_LEAVES or name.lower() in asked:
            chosen.append(back_quoted(name))
            count += leaves[name]
    return {STATISTICS: ",".join(chosen)}


def _leaf_count(kind: Any) -> int:
    if isinstance(kind, Mapping) and kind["type"] == "struct":
        return sum(_leaf_count(field["type"]) for field in kind["fields"])
    return 1


def is_partition_type(kind: Any) -> bool:
    """Whether all writers spell partition values of a type in the same way."""
    return isinstance(kind, str) and bool(re.fullmatch(r"string|long|integer|short|byte|date|boolean|decimal.*", kind))
