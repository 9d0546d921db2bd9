"""Decimals and divisors whose quotients are near to a half of the last digit, where Spark's two roundings show."""

from __future__ import annotations

import random
from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_UP, Context, Decimal

import pyarrow as pa

_EXACT = Context(prec=200)
_LARGEST = 2**63


def quotient_type(left: pa.Decimal128Type, right: pa.Decimal128Type) -> pa.Decimal128Type:
    """Spark's type of a quotient."""
    scale = max(6, left.scale + right.precision + 1)
    whole = left.precision - left.scale + right.scale
    if whole + scale <= 38:
        return pa.decimal128(whole + scale, scale)
    return pa.decimal128(38, max(38 - whole, min(scale, 6)))


def pairs(
    choice: random.Random, left: pa.Decimal128Type, right: pa.Decimal128Type, count: int
) -> list[tuple[int, int]]:
    """Digits of dividends, and of divisors that are not 0 and fit a BIGINT."""
    power = Decimal(10) ** (left.scale - right.scale - quotient_type(left, right).scale)
    most = min(_LARGEST, 10**right.precision - 1)
    found = []
    for _ in range(count):
        divisor = choice.choice([choice.randint(1, most), choice.randint(max(most - 5, 1), most), 7, 2])
        divisor = min(divisor, most) * choice.choice([1, -1])
        dividend = choice.choice([choice.randrange(10 ** choice.randint(1, left.precision)), 10**left.precision - 1])
        half = _EXACT.multiply(Decimal((choice.randrange(10**6) * 2 + 1) * divisor), power) / 2
        near = half.to_integral_value(choice.choice([ROUND_FLOOR, ROUND_CEILING]), _EXACT)
        if choice.random() < 0.5 and abs(near) < 10**left.precision:
            dividend = int(near)
        found.append((dividend * choice.choice([1, -1]), divisor))
    return found


def decimals(digits: Sequence[int], kind: pa.Decimal128Type) -> pa.Array:
    """Decimals of a type, given by their digits without the point."""
    return pa.array([Decimal(each).scaleb(-kind.scale, _EXACT) for each in digits], kind)


def quotient(dividend: Decimal, divisor: Decimal, scale: int) -> Decimal:
    """A quotient that is rounded to 38 digits behind the point, and then to `scale`."""
    found = _EXACT.divide(dividend, divisor)
    for each in (38, scale):
        found = found.quantize(Decimal(1).scaleb(-each), ROUND_HALF_UP, _EXACT)
    return found
