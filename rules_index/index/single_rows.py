"""Turns one row of Python values into the one-row columns that an index reads."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from datetime import datetime, time
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from rules_index.errors import SchemaError
from rules_index.language.evaluation.datetime_parser import zone_of
from rules_index.language.evaluation.evaluated import Evaluated
from rules_index.language.typed import Leaf
from rules_index.names import column_key, field_key, path_parts, spelled


def values_of_row(row: Mapping[str, Any], inputs: Sequence[Leaf], time_zone: str) -> dict[str, Evaluated | np.ndarray]:
    """The value of each leaf, as a column of one row. Raises `SchemaError` for a value that is missing or of another
    type, and for a row that is not a mapping.

    If a derived column's value is an exception, evaluating the column raised.
    """
    if not hasattr(row, "keys"):
        raise no_mapping(row)
    return {leaf.name: _column(row, leaf, time_zone) for leaf in inputs}


def no_mapping(row: object) -> SchemaError:
    """The error for a row that has no values by column."""
    return SchemaError(f"A row is a mapping of columns to values, not {type(row).__name__}.")


def _column(row: Mapping[str, Any], leaf: Leaf, time_zone: str) -> Evaluated | np.ndarray:
    value = value_in(row, leaf)
    kind = leaf.type
    if leaf.text is not None and isinstance(value, Exception):
        return Evaluated(pa.nulls(1, kind), np.array([True]))
    if isinstance(value, pa.Scalar):
        if value.type == kind:  # Python lacks some of Arrow's dates and times
            return Evaluated(pa.repeat(value, 1), None)
        value = _in_python(value, leaf)
    is_number = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if is_number and leaf.text is not None and pa.types.is_boolean(kind):
        if not 0 <= value <= 3:
            raise _unfit(leaf, value)
        return np.array([value], np.int8)
    if isinstance(value, datetime) and pa.types.is_timestamp(kind):
        value = _moment(value, kind.tz is not None, leaf, time_zone)
    try:
        return Evaluated(pa.array([_fitting(value, kind)], kind), None)
    except (pa.ArrowException, ArithmeticError, TypeError, ValueError):
        raise _unfit(leaf, value) from None


def _fitting(value: Any, kind: pa.DataType) -> Any:
    """The value in a form that Arrow converts without a loss. Raises `TypeError` or `ValueError` for a value that Arrow
    would change to fit `kind`, and for maps with a NULL entry or key, on which Arrow ends the process."""
    t = pa.types
    if isinstance(value, pa.Scalar):
        value = value.as_py()
    if value is None or (isinstance(value, datetime) and value != value):  # pandas.NaT
        return None
    if t.is_nested(kind) and isinstance(value, (str, bytes, bytearray, memoryview)):
        raise TypeError("Arrow would take a text for a list of its letters")
    if t.is_struct(kind):
        fields = dict(value)
        names = _texts(fields)
        spellings = [(field, spelled(names, field.name, field_key)) for field in kind]
        return {field.name: _fitting(fields[name], field.type) for field, name in spellings if name is not None}
    if t.is_map(kind):
        entries = [*(value.items() if isinstance(value, Mapping) else value)]
        fitted = [(_fitting(key, kind.key_type), _fitting(item, kind.item_type)) for key, item in entries]
        if any(key is None for key, _ in fitted):
            raise ValueError("a key of a map is NULL")
        return fitted
    if t.is_list(kind):
        if isinstance(value, Mapping):
            raise TypeError("a mapping is not a list")
        return [_fitting(item, kind.value_type) for item in value]
    is_truth, is_fractional = isinstance(value, (bool, np.bool_)), isinstance(value, (float, np.floating))
    is_whole = t.is_integer(kind) and isinstance(value, Decimal) and value == value.to_integral_value()
    is_fraction = isinstance(value, Decimal) and not (t.is_decimal(kind) or is_whole)
    if t.is_date(kind) and isinstance(value, datetime) and (value.time() != time() or value.tzinfo is not None):
        raise ValueError("Arrow would drop the time of day")
    if (is_truth and not t.is_boolean(kind)) or (is_fractional and not t.is_floating(kind)) or is_fraction:
        raise ValueError("Arrow would convert it")
    return value


def _in_python(value: pa.Scalar, leaf: Leaf) -> Any:
    try:
        return value.as_py()
    except (ArithmeticError, ValueError) as error:
        raise SchemaError(
            f"The row's {leaf.name} is a {value.type} that Python cannot hold ({error}); the rules were compiled for "
            f"{leaf.type}."
        ) from None


def _moment(value: datetime, has_zone: bool, leaf: Leaf, time_zone: str) -> datetime:
    if has_zone:
        return value if value.tzinfo is not None else value.replace(tzinfo=zone_of(time_zone))
    if value.tzinfo is not None:
        raise SchemaError(f"The row's {leaf.name} has a time zone, and the column, {leaf.type}, has none.")
    return value


def value_in(row: Mapping[str, Any], leaf: Leaf) -> Any:
    """A leaf's value in a row. Raises `SchemaError` if the row lacks it."""
    if leaf.name in row:
        return row[leaf.name]
    column, *fields = path_parts(leaf.name)
    name = _key_of(row, column, column_key)
    if name is None:
        what = f"the derived column {leaf.name} ({leaf.text})" if leaf.text else f"the column {leaf.name}"
        raise SchemaError(f"The row lacks {what}, {leaf.type}, which the rules read.")
    value = row[name]
    for part in fields:
        if value is None:
            return None
        field = _key_of(value, part, field_key) if isinstance(value, Mapping) else None
        if field is None:
            raise SchemaError(f"The row's {column} has no field {part}; the rules read {leaf.name}.")
        value = value[field]
    return value


def _key_of(mapping: Mapping[Any, Any], name: str, key: Callable[[str], Hashable]) -> str | None:
    """The key that `spelled` finds among a mapping's."""
    return name if name in mapping else spelled(_texts(mapping), name, key)


def _texts(mapping: Mapping[Any, Any]) -> list[str]:
    """The keys that can be names."""
    return [each for each in mapping if isinstance(each, str)]


def _unfit(leaf: Leaf, value: Any) -> SchemaError:
    shown = repr(value)
    shown = shown if len(shown) <= 60 else f"{shown[:60]}..."
    return SchemaError(f"The row's {leaf.name} is {shown}; the rules were compiled for {leaf.type}.")
