"""Functions evaluated here that add to dates and times, truncate or cast them, or count units since 1970."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rules_index.language.coercion import BIGINT, DATE, DOUBLE, INT, STRING
from rules_index.language.evaluation import argument_types
from rules_index.language.evaluation.date_format import years
from rules_index.language.evaluation.datetime_parser import DAY, is_known, zone_offset
from rules_index.language.evaluation.scalar import Columns, Result, ScalarFunction, filled, like, nulls_of
from rules_index.language.evaluation.time_zones import (
    days_of_dates,
    first_instants,
    instants,
    local_clock,
    month_bounds,
    offsets,
    sums,
)
from rules_index.language.type_names import TIMESTAMP


def _days(column: pa.Array) -> np.ndarray:
    """[rows] int64: days since 1970, 0 for NULL."""
    return filled(column.cast(INT)).astype(np.int64)


def _dates(days: np.ndarray, column: pa.Array, other: pa.Array | None = None) -> pa.Array:
    """Days as dates, NULL where the columns are NULL. Days beyond 32 bits wrap around, as in Java."""
    return like(column, days.astype(np.int32), INT, other).cast(DATE)


def _moved(sign: int) -> Callable[[Columns, str], Result]:
    def evaluate(columns: Columns, _: str) -> Result:
        start, count = columns
        return _dates(_days(start) + sign * filled(count).astype(np.int64), start, count), None

    return evaluate


def _begin(days: np.ndarray, unit: str) -> np.ndarray:
    """The first day of the month (unit M) or year (Y) of each day."""
    return np.asarray(days.astype("M8[D]").astype(f"M8[{unit}]").astype("M8[D]").astype(np.int64))


def _begin_of_quarter(days: np.ndarray) -> np.ndarray:
    months = days.astype("M8[D]").astype("M8[M]").astype(np.int64)
    return np.asarray((months - months % 3).astype("M8[M]").astype("M8[D]").astype(np.int64))


def _begin_of_week(days: np.ndarray) -> np.ndarray:
    """The Monday of each day's week, computed with 32 bits like in Java, so that it wraps around at the least date."""
    before = (days - 7).astype(np.int32)
    return np.asarray((before + (np.fmod(np.int32(3) - before, 7) + 7) % 7 + np.int32(1)).astype(np.int64))


_BEGINS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    **dict.fromkeys(("YEAR", "YYYY", "YY"), lambda days: _begin(days, "Y")),
    "QUARTER": _begin_of_quarter,
    **dict.fromkeys(("MONTH", "MM", "MON"), lambda days: _begin(days, "M")),
    "WEEK": _begin_of_week,
}
_MOST_DAYS = (1 << 63) // DAY
"""The most days whose microseconds fit a BIGINT."""
_LENGTHS = {"MILLISECOND": 1_000, "SECOND": 1_000_000, "MINUTE": 60_000_000, "HOUR": 3_600_000_000,
            **dict.fromkeys(("DAY", "DD"), DAY)}  # fmt: skip
"""The units of `date_trunc` up to a day, in microseconds."""


def _is_unit(units: Iterable[str]) -> Callable[[Sequence[str]], bool]:
    known = frozenset(units)
    return lambda unit: unit[0].upper() in known


def _truncated(columns: Columns, _: str) -> Result:
    """`trunc(date, unit)`: the first day of the unit. If that is before the least date, a quarter fails, and others
    wrap around."""
    unit = columns[1][0].as_py().upper()
    found = _BEGINS[unit](_days(columns[0]))
    failed = (found < -(1 << 31)) & ~nulls_of(columns[0]) if unit == "QUARTER" else None
    return _dates(found, columns[0]), failed


