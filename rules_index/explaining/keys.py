"""Converts keys to numbers and to arrays of values, and finds the keys of values around a number."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date
from fractions import Fraction

import numpy as np
import pyarrow as pa

from rules_index.domains.values import NAN_KEY, Key, decimals, float_key
from rules_index.implication.representatives import doubles, least_text
from rules_index.language import constants
from rules_index.language.coercion import is_decimal, is_float

INFINITY_KEY = float_key(math.inf)
DAY = 86_400_000_000
"""Microseconds."""
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_FIRST_DAY, _LAST_DAY = date.min.toordinal() - _EPOCH_DAY, date.max.toordinal() - _EPOCH_DAY


def float32_keys(value: float) -> list[int]:
    """The keys of the FLOATs around a DOUBLE."""
    with np.errstate(over="ignore"):
        near = np.float32(value)
        around = [near, np.nextafter(near, np.float32(-np.inf)), np.nextafter(near, np.float32(np.inf))]
    return [float_key(float(each)) for each in around]


def fraction(key: Key, data_type: pa.DataType) -> Fraction | None:
    """The number of a key; None for NaN and infinities."""
    if is_float(data_type):
        value = float(doubles(np.array([min(key, NAN_KEY)], np.int64))[0]) if abs(key) < 1 << 63 else math.nan
        return Fraction(value) if math.isfinite(value) else None
    return Fraction(key, 10**data_type.scale) if is_decimal(data_type) else Fraction(key)


def keys_around(value: Fraction, data_type: pa.DataType) -> list[Key]:
    """Keys of the numbers of a type around a number, ascending."""
    if not is_float(data_type):
        units = math.floor(value * (10**data_type.scale if is_decimal(data_type) else 1))
        return [units - 1, units, units + 1, units + 2]
    try:
        near = float(value)
    except OverflowError:
        return [0, 0]
    if data_type == pa.float32():
        return sorted(float32_keys(near))
    key = float_key(near)
    return [key - 1, key, key + 1]


def is_a_value(key: Key, data_type: pa.DataType) -> bool:
    """Whether a key belongs to a value of the type that Python can represent."""
    least, greatest = constants.domain(data_type)
    if key < least or (greatest is not None and key > greatest):
        return False
    if is_float(data_type):
        return bool(key <= INFINITY_KEY or key == NAN_KEY)
    if pa.types.is_date(data_type):
        return bool(_FIRST_DAY <= key <= _LAST_DAY)
    if pa.types.is_timestamp(data_type):
        return bool(_FIRST_DAY + 1 <= key // DAY <= _LAST_DAY - 1)
    if pa.types.is_string(data_type):
        return least_text(key) == key
    return True


def values_of(keys: Sequence[Key], data_type: pa.DataType) -> pa.Array:
    """The values of keys."""
    if is_float(data_type):
        return pa.array(doubles(np.array(keys, np.int64)).astype(data_type.to_pandas_dtype()))
    if is_decimal(data_type):
        return decimals(keys, data_type)
    if pa.types.is_boolean(data_type):
        return pa.array([bool(key) for key in keys], data_type)
    if pa.types.is_string(data_type):
        return pa.array([key.decode() for key in keys], data_type)
    if pa.types.is_binary(data_type):
        return pa.array(keys, data_type)
    return pa.array(np.array(keys, f"int{data_type.bit_width}")).view(data_type)
