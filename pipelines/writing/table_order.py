"""By which columns new tables are clustered or partitioned, and of which the log keeps bounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    IntegralType,
    MapType,
    StringType,
    StructType,
)

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


def partition_columns_for(stream: Stream, columns: StructType, source: Sequence[str]) -> tuple[str, ...]:
    """The columns by which a new tagged table is partitioned: those that the stream names, else the source's where all
    of them are of types whose values everybody writes alike and nothing else orders the table."""
    named = {field.name.lower(): field for field in columns.fields}
    if stream.partition_by is not None:
        return tuple(named[name.lower()].name for name in stream.partition_by)
    fits = not stream.cluster_by and all(is_partition_type(named[name.lower()].dataType) for name in source)
    return tuple(source) if fits and len(source) < len(columns) else ()


def statistics_property(columns: StructType, order: Order) -> dict[str, str]:
    """The property that has the log keep bounds of what people ask for, where a table has more columns than have
    bounds by themselves: the keys, what deltatag adds, and of the others the first ones."""
    leaves = {field.name: _leaf_count(field.dataType) for field in columns.fields}
    if sum(leaves.values()) <= INDEXED_LEAVES:
        return {}
    asked = [name.lower() for name in (*order.cluster_by, *order.looked_up, *LOOKED_UP)]
    first = sorted(leaves, key=lambda name: name.lower() not in asked)
    partitioned = {name.lower() for name in order.partition_by}
    chosen, count = [], 0
    for name in first:
        if name.lower() in partitioned or isinstance(columns[name].dataType, (ArrayType, MapType)):
            continue
        if count + leaves[name] <= INDEXED_LEAVES or name.lower() in asked:
            chosen.append(quoted(name))
            count += leaves[name]
    return {STATISTICS: ",".join(chosen)}


def _leaf_count(kind: DataType) -> int:
    if isinstance(kind, StructType):
        return sum(_leaf_count(field.dataType) for field in kind.fields)
    return 1


def is_partition_type(kind: DataType) -> bool:
    """Whether values of a type are written to the log as everybody writes them."""
    return isinstance(kind, (StringType, IntegralType, DateType, BooleanType, DecimalType))
