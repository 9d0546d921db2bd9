"""The functions of dates and timestamps that are evaluated here, on the local clock of a time zone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from rules_index.language.coercion import BIGINT, DATE, INT
from rules_index.language.evaluation import argument_types
from rules_index.language.evaluation.scalar import Columns, Result, ScalarFunction, like
from rules_index.language.evaluation.time_zones import local_clock


def _of_day(divisor: int, modulus: int) -> Callable[[Columns, str], Result]:
    def evaluate(columns: Columns, zone: str) -> Result:
        of_day = local_clock(columns[0], zone)[1]
        return like(columns[0], (of_day // divisor) % modulus, INT), None

    return evaluate


def _of_date(part: Callable[[np.ndarray], np.ndarray]) -> Callable[[Columns, str], Result]:
    def evaluate(columns: Columns, zone: str) -> Result:
        return like(columns[0], part(_days(columns[0], zone).astype(np.int64)), INT), None

    return evaluate


def _since(days: np.ndarray, unit: str) -> np.ndarray:
    """Days since the start of the month (M) or the year (Y)."""
    return np.asarray(days - days.astype("M8[D]").astype(f"M8[{unit}]").astype("M8[D]").astype(np.int64))


def _count(days: np.ndarray, unit: str) -> np.ndarray:
    """Whole months (M) or years (Y) since 1970."""
    return np.asarray(days.astype("M8[D]").astype(f"M8[{unit}]").astype(np.int64))


def _week(days: np.ndarray) -> np.ndarray:
    """The week's number by ISO 8601, counted in the year of the week's Thursday."""
    thursdays = days - (days + 3) % 7 + 3
    return np.asarray(_since(thursdays, "Y") // 7 + 1)


def _days(values: pa.Array, zone: str) -> np.ndarray:
    """[rows] int32: days since 1970 on the local clock, 0 for NULL."""
    return local_clock(values, zone)[0].astype(np.int32)


def _date(columns: Columns, zone: str) -> Result:
    return like(columns[0], _days(columns[0], zone), INT).cast(DATE), None


def _date_difference(columns: Columns, zone: str) -> Result:
    days = _days(columns[0], zone) - _days(columns[1], zone)
    return like(columns[0], days, INT, columns[1]), None


_SECOND, _DAY_SECONDS = 1_000_000, 86_400
_SECONDS = {"SECOND": 1, "MINUTE": 60, "HOUR": 3_600, "DAY": 86_400, "WEEK": 604_800}


def _whole_units(columns: Columns, zone: str) -> Result:
    """`timestampdiff`: whole units from the second column's local time to the third's, truncated toward zero."""
    unit, start, end = columns
    (start_days, start_micros), (end_days, end_micros) = (local_clock(each, zone) for each in (start, end))
    seconds = (end_days - start_days) * _DAY_SECONDS + end_micros // _SECOND - start_micros // _SECOND
    start_micros, end_micros = start_micros % _SECOND, end_micros % _SECOND
    seconds -= (seconds > 0) & (end_micros < start_micros)
    seconds += (seconds < 0) & (end_micros > start_micros)
    length = _SECONDS[unit[0].as_py()]
    return like(start, np.sign(seconds) * (np.abs(seconds) // length), BIGINT, end), None


_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}


def _whole_months(columns: Columns, zone: str) -> Result:
    """`timestampdiff`: whole months, quarters or years from the second column's local time to the third's, truncated
    toward zero."""
    unit, start, end = columns
    (start_days, start_micros), (end_days, end_micros) = (local_clock(each, zone) for each in (start, end))
    end_days = (
        end_days
        - ((end_days > start_days) & (end_micros < start_micros))
        + ((end_days < start_days) & (end_micros > start_micros))
    )
    packed = [_count(days, "M") * 32 + _since(days, "M") for days in (start_days, end_days)]
    difference = packed[1] - packed[0]
    length = 32 * _MONTHS[unit[0].as_py()]
    return like(start, np.sign(difference) * (np.abs(difference) // length), BIGINT, end), None


def _time_difference(columns: Columns, zone: str) -> Result:
    return (_whole_months if columns[0][0].as_py() in _MONTHS else _whole_units)(columns, zone)


_HOUR = 3_600_000_000
_DATE_PARTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "year": lambda days: _count(days, "Y") + 1970,
    "quarter": lambda days: _count(days, "M") % 12 // 3 + 1,
    "month": lambda days: _count(days, "M") % 12 + 1,
    **dict.fromkeys(("day", "dayofmonth"), lambda days: _since(days, "M") + 1),
    "dayofyear": lambda days: _since(days, "Y") + 1,
    "dayofweek": lambda days: (days + 4) % 7 + 1,
    "weekday": lambda days: (days + 3) % 7,
    "weekofyear": _week,
}

DATES: dict[str, ScalarFunction] = {
    "hour": ScalarFunction(argument_types.one_time, _of_day(_HOUR, 24)),
    "minute": ScalarFunction(argument_types.one_time, _of_day(60_000_000, 60)),
    "second": ScalarFunction(argument_types.one_time, _of_day(1_000_000, 60)),
    **{name: ScalarFunction(argument_types.one_moment, _of_date(part)) for name, part in _DATE_PARTS.items()},
    "date": ScalarFunction(argument_types.one_moment, _date),
    "to_date": ScalarFunction(argument_types.one_moment, _date),
    **dict.fromkeys(("datediff", "date_diff"), ScalarFunction(argument_types.two_moments, _date_difference)),
    "timestampdiff": ScalarFunction(
        argument_types.unit_and_instants,
        _time_difference,
        constants=(0,),
        fits=lambda unit: unit[0] in _SECONDS or unit[0] in _MONTHS,
    ),
}
