"""Converts between instants and the local times of a zone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache

import numpy as np
import pyarrow as pa

from rules_index.language.coercion import DATE
from rules_index.language.evaluation.datetime_parser import DAY, zone_of, zone_offset
from rules_index.language.evaluation.scalar import filled

_CYCLE_DAYS = 146_097


def local_clock(values: pa.Array, zone: str) -> tuple[np.ndarray, np.ndarray]:
    """The local times of instants in the zone: days since 1970, and microseconds of the day, [rows] int64 each; 0 for
    NULL.

    Dates and TIMESTAMP_NTZs are local times already. Two numbers are needed, since some local times and most dates
    would overflow as one number of microseconds.
    """
    if values.type == DATE:
        days = filled(values.cast(pa.int32())).astype(np.int64)
        return days, np.zeros(len(days), np.int64)
    micros = filled(values.cast(pa.timestamp("us", values.type.tz)).cast(pa.int64()))
    days, of_day = np.divmod(micros, DAY)
    if values.type.tz is None or zone in ("UTC", "Etc/UTC", "Z"):
        return days, of_day
    carry, of_day = np.divmod(of_day + offsets(micros, zone), DAY)
    return days + carry, of_day


def offsets(micros: np.ndarray, zone: str) -> np.ndarray:
    """The zone's offset from UTC at each instant, in microseconds."""
    starts, shifts = transitions(zone)
    return np.asarray(shifts[np.searchsorted(starts, _folded(micros), side="right") - 1])


def _folded(micros: np.ndarray) -> np.ndarray:
    """Instants from the year 2500 on, moved into the calendar's last 400-year cycle before it; earlier ones are
    unchanged."""
    return np.where(micros < _REPEATS, micros, _REPEATS - _CYCLE + (micros - _REPEATS) % _CYCLE)


_CYCLE = _CYCLE_DAYS * DAY
"""Microseconds of 400 years, after which the calendar, including weekdays, repeats."""
_MOST_CYCLES = (1 << 63) // _CYCLE
_REPEATS = 16_725_225_600_000_000
"""The start of the year 2500; by then each zone follows a permanent rule."""


@lru_cache(maxsize=64)
def transitions(zone: str) -> tuple[np.ndarray, np.ndarray]:
    """The instants, ascending, at which a zone's offset from UTC changes, until the year 2500, and the offset from each
    of them on, both in microseconds. The first instant precedes all others.

    They are found by binary search between instants three days apart (twelve from 2100 on). No zone changes and changes
    back within that time, and changes are at whole seconds.
    """
    fixed = zone_offset(zone)
    if fixed is not None:
        return np.array([-(1 << 63)], np.int64), np.array([fixed], np.int64)
    info, epoch = zone_of(zone), datetime(1970, 1, 1, tzinfo=UTC)

    def shift(second: int) -> int:
        offset = (epoch + timedelta(seconds=second)).astimezone(info).utcoffset()
        assert offset is not None
        return int(offset.total_seconds())

    day, first, later, last = 86_400, -5_000_000_000, 4_102_444_800, _REPEATS // 1_000_000
    before, known = first, shift(first)
    starts, shifts = [-(1 << 63)], [known]
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


def instants(
    days: np.ndarray, of_day: np.ndarray, zone: str, preferred: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The instants of local times, [rows] int64 microseconds since 1970, and which of them overflow, [rows] bool.

    `days` and `of_day` are as `local_clock` returns them. `preferred` has the offsets from UTC to use if they are valid
    for a local time, as java.time.ZonedDateTime does. Otherwise, a local time that occurs twice is the earlier one; one
    that clocks skip moves forward by the time that they skip, or, without `preferred`, to the end of it
    (java.time.LocalDate.atStartOfDay).
    """
    # Before 1170 and after 2900 a local time is converted some 400-year cycles nearer to 1970, and then moved back.
    first, last = -2 * _CYCLE_DAYS, _REPEATS // DAY + _CYCLE_DAYS
    cycles_before = np.minimum((days - first) // _CYCLE_DAYS, 0)
    cycles_behind = np.maximum(-((last - days) // _CYCLE_DAYS), 0)
    cycles = cycles_before + cycles_behind
    near = _near_instants((days - cycles * _CYCLE_DAYS) * DAY + of_day, zone, preferred)
    found, failed = sums(near, cycles * _CYCLE)
    return found, failed | (np.abs(cycles) > _MOST_CYCLES)


def first_instants(days: np.ndarray, of_day: np.ndarray, zone: str) -> tuple[np.ndarray, np.ndarray]:
    """Like `instants`, but a local time that clocks skip moves forward by the time that they skip; one that occurs
    twice is the earlier one."""
    before = offsets(np.clip(days, -_NEAR, _NEAR) * DAY + of_day - DAY, zone)
    return instants(days, of_day, zone, before)


_NEAR = (1 << 63) // DAY - 2
"""The most days before or after 1970 for which local times fit a BIGINT."""


def month_bounds(months: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The first day of each month and of the month behind it, as days since 1970, int64. Months are counted since
    1970."""
    first, following = (each.astype("M8[M]").astype("M8[D]").astype(np.int64) for each in (months, months + 1))
    return first, following


def days_of_dates(years: np.ndarray, months: np.ndarray, days: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Days since 1970 [rows] int64, and which dates do not exist [rows] bool, such as those in a month 0 or 13."""
    first, following = month_bounds((years - 1970) * 12 + months - 1)
    found = first + days - 1
    return found, (months < 1) | (months > 12) | (days < 1) | (found >= following)


def sums(one: np.ndarray, other: np.ndarray | int) -> tuple[np.ndarray, np.ndarray]:
    """Sums [rows] int64, and which of them overflow [rows] bool."""
    found = one + other
    return found, ((one ^ found) & (other ^ found)) < 0


def _near_instants(local: np.ndarray, zone: str, preferred: np.ndarray | None) -> np.ndarray:
    """The instants of local times, both [rows] int64 microseconds since 1970; a day added to or taken from them must
    not overflow."""
    earlier, later = offsets(local - DAY, zone), offsets(local + DAY, zone)
    found = local - earlier
    moved = np.flatnonzero(earlier != later)
    for shift in (later, earlier) if preferred is None else (later, earlier, preferred):
        tried = local[moved] - shift[moved]
        holds = offsets(tried, zone) == shift[moved]
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
