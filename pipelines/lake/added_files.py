"""The files of a table's version and their statistics, as delta-rs gives them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from deltalake import DeltaTable

_PYTHON_TIMES = (-62_135_596_800_000_000, 253_402_300_800_000_000)
"""Microseconds since 1970 of the start of the year 1 and the end of the year 9999."""


def files_in(table: DeltaTable, flatten: bool = False) -> pa.Table:
    """The add actions of a table's files, as `DeltaTable.get_add_actions` gives them."""
    return pa.RecordBatchReader.from_stream(table.get_add_actions(flatten=flatten)).read_all()


def action_rows(actions: pa.Table) -> list[dict[str, Any]]:
    """Rows of `files_in` as Python values; dates as the log writes them, since Python has none before the year 1 or
    after 9999. Timestamps are texts, too, if one of their column is of such a year."""
    columns = [_with_texts_of_times(column.combine_chunks()) for column in actions.columns]
    return pa.table(columns, actions.column_names).to_pylist()


def _with_texts_of_times(column: pa.Array) -> pa.Array:
    if pa.types.is_date(column.type):
        return pc.replace_substring_regex(column.cast(pa.string()), r"^(\d{5,})", r"+\1")
    if pa.types.is_timestamp(column.type):
        first, last = pc.min_max(column.cast(pa.timestamp("us")).cast(pa.int64())).as_py().values()
        is_far = first is not None and not _PYTHON_TIMES[0] <= first <= last < _PYTHON_TIMES[1]
        return column.cast(pa.string()) if is_far else column
    if not pa.types.is_struct(column.type) or not column.type.num_fields:
        return column
    fields = [_with_texts_of_times(each) for each in column.flatten()]
    return pa.StructArray.from_arrays(fields, [field.name for field in column.type], mask=column.is_null())
