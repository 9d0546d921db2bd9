"""Explodes a column of a table: each element of a list, or entry of a map, becomes a row of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.errors import NeedsSparkError
from pipelines.lake.column_types import is_opaque, spark_name
from rules_index.arrays import as_lists, decoded


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

    def rows(self, rows: pa.Table, values: pa.ChunkedArray | pa.Array) -> pa.Table:
        """The rows, each as often as its value has elements, with the columns of `fields`.

        values: the column that is exploded, by row; a row with NULL or no elements is left out.
        """
        lists = as_lists(values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([values])).combine_chunks()
        elements = lists.flatten()
        columns = elements.flatten() if pa.types.is_struct(elements.type) else [elements]
        found = rows.take(pc.list_parent_indices(lists))
        for field, column in zip(self.fields, columns, strict=True):
            found = found.append_column(field, decoded(column).cast(field.type))
        return found
