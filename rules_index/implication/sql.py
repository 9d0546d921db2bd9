"""Sets of a column's values as Spark SQL, and their bounds as Python values."""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from rules_index.domains.values import NAN_KEY, Key, decimals, float_key
from rules_index.implication.representatives import doubles, least_text
from rules_index.implication.value_ranges import KeyRange
from rules_index.names import back_quoted_path, quoted_text

_INFINITY_KEY, _ZERO_KEY = float_key(float("inf")), float_key(0.0)
_DIGITS_OF_DOUBLES = 15
"""The most digits of decimals that a DOUBLE always holds."""
_DAY = 86_400_000_000
_EPOCH = datetime.date(1970, 1, 1)
_DAYS = [(day - _EPOCH).days for day in (datetime.date.min, datetime.date.max)]
"""The first and the last day that literals and Python's dates can express, since 1970-01-01."""


def literal_of(key: Key, data_type: pa.DataType) -> str:
    """A key's value as a literal; data_type: the column's, or the type that the column is cast to for comparisons."""
    t = pa.types
    if t.is_boolean(data_type):
        return "TRUE" if key else "FALSE"
    if t.is_string(data_type):
        return quoted_text(key.decode())
    if t.is_binary(data_type):
        return f"X'{key.hex().upper()}'"
    if t.is_floating(data_type):
        number = _double(key)
        return f"{number!r}D" if np.isfinite(number) else f"double('{_special(number)}')"
    if t.is_decimal(data_type):
        digits = str(abs(key)).zfill(data_type.scale + 1)
        whole, fraction = (digits[: len(digits) - data_type.scale], digits[len(digits) - data_type.scale :])
        return ("-" if key < 0 else "") + whole + ("." + fraction if fraction else "") + "BD"
    if t.is_date32(data_type):
        return f"DATE'{_iso(np.datetime64(key, 'D'))}'"
    if t.is_timestamp(data_type):
        text = _iso(np.datetime64(key, "us")).replace("T", " ")
        text = text.rstrip("0").rstrip(".") if "." in text else text
        return f"TIMESTAMP'{text}Z'" if data_type.tz is not None else f"TIMESTAMP_NTZ'{text}'"
    return str(key)


def _iso(time: np.datetime64) -> str:
    """A date or time as text; its year has four digits or more, also before the year 0, where NumPy gives three."""
    return re.sub(r"^-(\d+)", lambda year: f"-{year[1]:0>4}", str(time))


def condition(column: str, data_type: pa.DataType, ranges: Sequence[KeyRange]) -> str:
    """The condition that a column's value is in one of some ranges; there is at least one, and all have an end.

    Spark passes over row groups and files by it. Parquet's dictionaries tell -0.0 from 0.0, so `=` and `IN` name no
    zero, and a range that begins with zero begins with -0.0. Statistics may leave out NaN, and round long decimals, as
    those of delta-rs do. `isnan`, which no statistics answer, keeps Spark from relying on them.
    """
    name = back_quoted_path(column)
    points = [each for each in ranges if _is_point(each, data_type)]
    single = [literal_of(each.low, data_type) for each in points]
    parts = [f"{name} IN ({', '.join(single)})"] if len(single) > 1 else [f"{name} = {each}" for each in single]
    parts += [_between(name, data_type, each) for each in ranges if each not in points]
    if pa.types.is_floating(data_type) and any(each.high is None or each.high > NAN_KEY for each in ranges):
        parts.append(f"isnan({name})")
    if pa.types.is_decimal(data_type) and data_type.precision > _DIGITS_OF_DOUBLES:
        parts.append(f"isnan(CAST({name} AS DOUBLE))")
    return parts[0] if len(parts) == 1 else f"({' OR '.join(parts)})"


def has_end(each: KeyRange, data_type: pa.DataType) -> bool:
    """Whether a literal can express where a range begins, or where it ends."""
    return lower_bound(each, data_type) is not None or upper_bound(each, data_type) is not None


