"""Validity bounds of rules as predicates on the scope's event time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rules_index.arrays import offsets_of
from rules_index.compiling.rule_columns import RuleColumns
from rules_index.domains.value_sets import SetArrays, as_arrays
from rules_index.domains.values import EVERYTHING, ValueSet, interval
from rules_index.language.evaluation.datetime_parser import zone_offset
from rules_index.language.formula import Predicate, Truth
from rules_index.language.typed import Leaf

MICROSECONDS = 1_000_000
DAY = 86_400 * MICROSECONDS
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def validity(event_time: Leaf, valid_from: int | None, valid_to: int | None, time_zone: str) -> Predicate:
    """TRUE where the row's event time is in [valid_from, valid_to); never TRUE where it is NULL.

    Bounds are microseconds since the epoch, None for unbounded. A DATE stands for its midnight and a
    TIMESTAMP_NTZ for its instant in `time_zone`, as Spark casts them.
    """
    allowed = EVERYTHING
    if valid_from is not None:
        allowed &= _since(valid_from, event_time.type, time_zone)
    if valid_to is not None:
        allowed &= ~_since(valid_to, event_time.type, time_zone)
    return Predicate(event_time, allowed, ~allowed, Truth.NULL)


def validities(event_time: Leaf, rules: RuleColumns, chosen: np.ndarray, time_zone: str) -> SetArrays:
    """For each of the chosen rules the values of the event time for which `validity` is TRUE."""
    columns = [
        pa.nulls(len(chosen), pa.int64()) if column is None else column.take(pa.array(chosen))
        for column in (rules.valid_from, rules.valid_to)
    ]
    if not (pa.types.is_timestamp(event_time.type) and event_time.type.tz is not None):
        return _one_by_one(event_time, list(zip(*(column.to_pylist() for column in columns), strict=True)), time_zone)
    bounds = np.stack([pc.fill_null(column, 0).to_numpy() for column in columns], axis=1)
    known = np.stack([column.is_valid().to_numpy(zero_copy_only=False) for column in columns], axis=1)
    start = ~known[:, 0]
    known[known.all(axis=1) & (bounds[:, 0] >= bounds[:, 1])] = False
    return SetArrays(start, np.zeros(len(chosen), bool), offsets_of(known.sum(axis=1)), bounds[known])


def _one_by_one(event_time: Leaf, bounds: list[tuple[int | None, int | None]], time_zone: str) -> SetArrays:
    distinct = dict.fromkeys(bounds)
    sets = [validity(event_time, *pair, time_zone).true for pair in distinct]
    found = as_arrays(sets, [False] * len(sets), [cut for values in sets for cut in values.cuts])
    number = {pair: place for place, pair in enumerate(distinct)}
    return found.take(np.array([number[pair] for pair in bounds], np.int64))


def _since(instant: int, data_type: pa.DataType, time_zone: str) -> ValueSet:
    if pa.types.is_timestamp(data_type) and data_type.tz is not None:
        return interval(instant, None)
    offset = zone_offset(time_zone)
    walls = _walls_since(instant, ZoneInfo(time_zone)) if offset is None else interval(instant + offset, None)
    if pa.types.is_timestamp(data_type):
        return walls
    # casting a date to its midnight is monotonic even where a midnight is skipped, so there is a single first day
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
    # [start of the regime on the wall clock, offset]
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
