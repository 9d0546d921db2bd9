"""Sorts the rows of a result as Spark does."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
import pyarrow as pa

from pipelines.errors import NeedsSparkError
from pipelines.lake.column_types import spark_name
from pipelines.local_sql.syntax import Item, SortKey
from pipelines.local_sql.tables import LocalTable

KEPT_ROWS = 1 << 18
"""Number of rows in memory above which those that cannot be in the result are dropped."""


def place_of(number: int, count: int) -> int:
    """The place of a column that a statement names by its number from 1; NeedsSparkError if there is none."""
    if not 1 <= number <= count:
        raise NeedsSparkError(f"the result has no column {number}")
    return number - 1


def check_names(table: LocalTable, items: Sequence[Item]) -> None:
    """NeedsSparkError if a name of the result means something else in the table: an expression could mean either."""
    odd = next((item.name for item in items if not item.is_plain and table.has_column(item.name)), None)
    if odd is not None:
        raise NeedsSparkError(f"{odd} is a name in the result and in the table")


def check_ordered(kind: pa.DataType) -> None:
    """NeedsSparkError for a type whose values only Spark orders."""
    t = pa.types
    if t.is_nested(kind) or t.is_binary(kind) or t.is_null(kind):
        raise NeedsSparkError(f"only Spark orders values of the type {spark_name(kind)}")


def ordered(rows: pa.Table, keys: Sequence[tuple[str, SortKey]], limit: int | None) -> pa.Table:
    """The rows sorted, and limited; as in Spark, NaN is above all numbers, and 0.0 equals -0.0."""
    frame = pl.DataFrame(
        {str(place): pl.from_arrow(rows.column(name)) for place, (name, _) in enumerate(keys)}
    ).with_row_index("row")
    columns = [pl.col(name) for name in frame.columns[1:]]
    by = [each + 0.0 if frame.schema[each.meta.output_name()].is_float() else each for each in columns]
    descending, last = [key.descending for _, key in keys], [key.nulls_last for _, key in keys]
    order = frame.sort(by, descending=descending, nulls_last=last, maintain_order=True)["row"]
    chosen = order if limit is None else order.head(limit)
    return rows.take(pa.array(chosen.to_numpy().astype(np.int64)))
