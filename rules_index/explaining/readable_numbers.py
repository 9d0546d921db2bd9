"""Finds floating-point numbers with few digits near a given one, for near misses that people can read.

The number nearest to a bound has some 17 digits, or is the least number above 0. The last digits of the row's value and
of the bound show which differences are meaningful.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

import numpy as np
import pyarrow as pa

MOST_DIGITS = 15
"""The most significant digits of a number that is proposed, unless only numbers with more digits are accepted."""
_MOST_MEANT, _FEW = 9, 3
"""A number with more than `_MOST_MEANT` significant digits counts as one with `_FEW`: the others may be rounding
errors."""
_CONTEXT = Context(prec=800, Emin=-9999, Emax=9999)
"""All digits of all DOUBLEs."""


def readable_near(value: float, now: float | None, data_type: pa.DataType) -> Iterator[float]:
    """Yields numbers of a floating-point type near a value, with more and more digits; none if the value itself has
    few.

    now: the row's value, None for NULL. Of two numbers with the same digits, the one that is farther from `now` comes
    first.
    """
    if not math.isfinite(value):
        return
    neighbours = [each for each in _beside(value, data_type) if math.isfinite(each)]
    digits = {each: _last_digit(each, data_type) for each in neighbours}
    # the constant is probably the one with the fewest digits; 0 rather than the least number beside it
    bound = min(neighbours, key=lambda each: (_first_digit(each, data_type) - digits[each], -digits[each]))
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
    """Returns the number with the fewest digits that denotes this value in a floating-point type."""
    with np.errstate(over="ignore"):
        return float(str(np.float32(value))) if data_type == pa.float32() else value


def _beside(value: float, data_type: pa.DataType) -> list[float]:
    """Returns the value and its neighbours; one of them may be the constant of a comparison."""
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
    """The power of ten of the last digit that is not a rounding error of a calculation."""
    first, last = _first_digit(value, data_type), _last_digit(value, data_type)
    return last if first - last < _MOST_MEANT else first - _FEW + 1


def _decimal(value: float, data_type: pa.DataType) -> Decimal:
    return Decimal(str(shortest(value, data_type)))
