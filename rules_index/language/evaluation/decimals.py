"""Exact decimal arithmetic on Arrow's 128-bit decimals, with Spark's rounding and overflow.

A number is a magnitude of eight 32-bit limbs, least significant first, and a sign. 256 bits are enough for any number
of 38 digits at any other scale. Functions return an array, and a mask [rows] bool of the rows that are not NULL and
whose result has more digits than its type.
"""

from __future__ import annotations

from decimal import Context, Decimal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rules_index.kernels.jit import jit
from rules_index.language.evaluation import narrow_decimals
from rules_index.language.evaluation.narrow_decimals import power_of_ten
from rules_index.language.evaluation.scalar import nulls_of

Mask = npt.NDArray[np.bool_]
Outcome = tuple[pa.Array, Mask]
_EXACT = Context(prec=100)
_OPERATIONS = {"add": 0, "subtract": 1}
_LIMBS = 8


def to_decimal(unscaled: int, scale: int) -> Decimal:
    """The number `unscaled / 10^scale`, exactly."""
    return Decimal(unscaled).scaleb(-scale, _EXACT)


def to_unscaled(number: Decimal, scale: int) -> int:
    """The number of units `10^-scale` in a number that has no finer ones."""
    return int(number.scaleb(scale, _EXACT))


def halves_of(values: pa.Array) -> npt.NDArray[np.uint64]:
    """The low and high 64 bits of two's complement, [rows, 2] uint64, 0 for NULL."""
    if values.null_count:
        values = pc.fill_null(values, pa.scalar(Decimal(0), values.type))
    if len(values) == 0:
        return np.zeros((0, 2), np.uint64)
    raw = np.frombuffer(values.buffers()[1], np.uint64)
    return raw.reshape(-1, 2)[values.offset : values.offset + len(values)]


def array_of_halves(halves: npt.NDArray[np.uint64], nulls: Mask, data_type: pa.DataType) -> pa.Array:
    """Decimals of two's complement, [rows, 2] uint64, NULL where `nulls` [rows] bool."""
    validity = pa.array(~nulls).buffers()[1] if nulls.any() else None
    return pa.Array.from_buffers(data_type, len(halves), [validity, pa.py_buffer(np.ascontiguousarray(halves))])


_MOST_PLAIN = 6
"""The greatest scale with which Arrow always writes all digits; with a greater one it may write an exponent."""


def spelled(values: pa.Array) -> pa.Array:
    """The values as texts, with all their decimals."""
    if values.type.scale <= _MOST_PLAIN:
        return values.cast(pa.string())
    codes = values.dictionary_encode()
    texts = pa.array([format(each, "f") for each in codes.dictionary.to_pylist()], pa.string())
    return texts.take(codes.indices)


def operate(name: str, left: pa.Array, right: pa.Array, target: pa.DataType) -> Outcome:
    """The sum or difference in the target type, rounded half up (away from zero) if that has fewer decimals."""
    out = np.zeros((len(left), 2), np.uint64)
    failed, done = np.zeros(len(left), np.bool_), np.zeros(len(left), np.bool_)
    numbers, scales = (halves_of(left), halves_of(right)), (left.type.scale, right.type.scale)
    common = max(scales)
    steps = (*(common - each for each in scales), max(common - target.scale, 0), max(target.scale - common, 0))
    factors = [power_of_ten(each) for each in steps]
    if all(factors):
        limit = power_of_ten(target.precision)
        narrow_decimals.operate(name == "subtract", *numbers, *factors, limit, out, failed, done)
    if not done.all():
        _operate(_OPERATIONS[name], *numbers, *scales, target.scale, target.precision, out, failed, done)
    nulls = nulls_of(left) | nulls_of(right)
    return array_of_halves(out, nulls | failed, target), failed & ~nulls


def rescale(values: pa.Array, target: pa.DataType) -> Outcome:
    """The values in another decimal type, rounded half up."""
    zero = pa.repeat(pa.scalar(Decimal(0), values.type), len(values))
    return operate("add", values, zero, target)


