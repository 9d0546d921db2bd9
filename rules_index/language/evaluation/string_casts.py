"""Casts of texts to numbers, BOOLEANs and dates, as in Spark's ANSI mode: values, and a mask of the texts that have
none.

Plain texts are read column by column, by Arrow, Polars or NumPy; each other distinct text is read by itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import MAX_EMAX, MIN_EMIN, ROUND_HALF_UP, Decimal, localcontext
from typing import Any
from unicodedata import decimal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rules_index.language.coercion import DATE, DOUBLE
from rules_index.language.evaluation.datetime_parser import BLANK, parse_date
from rules_index.language.evaluation.scalar import Result, filled, nulls_of
from rules_index.language.evaluation.time_zones import days_of_dates

BLANK_IN_JAVA = "".join(map(chr, range(33)))
"""The characters that java.lang.String.trim removes, which Spark strips from a text that it casts to DOUBLE or
DECIMAL."""
_PLAIN_NUMBER = r"^[+-]?([0-9]{1,30}(\.[0-9]{0,30})?|\.[0-9]{1,30})([eE][+-]?[0-9]{1,2})?$"
_PLAIN_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?")
_HEXADECIMAL = re.compile(r"([+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?")
_BIG_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,9})?")
_MOST_DIGITS = 100_000
"""The precision with which a decimal is read from a text."""
TRUTHS = dict.fromkeys(("t", "true", "y", "yes", "1"), True) | dict.fromkeys(("f", "false", "n", "no", "0"), False)
"""The BOOLEANs that texts, in lower case, are cast to."""
_NAMED = re.compile(r"[+-]?(?:inf|infinity)|nan", re.IGNORECASE | re.ASCII)
_NAN_WITH_SIGN = re.compile(r"[+-]NaN")


def integers(texts: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Texts as BIGINTs, 0 for NULL and for all other texts, and a mask of these other texts."""
    import polars as pl

    trimmed = pc.utf8_trim(texts, characters=BLANK)
    # Polars takes what Spark takes: digits after at most one sign, of numbers in range, and nothing else
    numbers = pl.Series(pl.from_arrow(trimmed)).cast(pl.Int64, strict=False).to_arrow()
    return filled(numbers), nulls_of(numbers) & ~nulls_of(texts)


def booleans(texts: pa.Array) -> Result:
    """Texts as BOOLEANs: upper and lower case are equal, and blanks around a text are ignored."""
    places = pc.index_in(pc.utf8_lower(pc.utf8_trim(texts, characters=BLANK)), pa.array(list(TRUTHS)))
    found = pa.array(list(TRUTHS.values())).take(places)
    return found, nulls_of(found) & ~nulls_of(texts)


def doubles(texts: pa.Array) -> Result:
    """Texts as DOUBLEs, as java.lang.Double.parseDouble reads them; also Spark's names of infinities."""
    trimmed = pc.utf8_trim(texts, characters=BLANK_IN_JAVA)
    plain = _matching(trimmed, _PLAIN_NUMBER)
    found = filled(pc.if_else(plain, trimmed, pa.scalar(None, texts.type)).cast(DOUBLE)).copy()
    return _with_others(trimmed, plain, found, double_of, DOUBLE)


def decimals(texts: pa.Array, target: pa.Decimal128Type) -> Result:
    """Texts as decimals, as java.math.BigDecimal reads them, rounded half up. Too many whole digits fail."""
    trimmed = pc.utf8_trim(texts, characters=BLANK_IN_JAVA)
    whole, scale = target.precision - target.scale, target.scale
    fraction = f"(\\.[0-9]{{1,{scale}}})?" if scale else ""
    # if the type has no whole digits, no text is plain
    plain = _matching(trimmed, f"^[+-]?[0-9]{{1,{whole}}}{fraction}$" if whole else "$a")
    found = pc.if_else(plain, trimmed, pa.scalar(None, texts.type)).cast(target)
    nulls, others = nulls_of(texts), np.flatnonzero(nulls_of(found) & ~nulls_of(texts))
    if not len(others):
        return found, None
    codes = trimmed.take(pa.array(others)).dictionary_encode()
    parsed = pa.array([decimal_of(text, target) for text in codes.dictionary.to_pylist()], target)
    odd = parsed.take(codes.indices)
    places = np.zeros(len(texts), np.int64)
    places[others] = np.arange(len(others))
    found = pc.if_else(plain, found, odd.take(pa.array(places, mask=nulls)))
    return found, nulls_of(found) & ~nulls


