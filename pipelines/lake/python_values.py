"""The values of columns as Python's, to show them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from rules_index.arrays import is_text


def values_of(column: pa.ChunkedArray) -> list[Any]:
    """The values of a column; a MAP becomes a dict, or a list of entries if its keys are not hashable.

    If a date or timestamp in it is outside the years 1 to 9999 in UTC, which Python lacks, all are texts. Bytes of a
    text that are not UTF-8 become U+FFFD. A FLOAT becomes the number with the fewest digits that is this FLOAT: 1.1,
    not 1.100000023841858.
    """
    kind = column.type
    if (digits := _changed(kind, pa.types.is_float32, pa.string())) != kind:
        return [_decoded(value, kind) for value in values_of(column.cast(digits))]
    try:
        return _plain_values(column)
    except UnicodeDecodeError:
        read = values_of(column.cast(_changed(kind, is_text, pa.large_binary())))
        return [_decoded(value, kind) for value in read]
    except (OverflowError, ValueError):
        return values_of(column.cast(_changed(kind, pa.types.is_temporal, pa.string())))


def _plain_values(column: pa.ChunkedArray) -> list[Any]:
    try:
        found: list[Any] = column.to_pylist(maps_as_pydicts="lossy")
    except TypeError:
        found = column.to_pylist()
    return found


def _changed(kind: pa.DataType, is_changed: Callable[[pa.DataType], bool], new: pa.DataType) -> pa.DataType:
    """The type with another one in place of some types, also within nested ones."""

    def within(inner: pa.DataType) -> pa.DataType:
        return _changed(inner, is_changed, new)

    if pa.types.is_list(kind):
        return pa.list_(within(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(within(kind.key_type), within(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(within(field.type)) for field in kind])
    return new if is_changed(kind) else kind


def _decoded(value: Any, kind: pa.DataType) -> Any:
    """A value of this type in which texts are bytes, or FLOATs are texts, as it is to be."""
    if value is None:
        return None
    if pa.types.is_list(kind):
        return [_decoded(each, kind.value_type) for each in value]
    if pa.types.is_map(kind):
        entries = value.items() if isinstance(value, dict) else value
        decoded = [(_decoded(key, kind.key_type), _decoded(item, kind.item_type)) for key, item in entries]
        return dict(decoded) if isinstance(value, dict) else decoded
    if pa.types.is_struct(kind):
        return {field.name: _decoded(value[field.name], field.type) for field in kind}
    if pa.types.is_float32(kind):
        return float(value)
    return value.decode(errors="replace") if is_text(kind) and isinstance(value, bytes) else value
