"""The functions that move or cut dates and timestamps, or count from 1970, and are evaluated here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pyarrow as pa

from rules_index.language.coercion import BIGINT, DATE, INT, STRING, is_integer
from rules_index.language.evaluation.local_times import instants, local_micros, offsets
from rules_index.language.evaluation.scalar import Columns, Result, ScalarFunction, Types, filled, like
from rules_index.language.evaluation.times import zone_offset

_DAY = 86_400_000_000


def _one_date(kinds: Types) -> bool:
    return len(kinds) == 1 and kinds[0] == DATE


def _one_instant(kinds: Types) -> bool:
    return len(kinds) == 1 and _is_instant(kinds[0])


def _is_instant(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) and kind.tz is not None)


def _date_and_days(kinds: Types) -> bool:
    return len(kinds) == 2 and kinds[0] == DATE and is_integer(kinds[1]) and kinds[1] != BIGINT


def _date_and_unit(kinds: Types) -> bool:
    return len(kinds) == 2 and kinds[0] == DATE and kinds[1] == STRING


def _unit_and_instant(kinds: Types) -> bool:
    return len(kinds) == 2 and kinds[0] == STRING and _is_instant(kinds[1])


def _days(column: pa.Array) -> np.ndarray:
    """[rows] int64: days since 1970, 0 for NULL."""
    return filled(column.cast(INT)).astype(np.int64)


def _dates(days: np.ndarray, column: pa.Array, other: pa.Array | None = None) -> pa.Array:
    """Days as dates, NULL where the columns are; more than 32 bits wrap around, as Java's do."""
    return like(column, days.astype(np.int32), INT, other).cast(DATE)


def _moved(sign: int) -> Callable[[Columns, str], Result]:
    def evaluate(columns: Columns, _: str) -> Result:
        start, count = columns
        return _dates(_days(start) + sign * filled(count).astype(np.int64), start, count), None

    return evaluate


def _begin(days: np.ndarray, unit: str) -> np.ndarray:
    """The first day of each month (M) or year (Y)."""
    return np.asarray(days.astype("M8[D]").astype(f"M8[{unit}]").astype("M8[D]").astype(np.int64))


def _begin_of_quarter(days: np.ndarray) -> np.ndarray:
    months = days.astype("M8[D]").astype("M8[M]").astype(np.int64)
    return np.asarray((months - months % 3).astype("M8[M]").astype("M8[D]").astype(np.int64))


_BEGINS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    **dict.fromkeys(("YEAR", "YYYY", "YY"), lambda days: _begin(days, "Y")),
    "QUARTER": _begin_of_quarter,
    **dict.fromkeys(("MONTH", "MM", "MON"), lambda days: _begin(days, "M")),
    "WEEK": lambda days: days - (days + 3) % 7,
}
_LENGTHS = {"MILLISECOND": 1_000, "SECOND": 1_000_000, "MINUTE": 60_000_000, "HOUR": 3_600_000_000,
            **dict.fromkeys(("DAY", "DD"), _DAY)}  # fmt: skip


def _is_unit(units: Iterable[str]) -> Callable[[Sequence[str]], bool]:
    known = frozenset(units)
    return lambda unit: unit[0].upper() in known


def _truncated(columns: Columns, _: str) -> Result:
    return _dates(_BEGINS[columns[1][0].as_py().upper()](_days(columns[0])), columns[0]), None


