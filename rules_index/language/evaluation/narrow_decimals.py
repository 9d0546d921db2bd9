"""Decimal arithmetic where the numbers fit 64 bits, as those of 18 digits do: a tenth of the time of that with limbs.

Kernels take numbers in two's complement, [rows, 2] uint64, and write results in that form to `out`. They set `done`
[rows] bool for each row whose operands and results fit; the others are left to the kernels of `decimals` and
`decimal_division`, which give the same results. `failed` [rows] bool: rows whose result has too many digits, or whose
divisor is 0.
"""

from __future__ import annotations

import numpy as np

from rules_index.kernels.jit import inlined, jit

MOST = (1 << 63) - 1
_MOST_DIVISOR = 10**10
"""The remainders of smaller divisors, times 10 ** `_CHUNK_DIGITS`, fit 64 bits."""
_CHUNK_DIGITS = 9


def power_of_ten(exponent: int) -> int:
    """10 ** exponent; 0 if that does not fit 64 bits."""
    return 10**exponent if exponent <= 18 else 0


@inlined
def _fits(number):  # type: ignore[no-untyped-def]
    """Whether a number in two's complement, [2] uint64, and its negative fit 64 bits."""
    low = np.int64(number[0])
    return np.int64(number[1]) == low >> 63 and low != -MOST - 1


@inlined
def _store(value, out):  # type: ignore[no-untyped-def]
    """Writes an int64 to `out` [2] uint64."""
    out[0], out[1] = np.uint64(value), np.uint64(value >> 63)


@jit
def operate(  # type: ignore[no-untyped-def]
    is_difference, left, right, left_factor, right_factor, divisor, factor, limit, out, failed, done
):
    """(left * left_factor ± right * right_factor) / divisor * factor, rounded half up (away from zero); fails from
    `limit` on, if that is not 0."""
    most_left, most_right, most = MOST // 2 // left_factor, MOST // 2 // right_factor, MOST // factor
    for row in range(len(left)):
        a, b = np.int64(left[row, 0]), np.int64(right[row, 0])
        if not (_fits(left[row]) and _fits(right[row]) and abs(a) <= most_left and abs(b) <= most_right):
            continue
        result = a * left_factor + (-b if is_difference else b) * right_factor
        magnitude = abs(result)
        if divisor > 1:
            rest = magnitude % divisor
            magnitude = magnitude // divisor + (rest >= divisor - rest)
        if magnitude > most:
            continue
        magnitude *= factor
        done[row] = True
        if limit and magnitude >= limit:
            failed[row] = True
        else:
            _store(-magnitude if result < 0 else magnitude, out[row])


@jit
def change_sign(numbers, absolute, limit, out, failed, done):  # type: ignore[no-untyped-def]
    """The negative of each number or, if `absolute`, of negative ones alone; fails from `limit` on, if that is not
    0."""
    for row in range(len(numbers)):
        if not _fits(numbers[row]):
            continue
        number = np.int64(numbers[row, 0])
        done[row] = True
        if absolute and number >= 0:
            out[row] = numbers[row]
        elif limit and abs(number) >= limit:
            failed[row] = True
        else:
            _store(-number, out[row])


@jit
def divide(left, right, power, steps, out, failed, done):  # type: ignore[no-untyped-def]
    """left * 10 ** power / right, rounded half up (away from zero), first to multiples of 1 / steps; fails where
    `right` is 0. Quotients fit 128 bits; they grow by `_CHUNK_DIGITS` digits at a time."""
    half, low_half = np.uint64(32), np.uint64(0xFFFFFFFF)
    for row in range(len(left)):
        if not (_fits(left[row]) and _fits(right[row])):
            continue
        divisor = np.uint64(abs(np.int64(right[row, 0])))
        if divisor >= np.uint64(_MOST_DIVISOR):
            continue
        done[row] = True
        if divisor == 0:
            failed[row] = True
            continue
        dividend = np.uint64(abs(np.int64(left[row, 0])))
        low, high, rest = dividend // divisor, np.uint64(0), dividend % divisor
        digits = power
        while digits > 0:
            chunk = min(digits, _CHUNK_DIGITS)
            digits -= chunk
            factor = np.uint64(10**chunk)
            product = rest * factor
            bottom = (low & low_half) * factor + product // divisor
            top = (low >> half) * factor + (bottom >> half)
            low, high = (top << half) | (bottom & low_half), high * factor + (top >> half)
            rest = product % divisor
        # the first rounding makes a half of what lacks half a step, or less
        if rest + rest >= divisor or divisor - rest - rest <= divisor // steps:
            low += np.uint64(1)
            high += np.uint64(low == 0)
        if (np.int64(left[row, 1]) < 0) != (np.int64(right[row, 1]) < 0):
            low = ~low + np.uint64(1)
            high = ~high + np.uint64(low == 0)
        out[row, 0], out[row, 1] = low, high
