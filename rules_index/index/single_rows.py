"""Turns one row of Python values into the one-row columns that an index reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
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
    type.

    An exception in place of a derived column's value says that evaluating it raised.
    """
    return {leaf.name: _column(row, leaf, time_zone) for leaf in inputs}


def _column(row: Mapping[str, Any], leaf: Leaf, time_zone: str) -> Evaluated | np.ndarray:
    value = value_in(row, leaf)
    kind = leaf.type
    if leaf.text is not None and isinstance(value, Exception):
        return Evaluated(pa.nulls(1, kind), np.array([True]))
    is_number = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if is_number and leaf.text is not None and pa.types.is_boolean(kind):
        if not 0 <= value <= 3:
            raise _unfit(leaf, value)
        return np.array([value], np.int8)
    if isinstance(value, datetime) and pa.types.is_timestamp(kind):
        value = _moment(value, kind.tz is not None, leaf, time_zone)
    is_truncated = isinstance(value, (float, np.floating)) and pa.types.is_integer(kind)  # Arrow would truncate it
    if is_truncated or (isinstance(value, bool) and not pa.types.is_boolean(kind)):
        raise _unfit(leaf, value)
    try:
        return Evaluated(pa.array([value], kind), None)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        raise _unfit(leaf, value) from None


def _moment(value: datetime, has_zone: bool, leaf: Leaf, time_zone: str) -> datetime:
    if has_zone:
        return value if value.tzinfo is not None else value.replace(tzinfo=zone_of(time_zone))
    if value.tzinfo is not None:
        raise SchemaError(f"The row's {leaf.name} has a time zone, and the column, {leaf.type}, has none.")
    return value


def value_in(row: Mapping[str, Any], leaf: Leaf) -> Any:
    """A leaf's value as the row has it. Raises `SchemaError` where it is missing."""
    if leaf.name in row:
        return row[leaf.name]
    column, *fields = path_parts(leaf.name)
    name = spelled([*row], column, column_key)
    if name is None:
        what = f"the derived column {leaf.name} ({leaf.text})" if leaf.text else f"the column {leaf.name}"
        raise SchemaError(f"The row lacks {what}, {leaf.type}, which the rules read.")
    value = row[name]
    for part in fields:
        if value is None:
            return None
        field = spelled([*value], part, field_key) if isinstance(value, Mapping) else None
        if field is None:
            raise SchemaError(f"The row's {column} has no field {part}; the rules read {leaf.name}.")
        value = value[field]
    return value


def _unfit(leaf: Leaf, value: Any) -> SchemaError:
    shown = repr(value)
    shown = shown if len(shown) <= 60 else f"{shown[:60]}..."
    return SchemaError(f"The row's {leaf.name} is {shown}; the rules were compiled for {leaf.type}.")