def _truncated_time(columns: Columns, zone: str) -> Result:
    """`date_trunc(unit, time)`: the begin of the unit on the local clock, converted back to an instant.

    For units up to a day the time's offset is kept if possible, as by java.time.ZonedDateTime.truncatedTo. Longer units
    begin with the first instant of a day, as by LocalDate.atStartOfDay.
    """
    unit, column = columns[0][0].as_py().upper(), columns[1]
    days, of_day = local_clock(column, zone)
    preferred = None
    if unit in _LENGTHS:
        of_day = of_day - of_day % _LENGTHS[unit]
        preferred = offsets(filled(column.cast(pa.int64())), zone)
    else:
        days, of_day = _BEGINS[unit](days), np.zeros_like(of_day)
    found, failed = instants(days, of_day, zone, preferred)
    return like(column, found, pa.int64()).cast(column.type), failed & ~nulls_of(column)


def _time_added(columns: Columns, zone: str) -> Result:
    """A time plus a constant of microseconds, as java.time.ZonedDateTime adds them: first whole days, which keep the
    local time, then the rest, which is added to the instant. Fails beyond a BIGINT."""
    column, length = columns[0], columns[1][0].as_py()
    days = abs(length) // DAY * (1 if length > 0 else -1)
    micros = filled(column.cast(pa.int64()))
    if days and column.type.tz is not None and zone_offset(zone) is None:
        date, of_day = local_clock(column, zone)
        moved, failed = instants(date + days, of_day, zone, offsets(micros, zone))
    else:
        moved, failed = sums(micros, days * DAY)
    found, beyond = sums(moved, length - days * DAY)
    return like(column, found, pa.int64()).cast(column.type), (failed | beyond) & ~nulls_of(column)


def _moment_as(is_instant: bool) -> Callable[[Columns, str], Result]:
    """The cast of a DATE, or of the other kind of timestamp, to TIMESTAMP (`is_instant`) or TIMESTAMP_NTZ by the local
    clock. A DATE becomes the first instant of its day. Fails beyond a BIGINT."""

    def evaluate(columns: Columns, zone: str) -> Result:
        """The moments of a column."""
        column = columns[0]
        days, of_day = local_clock(column, zone)
        if not is_instant:
            found, failed = instants(days, of_day, "UTC")
        else:
            found, failed = (instants if column.type == DATE else first_instants)(days, of_day, zone)
        kind = pa.timestamp("us", "UTC" if is_instant else None)
        return like(column, found, pa.int64()).cast(kind), failed & ~nulls_of(column)

    return evaluate


def _from_utc(columns: Columns, _: str) -> Result:
    """`from_utc_timestamp`: the instant at which clocks in UTC show what the zone's clocks show at the given
    instant."""
    micros = filled(columns[0].cast(pa.int64()))
    found, failed = sums(micros, offsets(micros, columns[1][0].as_py()))
    return like(columns[0], found, pa.int64()).cast(columns[0].type), failed & ~nulls_of(columns[0])


def _to_utc(columns: Columns, _: str) -> Result:
    """`to_utc_timestamp`: the instant at which the zone's clocks show what clocks in UTC show at the given instant."""
    days, of_day = np.divmod(filled(columns[0].cast(pa.int64())), DAY)
    found, failed = first_instants(days, of_day, columns[1][0].as_py())
    return like(columns[0], found, pa.int64()).cast(columns[0].type), failed & ~nulls_of(columns[0])


def _months_between(columns: Columns, zone: str) -> Result:
    """`months_between(end, start)`. Whole months if both are the same day of the month, or both the last one. Else
    months with a fraction in units of 31 days, rounded to 8 digits; this fails where a day begins before the least
    TIMESTAMP."""
    months, day, is_last, seconds, beyond = zip(*(_parts_of_month(column, zone) for column in columns), strict=True)
    whole = (months[0] - months[1]).astype(np.float64)
    rest = (day[0] - day[1]) * 86_400 + seconds[0] - seconds[1]
    units = (whole + rest / (31 * 86_400.0)) * 1e8
    below = np.floor(units)
    rounded = (below + (units - below >= 0.5)) / 1e8
    is_whole = (day[0] == day[1]) | (is_last[0] & is_last[1])
    failed = ~is_whole & (beyond[0] | beyond[1]) & ~(nulls_of(columns[0]) | nulls_of(columns[1]))
    return like(columns[0], np.where(is_whole, whole, rounded), DOUBLE, columns[1]), failed


