"""Arithmetic that detects overflow and division by zero, and casts between numbers, as Spark's ANSI mode does them.

Functions return an Arrow array, and a mask of the rows that are not NULL and on which the computation failed (`[rows]
bool`, None if it cannot fail).
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rules_index.language.evaluation import decimals, string_casts
from rules_index.language.patterns.strings import decodable

Mask = npt.NDArray[np.bool_]
Outcome = tuple[pa.Array, Mask | None]
_LONG_DIGITS = 18
"""The most digits of a DECIMAL that Spark stores as a BIGINT."""
_MIN_LONG, _MAX_LONG = np.iinfo(np.int64).min, np.iinfo(np.int64).max


def can_cast(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether `cast` converts between two types: BOOLEAN and numbers; texts to integers, decimals and the types in
    `_SPELLED`; integers, decimals and BOOLEANs to texts; a type to itself."""
    t = pa.types
    if t.is_string(source) and (t.is_integer(target) or t.is_decimal(target) or target in _SPELLED):
        return True
    if t.is_string(target) and (t.is_integer(source) or t.is_boolean(source) or t.is_decimal(source)):
        return True
    return source == target or (_is_number(source) and _is_number(target))


def _is_number(data_type: pa.DataType) -> bool:
    t = pa.types
    return bool(
        t.is_boolean(data_type) or t.is_integer(data_type) or t.is_floating(data_type) or t.is_decimal(data_type)
    )


def _numbers(values: pa.Array) -> npt.NDArray[Any]:
    """The values as a NumPy array, 0 for NULL."""
    return (pc.fill_null(values, 0) if values.null_count else values).to_numpy(zero_copy_only=False)


