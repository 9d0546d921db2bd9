"""Dates and timestamps in their plainest form, read from bytes: `2024-12-31`, `2024-12-31 23:59:59[.123456]`."""

from __future__ import annotations

import numpy as np

from rules_index.kernels.jit import jit

NOT_PARSED = np.iinfo(np.int64).min
"""In place of what is not in such a form, or is no date."""
_LENGTHS = np.array([31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31], np.int64)


@jit
def _digits(data, at, count):
    """The number that so many digits make, -1 where one is none."""
    value = np.int64(0)
    for i in range(at, at + count):
        digit = np.int64(data[i]) - 0x30
        if digit < 0 or digit > 9:
            return np.int64(-1)
        value = value * 10 + digit
    return value


@jit
def _days(data, at):
    """Days since 1970-01-01 of `YYYY-MM-DD`, as `expressions.times.days_of`."""
    year, month, day = _digits(data, at, 4), _digits(data, at + 5, 2), _digits(data, at + 8, 2)
    if year < 0 or data[at + 4] != 0x2D or data[at + 7] != 0x2D or not 1 <= month <= 12:
        return NOT_PARSED
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if not 1 <= day <= _LENGTHS[month - 1] or (month == 2 and day == 29 and not leap):
        return NOT_PARSED
    shifted = year - (month <= 2)
    era = shifted // 400
    year_of_era = shifted - era * 400
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719468


@jit
def _micros(data, at, end):
    """Microseconds of ` HH:MM:SS[.f]` with up to six digits of a fraction."""
    hour, minute, second = _digits(data, at + 1, 2), _digits(data, at + 4, 2), _digits(data, at + 7, 2)
    separated = (data[at] == 0x20 or data[at] == 0x54) and data[at + 3] == 0x3A and data[at + 6] == 0x3A
    if not separated or not 0 <= hour <= 23 or not 0 <= minute <= 59 or not 0 <= second <= 59:
        return NOT_PARSED
    fraction = np.int64(0)
    if end > at + 9:
        fraction = _digits(data, at + 10, end - at - 10)
        if data[at + 9] != 0x2E or fraction < 0:
            return NOT_PARSED
        for _ in range(end - at - 10, 6):
            fraction *= 10
    return ((hour * 60 + minute) * 60 + second) * 1000000 + fraction


@jit
def parse_date_times(data, spans, days, micros):
    """Reads texts `data[spans[i, 0]:spans[i, 1]]`: days since 1970-01-01, and microseconds of the day, 0 for a date
    alone; both `NOT_PARSED` where a text is in another form. All int64."""
    for i in range(len(spans)):
        start, end = spans[i]
        length = end - start
        days[i] = micros[i] = NOT_PARSED
        if length == 10 or length == 19 or 21 <= length <= 26:
            day = _days(data, start)
            micro = _micros(data, start + 10, end) if length > 10 else np.int64(0)
            if day != NOT_PARSED and micro != NOT_PARSED:
                days[i] = day
                micros[i] = micro