def _parts_of_month(column: pa.Array, zone: str) -> tuple[np.ndarray, ...]:
    """Five arrays [rows]: the month since 1970; the day of the month; whether it is the last one; the seconds that have
    passed since the day began, in whole numbers; and whether the day begins before the least TIMESTAMP."""
    days, _ = local_clock(column, zone)
    begin, beyond = instants(days, np.zeros_like(days), zone)
    months = days.astype("M8[D]").astype("M8[M]")
    first, following = month_bounds(months)
    seconds = (filled(column.cast(pa.int64())) - begin) // 1_000_000
    return months.astype(np.int64), days - first + 1, days == following - 1, seconds, beyond


def _instant_added(columns: Columns, _: str) -> Result:
    """A time plus a constant of microseconds, whatever local clocks show; fails beyond a BIGINT."""
    column, length = columns[0], columns[1][0].as_py()
    found, beyond = sums(filled(column.cast(pa.int64())), length)
    return like(column, found, pa.int64()).cast(column.type), beyond & ~nulls_of(column)


def _time_between(columns: Columns, zone: str) -> Result:
    """Microseconds from the second column to the first, by the local clock; fails beyond a BIGINT."""
    (end, end_of_day), (start, start_of_day) = (local_clock(column, zone) for column in columns)
    days, rest = np.divmod(end_of_day - start_of_day, DAY)
    days += end - start
    days, rest = np.where(days < 0, days + 1, days), np.where(days < 0, rest - DAY, rest)
    beyond = np.abs(days) > _MOST_DAYS
    found, failed = sums(np.where(beyond, 0, days) * DAY, rest)
    nulls = nulls_of(columns[0]) | nulls_of(columns[1])
    return like(columns[0], found, BIGINT, columns[1]), (beyond | failed) & ~nulls


def _last_day(columns: Columns, _: str) -> Result:
    months = _days(columns[0]).astype("M8[D]").astype("M8[M]") + 1
    return _dates(months.astype("M8[D]").astype(np.int64) - 1, columns[0]), None


def _made(columns: Columns, _: str) -> Result:
    """`make_date(year, month, day)`; fails if there is no such day, or none within the range of DATE."""
    year, month, day = (filled(column).astype(np.int64) for column in columns)
    found, failed = days_of_dates(year, month, day)
    nulls = nulls_of(columns[0]) | nulls_of(columns[1]) | nulls_of(columns[2])
    days = pa.array(found.astype(np.int32), INT, mask=nulls).cast(DATE)
    return days, (failed | (found.astype(np.int32) != found)) & ~nulls


_WEEK_DAYS = {
    name: place
    for place, day in enumerate(("THURSDAY", "FRIDAY", "SATURDAY", "SUNDAY", "MONDAY", "TUESDAY", "WEDNESDAY"))
    for name in (day, day[:3], day[:2])
}
"""Days of the week by their names, counted from that of 1970-01-01."""


def _next_day(columns: Columns, _: str) -> Result:
    """`next_day(date, day)`: the first such day of the week after the date, computed with 32 bits like in Java."""
    start = _days(columns[0]).astype(np.int32)
    ahead = np.int32(_WEEK_DAYS[columns[1][0].as_py().upper()] - 1) - start
    return _dates(start.astype(np.int64) + 1 + (np.fmod(ahead, np.int32(7)) + 7) % 7, columns[0]), None


