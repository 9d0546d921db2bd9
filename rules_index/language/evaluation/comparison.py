"""Comparisons of columns with Spark's meaning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


def compare(name: str, left: pa.Array, right: pa.Array) -> pa.Array:
    """A comparison as BOOLEAN, NULL where an operand is NULL. NaN equals NaN and is above all others; -0.0 equals
    0.0."""
    result = COMPARISONS[name](left, right)
    if not pa.types.is_floating(left.type):
        return result
    left_nan, right_nan = pc.is_nan(left), pc.is_nan(right)
    special = pc.fill_null(pc.or_(left_nan, right_nan), False)
    if not pc.any(special).as_py():
        return result
    ranks = COMPARISONS[name](left_nan.cast(pa.int8()), right_nan.cast(pa.int8()))
    return pc.if_else(special, ranks, result)