def decimal_of(text: str, target: pa.Decimal128Type) -> Decimal | None:
    """The decimal in a text without blanks around it, rounded half up; None if the text is no decimal, or one too
    large."""
    if not text.isascii():  # Java accepts the digits of all scripts in the basic plane
        text = "".join(str(decimal(each, each)) if each <= "\uffff" else each for each in text)
    if not _BIG_DECIMAL.fullmatch(text):
        return None
    with localcontext(prec=_MOST_DIGITS, Emax=MAX_EMAX, Emin=MIN_EMIN):
        value = Decimal(text)
        if value and value.adjusted() >= target.precision - target.scale:
            return None
        if value.adjusted() < -target.scale - 1:
            return Decimal(0)
        found = value.quantize(Decimal(1).scaleb(-target.scale), ROUND_HALF_UP)
    return found if found.adjusted() < target.precision - target.scale or not found else None


def dates(texts: pa.Array) -> Result:
    """Texts as dates."""
    trimmed = pc.utf8_trim(texts, characters=BLANK)
    plain = _matching(trimmed, _PLAIN_DATE)
    digits = pc.if_else(plain, trimmed, "1970-01-01")
    year, month, day = (
        pc.utf8_slice_codeunits(digits, start, stop).cast(pa.int64()).to_numpy(zero_copy_only=False)
        for start, stop in ((0, 4), (5, 7), (8, 10))
    )
    days, wrong = days_of_dates(year, month, day)
    plain = pc.and_(plain, pa.array(~wrong))
    return _with_others(trimmed, plain, days, parse_date, DATE)


def _matching(texts: pa.Array, pattern: str) -> pa.Array:
    """[rows] bool: whether a text matches; False for NULL."""
    return pc.fill_null(pc.match_substring_regex(texts, pattern), False)


def _with_others(
    texts: pa.Array, plain: pa.Array, found: np.ndarray, parse: Callable[[str], Any], kind: pa.DataType
) -> Result:
    """`found` for the `plain` texts, and `parse` for the others; a text for which `parse` returns None fails."""
    nulls = nulls_of(texts)
    others = np.flatnonzero(~plain.to_numpy(zero_copy_only=False) & ~nulls)
    failed = np.zeros(len(texts), bool)
    if len(others):
        codes = texts.take(pa.array(others)).dictionary_encode()
        parsed = [parse(text) for text in codes.dictionary.to_pylist()]
        places = codes.indices.to_numpy()
        found[others] = np.array([0 if each is None else each for each in parsed], found.dtype)[places]
        failed[others] = np.array([each is None for each in parsed])[places]
    values = pa.array(found.astype(np.int32) if kind == DATE else found, mask=nulls | failed)
    return values.cast(kind), failed


def double_of(text: str) -> float | None:
    """The DOUBLE in a text without blanks around it; None if the text is no DOUBLE."""
    if _DECIMAL.fullmatch(text):
        return float(text.rstrip("fFdD"))
    hexadecimal = _HEXADECIMAL.fullmatch(text)
    if hexadecimal:
        try:
            return float.fromhex(hexadecimal[1])
        except OverflowError:
            return float("-inf" if text.startswith("-") else "inf")
    if _NAMED.fullmatch(text) or _NAN_WITH_SIGN.fullmatch(text):
        return float(text)
    return None