def negative_or_absolute(name: str, values: pa.Array) -> Outcome:
    """`negate` or `abs` in the same type.

    For more than 18 digits Spark uses Java's arithmetic with 34 digits, which rounds half to even.
    """
    out = np.zeros((len(values), 2), np.uint64)
    failed, done = np.zeros(len(values), np.bool_), np.zeros(len(values), np.bool_)
    numbers, precision = halves_of(values), values.type.precision
    narrow_decimals.change_sign(numbers, name == "abs", power_of_ten(precision), out, failed, done)
    if not done.all():
        _change_sign(numbers, name == "abs", precision, out, failed, done)
    nulls = nulls_of(values)
    return array_of_halves(out, nulls | failed, values.type), failed & ~nulls


def to_integers(values: pa.Array) -> tuple[npt.NDArray[np.int64], Mask]:
    """The values truncated toward zero, `[rows] int64`, and a mask of those that overflow."""
    whole = np.zeros(len(values), np.int64)
    failed = np.zeros(len(values), np.bool_)
    _truncate(halves_of(values), values.type.scale, whole, failed)
    return whole, failed & ~nulls_of(values)


def from_floats(values: pa.Array, target: pa.DataType) -> Outcome:
    """DOUBLEs as decimals, from their shortest decimal form, rounded half up; NaN and infinities become NULL."""
    text = values.cast(pa.large_string())
    finite = pc.fill_null(pc.is_finite(values), False).to_numpy(zero_copy_only=False)
    out = np.zeros((len(values), 2), np.uint64)
    failed = np.zeros(len(values), np.bool_)
    if len(values):
        offsets = np.frombuffer(text.buffers()[1], np.int64)[text.offset : text.offset + len(text) + 1]
        data = np.frombuffer(text.buffers()[2], np.uint8) if text.buffers()[2] else np.zeros(0, np.uint8)
        _parse(data, offsets, finite, target.scale, target.precision, out, failed)
    return array_of_halves(out, ~finite | failed, target), failed & finite


@jit
def load_limbs(low, high, limbs):  # type: ignore[no-untyped-def]
    """Writes the magnitude of a number in two's complement to `limbs` [8] uint64; returns whether the number is
    negative."""
    negative = (high >> np.uint64(63)) != 0
    if negative:
        low = ~low + np.uint64(1)
        high = ~high + np.uint64(1 if low == 0 else 0)
    mask = np.uint64(0xFFFFFFFF)
    limbs[:] = 0
    limbs[0], limbs[1] = low & mask, low >> np.uint64(32)
    limbs[2], limbs[3] = high & mask, high >> np.uint64(32)
    return negative


@jit
def store_limbs(limbs, negative, out):  # type: ignore[no-untyped-def]
    """Writes a magnitude and its sign as two's complement to `out` [2] uint64."""
    low = limbs[0] | (limbs[1] << np.uint64(32))
    high = limbs[2] | (limbs[3] << np.uint64(32))
    if negative:
        low = ~low + np.uint64(1)
        high = ~high + np.uint64(1 if low == 0 else 0)
    out[0], out[1] = low, high


@jit
def _times_small(limbs, factor, plus):  # type: ignore[no-untyped-def]
    """limbs = limbs * factor + plus."""
    carry = np.uint64(plus)
    for index in range(_LIMBS):
        value = limbs[index] * np.uint64(factor) + carry
        limbs[index] = value & np.uint64(0xFFFFFFFF)
        carry = value >> np.uint64(32)


@jit
def scale_up(limbs, power):  # type: ignore[no-untyped-def]
    """limbs = limbs * 10 ** power."""
    while power >= 9:
        _times_small(limbs, 1000000000, 0)
        power -= 9
    for _ in range(power):
        _times_small(limbs, 10, 0)


