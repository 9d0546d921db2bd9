"""What Delta's statistics tell about a file's columns: the ranges by which files are passed over."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np

_MILLISECOND, _DAY = 1_000, 86_400_000_000
_FAR = 1 << 62
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


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


def reach_of(add: Mapping[str, Any], time: str, keys: Iterable[str | None], time_zone: str) -> Reach:
    """The reach of a file by its `add` entry; columns by their names, case aside. A key that is None is not compared:
    statistics hold only integers, decimals, dates and texts as they are."""
    stats = json.loads(add.get("stats") or "{}", parse_float=Decimal)
    least, greatest = (_by_name(stats.get(name) or {}) for name in ("minValues", "maxValues"))
    for name, text in _by_name(add.get("partitionValues") or {}).items():
        # the texts of a partition's values are of many forms; only plain ones are compared
        if text is not None and name not in least and not str(text).lstrip("-").isdigit():
            least[name] = greatest[name] = text
    zone = ZoneInfo(time_zone)
    low = _microseconds(least.get(time.lower()), zone, -1)
    high = _microseconds(greatest.get(time.lower()), zone, 1)
    named = (None if key is None else key.lower() for key in keys)
    pairs = ((least.get(key), greatest.get(key)) for key in named)
    return Reach(low, high, tuple(pair if None not in pair else None for pair in pairs))


def _by_name(values: Mapping[str, Any]) -> dict[str | None, Any]:
    return {name.lower(): value for name, value in values.items()}


def _overlap(one: tuple[Any, Any] | None, other: tuple[Any, Any] | None) -> bool:
    """Whether two ranges of values meet; where they are of different kinds nobody knows."""
    if one is None or other is None:
        return True
    for kind in (str, (int, Decimal)):
        if all(isinstance(value, kind) and not isinstance(value, bool) for value in (*one, *other)):
            return bool(one[0] <= other[1] and other[0] <= one[1])
    return True


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
