"""Literals by the million to keys: where each cuts the values of a column, as `constants.cut` has it for one.

Only for pairs of a column's type and a literal's kind whose comparison depends on nothing but the literal's value;
the others, and single literals that are out of bounds here, are left to be compiled one by one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from rules_index.compiling.templates.clauses import Literals
from rules_index.domains.values import WIDE_DECIMAL
from rules_index.kernels.date_times import NOT_PARSED, parse_date_times
from rules_index.kernels.encode import float_keys
from rules_index.kernels.rule_texts import DOUBLE, MOST_EXACT, TEXT
from rules_index.language.coercion import BINARY, DATE, STRING, is_decimal, is_float, is_integer
from rules_index.language.evaluation import times
from rules_index.language.type_names import TIMESTAMP, TIMESTAMP_NTZ

_LARGE = 1e308
"""Not far above it a number is refused, as no DOUBLE."""


@dataclass(frozen=True)
class Bounds:
    """Cuts that literals make: the first value not below it [literals] int64, the first above it, and where they hold.

    Keys, or, where there are `strings`, references to these (`keys.ByteKeys`).
    """

    low: np.ndarray
    high: np.ndarray
    known: np.ndarray
    strings: pa.LargeBinaryArray | None = None


def bounds(literals: Literals, kind: int, word: str, column: pa.DataType, zone: str) -> Bounds | None:
    """The cuts of literals of one kind, each written `word literal` (`DATE '...'`) or, for no word, alone.

    None where such literals and such a column are not compared here.
    """
    if word or kind == TEXT:
        return _of_texts(literals, word, column, zone) if kind == TEXT else None
    if is_float(column):
        return _of_doubles(literals)
    if kind != DOUBLE and (is_integer(column) or (is_decimal(column) and column.precision <= WIDE_DECIMAL)):
        return _of_decimals(literals, column.scale if is_decimal(column) else 0)
    return None


def _of_decimals(literals: Literals, scale: int) -> Bounds:
    """Numbers among integers (scale 0) or decimals: those with more digits behind the point lie between two values."""
    scales = literals.scales.astype(np.int64)
    magnitude = np.abs(literals.values)
    room = np.clip(MOST_EXACT - (scale - scales), 0, MOST_EXACT)
    known = (literals.scales >= 0) & (magnitude < 10**room) & (magnitude < 10**MOST_EXACT)
    finer = np.clip(scales - scale, 0, MOST_EXACT)
    scaled = np.where(known, literals.values, 0) * 10 ** np.clip(scale - scales, 0, MOST_EXACT)
    unit = 10**finer
    return Bounds(-(-scaled // unit), scaled // unit + 1, known)


def _of_doubles(literals: Literals) -> Bounds:
    """Numbers as the nearest DOUBLE, which is what Spark compares a FLOAT or DOUBLE with."""
    texts = pl.Series(literals.texts().cast(pa.large_string()), dtype=pl.String)
    numbers = texts.cast(pl.Float64, strict=False).fill_null(float("inf")).to_numpy()
    keys = np.empty(len(numbers), np.int64)
    float_keys(np.ascontiguousarray(numbers).view(np.int64), keys)
    return Bounds(keys, keys + 1, np.abs(numbers) < _LARGE)


def _of_texts(literals: Literals, word: str, column: pa.DataType, zone: str) -> Bounds | None:
    if column in (STRING, BINARY) and not word:
        return _of_strings(literals)
    if column == DATE and word in ("", "DATE"):
        days, _ = _date_times(literals)
        known = (days != NOT_PARSED) & (np.diff(literals.spans)[:, 0] == len("2024-12-31"))
        return Bounds(days, days + 1, known)
    if column == TIMESTAMP_NTZ and word in ("", "TIMESTAMP_NTZ"):
        local, known = _local(literals)
        return Bounds(local, local + 1, known)
    if column == TIMESTAMP and word in ("", "TIMESTAMP", "TIMESTAMP_LTZ"):
        instants, known = _instants(*_local(literals), zone)
        return Bounds(instants, instants + 1, known)
    return None


def _of_strings(literals: Literals) -> Bounds:
    strings = literals.texts()
    low = 2 * np.arange(len(strings), dtype=np.int64)
    # nothing is below the empty string, and one that holds NUL may be the successor of another
    known = (np.diff(literals.spans)[:, 0] > 0) & ~pc.match_substring(strings, b"\0").to_numpy(zero_copy_only=False)
    return Bounds(low, low + 1, known, strings)


def _date_times(literals: Literals) -> tuple[np.ndarray, np.ndarray]:
    days, micros = np.empty(len(literals), np.int64), np.empty(len(literals), np.int64)
    parse_date_times(literals.data, np.ascontiguousarray(literals.spans), days, micros)
    return days, micros


def _local(literals: Literals) -> tuple[np.ndarray, np.ndarray]:
    """Microseconds since 1970-01-01 on a local clock, and where they are known."""
    days, micros = _date_times(literals)
    known = days != NOT_PARSED
    return np.where(known, days, 0) * times.DAY + np.where(known, micros, 0), known


def _instants(local: np.ndarray, known: np.ndarray, zone: str) -> tuple[np.ndarray, np.ndarray]:
    """Microseconds since the epoch of local times in a zone, and where they are known."""
    offset = times.zone_offset(zone)
    if offset is not None:
        return local - offset, known
    found = [times.to_instant(each, zone) if sure else None for each, sure in zip(local.tolist(), known, strict=True)]
    known = np.array([instant is not None for instant in found], bool)
    return np.array([instant or 0 for instant in found], np.int64), known
