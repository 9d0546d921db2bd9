"""Remainders of decimals, and quotients with Spark's rounding: half away from zero, first to 38 digits behind the
point, then in the type of the result."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from rules_index.kernels.jit import jit
from rules_index.language.evaluation import narrow_decimals
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


_FIRST_SCALE = 38
"""Digits behind the point to which Spark rounds a quotient first."""


def is_exact(
    left: pa.Decimal128Type, right: pa.Decimal128Type, result: pa.Decimal128Type, of_integers: bool = False
) -> bool:
    """Whether `divide` computes quotients of these types exactly as Spark does: the divisor fits a BIGINT, and `result`
    has room for all digits before the point. of_integers: the divisors are integers."""
    whole = left.precision - left.scale + right.scale
    return (
        (right.precision <= MOST_DIGITS or of_integers)
        and result.precision == whole + result.scale
        and result.scale >= left.scale - right.scale
    )


def divide(left: pa.Array, right: pa.Array, result: pa.DataType) -> Outcome:
    """The quotients in a type that `is_exact` accepts; fails where the divisor is 0."""
    out = np.zeros((len(left), 2), np.uint64)
    failed, done = np.zeros(len(left), np.bool_), np.zeros(len(left), np.bool_)
    numbers = halves_of(left), halves_of(right)
    power = result.scale - left.type.scale + right.type.scale
    # more than 19 steps between both roundings, or none, come to one rounding
    steps = np.uint64(10 ** min(_FIRST_SCALE - result.scale or 19, 19))
    narrow_decimals.divide(*numbers, power, steps, out, failed, done)
    if not done.all():
        _divide(*numbers, power, steps, out, failed, done)
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
def _divide(left, right, power, steps, out, failed, done):  # type: ignore[no-untyped-def]
    """Writes left * 10 ** power / right, rounded half up (away from zero), to `out`, and where `right` is 0 to `failed`
    [rows] bool, in rows that are not `done` [rows] bool. It is rounded twice, first to multiples of 1 / steps. The
    numbers are two's complement, [rows, 2] uint64; those in `right` are at most 2 ** 63."""
    dividend, divisor_limbs = np.zeros(_LIMBS, np.uint64), np.zeros(_LIMBS, np.uint64)
    one, top = np.uint64(1), np.uint64(31)
    for row in range(len(left)):
        if done[row]:
            continue
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
        # the first rounding makes a half of what lacks half a step, or less
        if remainder + remainder >= divisor or divisor - remainder - remainder <= divisor // steps:
            _add_one(dividend)
        store_limbs(dividend, negative != other, out[row])


@jit
def _add_one(limbs):  # type: ignore[no-untyped-def]
    """limbs = limbs + 1."""
    for limb in range(_LIMBS):
        limbs[limb] = (limbs[limb] + np.uint64(1)) & np.uint64(0xFFFFFFFF)
        if limbs[limb] != 0:
            break
