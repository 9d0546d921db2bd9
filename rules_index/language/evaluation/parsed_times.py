"""`to_date` and `to_timestamp` with a pattern: read texts as java.time.format.DateTimeFormatter does, strictly.

A pattern becomes a regular expression. Those with names, zones, eras or optional parts are left to Spark.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rules_index.language.coercion import DATE
from rules_index.language.evaluation import argument_types
from rules_index.language.evaluation.date_format import TOKEN
from rules_index.language.evaluation.malformed_texts import Texts
from rules_index.language.evaluation.scalar import Columns, Result, ScalarFunction, nulls_of
from rules_index.language.evaluation.time_zones import days_of_dates, first_instants, instants, local_clock

_YEAR = r"[0-9]{4}|\+0{0,9}[0-9]{5,9}|-0{0,9}[0-9]{4,9}"
"""More than four digits need a sign; with four digits, the only possible sign is -."""
_FIXED, _OPEN = "[0-9]{2}", "0{0,15}[0-9]{1,4}"
_FIELDS = {
    "yyyy": ("year", _YEAR),
    **{letter * width: (name, _OPEN if width == 1 else _FIXED) for letter, name in
       (("M", "month"), ("d", "day"), ("H", "hour"), ("m", "minute"), ("s", "second")) for width in (1, 2)},
}  # fmt: skip
_CLOCK = ("hour", "minute", "second", "fraction")
_DEFAULTS = {"year": 1970, "month": 1, "day": 1, "hour": 0, "minute": 0, "second": 0}
_MOST_OF_SECOND = 9
"""The most digits of the fraction of a second."""


_Found = tuple[pa.Array, np.ndarray, np.ndarray]
"""Values; a mask of the texts that do not fit the pattern, or are no date and time; and a mask of the times beyond the
range of TIMESTAMP. Masks are [rows] bool."""


@lru_cache(maxsize=256)
def expression_of(pattern: str) -> str | None:
    """The regular expression that texts of a pattern match, with a group for each field; None if only Spark reads the
    pattern."""
    found: list[str] = []
    names: list[str] = []
    position, previous = 0, ""
    while position < len(pattern):
        token = TOKEN.match(pattern, position)
        if token is None:
            return None
        position, letters = token.end(), token["letters"]
        if letters is None:
            text = token["plain"] or token["quoted"]
            if not text or "'" in text or not text.isascii() or any(letter.isdigit() for letter in text):
                return None
            found.append(f"(?i:{re.escape(text)})")
            previous = ""
            continue
        name, part = _field(letters, previous)
        # next to another number, a number must have a fixed width: else it could take its neighbour's digits
        touches = previous not in ("", _FIXED, _YEAR) or (previous and part not in (_FIXED, _YEAR))
        if not name or name in names or touches:
            return None
        found.append(f"(?P<{name}>{part})")
        names.append(name)
        previous = part
    clock = [name for name in names if name in _CLOCK]
    is_whole = sorted(clock, key=_CLOCK.index) == list(_CLOCK[: len(clock)])
    return f"^{''.join(found)}$" if names and is_whole else None


def _field(letters: str, previous: str) -> tuple[str, str]:
    """A field's name and its regular expression; both empty for a field that is left to Spark."""
    if set(letters) == {"S"} and len(letters) <= _MOST_OF_SECOND and not previous:
        return "fraction", f"[0-9]{{1,{len(letters)}}}"
    return _FIELDS.get(letters, ("", ""))


def _parsed(columns: Columns) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each text its days since 1970, its microseconds of the day, and whether it fails, [rows] each. A text fails
    if it does not fit the pattern, or is no date and time; its numbers are 0 then."""
    pattern = expression_of(columns[1][0].as_py())
    assert pattern is not None  # `fits` has checked that
    parts = pc.extract_regex(columns[0], pattern)
    fields = {field.name: pc.struct_field(parts, field.name) for field in parts.type}
    failed = nulls_of(parts)
    given = {name: _numbers(texts) for name, texts in fields.items() if name != "fraction"}
    part = {name: given.get(name, np.full(len(failed), default)) for name, default in _DEFAULTS.items()}
    days, is_no_day = days_of_dates(part["year"], part["month"], part["day"])
    failed |= is_no_day | (part["hour"] > 23) | (part["minute"] > 59) | (part["second"] > 59)
    if "year" in fields:
        is_signed = pc.fill_null(pc.starts_with(fields["year"], "-"), False).to_numpy(zero_copy_only=False)
        failed |= is_signed & (part["year"] == 0)
    seconds = (part["hour"] * 60 + part["minute"]) * 60 + part["second"]
    micros = _micros(fields["fraction"]) if "fraction" in fields else 0
    return np.where(failed, 0, days), np.where(failed, 0, seconds * 1_000_000 + micros), failed


def _numbers(texts: pa.Array) -> np.ndarray:
    """Numbers in texts, [rows] int64, 0 for NULL."""
    return np.asarray(
        pc.fill_null(pc.utf8_ltrim(texts, characters="+").cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
    )


def _micros(fraction: pa.Array) -> np.ndarray:
    return _numbers(pc.utf8_slice_codeunits(pc.utf8_rpad(fraction, 6, "0"), 0, 6))


def _timestamps(columns: Columns, zone: str) -> _Found:
    """TIMESTAMPs, by the local clock of the zone."""
    days, of_day, failed = _parsed(columns)
    micros, beyond = first_instants(days, of_day, zone)
    return pa.array(micros).cast(pa.timestamp("us", "UTC")), failed, beyond


def _wall_times(columns: Columns, _: str) -> _Found:
    """TIMESTAMP_NTZs."""
    days, of_day, failed = _parsed(columns)
    micros, beyond = instants(days, of_day, "UTC")
    return pa.array(micros).cast(pa.timestamp("us")), failed, beyond


def _dates(columns: Columns, zone: str) -> _Found:
    """The local dates of the TIMESTAMPs. These can differ from the dates in the texts, since clocks may skip a whole
    day."""
    moments, failed, beyond = _timestamps(columns, zone)
    days, _ = local_clock(moments, zone)
    return pa.array(days.astype(np.int32)).cast(DATE), failed, beyond


def _function(found: Callable[[Columns, str], _Found], is_quiet: bool) -> ScalarFunction:
    """is_quiet: whether a text that does not fit the pattern becomes NULL and does not raise. A time beyond the range
    of TIMESTAMP raises in any case."""

    def evaluate(columns: Columns, zone: str) -> Result:
        """The values, NULL where a text is NULL or fails, and where evaluation raises."""
        values, failed, beyond = found(columns, zone)
        nulls = nulls_of(columns[0])
        values = pc.if_else(pa.array(nulls | failed | beyond), pa.scalar(None, values.type), values)
        return values, (beyond if is_quiet else failed | beyond) & ~nulls

    return ScalarFunction(
        argument_types.two_texts,
        evaluate,
        raises=True,
        constants=(1,),
        fits=lambda fixed: expression_of(fixed[0]) is not None,
        texts=Texts.DECODED,
    )


PARSED_TIMES: dict[str, ScalarFunction] = {
    "parse_date": _function(_dates, False),
    "try_parse_date": _function(_dates, True),
    "parse_timestamp": _function(_timestamps, False),
    "try_parse_timestamp": _function(_timestamps, True),
    "parse_timestamp_ntz": _function(_wall_times, False),
}
"""`to_date(text, pattern)`, `to_timestamp(text, pattern)` and similar functions."""
