"""By which columns new tables are clustered or partitioned, and of which the log keeps bounds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pipelines.spark.sql_text import quoted
from rules_index.workers.delta_files import INDEXED_LEAVES

if TYPE_CHECKING:
    from pipelines.settings.model import Stream

STATISTICS = "delta.dataSkippingStatsColumns"
"""The table property that names the columns of which the log keeps bounds."""
LOOKED_UP = ("rules_version", "source_version", "tagged_at")
"""Columns of deltatag's by which rows are looked for."""


@dataclass(frozen=True, slots=True)
class Order:
    """By which columns a new table is clustered or partitioned, and which are looked up besides."""

    cluster_by: Sequence[str] = ()
    partition_by: Sequence[str] = ()
    looked_up: Sequence[str] = ()


def partition_columns_for(
    stream: Stream, fields: Sequence[Mapping[str, Any]], source: Sequence[str]
) -> tuple[str, ...]:
    """The columns by which a new tagged table is partitioned: those that the stream names, else the source's where all
    of them are of types whose values everybody writes alike and nothing else orders the table.

    fields: the source's columns, as logs write them; source: those by which it is partitioned.
    """
    named = {field["name"].lower(): field for field in fields}
    if stream.partition_by is not None:
        return tuple(named[name.lower()]["name"] for name in stream.partition_by)
    fits = not stream.cluster_by and all(is_partition_type(named[name.lower()]["type"]) for name in source)
    return tuple(source) if fits and len(source) < len(fields) else ()


def statistics_property(fields: Sequence[Mapping[str, Any]], order: Order) -> dict[str, str]:
    """The property that has the log keep bounds of what people ask for, where a table has more columns than have
    bounds by themselves: the keys, what deltatag adds, and of the others the first ones."""
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
            chosen.append(quoted(name))
            count += leaves[name]
    return {STATISTICS: ",".join(chosen)}


def _leaf_count(kind: Any) -> int:
    if isinstance(kind, Mapping) and kind["type"] == "struct":
        return sum(_leaf_count(field["type"]) for field in kind["fields"])
    return 1


def _is_unbounded(kind: Any) -> bool:
    return isinstance(kind, Mapping) and kind["type"] in ("array", "map")


def is_partition_type(kind: Any) -> bool:
    """Whether values of a type are written to the log as everybody writes them."""
    return isinstance(kind, str) and bool(re.fullmatch(r"string|long|integer|short|byte|date|boolean|decimal.*", kind))