def _months_added(columns: Columns, _: str) -> Result:
    """The same day of the month a constant number of months later, or the month's last day; fails beyond the range of
    DATE."""
    column = columns[0]
    found = _months_later(_days(column), columns[1][0].as_py())
    return _dates(found, column), (found.astype(np.int32) != found) & ~nulls_of(column)


def _months_later(days: np.ndarray, count: int) -> np.ndarray:
    """Days [rows] int64: the same day of the month `count` months later, or the month's last day."""
    first, following = month_bounds(days.astype("M8[D]").astype("M8[M]") + count)
    return np.asarray(np.minimum(first + days - _begin(days, "M"), following - 1))


def _time_months_added(columns: Columns, zone: str) -> Result:
    """The same local time a constant number of months later, as java.time.ZonedDateTime adds them: with the same offset
    if possible. Fails beyond a BIGINT."""
    column, zone = columns[0], zone if columns[0].type.tz is not None else "UTC"
    days, of_day = local_clock(column, zone)
    moved = _months_later(days, columns[1][0].as_py())
    found, failed = instants(moved, of_day, zone, offsets(filled(column.cast(pa.int64())), zone))
    return like(column, found, pa.int64()).cast(column.type), failed & ~nulls_of(column)


def _counted(unit: int) -> Callable[[Columns, str], Result]:
    """Whole units since 1970 of a column of instants, rounded down."""

    def evaluate(columns: Columns, _: str) -> Result:
        return like(columns[0], filled(columns[0].cast(pa.int64())) // unit, BIGINT), None

    return evaluate


def _seconds(columns: Columns, _: str) -> Result:
    """Seconds since 1970, rounded toward 0."""
    seconds, rest = np.divmod(filled(columns[0].cast(pa.int64())), 1_000_000)
    return like(columns[0], seconds + ((seconds < 0) & (rest > 0)), BIGINT), None


def _instant(unit: int) -> Callable[[Columns, str], Result]:
    """The instant that is a number of units after 1970; fails beyond a BIGINT of microseconds."""
    most = ((1 << 63) - 1) // unit

    def evaluate(columns: Columns, _: str) -> Result:
        """The instants of a column of integers."""
        counts = filled(columns[0]).astype(np.int64)
        failed = (counts > most) | (counts < -most - (unit == 1))
        found = np.where(failed, 0, counts) * unit
        return like(columns[0], found, pa.int64()).cast(TIMESTAMP), failed & ~nulls_of(columns[0])

    return evaluate


def _year_of_week(columns: Columns, zone: str) -> Result:
    """The year of the week by ISO 8601: the year of the week's Thursday."""
    days = local_clock(columns[0], zone)[0]
    thursdays = days - (days + 3) % 7 + 3
    return like(columns[0], thursdays.astype("M8[D]").astype("M8[Y]").astype(np.int64) + 1970, INT), None


def _day_of_week(columns: Columns, zone: str) -> Result:
    """The day of the week by ISO 8601: 1 is a Monday, 7 a Sunday."""
    return like(columns[0], (local_clock(columns[0], zone)[0] + 3) % 7 + 1, INT), None


def _shown(columns: Columns, zone: str) -> Result:
    """Dates and times as casts to STRING write them: 2024-12-31 23:59:59.5. A year has at least four digits, and a sign
    if it has more."""
    days, of_day = local_clock(columns[0], zone)
    dates = days.astype("M8[D]")
    day_of_year = pc.utf8_slice_codeunits(pa.array(np.datetime_as_string(dates), STRING), -6, None)
    parts = [pc.if_else(columns[0].is_valid(), years(dates), None), day_of_year]
    if columns[0].type != DATE:
        seconds, micros = np.divmod(of_day, 1_000_000)
        digits = pc.utf8_rtrim(pc.utf8_lpad(pa.array(micros).cast(STRING), 6, "0"), "0")
        fractions = pc.if_else(pa.array(micros > 0), pc.binary_join_element_wise(".", digits, ""), "")
        parts += [" ", pa.array(seconds, pa.int32()).cast(pa.time32("s")).cast(STRING), fractions]
    return pc.binary_join_element_wise(*parts, ""), None


CALENDAR: dict[str, ScalarFunction] = {
    "date_add": ScalarFunction(argument_types.date_and_days, _moved(1)),
    "date_sub": ScalarFunction(argument_types.date_and_days, _moved(-1)),
    "add_months": ScalarFunction(argument_types.date_and_days, _months_added, raises=True, constants=(1,)),
    "make_date": ScalarFunction(argument_types.three_small_integers, _made, raises=True),
    "next_day": ScalarFunction(argument_types.date_and_unit, _next_day, constants=(1,), fits=_is_unit(_WEEK_DAYS)),
    "date_from_unix_date": ScalarFunction(
        argument_types.one_small_integer, lambda columns, _: (columns[0].cast(INT).cast(DATE), None)
    ),
    "last_day": ScalarFunction(argument_types.one_date, _last_day),
    "trunc": ScalarFunction(
        argument_types.date_and_unit, _truncated, raises=True, constants=(1,), fits=_is_unit(_BEGINS)
    ),
    "date_trunc": ScalarFunction(
        argument_types.unit_and_instant,
        _truncated_time,
        raises=True,
        constants=(0,),
        fits=_is_unit((*_BEGINS, *_LENGTHS)),
    ),
    "time_add": ScalarFunction(argument_types.time_and_length, _time_added, raises=True, constants=(1,)),
    "time_months_add": ScalarFunction(argument_types.time_and_months, _time_months_added, raises=True, constants=(1,)),
    "instant_add": ScalarFunction(argument_types.time_and_length, _instant_added, raises=True, constants=(1,)),
    "timestamp_of": ScalarFunction(argument_types.one_moment, _moment_as(True), raises=True),
    "ntz_of": ScalarFunction(argument_types.one_moment, _moment_as(False), raises=True),
    "from_utc_timestamp": ScalarFunction(
        argument_types.instant_and_text, _from_utc, raises=True, constants=(1,), fits=lambda fixed: is_known(fixed[0])
    ),
    "to_utc_timestamp": ScalarFunction(
        argument_types.instant_and_text, _to_utc, raises=True, constants=(1,), fits=lambda fixed: is_known(fixed[0])
    ),
    "months_between": ScalarFunction(argument_types.two_instants, _months_between, raises=True),
    "time_between": ScalarFunction(argument_types.two_of_a_kind, _time_between, raises=True),
    "shown_time": ScalarFunction(argument_types.one_moment, _shown),
    "unix_date": ScalarFunction(argument_types.one_date, lambda columns, _: (columns[0].cast(INT), None)),
    "unix_micros": ScalarFunction(argument_types.one_instant, _counted(1)),
    "unix_millis": ScalarFunction(argument_types.one_instant, _counted(1_000)),
    "unix_seconds": ScalarFunction(argument_types.one_instant, _counted(1_000_000)),
    **dict.fromkeys(("unix_timestamp", "to_unix_timestamp"), ScalarFunction(argument_types.one_instant, _seconds)),
    "timestamp_seconds": ScalarFunction(argument_types.one_integer, _instant(1_000_000), raises=True),
    "timestamp_millis": ScalarFunction(argument_types.one_integer, _instant(1_000), raises=True),
    "timestamp_micros": ScalarFunction(argument_types.one_integer, _instant(1)),
    "yearofweek": ScalarFunction(argument_types.one_moment, _year_of_week),
    "dayofweek_iso": ScalarFunction(argument_types.one_moment, _day_of_week),
}
"""`time_add` and `time_months_add` add an INTERVAL, `instant_add` is TIMESTAMPADD of hours and shorter units,
`time_between` the difference of two times; `timestamp_of`, `ntz_of` and `shown_time` are casts. `yearofweek` and
`dayofweek_iso` are only called for fields of EXTRACT."""
