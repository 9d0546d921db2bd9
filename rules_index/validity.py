"""From when to when a rule applies: its validity bounds as a predicate on the scope's event time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pyarrow as pa

from rules_index.expressions.formula import Predicate, Truth
from rules_index.expressions.tree import Leaf
from rules_index.values import EVERYTHING, ValueSet, interval

MICROSECONDS = 1_000_000
DAY = 86_400 * MICROSECONDS
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def validity(event_time: Leaf, valid_from: int | None, valid_to: int | None, time_zone: str) -> Predicate:
    """TRUE where the row's event time is in [valid_from, valid_to), never on a NULL event time.

    Bounds are microseconds since the epoch, None for unbounded. A DATE stands for its midnight and a
    TIMESTAMP_NTZ for its instant in `time_zone`, as Spark casts them.
    """
    allowed = EVERYTHING
    if valid_from is not None:
        allowed &= _since(valid_from, event_time.type, time_zone)
    if valid_to is not None:
        allowed &= ~_since(valid_to, event_time.type, time_zone)
    return Predicate(event_time, allowed, ~allowed, Truth.NULL)


def _since(instant: int, data_type: pa.DataType, time_zone: str) -> ValueSet:
    if pa.types.is_timestamp(data_type) and data_type.tz is not None:
        return interval(instant, None)
    walls = _walls_since(instant, ZoneInfo(time_zone))
    if pa.types.is_timestamp(data_type):
        return walls
    # midnights may skip an hour but keep their order, so one first day is the cut
    day = instant // DAY - 3
    while day * DAY not in walls:
        day += 1
    return interval(day, None)


def _walls_since(instant: int, zone: ZoneInfo) -> ValueSet:
    """Wall-clock times (microseconds) whose instant is at or after `instant`.

    A wall time in a gap or an overlap of the clock takes the offset from before the change, as Java does,
    so around a change of the clock this may be two intervals.
    """
    changes = _changes(instant, zone)
    first_offset = _offset(instant - 2 * DAY, zone)
    # [start of the regime in wall time, offset]
    regimes: list[tuple[int | None, int]] = [(None, first_offset)]
    for change in changes:
        after = _offset(change, zone)
        regimes.append((change + max(regimes[-1][1], after), after))
    result = None
    for number, (start, offset) in enumerate(regimes):
        end = regimes[number + 1][0] if number + 1 < len(regimes) else None
        low = instant + offset
        piece = interval(low if start is None else max(low, start), end)
        result = piece if result is None else result | piece
    assert result is not None
    return result


def _offset(instant: int, zone: ZoneInfo) -> int:
    try:
        local = (_EPOCH + timedelta(microseconds=instant)).astimezone(zone)
    except OverflowError:
        return 0
    offset = local.utcoffset()
    return 0 if offset is None else offset // timedelta(microseconds=1)


def _changes(instant: int, zone: ZoneInfo) -> list[int]:
    """Instants within two days of `instant` at which the zone's offset changes."""
    found = []
    step = 3600 * MICROSECONDS
    at = (instant - 2 * DAY) // MICROSECONDS * MICROSECONDS
    while at < instant + 2 * DAY:
        if _offset(at, zone) != _offset(at + step, zone):
            low, high = at, at + step
            while high - low > MICROSECONDS:
                middle = (low + high) // 2 // MICROSECONDS * MICROSECONDS
                if _offset(middle, zone) == _offset(low, zone):
                    low = middle
                else:
                    high = middle
            found.append(high)
        at += step
    return found
