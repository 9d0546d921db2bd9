"""The type that an allowed function returns for arguments of known types."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from rules_index.language.coercion import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    STRING,
    IncompatibleTypesError,
    Type,
    adjusted,
    common_of_all,
    is_decimal,
    is_float,
    is_integer,
    is_joined_as_text,
    is_number,
    shifted_type,
)
from rules_index.language.function_signatures import Function
from rules_index.language.type_names import DAY_INTERVAL, MONTH_INTERVAL, TIMESTAMP, TIMESTAMP_NTZ

_FIXED: dict[str, Type] = {
    "string": STRING,
    "int": INT,
    "bigint": BIGINT,
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "boolean": BOOLEAN,
    "double": DOUBLE,
    "float": FLOAT,
    "date": DATE,
    "timestamp": TIMESTAMP,
    "ntz": TIMESTAMP_NTZ,
    "binary": BINARY,
    "interval": DAY_INTERVAL,
    "months": MONTH_INTERVAL,
    "strings": pa.list_(STRING),
    "unknown": None,
}


def result_type(function: Function, arguments: Sequence[Type]) -> Type:
    """The result's type; None if only Spark knows. Raises `IncompatibleTypesError`."""
    rule = function.result
    if rule in _FIXED:
        return _FIXED[rule]
    return _RULES[rule](arguments)


def _first(arguments: Sequence[Type]) -> Type:
    return arguments[0]


def _text(arguments: Sequence[Type]) -> Type:
    first = arguments[0]
    if first == BINARY or first is None:
        return None
    return STRING if not pa.types.is_nested(first) else None


def _number(arguments: Sequence[Type]) -> Type:
    return arguments[0] if is_number(arguments[0]) else None


def _whole(arguments: Sequence[Type]) -> Type:
    first = arguments[0]
    if len(arguments) > 1 or first is None:
        return None
    if is_decimal(first) and first.scale == 0:
        return first
    if is_decimal(first):
        return adjusted(first.precision - first.scale + 1, 0)
    return BIGINT if is_integer(first) or is_float(first) else None


def _rounded(arguments: Sequence[Type]) -> Type:
    return arguments[0] if is_integer(arguments[0]) or is_float(arguments[0]) else None


def _shift(arguments: Sequence[Type]) -> Type:
    return shifted_type(arguments[0])


def _concat(arguments: Sequence[Type]) -> Type:
    return STRING if all(map(is_joined_as_text, arguments)) else None


def _array(arguments: Sequence[Type]) -> Type:
    try:
        item = common_of_all(arguments)
    except IncompatibleTypesError:
        return None
    return None if item is None else pa.list_(item)


def item_type(base: Type) -> Type:
    """The type of an array's items or a map's values; None for any other type."""
    if base is not None and pa.types.is_map(base):
        return base.item_type
    return base.value_type if base is not None and pa.types.is_list(base) else None


def _item(arguments: Sequence[Type]) -> Type:
    return item_type(arguments[0])


def _keys(arguments: Sequence[Type]) -> Type:
    base = arguments[0]
    return pa.list_(base.key_type) if base is not None and pa.types.is_map(base) else None


def _values(arguments: Sequence[Type]) -> Type:
    base = arguments[0]
    return pa.list_(base.item_type) if base is not None and pa.types.is_map(base) else None


def _aggregate(arguments: Sequence[Type]) -> Type:
    return arguments[1] if len(arguments) == 3 else None


def _or_zero(arguments: Sequence[Type]) -> Type:
    return common_of_all([arguments[0], INT])


def _fraction(arguments: Sequence[Type]) -> Type:
    if not all(is_number(each) for each in arguments):
        return None
    return FLOAT if all(each == FLOAT for each in arguments) else DOUBLE


_RULES: dict[str, Callable[[Sequence[Type]], Type]] = {
    "first": _first,
    "text": _text,
    "number": _number,
    "whole": _whole,
    "rounded": _rounded,
    "shift": _shift,
    "concat": _concat,
    "array": _array,
    "item": _item,
    "keys": _keys,
    "values": _values,
    "aggregate": _aggregate,
    "or-zero": _or_zero,
    "fraction": _fraction,
    "common": common_of_all,
    "common-from-2": lambda arguments: common_of_all(arguments[1:]),
}
