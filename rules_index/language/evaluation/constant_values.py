"""The value of a constant as Arrow has it, and back."""

from __future__ import annotations

import pyarrow as pa

from rules_index.language.evaluation import decimals
from rules_index.language.typed import Constant

_LONGEST_TEXT = 10_000
"""The greatest length in bytes of a text that is computed while a rule is compiled."""


def constant_scalar(constant: Constant) -> pa.Scalar:
    """A constant as an Arrow scalar."""
    value, data_type = constant.value, constant.type
    if value is None:
        return pa.scalar(None, data_type)
    if pa.types.is_decimal(data_type):
        return pa.scalar(decimals.to_decimal(value, data_type.scale), data_type)
    if pa.types.is_date32(data_type):
        return pa.scalar(value, pa.int32()).cast(data_type)
    if pa.types.is_timestamp(data_type):
        return pa.scalar(value, pa.int64()).cast(data_type)
    return pa.scalar(value, data_type)


def constant_of(values: pa.Array) -> Constant | None:
    """A computed value, [1], as a constant. None for arrays, maps and structs, texts that are not UTF-8, and very long
    ones."""
    data_type = values.type
    if pa.types.is_nested(data_type):
        return None
    if values.null_count:
        return Constant(None, data_type)
    if pa.types.is_decimal(data_type):
        return Constant(decimals.to_unscaled(values[0].as_py(), data_type.scale), data_type)
    if pa.types.is_string(data_type):
        text = values.cast(pa.binary())[0].as_py()
        try:
            return Constant(text.decode(), data_type) if len(text) <= _LONGEST_TEXT else None
        except UnicodeDecodeError:
            return None
    if pa.types.is_date32(data_type):
        values = values.cast(pa.int32())
    elif pa.types.is_timestamp(data_type):
        values = values.cast(pa.int64())
    return Constant(values[0].as_py(), data_type)
