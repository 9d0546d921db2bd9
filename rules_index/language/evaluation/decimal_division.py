"""Remainders of decimals, and quotients with Spark's rounding: half away from zero, in the type of the result.

Spark first rounds a quotient to 38 digits behind the point. This does not change the result if the divisor's digits and
the result's digits behind the point are at most 37 together: no such quotient is near enough to a half.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from rules_index.kernels.jit import jit
from rules_index.language.evaluation.decimals import (
    Outcome,
    array_of_halves,
    halves_of,
    load_limbs,
    scale_up,
    store_limbs,
)
from rules_index.language.evaluation.scalar import nulls_of

_LIMBS = 8
MOST_DIGITS = 18
"""The most digits of a DECIMAL with which every number fits a BIGINT."""


def is_exact(left: pa.Decimal128Type, right: pa.Decimal128Type, result: pa.Decimal128Type) -> bool:
    """Whether `divide` computes quotients of these types exactly as Spark does: the divisor fits a BIGINT, Spark's
    first rounding changes nothing, and `result` has room for all digits before the point."""
    whole = left.precision - left.scale + right.scale
    return (
        right.precision <= MOST_DIGITS
        and result.scale + right.precision <= 37
        and result.precision == whole + result.scale
        and result.scale >= left.scale - right.scale
    )


def divide(left: pa.Array, right: pa.Array, result: pa.DataType) -> Outcome:
    """The quotients in a type that `is_exact` accepts; fails where the divisor is 0."""
    out = np.zeros((len(left), 2), np.uint64)
    failed = np.zeros(len(left), np.bool_)
    power = result.scale - left.type.scale + right.type.scale
    _divide(halves_of(left), halves_of(right), power, out, failed)
    nulls = nulls_of(left) | nulls_of(right)
    return array_of_halves(out, nulls | failed, result), failed & ~nulls


def remainder(left: pa.Array, right: pa.Array, result: pa.DataType) -> Outcome:
    """The remainders, with the sign of the dividend, of decimals of one scale and at most MOST_DIGITS digits; fails
    where the divisor is 0."""
    dividend, divisor = (halves_of(each)[:, 0].astype(np.int64) for each in (left, right))
    failed = divisor == 0
    found = np.fmod(dividend, np.where(failed, 1, divisor))
    nulls = nulls_of(left) | nulls_of(right)
    halves = np.stack([found, found >> 63], axis=1).astype(np.uint64)
    return array_of_halves(halves, nulls | failed, result), failed & ~nulls


@jit
def _divide(left, right, power, out, failed):  # type: ignore[no-untyped-def]
    """Writes left * 10 ** power / right, rounded half up (away from zero), to `out`, and where `right` is 0 to `failed`
    [rows] bool. The numbers are two's complement, [rows, 2] uint64; those in `right` fit 63 bits."""
    dividend, divisor_limbs = np.zeros(_LIMBS, np.uint64), np.zeros(_LIMBS, np.uint64)
    one, top = np.uint64(1), np.uint64(31)
    for row in range(len(left)):
        negative = load_limbs(left[row, 0], left[row, 1], dividend)
        other = load_limbs(right[row, 0], right[row, 1], divisor_limbs)
        divisor = divisor_limbs[0] | (divisor_limbs[1] << np.uint64(32))
        if divisor == 0:
            failed[row] = True
            continue
        scale_up(dividend, power)
        remainder = np.uint64(0)
        for limb in range(_LIMBS - 1, -1, -1):
            digits = dividend[limb]
            if digits == 0 and remainder == 0:
                continue
            quotient = np.uint64(0)
            for bit in range(32):
                remainder = (remainder << one) | ((digits >> (top - np.uint64(bit))) & one)
                quotient <<= one
                if remainder >= divisor:
                    remainder -= divisor
                    quotient |= one
            dividend[limb] = quotient
        if remainder + remainder >= divisor:
            _add_one(dividend)
        store_limbs(dividend, negative != other, out[row])


@jit
def _add_one(limbs):  # type: ignore[no-untyped-def]
    """limbs = limbs + 1."""
    for limb in range(_LIMBS):
        limbs[limb] = (limbs[limb] + np.uint64(1)) & np.uint64(0xFFFFFFFF)
        if limbs[limb] != 0:
            break
