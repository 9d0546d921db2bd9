"""Applies Python functions to the partitions of a DataFrame, as Arrow batches, with any column names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

Batches = Iterator[pa.RecordBatch]


def map_batches(frame: DataFrame, function: Callable[[Any], Batches], schema: StructType | str) -> DataFrame:
    """Like `frame.mapInArrow(function, schema)`, which would parse column names as expressions.

    `function` must be pickled by value, since workers have no module of `pipelines`.
    """
    names = frame.columns
    numbered = frame.toDF(*(f"_{number}" for number in range(len(names))))
    return numbered.mapInArrow(_with_names(function, names), schema)


def _with_names(function: Callable[[Any], Batches], names: list[str]) -> Callable[[Any], Batches]:
    def named(batches: Iterator[Any]) -> Batches:
        import pyarrow as pa

        yield from function(pa.RecordBatch.from_arrays(batch.columns, names) for batch in batches)

    return named
