"""What Delta's statistics tell about a file's columns: the ranges by which files are passed over."""

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
"""Digits that a double keeps, and how far, beside its size, a longer number may be from what it becomes."""


@dataclass(frozen=True, slots=True)
class Reach:
    """What a file's rows have: event times [low, high] in microseconds, and of each key column the least and the
    greatest value. None stands for what is not known."""

    low: int | None
    high: int | None
    keys: tuple[tuple[Any, Any] | None, ...]


class Reaches:
    """What the files of new rows have; asked for each of very many files of earlier ones."""

    def __init__(self, reaches: Sequence[Reach], least: int | None = None) -> None:
        """least: rows of an earlier event time join nothing."""
        reaches = [each for each in reaches if least is None or each.high is None or each.high >= least]
        lows = [-_FAR if each.low is None else each.low for each in reaches]
        self._low = np.maximum(np.array(lows, np.int64), -_FAR if least is None else least)
        self._high = np.array([_FAR if each.high is None else each.high for each in reaches], np.int64)
        self._keys = [each.keys for each in reaches]

    def meets(self, file: Reach, before: int, after: int) -> bool:
        """Whether a row of a file can have the keys of one of these rows, and a time from `before` microseconds
        earlier to `after` later."""
        met = np.ones(len(self._keys), bool)
        if file.low is not None:
            met &= file.low - after <= self._high
        if file.high is not None:
            met &= file.high + before >= self._low
        # files that were written in the order of time leave few, others are met at once
        return any(all(map(_overlap, file.keys, self._keys[other])) for other in np.flatnonzero(met).tolist())


def reach_of(
    add: Mapping[str, Any], time: str, keys: Sequence[tuple[str, pa.DataType] | None], time_zone: str
) -> Reach:
    """The reach of a file by its `add` entry.

    Columns go by their names in the statistics, case aside, keys with their types. A key that is None is not compared.
    """
    stats = json.loads(add.get("stats") or "{}", parse_float=Decimal)
    least, greatest = (_by_name(stats.get(name) or {}) for name in ("minValues", "maxValues"))
    partition = {name: value for name, value in _by_name(add.get("partitionValues") or {}).items() if value is not None}
    least, greatest = {**least, **partition}, {**greatest, **partition}
    zone = ZoneInfo(time_zone)
    low = _microseconds(least.get(time.lower()), zone, -1)
    high = _microseconds(greatest.get(time.lower()), zone, 1)
    return Reach(low, high, tuple(None if key is None else _range_of(key, least, greatest, partition) for key in keys))


def is_comparable(data_type: pa.DataType) -> bool:
    """Whether two files' values of a type can be told apart: integers, decimals, dates and texts."""
    t = pa.types
    return any(is_kind(data_type) for is_kind in (t.is_integer, t.is_decimal, t.is_date, t.is_string))


def _by_name(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name.lower(): value for name, value in values.items()}


def _range_of(
    key: tuple[str, pa.DataType], least: Mapping[str, Any], greatest: Mapping[str, Any], partition: Mapping[str, Any]
) -> tuple[Any, Any] | None:
    """The least and greatest value of a key column, as values that compare as Spark compares the column's."""
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
    """What a log says of a column; `is_text`: as a partition's value, which is a text whatever its type. None for what
    cannot be read."""
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
    """Whether two ranges of values meet; where they are of different kinds nobody knows."""
    if one is None or other is None:
        return True
    if type(one[0]) is not type(other[0]):
        return True
    return bool(one[0] <= other[1] and other[0] <= one[1])


def _microseconds(value: Any, zone: ZoneInfo, side: int) -> int | None:
    """Since 1970 of a date's or timestamp's text, which lies before (`side` -1) or behind (1) what it stands for."""
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
        # a wall time may stand for two instants, and what is finer than a millisecond is left out
        margin = _MILLISECOND if moment.tzinfo is not None else _DAY
        moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=zone)
        return (moment - _EPOCH) // timedelta(microseconds=1) + side * margin
    except (ValueError, OverflowError):
        return None