@jit
def _divide_by_ten(limbs):  # type: ignore[no-untyped-def]
    """Divides the limbs in place; returns the remainder, their last decimal digit."""
    remainder = np.uint64(0)
    for index in range(_LIMBS - 1, -1, -1):
        value = (remainder << np.uint64(32)) | limbs[index]
        limbs[index] = value // np.uint64(10)
        remainder = value % np.uint64(10)
    return remainder


@jit
def _scale_down(limbs, power, half_up):  # type: ignore[no-untyped-def]
    """Drops decimal digits, rounding half up (away from zero) or truncating."""
    if power <= 0:
        return
    for _ in range(power - 1):
        _divide_by_ten(limbs)
    last = _divide_by_ten(limbs)
    if half_up and last >= np.uint64(5):
        for index in range(_LIMBS):
            limbs[index] += np.uint64(1)
            if limbs[index] <= np.uint64(0xFFFFFFFF):
                break
            limbs[index] = np.uint64(0)


@jit
def _digits(limbs, spare):  # type: ignore[no-untyped-def]
    """The number of decimal digits of a magnitude (0 for zero); `spare` is scratch."""
    spare[:] = limbs
    count = 0
    while True:
        empty = True
        for index in range(_LIMBS):
            if spare[index]:
                empty = False
        if empty:
            return count
        small = spare[0] < np.uint64(10)
        for index in range(1, _LIMBS):
            if spare[index]:
                small = False
        if small:
            return count + 1
        _divide_by_ten(spare)
        count += 1


@jit
def _less(a, b):  # type: ignore[no-untyped-def]
    """Whether magnitude a is less than magnitude b."""
    for index in range(_LIMBS - 1, -1, -1):
        if a[index] != b[index]:
            return a[index] < b[index]
    return False


@jit
def _add(a, b):  # type: ignore[no-untyped-def]
    """a += b."""
    carry = np.uint64(0)
    for index in range(_LIMBS):
        value = a[index] + b[index] + carry
        a[index] = value & np.uint64(0xFFFFFFFF)
        carry = value >> np.uint64(32)


@jit
def _subtract(a, b, out):  # type: ignore[no-untyped-def]
    """out = a - b where a >= b."""
    borrow = np.uint64(0)
    for index in range(_LIMBS):
        value = a[index] - b[index] - borrow
        out[index] = value & np.uint64(0xFFFFFFFF)
        borrow = np.uint64(1) if value >> np.uint64(32) else np.uint64(0)


@jit
def _operate(  # type: ignore[no-untyped-def]
    operation, left, right, left_scale, right_scale, scale, precision, out, failed, done
):
    """Adds (operation 0) or subtracts (1) left and right [rows, 2] uint64 in rows that are not `done` [rows] bool;
    writes `out` [rows, 2] uint64 and `failed` [rows] bool."""
    a, b = np.zeros(_LIMBS, np.uint64), np.zeros(_LIMBS, np.uint64)
    result, spare = np.zeros(_LIMBS, np.uint64), np.zeros(_LIMBS, np.uint64)
    limit = np.zeros(_LIMBS, np.uint64)
    limit[0] = 1
    scale_up(limit, precision)
    for row in range(len(left)):
        if done[row]:
            continue
        a_negative = load_limbs(left[row, 0], left[row, 1], a)
        b_negative = load_limbs(right[row, 0], right[row, 1], b)
        if operation == 1:
            b_negative = not b_negative
        common_scale = max(left_scale, right_scale)
        scale_up(a, common_scale - left_scale)
        scale_up(b, common_scale - right_scale)
        if a_negative == b_negative:
            result[:] = a
            _add(result, b)
            negative = a_negative
        elif _less(a, b):
            _subtract(b, a, result)
            negative = b_negative
        else:
            _subtract(a, b, result)
            negative = a_negative
        if common_scale > scale:
            _scale_down(result, common_scale - scale, True)
        elif common_scale < scale:
            if _digits(result, spare) + scale - common_scale > precision:
                failed[row] = True
                continue
            scale_up(result, scale - common_scale)
        if _less(result, limit):
            store_limbs(result, negative, out[row])
        else:
            failed[row] = True