def _truncated_time(columns: Columns, zone: str) -> Result:
    """The begin of the unit by the local clock, as an instant again. java.time.ZonedDateTime.truncatedTo keeps the
    offset where it can; LocalDate.atStartOfDay takes the first moment of a day."""
    unit, column = columns[0][0].as_py().upper(), columns[1]
    local = local_micros(column, zone)
    if unit in _LENGTHS:
        cut = local - local % _LENGTHS[unit]
    else:
        cut = _BEGINS[unit](local // _DAY) * _DAY
    micros = filled(column.cast(pa.int64()))
    found = instants(cut, zone, offsets(micros, zone) if unit in _LENGTHS else None)
    return like(column, found, pa.int64()).cast(column.type), None


def _time_and_length(kinds: Types) -> bool:
    return len(kinds) == 2 and bool(pa.types.is_timestamp(kinds[0])) and kinds[1] == BIGINT


def _time_added(columns: Columns, zone: str) -> Result:
    """As java.time.ZonedDateTime: whole days later at the same local time, then the rest; fails beyond a BIGINT."""
    column, length = columns[0], columns[1][0].as_py()
    days = abs(length) // _DAY * (1 if length > 0 else -1)
    micros = filled(column.cast(pa.int64()))
    moved = micros + days * _DAY
    if days and column.type.tz is not None and zone_offset(zone) is None:
        own = offsets(micros, zone)
        moved = instants(moved + own, zone, own)
    found = moved + (length - days * _DAY)
    beyond = (found < micros) if length > 0 else (found > micros)
    known = column.is_valid().to_numpy(zero_copy_only=False)
    return like(column, found, pa.int64()).cast(column.type), beyond & known


def _last_day(columns: Columns, _: str) -> Result:
    months = _days(columns[0]).astype("M8[D]").astype("M8[M]") + 1
    return _dates(months.astype("M8[D]").astype(np.int64) - 1, columns[0]), None


def _months_added(columns: Columns, _: str) -> Result:
    """The same day of a later month, or its last one; fails where no DATE is so far away."""
    column, count = columns[0], columns[1][0].as_py()
    days = _days(column)
    months = days.astype("M8[D]").astype("M8[M]") + count
    first, last = (each.astype("M8[D]").astype(np.int64) for each in (months, months + 1))
    found = np.minimum(first + days - _begin(days, "M"), last - 1)
    beyond = found.astype(np.int32) != found
    known = column.is_valid().to_numpy(zero_copy_only=False)
    return _dates(found, column), beyond & known


def _counted(unit: int) -> Callable[[Columns, str], Result]:
    """Whole units since 1970, rounded down."""

    def evaluate(columns: Columns, _: str) -> Result:
        return like(columns[0], filled(columns[0].cast(pa.int64())) // unit, BIGINT), None

    return evaluate


def _seconds(columns: Columns, _: str) -> Result:
    """Seconds since 1970, rounded toward 0."""
    micros = filled(columns[0].cast(pa.int64()))
    return like(columns[0], np.sign(micros) * (np.abs(micros) // 1_000_000), BIGINT), None


def _year_of_week(columns: Columns, zone: str) -> Result:
    """The year of ISO 8601: that of the week's Thursday."""
    days = local_micros(columns[0], zone) // _DAY
    thursdays = days - (days + 3) % 7 + 3
    return like(columns[0], thursdays.astype("M8[D]").astype("M8[Y]").astype(np.int64) + 1970, INT), None


def _day_of_week(columns: Columns, zone: str) -> Result:
    """From 1, a Monday, to 7."""
    return like(columns[0], (local_micros(columns[0], zone) // _DAY + 3) % 7 + 1, INT), None


def _one_moment(kinds: Types) -> bool:
    return len(kinds) == 1 and (bool(pa.types.is_timestamp(kinds[0])) or kinds[0] == DATE)


CALENDAR: dict[str, ScalarFunction] = {
    "date_add": ScalarFunction(_date_and_days, _moved(1)),
    "date_sub": ScalarFunction(_date_and_days, _moved(-1)),
    "add_months": ScalarFunction(_date_and_days, _months_added, raises=True, constants=(1,)),
    "last_day": ScalarFunction(_one_date, _last_day),
    "trunc": ScalarFunction(_date_and_unit, _truncated, constants=(1,), fits=_is_unit(_BEGINS)),
    "date_trunc": ScalarFunction(
        _unit_and_instant, _truncated_time, constants=(0,), fits=_is_unit((*_BEGINS, *_LENGTHS))
    ),
    "time_add": ScalarFunction(_time_and_length, _time_added, raises=True, constants=(1,)),
    "unix_date": ScalarFunction(_one_date, lambda columns, _: (columns[0].cast(INT), None)),
    "unix_micros": ScalarFunction(_one_instant, _counted(1)),
    "unix_millis": ScalarFunction(_one_instant, _counted(1_000)),
    "unix_seconds": ScalarFunction(_one_instant, _counted(1_000_000)),
    **dict.fromkeys(("unix_timestamp", "to_unix_timestamp"), ScalarFunction(_one_instant, _seconds)),
    "yearofweek": ScalarFunction(_one_moment, _year_of_week),
    "dayofweek_iso": ScalarFunction(_one_moment, _day_of_week),
}
"""`time_add` is `+` and `-` with an INTERVAL; the last two are fields of EXTRACT alone."""
