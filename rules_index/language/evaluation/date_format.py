"""`date_format`: writes dates and times as java.time.format.DateTimeFormatter does."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rules_index.language.coercion import DATE, STRING
from rules_index.language.evaluation import argument_types
from rules_index.language.evaluation.datetime_parser import DAY
from rules_index.language.evaluation.scalar import Columns, Result, ScalarFunction, filled, like, nulls_of
from rules_index.language.evaluation.time_zones import instants, local_clock
from rules_index.language.type_names import TIMESTAMP

_Part = Callable[[np.ndarray, np.ndarray], pa.Array]
"""Writes one part of a pattern for each row, given days since 1970 and microseconds of the day, [rows] int64 each."""
_SECOND = 1_000_000
_PATTERN = "yyyy-MM-dd HH:mm:ss"
"""The pattern of `from_unixtime` if it has none."""
_MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
           "December")  # fmt: skip
_WEEK = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
TOKEN = re.compile(r"'(?P<quoted>(?:[^']|'')*)'|(?P<letters>([A-Za-z])\3*)|(?P<plain>[^A-Za-z'\[\]{}#]+)")
"""Quoted text, letters of a field, or other text within a pattern."""


def years(dates: np.ndarray) -> pa.Array:
    """The years of dates [rows] datetime64[D] with at least four digits: with `+` if they have more, with `-` before
    year 0."""
    numbers = dates.astype("M8[Y]").astype(np.int64) + 1970
    signs = pa.array(np.select([numbers < 0, numbers > 9999], ["-", "+"], ""), STRING)
    return pc.binary_join_element_wise(signs, _digits(np.abs(numbers), 4), "")


def _digits(numbers: np.ndarray, width: int) -> pa.Array:
    return pc.utf8_lpad(pa.array(numbers).cast(STRING), width, "0")


def _months(days: np.ndarray) -> np.ndarray:
    """The month of each day, from 0 to 11."""
    return np.asarray(days.astype("M8[D]").astype("M8[M]").astype(np.int64) % 12)


def _day_of_month(days: np.ndarray) -> np.ndarray:
    """The day of the month of each day, from 1."""
    dates = days.astype("M8[D]")
    return np.asarray((dates - dates.astype("M8[M]").astype("M8[D]")).astype(np.int64) + 1)


def _named(names: tuple[str, ...], letters: int | None, number: Callable[[np.ndarray], np.ndarray]) -> _Part:
    known = pa.array([name[:letters] for name in names])
    return lambda days, _: known.take(pa.array(number(days)))


def _number(number: Callable[[np.ndarray], np.ndarray], width: int) -> _Part:
    return lambda days, _: _digits(number(days), width)


def _text(text: str) -> _Part:
    return lambda days, _: pa.repeat(pa.scalar(text), len(days))


def _of_day(unit: int, modulus: int, first: int = 0) -> Callable[[np.ndarray], np.ndarray]:
    """Returns a function from microseconds of the day to the number of `unit`s on a clock that counts from `first` to
    `first + modulus - 1`: from 1 to 12, midnight is 12."""
    return lambda of_day: (of_day // unit - first) % modulus + first


_DATES: dict[str, _Part] = {
    "yyyy": lambda days, _: years(days.astype("M8[D]")),
    "MMM": _named(_MONTHS, 3, _months),
    "MMMM": _named(_MONTHS, None, _months),
    **dict.fromkeys(("E", "EE", "EEE"), _named(_WEEK, 3, lambda days: (days + 3) % 7)),
    "EEEE": _named(_WEEK, None, lambda days: (days + 3) % 7),
    "M": _number(lambda days: _months(days) + 1, 1),
    "MM": _number(lambda days: _months(days) + 1, 2),
    "d": _number(_day_of_month, 1),
    "dd": _number(_day_of_month, 2),
}
_CLOCK = {
    "H": (_of_day(3600 * _SECOND, 24), 3600 * _SECOND),
    "h": (_of_day(3600 * _SECOND, 12, 1), 3600 * _SECOND),
    "m": (_of_day(60 * _SECOND, 60), 60 * _SECOND),
    "s": (_of_day(_SECOND, 60), _SECOND),
}
"""The numbers of a clock by their letter, and their units in microseconds."""


def _clock(letters: str) -> _Part:
    number, width = _CLOCK[letters[0]][0], len(letters)
    return lambda _, of_day: _digits(number(of_day), width)


@lru_cache(maxsize=256)
def _parts(pattern: str) -> tuple[tuple[_Part, ...], int] | None:
    """The parts of a pattern, and the microseconds of its shortest unit; None for a pattern that is left to Spark."""
    parts: list[_Part] = []
    unit, position = DAY, 0
    while position < len(pattern):
        found = TOKEN.match(pattern, position)
        if found is None:
            return None
        position, letters = found.end(), found["letters"]
        if letters is None:
            parts.append(_text(found["plain"] or found["quoted"].replace("''", "'") or "'"))
        elif letters in _DATES:
            parts.append(_DATES[letters])
        elif letters[0] in _CLOCK and len(letters) <= 2:
            parts.append(_clock(letters))
            unit = min(unit, _CLOCK[letters[0]][1])
        elif letters == "a":
            unit = min(unit, 3600 * _SECOND)
            parts.append(lambda _, of_day: pa.array(["AM", "PM"]).take(pa.array(of_day // (DAY // 2))))
        else:
            return None
    return (tuple(parts), unit) if parts else None


def _formatted(columns: Columns, zone: str) -> Result:
    """`date_format(time, pattern)`. A DATE is formatted as the instant at which it begins; fails if that is no
    TIMESTAMP."""
    column, failed = columns[0], None
    known = _parts(columns[1][0].as_py())
    assert known is not None  # `fits` has checked that
    parts, unit = known
    days, of_day = local_clock(column, zone)
    if column.type == DATE:
        moments, beyond = instants(days, of_day, zone)
        days, of_day = local_clock(pa.array(np.where(beyond, 0, moments), pa.timestamp("us", "UTC")), zone)
        failed = beyond & ~nulls_of(column)
    per_day = DAY // unit
    distinct = pa.array(days * per_day + of_day // unit, mask=nulls_of(column)).dictionary_encode()
    found_days, of_unit = np.divmod(distinct.dictionary.to_numpy(), per_day)
    texts = pc.binary_join_element_wise(*(part(found_days, of_unit * unit) for part in parts), "")
    return texts.take(distinct.indices), failed


def _of_seconds(columns: Columns, zone: str) -> Result:
    """`from_unixtime(seconds, pattern)`. Seconds whose microseconds exceed a BIGINT wrap around, as in Java."""
    seconds = columns[0]
    micros = filled(seconds).astype(np.int64) * _SECOND
    moments = like(seconds, micros, pa.int64()).cast(TIMESTAMP)
    pattern = columns[1] if len(columns) > 1 else pa.repeat(_PATTERN, len(seconds))
    return _formatted([moments, pattern], zone)


def _name_of(part: _Part) -> Callable[[Columns, str], Result]:
    def evaluate(columns: Columns, zone: str) -> Result:
        """The names of a column of dates or times."""
        names = part(*local_clock(columns[0], zone))
        return pc.if_else(columns[0].is_valid(), names, pa.scalar(None, STRING)), None

    return evaluate


FORMATTED_TIMES: dict[str, ScalarFunction] = {
    "date_format": ScalarFunction(
        argument_types.moment_and_pattern,
        _formatted,
        raises=True,
        constants=(1,),
        fits=lambda fixed: _parts(fixed[0]) is not None,
    ),
    "from_unixtime": ScalarFunction(
        argument_types.number_and_pattern,
        _of_seconds,
        constants=(1,),
        fits=lambda fixed: not fixed or _parts(fixed[0]) is not None,
    ),
    "dayname": ScalarFunction(argument_types.one_moment, _name_of(_DATES["EEE"])),
    "monthname": ScalarFunction(argument_types.one_moment, _name_of(_DATES["MMM"])),
}
