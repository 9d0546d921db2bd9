"""The value of a constant as Arrow has it, and back."""

from __future__ import annotations

import pyarrow as pa

from rules_index.language.evaluation import decimals
from rules_index.language.typed import Constant


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
    """A computed value, [1], as a constant. None for arrays, maps, structs, intervals, and texts that are not UTF-8."""
    data_type = values.type
    if pa.types.is_nested(data_type) or pa.types.is_duration(data_type):
        return None
    if values.null_count:
        return Constant(None, data_type)
    if pa.types.is_decimal(data_type):
        return Constant(decimals.to_unscaled(values[0].as_py(), data_type.scale), data_type)
    if pa.types.is_string(data_type):
        try:
            return Constant(values[0].as_py(), data_type)
        except UnicodeDecodeError:
            return None
    if pa.types.is_date32(data_type):
        values = values.cast(pa.int32())
    elif pa.types.is_timestamp(data_type):
        values = values.cast(pa.int64())
    return Constant(values[0].as_py(), data_type)
