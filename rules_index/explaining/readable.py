"""Floating-point numbers with few digits beside a given one, for near misses that people can read.

The number that is nearest to a bound has some 17 digits, or is the least number above 0. The last digit of the row's
value and that of the bound tell which differences are meaningful.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

import numpy as np
import pyarrow as pa

MOST_DIGITS = 15
"""The most significant digits of a number that is proposed, unless nothing but another one is accepted."""
_MOST_MEANT, _FEW = 9, 3
"""A number of more significant digits than the first is read as one of the second: a calculation may have left them."""
_CONTEXT = Context(prec=800, Emin=-9999, Emax=9999)
"""All digits of all DOUBLEs."""


def readable_near(value: float, now: float | None, data_type: pa.DataType) -> Iterator[float]:
    """Numbers of a floating-point type near a value, with ever more digits; none if the value itself has few digits.

    now: the row's value. Of each number of digits the number beyond the value, as seen from there, comes first.
    """
    if not math.isfinite(value):
        return
    beside = [each for each in _beside(value, data_type) if math.isfinite(each)]
    digits = {each: _last_digit(each, data_type) for each in beside}
    # the one with the fewest digits; 0 rather than the least number beside it
    bound = min(beside, key=lambda each: (_first_digit(each, data_type) - digits[each], -digits[each]))
    last = min(_last_meant(bound, data_type), 0)
    if now is not None and math.isfinite(now):
        last = min(last, _last_meant(now, data_type))
    last = max(last, _first_digit(bound, data_type) - MOST_DIGITS + 1)
    if _last_digit(value, data_type) >= last:
        return
    is_above = now is None or value > now
    for place in range(last, max(last, _first_digit(value, data_type)) - MOST_DIGITS - 1, -1):
        for rounding in (ROUND_CEILING, ROUND_FLOOR) if is_above else (ROUND_FLOOR, ROUND_CEILING):
            found = float(Decimal(value).quantize(Decimal(1).scaleb(place, _CONTEXT), rounding, _CONTEXT))
            found = shortest(found, data_type) + 0.0  # no -0.0
            if found != now and math.isfinite(found):
                yield found


def shortest(value: float, data_type: pa.DataType) -> float:
    """The number with the fewest digits that is this one in a floating-point type."""
    with np.errstate(over="ignore"):
        return float(str(np.float32(value))) if data_type == pa.float32() else value


def _beside(value: float, data_type: pa.DataType) -> list[float]:
    """The value and its neighbours, of which one may be the constant that is compared with."""
    kind = np.float32 if data_type == pa.float32() else np.float64
    with np.errstate(over="ignore", under="ignore"):
        return [value, *(float(np.nextafter(kind(value), kind(end))) for end in (-math.inf, math.inf))]


def _first_digit(value: float, data_type: pa.DataType) -> int:
    """The power of ten of the first digit; 0 for 0."""
    return _decimal(value, data_type).adjusted() if value else 0


def _last_digit(value: float, data_type: pa.DataType) -> int:
    """The power of ten of the last digit that is not 0; 0 for 0."""
    exponent = _decimal(value, data_type).normalize().as_tuple().exponent
    assert isinstance(exponent, int)
    return exponent if value else 0


def _last_meant(value: float, data_type: pa.DataType) -> int:
    """The power of ten of the last digit that is more than a calculation's rounding."""
    first, last = _first_digit(value, data_type), _last_digit(value, data_type)
    return last if first - last < _MOST_MEANT else first - _FEW + 1


def _decimal(value: float, data_type: pa.DataType) -> Decimal:
    return Decimal(str(shortest(value, data_type)))
