"""Data skipping for joins: ranges of time and key by which a file's statistics show that no row can join."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa

_MILLISECOND, _DAY = 1_000, 86_400_000_000
_FAR = 1 << 62
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY_TEXT = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_EXACT_DIGITS, _INEXACT = 15, Decimal("1e-15")
"""Digits that a double represents exactly, and the relative rounding error of longer numbers."""


@dataclass(frozen=True, slots=True)
class FileRanges:
    """The ranges of a file: event times [low, high] in microseconds, and minimum and maximum of each key column.

    None stands for an unknown bound or range.
    """

    low: int | None
    high: int | None
    keys: tuple[tuple[Any, Any] | None, ...]


class RangesOfNewFiles:
    """The ranges of the files of new rows, prepared for tests against very many files of earlier rows."""

    def __init__(self, ranges: Sequence[FileRanges], least: int | None = None) -> None:
        """least: rows with an earlier event time (microseconds) join nothing."""
        ranges = [each for each in ranges if least is None or each.high is None or each.high >= least]
        lows = [-_FAR if each.low is None else each.low for each in ranges]
        self._low = np.maximum(np.array(lows, np.int64), -_FAR if least is None else least)
        self._high = np.array([_FAR if each.high is None else each.high for each in ranges], np.int64)
        self._keys = [each.keys for each in ranges]

    def may_join(self, file: FileRanges, before: int, after: int) -> bool:
        """Whether a row of `file` may have the key of a new row, and a time near that row's.

        Its time may be up to `before` microseconds earlier, or up to `after` microseconds later.
        """
        met = np.ones(len(self._keys), bool)
        if file.low is not None:
            met &= file.low - after <= self._high
        if file.high is not None:
            met &= file.high + before >= self._low
        # if files are in the order of time, few are left here; else `any` soon finds one
        return any(all(map(_overlap, file.keys, self._keys[other])) for other in np.flatnonzero(met).tolist())


def file_ranges(
    add: Mapping[str, Any], time: str, keys: Sequence[tuple[str, pa.DataType] | None], time_zone: str
) -> FileRanges:
    """The ranges of a file, by its `add` action.

    time, keys: names of columns in the statistics, case aside; keys with their types, None for one not compared.
    """
    stats = json.loads(add.get("stats") or "{}", parse_float=Decimal)
    least, greatest = (_by_name(stats.get(name) or {}) for name in ("minValues", "maxValues"))
    partition = {name: value for name, value in _by_name(add.get("partitionValues") or {}).items() if value is not None}
    least, greatest = {**least, **partition}, {**greatest, **partition}
    zone = ZoneInfo(time_zone)
    low = _microseconds(least.get(time.lower()), zone, -1)
    high = _microseconds(greatest.get(time.lower()), zone, 1)
    return FileRanges(
        low, high, tuple(None if key is None else _range_of(key, least, greatest, partition) for key in keys)
    )


def is_comparable(data_type: pa.DataType) -> bool:
    """Whether bounds of a type are compared: integers, decimals, dates and strings."""
    t = pa.types
    return any(is_kind(data_type) for is_kind in (t.is_integer, t.is_decimal, t.is_date, t.is_string))


def _by_name(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name.lower(): value for name, value in values.items()}


def _range_of(
    key: tuple[str, pa.DataType], least: Mapping[str, Any], greatest: Mapping[str, Any], partition: Mapping[str, Any]
) -> tuple[Any, Any] | None:
    """The minimum and maximum of a key column, as values with the order that Spark gives the column."""
    name, data_type = key[0].lower(), key[1]
    low, high = (_value(each.get(name), data_type, name in partition) for each in (least, greatest))
    if low is None or high is None:
        return None
    is_long = pa.types.is_decimal(data_type) and data_type.precision > _EXACT_DIGITS and name not in partition
    if is_long and isinstance(low, Decimal) and isinstance(high, Decimal):
        # some writers' statistics hold decimals as floating-point numbers
        return low - abs(low) * _INEXACT, high + abs(high) * _INEXACT
    return low, high


def _value(value: Any, data_type: pa.DataType, is_text: bool) -> Decimal | date | str | None:
    """A value from the log; None if it cannot be read. is_text: it is a partition value, a text whatever its type."""
    t = pa.types
    try:
        if t.is_string(data_type):
            return value if isinstance(value, str) else None
        if t.is_date(data_type):
            # years of more than four digits have no Python date
            return date.fromisoformat(value) if isinstance(value, str) and _DAY_TEXT.fullmatch(value) else None
        if isinstance(value, bool) or isinstance(value, str) is not is_text:
            return None
        number = Decimal(value)
        return number if number.is_finite() else None
    except (ValueError, TypeError, ArithmeticError):
        return None


def _overlap(one: tuple[Any, Any] | None, other: tuple[Any, Any] | None) -> bool:
    """Whether two ranges may overlap; True if one is unknown, or they are of different types."""
    if one is None or other is None:
        return True
    if type(one[0]) is not type(other[0]):
        return True
    return bool(one[0] <= other[1] and other[0] <= one[1])


def _microseconds(value: Any, zone: ZoneInfo, side: int) -> int | None:
    """Microseconds since 1970 of a date or timestamp as text, widened by a margin: down if `side` is -1, up if 1."""
    if not isinstance(value, str):
        return None
    try:
        bound = datetime.fromisoformat(value)
        # statistics truncate to milliseconds; a wall time may be two instants
        margin = _MILLISECOND if bound.tzinfo is not None else _DAY
        bound = bound if bound.tzinfo is not None else bound.replace(tzinfo=zone)
        return (bound - _EPOCH) // timedelta(microseconds=1) + side * margin
    except (ValueError, OverflowError):
        return None