def _is_point(each: KeyRange, data_type: pa.DataType) -> bool:
    if not each.is_single or not _is_written(each.low, data_type):
        return False
    return not pa.types.is_floating(data_type) or bool(
        each.low != _ZERO_KEY and each.high is not None and each.high <= _INFINITY_KEY + 1
    )


def _between(name: str, data_type: pa.DataType, each: KeyRange) -> str:
    low, high = lower_bound(each, data_type), upper_bound(each, data_type)
    begins_with_zero = pa.types.is_floating(data_type) and low == (_ZERO_KEY, True)
    first = None if low is None else "-0.0D" if begins_with_zero else literal_of(low[0], data_type)
    if low is not None and high is not None and (low[1], high[1]) == (True, True):
        return f"{name} BETWEEN {first} AND {literal_of(high[0], data_type)}"
    parts = []
    if low is not None:
        parts.append(f"{name} {'>=' if low[1] else '>'} {first}")
    if high is not None:
        parts.append(f"{name} {'<=' if high[1] else '<'} {literal_of(high[0], data_type)}")
    return " AND ".join(parts) if len(parts) < 2 else f"({' AND '.join(parts)})"


def lower_bound(each: KeyRange, data_type: pa.DataType) -> tuple[Key, bool] | None:
    """The key of a value at the lower end, and whether it belongs to the range; None if the end is unbounded, or no
    literal can express it."""
    low = each.low
    if low is None:
        return None
    if not _is_written(low, data_type):
        return (low - 1, False) if _is_written(low - 1, data_type) else None
    if pa.types.is_floating(data_type):
        return (_INFINITY_KEY, False) if low > _INFINITY_KEY else _rounder((low, True), (low - 1, False))
    if pa.types.is_string(data_type):
        found = least_text(low)
        assert found is not None
        low = found
    if isinstance(low, bytes) and low.endswith(b"\0"):
        return low[:-1], False
    return low, True


def upper_bound(each: KeyRange, data_type: pa.DataType) -> tuple[Key, bool] | None:
    """Like `lower`, for the upper end."""
    high = each.high
    if high is None:
        return None
    if isinstance(high, bytes):
        if pa.types.is_string(data_type):
            found = least_text(high)
            if found is None:
                return None
            high = found
        return (high[:-1], True) if high.endswith(b"\0") else (high, False)
    if pa.types.is_floating(data_type):
        if high > NAN_KEY:
            return None
        return (_INFINITY_KEY, True) if high > _INFINITY_KEY else _rounder((high - 1, True), (high, False))
    if _is_written(high - 1, data_type):
        return high - 1, True
    return (high, False) if _is_written(high, data_type) else None


def value_of(key: Key, data_type: pa.DataType) -> Any:
    """The value with a key, as PyArrow's `as_py` returns it."""
    t = pa.types
    if t.is_string(data_type):
        return key.decode()
    if t.is_floating(data_type):
        return _double(key)
    if t.is_boolean(data_type):
        return bool(key)
    if t.is_decimal(data_type):
        return decimals([key], data_type)[0].as_py()
    if t.is_date32(data_type) or t.is_timestamp(data_type):
        return pa.array([key], f"int{data_type.bit_width}").view(data_type)[0].as_py()
    return key


def _is_written(key: Key, data_type: pa.DataType) -> bool:
    """Whether a date or a time is in the years that literals can express."""
    if not (pa.types.is_date32(data_type) or pa.types.is_timestamp(data_type)):
        return True
    day = key if pa.types.is_date32(data_type) else key // _DAY
    return bool(_DAYS[0] <= day <= _DAYS[1])


def _rounder(*ends: tuple[int, bool]) -> tuple[int, bool]:
    """Of two ends that are neighbouring doubles, the one that is shorter to write; the first if they are equally
    long."""
    return min(ends, key=lambda end: len(repr(_double(end[0]))))


def _double(key: int) -> float:
    return float(doubles(np.array([key], np.int64))[0])


def _special(number: float) -> str:
    return "NaN" if np.isnan(number) else "Infinity" if number > 0 else "-Infinity"
