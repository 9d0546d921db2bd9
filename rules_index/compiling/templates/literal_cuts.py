"""Turns columns of literals into keys: where each cuts the values of a column, as `constants.cut` does for one literal.

This is done for those pairs of a column's type and a literal's kind for which a comparison depends only on the
literal's value. Literals of other pairs, or out of range here, are compiled one by one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from rules_index.compiling.templates.clauses import Literals
from rules_index.domains.values import WIDE_DECIMAL
from rules_index.kernels.encode import float_keys
from rules_index.kernels.rule_texts import DOUBLE, MOST_EXACT, TEXT
from rules_index.language.coercion import BINARY, DATE, STRING, is_decimal, is_float, is_integer
from rules_index.language.evaluation import datetime_parser
from rules_index.language.type_names import TIMESTAMP, TIMESTAMP_NTZ

_LARGE = 1e308
"""Numbers from here on are compiled one by one: a little above this, they are too large for a DOUBLE and refused."""
_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIME = r"[ T](?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?$"
"""Dates and times of day in their plainest form; literals in other forms are compiled one by one."""


@dataclass(frozen=True)
class Bounds:
    """The cuts of literals: the lowest value not below the literal, the lowest value above it, each [literals] int64;
    and `known` [literals] bool, which literals have cuts here.

    Values are keys or, if there are `strings`, references to these (`interned_constants.ByteKeys`).
    """

    low: np.ndarray
    high: np.ndarray
    known: np.ndarray
    strings: pa.LargeBinaryArray | None = None


def bounds(literals: Literals, kind: int, word: str, column: pa.DataType, zone: str) -> Bounds | None:
    """The cuts of literals of one kind, each written `word literal` (`DATE '...'`), or alone for an empty word.

    None if such a pair of literal and column is not supported here.
    """
    if word or kind == TEXT:
        return _of_texts(literals, word, column, zone) if kind == TEXT else None
    if is_float(column):
        return _of_doubles(literals)
    if kind != DOUBLE and (is_integer(column) or (is_decimal(column) and column.precision <= WIDE_DECIMAL)):
        return _of_decimals(literals, column.scale if is_decimal(column) else 0)
    return None


def _of_decimals(literals: Literals, scale: int) -> Bounds:
    """Numbers compared with integers (scale 0) or decimals; a number with more fractional digits lies between two
    values."""
    scales = literals.scales.astype(np.int64)
    magnitude = np.abs(literals.values)
    room = np.clip(MOST_EXACT - (scale - scales), 0, MOST_EXACT)
    known = (literals.scales >= 0) & (magnitude < 10**room) & (magnitude < 10**MOST_EXACT)
    finer = np.clip(scales - scale, 0, MOST_EXACT)
    scaled = np.where(known, literals.values, 0) * 10 ** np.clip(scale - scales, 0, MOST_EXACT)
    unit = 10**finer
    return Bounds(-(-scaled // unit), scaled // unit + 1, known)


def _of_doubles(literals: Literals) -> Bounds:
    """Numbers as the nearest DOUBLE, as Spark compares them with a FLOAT or DOUBLE."""
    texts = pl.Series(literals.texts().cast(pa.large_string()), dtype=pl.String)
    numbers = texts.cast(pl.Float64, strict=False).fill_null(float("inf")).to_numpy()
    keys = np.empty(len(numbers), np.int64)
    float_keys(np.ascontiguousarray(numbers).view(np.int64), keys)
    return Bounds(keys, keys + 1, np.abs(numbers) < _LARGE)


def _of_texts(literals: Literals, word: str, column: pa.DataType, zone: str) -> Bounds | None:
    if column in (STRING, BINARY) and not word:
        return _of_strings(literals)
    if column == DATE and word in ("", "DATE"):
        days = _days(_strings(literals), rf"{_DATE}$")
        return _bounds_of(days)
    if column == TIMESTAMP_NTZ and word in ("", "TIMESTAMP_NTZ"):
        return _bounds_of(_local(literals))
    if column == TIMESTAMP and word in ("", "TIMESTAMP", "TIMESTAMP_LTZ"):
        return _bounds_of(_instants(_local(literals), zone))
    return None


def _of_strings(literals: Literals) -> Bounds:
    strings = literals.texts()
    low = 2 * np.arange(len(strings), dtype=np.int64)
    # no string is below the empty one, and a string with a trailing NUL can be another one's successor
    known = (np.diff(literals.spans)[:, 0] > 0) & ~pc.match_substring(strings, b"\0").to_numpy(zero_copy_only=False)
    return Bounds(low, low + 1, known, strings)


def _strings(literals: Literals) -> pl.Series:
    return pl.Series(literals.texts().cast(pa.large_string()), dtype=pl.String)


def _bounds_of(values: pl.Series) -> Bounds:
    """The bounds of numbers (Int64); those that are not NULL are known."""
    numbers = values.fill_null(0).to_numpy()
    return Bounds(numbers, numbers + 1, values.is_not_null().to_numpy())


def _days(texts: pl.Series, form: str) -> pl.Series:
    """Days since 1970-01-01 (Int64) of texts that begin with a date; NULL for texts in another form."""
    plain = texts.str.contains(form)
    dates = texts.str.slice(0, len("2024-12-31")).str.to_date("%Y-%m-%d", strict=False)
    return dates.cast(pl.Int64).set(~plain, None)


def _local(literals: Literals) -> pl.Series:
    """Microseconds since 1970-01-01 on a local clock (Int64); NULL for texts in another form and for invalid dates."""
    texts = _strings(literals)
    times_of_day = texts.str.slice(len("2024-12-31 ")).str.to_time("%H:%M:%S%.f", strict=False)
    micros = times_of_day.cast(pl.Int64).fill_null(0) // 1000
    return _days(texts, f"{_DATE}(?:$|{_TIME})") * datetime_parser.DAY + micros


def _instants(local: pl.Series, zone: str) -> pl.Series:
    """Microseconds since the epoch (Int64) of local times in a zone; NULL for times that are ambiguous or do not
    exist."""
    offset = datetime_parser.zone_offset(zone)
    if offset is not None:
        return local - offset
    found = [None if each is None else datetime_parser.to_instant(each, zone) for each in local.to_list()]
    return pl.Series(found, dtype=pl.Int64)