@jit
def _change_sign(halves, absolute, precision, out, failed, done):  # type: ignore[no-untyped-def]
    """`negate` or, if `absolute`, `abs` of halves [rows, 2] uint64 that are not `done` [rows] bool; writes `out` [rows,
    2] uint64 and `failed` [rows] bool."""
    limbs, spare = np.zeros(_LIMBS, np.uint64), np.zeros(_LIMBS, np.uint64)
    for row in range(len(halves)):
        if done[row]:
            continue
        negative = load_limbs(halves[row, 0], halves[row, 1], limbs)
        if absolute and not negative:
            out[row] = halves[row]
            continue
        extra = _digits(limbs, spare) - 34 if precision > 34 else 0
        if extra > 0:
            rest, half = np.uint64(0), np.uint64(5)
            for step in range(extra):
                if step:
                    half *= np.uint64(10)
                rest += _divide_by_ten(limbs) * (half // np.uint64(5))
            if rest > half or (rest == half and limbs[0] & np.uint64(1)):
                _times_small(limbs, 1, 1)
            scale_up(limbs, extra)
        if _digits(limbs, spare) > precision:
            failed[row] = True
        else:
            store_limbs(limbs, not negative, out[row])


@jit
def _truncate(halves, scale, whole, failed):  # type: ignore[no-untyped-def]
    """Writes halves [rows, 2] uint64 truncated toward zero to `whole` [rows] int64, and overflows to `failed` [rows]
    bool."""
    limbs = np.zeros(_LIMBS, np.uint64)
    for row in range(len(halves)):
        negative = load_limbs(halves[row, 0], halves[row, 1], limbs)
        _scale_down(limbs, scale, False)
        low = limbs[0] | (limbs[1] << np.uint64(32))
        top = np.uint64(1) << np.uint64(63)
        if limbs[2] or limbs[3] or low > top or (low == top and not negative):
            failed[row] = True
            continue
        whole[row] = np.int64(~low + np.uint64(1)) if negative else np.int64(low)


@jit
def _parse(data, offsets, finite, scale, precision, out, failed):  # type: ignore[no-untyped-def]
    """Parses decimal text such as -1.5e-07 into unscaled values of the target type.

    Row i is `data[offsets[i]:offsets[i + 1]]` if `finite[i]`; writes `out` [rows, 2] uint64 and `failed` [rows] bool.
    """
    limbs, spare = np.zeros(_LIMBS, np.uint64), np.zeros(_LIMBS, np.uint64)
    for row in range(len(finite)):
        if not finite[row]:
            continue
        limbs[:] = 0
        negative = False
        fraction, exponent, exponent_sign = 0, 0, 1
        seen_point = seen_exponent = False
        for index in range(offsets[row], offsets[row + 1]):
            byte = data[index]
            if 0x30 <= byte <= 0x39:
                if seen_exponent:
                    exponent = exponent * 10 + (byte - 0x30)
                else:
                    _times_small(limbs, 10, byte - 0x30)
                    if seen_point:
                        fraction += 1
            elif byte == 0x2E:
                seen_point = True
            elif byte == 0x65 or byte == 0x45:
                seen_exponent = True
            elif byte == 0x2D:
                if seen_exponent:
                    exponent_sign = -1
                else:
                    negative = True
        shift = exponent * exponent_sign - fraction + scale
        digits = _digits(limbs, spare)
        if digits == 0:
            continue
        if digits + shift > precision:
            failed[row] = True
            continue
        if shift >= 0:
            scale_up(limbs, shift)
        else:
            _scale_down(limbs, min(-shift, 80), True)
        if _digits(limbs, spare) > precision:
            failed[row] = True
        else:
            store_limbs(limbs, negative, out[row])