def _like_nulls_of(numbers: npt.NDArray[Any], values: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Numbers as an Arrow array, NULL where `values` are NULL."""
    mask = values.is_null().to_numpy(zero_copy_only=False) if values.null_count else None
    return pa.array(numbers, data_type, mask=mask)


def integer_operation(name: str, left: pa.Array, right: pa.Array, data_type: pa.DataType) -> Outcome:
    """The sum, difference or product of integers of one type; fails on overflow."""
    a, b = _numbers(left).astype(np.int64), _numbers(right).astype(np.int64)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        if name == "add":
            result = a + b
            failed = ((a ^ result) & (b ^ result)) < 0
        elif name == "subtract":
            result = a - b
            failed = ((a ^ b) & (a ^ result)) < 0
        else:
            result = a * b
            # A wrapped product does not divide back, except for the one quotient that itself overflows
            failed = (a != 0) & (result // np.where(a == 0, 1, a) != b) | ((a == -1) & (b == _MIN_LONG))
    values, narrow = _narrow(result, data_type)
    nulls = pc.or_(left.is_null(), right.is_null()).to_numpy(zero_copy_only=False)
    return pa.array(values, data_type, mask=nulls), (failed | narrow) & ~nulls


def divide(name: str, left: pa.Array, right: pa.Array) -> Outcome:
    """`divide` of DOUBLEs, `quotient` of BIGINTs (toward zero), `remainder` (with the sign of the dividend) or
    `positive_remainder` of numbers of one type. Fails where the divisor is 0 or the type cannot hold the quotient."""
    a, b = _numbers(left), _numbers(right)
    nulls = pc.or_(left.is_null(), right.is_null()).to_numpy(zero_copy_only=False)
    failed = b == 0
    if name == "quotient":
        failed = failed | ((a == _MIN_LONG) & (b == -1))
    # a division by -1 overflows for the least integer; it is avoided, since its remainder is always 0
    is_remainder = name in ("remainder", "positive_remainder")
    avoided = failed | (b == -1) if is_remainder and not pa.types.is_floating(left.type) else failed
    divisors = np.where(avoided, np.ones_like(b), b)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        if name == "divide":
            result = a / divisors
        elif name == "quotient":
            result = a // divisors
            result += (result < 0) & (result * divisors != a)
        else:
            result = np.fmod(a, divisors)
        if name == "positive_remainder":
            result = np.where(result < 0, np.fmod(_as_in_java(result) + divisors, divisors), result)
    return pa.array(result, left.type, mask=nulls), failed & ~nulls


def _as_in_java(numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Integers in the type in which Java computes with them: at least an INT."""
    return numbers.astype(np.int32) if numbers.dtype in (np.int8, np.int16) else numbers


def _narrow(numbers: npt.NDArray[np.int64], data_type: pa.DataType) -> tuple[npt.NDArray[Any], Mask]:
    """The numbers in an integer type that may be narrower, and a mask of those that overflow it."""
    kind = data_type.to_pandas_dtype()
    bounds = np.iinfo(kind)
    return numbers.astype(kind), (numbers < bounds.min) | (numbers > bounds.max)


def negative_or_absolute(name: str, values: pa.Array) -> Outcome:
    """`negate` or `abs`; fails on overflow."""
    if pa.types.is_integer(values.type):
        lowest = np.iinfo(values.type.to_pandas_dtype()).min
        failed = _numbers(values) == lowest
        return (pc.negate if name == "negate" else pc.abs)(values), failed
    if pa.types.is_decimal(values.type):
        return decimals.negative_or_absolute(name, values)
    return (pc.negate if name == "negate" else pc.abs)(values), None


def cast(values: pa.Array, target: pa.DataType) -> Outcome:
    """Casts between types that `can_cast` accepts. Fails where the target cannot hold the value, or a text has none."""
    source, t = values.type, pa.types
    if source == target:
        return values, None
    if not can_cast(source, target):
        raise ValueError(f"No cast from {source} to {target} is evaluated here.")
    if t.is_string(source):
        return _from_texts(decodable(values), target)
    if t.is_string(target):
        return decimals.spelled(values) if t.is_decimal(source) else values.cast(target), None
    if t.is_boolean(target):
        zero = pa.scalar(Decimal(0) if t.is_decimal(source) else 0, source)
        return pc.not_equal(values, zero), None
    if t.is_boolean(source):
        values, source = values.cast(pa.int8()), pa.int8()
    if t.is_decimal(source):
        return _from_decimal(values, target)
    if t.is_decimal(target):
        if t.is_floating(source):
            return decimals.from_floats(values.cast(pa.float64()), target)
        return decimals.rescale(values.cast(pa.int64()).cast(pa.decimal128(19, 0)), target)
    numbers = _numbers(values)
    if t.is_floating(target):
        with np.errstate(over="ignore", invalid="ignore"):
            return _like_nulls_of(numbers.astype(target.to_pandas_dtype()), values, target), None
    if t.is_floating(source):
        return _float_to_integer(numbers, values, target)
    narrow, failed = _narrow(numbers.astype(np.int64), target)
    return _like_nulls_of(narrow, values, target), failed


_SPELLED = {pa.bool_(): string_casts.booleans, pa.date32(): string_casts.dates, pa.float64(): string_casts.doubles}
"""The casts of texts, by target type, other than to integers and decimals."""


def _from_texts(texts: pa.Array, target: pa.DataType) -> Outcome:
    """Casts texts, which must be valid UTF-8."""
    if pa.types.is_decimal(target):
        return string_casts.decimals(texts, target)
    if not pa.types.is_integer(target):
        return _SPELLED[target](texts)
    numbers, failed = string_casts.integers(texts)
    narrow, beyond = _narrow(numbers, target)
    return _like_nulls_of(narrow, texts, target), failed | beyond


def _float_to_integer(numbers: npt.NDArray[Any], values: pa.Array, target: pa.DataType) -> Outcome:
    """Truncation toward zero. NaN and values out of range fail, but 2^63 becomes the largest BIGINT, as in Java."""
    kind = target.to_pandas_dtype()
    bounds = np.iinfo(kind)
    wide = numbers.astype(np.float64)
    fits = (np.floor(wide) <= np.float64(bounds.max)) & (np.ceil(wide) >= np.float64(bounds.min))
    saturated = fits & (wide >= 2.0**63)
    whole = np.where(fits & ~saturated, wide, 0).astype(np.int64)
    whole[saturated] = _MAX_LONG
    return _like_nulls_of(whole.astype(kind), values, target), ~fits


def _from_decimal(values: pa.Array, target: pa.DataType) -> Outcome:
    if pa.types.is_decimal(target):
        return decimals.rescale(values, target)
    if pa.types.is_floating(target):
        # Through a string, because both steps round correctly
        return values.cast(pa.string()).cast(target), None
    if values.type.precision > _LONG_DIGITS and target != pa.int64():
        # Spark first casts to DOUBLE here, so that 0.99999999999999999999 becomes 1
        doubles = values.cast(pa.string()).cast(pa.float64())
        return _float_to_integer(_numbers(doubles), doubles, target)
    whole, failed = decimals.to_integers(values)
    narrow, outside = _narrow(whole, target)
    return _like_nulls_of(narrow, values, target), failed | outside
