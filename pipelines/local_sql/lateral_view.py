"""Explodes a column of a table: each element of a list, or entry of a map, becomes a row of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.errors import NeedsSparkError
from pipelines.lake.column_types import is_opaque, spark_name
from rules_index.arrays import as_lists, decoded

MOST_ROWS = 1 << 18
"""Maximum number of exploded rows in memory."""


@dataclass(frozen=True)
class Exploded:
    """What LATERAL VIEW explode(column) AS names adds to a table.

    key: that of the column or field that is exploded; fields: the columns of its elements, or of its keys and values.
    """

    key: str
    fields: tuple[pa.Field, ...]

    @classmethod
    def of(cls, key: str, kind: pa.DataType, names: Sequence[str]) -> Exploded:
        """kind: the type of the column. NeedsSparkError if it has no elements of a plain type, or other ones than
        `names` says."""
        if pa.types.is_map(kind):
            kinds = [kind.key_type, kind.item_type]
        elif pa.types.is_list(kind):
            kinds = [kind.value_type]
        else:
            raise NeedsSparkError(f"only Spark explodes the type {spark_name(kind)}")
        if len(kinds) != len(names) or any(pa.types.is_nested(each) or is_opaque(each) for each in kinds):
            raise NeedsSparkError(f"only Spark explodes the type {spark_name(kind)} into {len(names)} columns")
        return cls(key, tuple(map(pa.field, names, kinds)))

    @staticmethod
    def lists(values: pa.ChunkedArray | pa.Array) -> pa.Array:
        """The values of the column as lists: of a map, lists of its entries."""
        return as_lists(values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([values])).combine_chunks()

    def rows(self, rows: pa.Table, values: pa.ChunkedArray | pa.Array) -> pa.Table:
        """The rows, each as often as its value has elements, with the columns of `fields`.

        values: the column that is exploded, by row; a row with NULL or no elements is left out.
        """
        lists = self.lists(values)
        elements = lists.flatten()
        columns = elements.flatten() if pa.types.is_struct(elements.type) else [elements]
        found = rows.take(pc.list_parent_indices(lists))
        for field, column in zip(self.fields, columns, strict=True):
            found = found.append_column(field, decoded(column).cast(field.type))
        return found


def pieces(rows: pa.Table, exploded: Sequence[np.ndarray]) -> Iterator[pa.Table]:
    """The rows in slices, each of which comes to at most `MOST_ROWS` exploded rows.

    exploded: how many elements each row has in each exploded column. NeedsSparkError if one row alone comes to more.
    """
    # as DOUBLEs, since a product of many lengths may exceed any integer
    counts = np.prod([each.astype(np.float64) for each in exploded], axis=0)
    if rows.num_rows and counts.max() > MOST_ROWS:
        raise NeedsSparkError(f"a row comes to more than {MOST_ROWS:,} exploded rows")
    ends, start = np.cumsum(counts), 0
    while start < rows.num_rows:
        before = ends[start - 1] if start else 0.0
        stop = int(np.searchsorted(ends, before + MOST_ROWS, side="right"))
        yield rows.slice(start, stop - start)
        start = stop


def lengths(lists: pa.Array) -> np.ndarray:
    """The lengths of lists [rows] int64; 0 for NULL."""
    found: np.ndarray = pc.fill_null(pc.list_value_length(lists), 0).cast(pa.int64()).to_numpy()
    return found
