"""Local clocks: what those of a zone show at an instant, and which instant a local time is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache

import numpy as np
import pyarrow as pa

from rules_index.language.coercion import DATE
from rules_index.language.evaluation.scalar import filled
from rules_index.language.evaluation.times import zone_of

_DAY = 86_400_000_000


def local_micros(values: pa.Array, zone: str) -> np.ndarray:
    """Microseconds since 1970 on the local clock of the zone, [rows] int64; 0 where the value is NULL."""
    if values.type == DATE:
        days = filled(values.cast(pa.int32())).astype(np.int64)
        return np.asarray(days * _DAY)
    micros = filled(values.cast(pa.timestamp("us", values.type.tz)).cast(pa.int64()))
    if values.type.tz is None or zone in ("UTC", "Etc/UTC", "Z"):
        return micros
    return np.asarray(micros + offsets(micros, zone))


def offsets(micros: np.ndarray, zone: str) -> np.ndarray:
    """The zone's offset from UTC at each instant, in microseconds."""
    starts, shifts = transitions(zone)
    return np.asarray(shifts[np.searchsorted(starts, _folded(micros), side="right") - 1])


def _folded(micros: np.ndarray) -> np.ndarray:
    """Instants of the calendar's last cycle before the year 2500 in place of those after it."""
    return np.where(micros < _REPEATS, micros, _REPEATS - _CYCLE + (micros - _REPEATS) % _CYCLE)


_CYCLE = 146_097 * _DAY
"""Microseconds of 400 years, after which the calendar, including weekdays, repeats."""
_REPEATS = 16_725_225_600_000_000
"""The start of the year 2500; by then each zone follows a permanent rule."""


@lru_cache(maxsize=64)
def transitions(zone: str) -> tuple[np.ndarray, np.ndarray]:
    """The instants, ascending, at which a zone's offset from UTC changes, until the year 2500, and the offsets from
    then on, both in microseconds; the first instant precedes all others.

    Found by binary search between instants three days apart (twelve from 2100 on). No zone changes and changes back
    within that time, and changes are at whole seconds.
    """
    info, epoch = zone_of(zone), datetime(1970, 1, 1, tzinfo=UTC)

    def shift(second: int) -> int:
        offset = (epoch + timedelta(seconds=second)).astimezone(info).utcoffset()
        assert offset is not None
        return int(offset.total_seconds())

    day, first, later, last = 86_400, -5_000_000_000, 4_102_444_800, _REPEATS // 1_000_000
    before, known = first, shift(first)
    starts, shifts = [-(1 << 62)], [known]
    for probe in (*range(first, later, 3 * day), *range(later, last, 12 * day)):
        now = shift(probe)
        if now != known:
            left, right = before, probe
            while right - left > 1:
                middle = (left + right) // 2
                left, right = (middle, right) if shift(middle) == known else (left, middle)
            starts.append(right * 1_000_000)
            shifts.append(now)
            known = now
        before = probe
    return np.array(starts, np.int64), np.array(shifts, np.int64) * 1_000_000


def instants(local: np.ndarray, zone: str, preferred: np.ndarray | None = None) -> np.ndarray:
    """[rows] int64: the instant of each local time, both in microseconds since 1970.

    preferred: the distance from UTC to take where a local time has it, as java.time.ZonedDateTime does. Else one that
    occurs twice is the earlier one; one that clocks skip moves forward by what they skip, or, where no distance is
    preferred, to the end of what they skip (java.time.LocalDate.atStartOfDay).
    """
    earlier, later = offsets(local - _DAY, zone), offsets(local + _DAY, zone)
    found = local - earlier
    moved = np.flatnonzero(earlier != later)
    for one in (later, earlier) if preferred is None else (later, earlier, preferred):
        tried = local[moved] - one[moved]
        holds = offsets(tried, zone) == one[moved]
        found[moved[holds]] = tried[holds]
    if preferred is None:
        skipped = moved[(offsets(found[moved], zone) == later[moved]) & (local[moved] - later[moved] != found[moved])]
        found[skipped] = _last_change(found[skipped], zone)
    return found


def _last_change(micros: np.ndarray, zone: str) -> np.ndarray:
    """The instant of the zone's last change at or before each instant."""
    starts, _ = transitions(zone)
    folded = _folded(micros)
    return np.asarray(starts[np.searchsorted(starts, folded, side="right") - 1] + micros - folded)
