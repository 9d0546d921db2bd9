"""Spark's ANSI rules for the common type of two values, and for the type of arithmetic."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from rules_index.language.type_names import DAY_INTERVAL, MONTH_INTERVAL, TIME, TIMESTAMP, TIMESTAMP_NTZ

if TYPE_CHECKING:
    import polars as pl

NULL = pa.null()
BOOLEAN = pa.bool_()
STRING = pa.string()
BINARY = pa.binary()
INT = pa.int32()
BIGINT = pa.int64()
FLOAT = pa.float32()
DOUBLE = pa.float64()
DATE = pa.date32()

Type: TypeAlias = "pa.DataType | None"
"""A type, or None if only Spark knows it."""

_NUMERIC_ORDER = [pa.int8(), pa.int16(), INT, BIGINT, FLOAT, DOUBLE]
_DIGITS = {pa.int8(): 3, pa.int16(): 5, INT: 10, BIGINT: 20}
INTEGER_BITS = {pa.int8(): 7, pa.int16(): 15, INT: 31, BIGINT: 63}
"""The number of value bits of each integer type."""
_DATETIMES = (DATE, TIMESTAMP_NTZ, TIMESTAMP)
_SHIFTS = ("<<", ">>", ">>>")
MAX_PRECISION = 38


class IncompatibleTypesError(Exception):
    """Two values for which Spark has no common type."""


def normalise(data_type: pa.DataType) -> Type:
    """Spark's type for a type that Arrow may represent in several ways; None for one that Spark does not have."""
    t = pa.types
    if data_type in _NUMERIC_ORDER or data_type in (STRING, BOOLEAN, DATE, TIMESTAMP_NTZ, BINARY):
        return data_type
    if t.is_timestamp(data_type):
        return TIMESTAMP if data_type.tz else TIMESTAMP_NTZ
    if t.is_decimal(data_type):
        is_known = 0 <= data_type.scale <= data_type.precision <= MAX_PRECISION
        return pa.decimal128(data_type.precision, data_type.scale) if is_known else None
    if t.is_large_string(data_type) or t.is_string_view(data_type):
        return STRING
    if t.is_large_binary(data_type) or t.is_binary_view(data_type) or t.is_fixed_size_binary(data_type):
        return BINARY
    if t.is_dictionary(data_type):
        return normalise(data_type.value_type)
    if t.is_unsigned_integer(data_type):
        wider = {8: pa.int16(), 16: INT, 32: BIGINT, 64: pa.decimal128(20, 0)}
        return wider[data_type.bit_width]
    if t.is_float16(data_type):
        return FLOAT
    if t.is_date(data_type):
        return DATE
    if t.is_time(data_type):
        return TIME
    return _normalise_nested(data_type)


def _normalise_nested(data_type: pa.DataType) -> Type:
    t = pa.types
    if (
        t.is_list(data_type)
        or t.is_large_list(data_type)
        or t.is_fixed_size_list(data_type)
        or t.is_list_view(data_type)
        or t.is_large_list_view(data_type)
    ):
        item = normalise(data_type.value_type)
        return None if item is None else pa.list_(item)
    if t.is_map(data_type):
        key, value = normalise(data_type.key_type), normalise(data_type.item_type)
        return None if key is None or value is None else pa.map_(key, value)
    if t.is_struct(data_type):
        # Fields of unknown type still have names: keep Arrow's own type for them; nothing will match it.
        return pa.struct([(field.name, normalise(field.type) or field.type) for field in data_type])
    if data_type == NULL or t.is_duration(data_type) or t.is_interval(data_type):
        return {True: DAY_INTERVAL}.get(t.is_duration(data_type), data_type)
    return None


def can_be_cast(source: Type, target: Type) -> bool:
    """Whether Spark's ANSI mode can cast between two types; True if only Spark knows."""
    if source is None or target is None or source in (target, NULL, STRING) or target == STRING:
        return True
    if not (_is_plain(source) and _is_plain(target)):
        return True
    if target == BINARY:
        return False
    if target == BOOLEAN or is_number(target):
        return source == BOOLEAN or is_number(source) or (source == TIMESTAMP and target != BOOLEAN)
    return source in _DATETIMES or (target == TIMESTAMP and is_number(source))


def _is_plain(data_type: pa.DataType) -> bool:
    return is_number(data_type) or data_type in (BOOLEAN, BINARY, *_DATETIMES)


def is_integer(data_type: Type) -> bool:
    """Whether a type is TINYINT, SMALLINT, INT or BIGINT."""
    return data_type in INTEGER_BITS


def is_decimal(data_type: Type) -> bool:
    """Whether a type is DECIMAL, of any precision."""
    return isinstance(data_type, pa.Decimal128Type)


def is_float(data_type: Type) -> bool:
    """Whether a type is FLOAT or DOUBLE."""
    return data_type in (FLOAT, DOUBLE)


def is_number(data_type: Type) -> bool:
    """Whether a type is numeric."""
    return data_type in _NUMERIC_ORDER or is_decimal(data_type)


def is_nested(data_type: Type) -> bool:
    """Whether a type is ARRAY, MAP or STRUCT."""
    return data_type is not None and pa.types.is_nested(data_type)


def as_decimal(data_type: pa.DataType) -> pa.Decimal128Type:
    """The DECIMAL that holds every value of an integer or decimal type."""
    return data_type if is_decimal(data_type) else pa.decimal128(_DIGITS[data_type], 0)


def wider_decimal(left: pa.DataType, right: pa.DataType) -> Type:
    """The DECIMAL that holds all values of both, None if it would need more than 38 digits."""
    left, right = as_decimal(left), as_decimal(right)
    scale = max(left.scale, right.scale)
    whole = max(left.precision - left.scale, right.precision - right.scale)
    return pa.decimal128(whole + scale, scale) if whole + scale <= MAX_PRECISION else None


@lru_cache(maxsize=4096)
def common_type(left: Type, right: Type) -> Type:
    """The type to which Spark casts two values that it compares, or that are branches of one value.

    None if only Spark knows. Raises `IncompatibleTypesError` if there is none.
    """
    if left is None or right is None:
        return None
    if left == right or right == NULL:
        return left
    if left == NULL:
        return right
    if is_number(left) and is_number(right):
        return _common_number(left, right)
    if left in _DATETIMES and right in _DATETIMES:
        return max(left, right, key=_DATETIMES.index)
    if STRING in (left, right):
        return _common_with_string(right if left == STRING else left)
    if is_nested(left) and is_nested(right):
        return None
    raise IncompatibleTypesError


def _common_number(left: pa.DataType, right: pa.DataType) -> Type:
    if left == right:
        return left
    if is_decimal(left) or is_decimal(right):
        return DOUBLE if is_float(left) or is_float(right) else wider_decimal(left, right)
    wider = max(left, right, key=_NUMERIC_ORDER.index)
    return DOUBLE if wider == FLOAT else wider


def _common_with_string(other: pa.DataType) -> Type:
    """The common type of a STRING and another type. Raises `IncompatibleTypesError` if there is none."""
    if is_integer(other):
        return BIGINT
    if is_number(other):
        return DOUBLE
    if is_nested(other) or other in (DAY_INTERVAL, MONTH_INTERVAL):
        raise IncompatibleTypesError
    return other


def common_of_all(types: Iterable[Type]) -> Type:
    """The common type of several values; None if only Spark knows it. Like Spark it considers the STRINGs first."""
    found = list(types)
    if None in found:
        return None
    common: Type = NULL
    for data_type in [STRING] * (STRING in found) + [kind for kind in found if kind != STRING]:
        common = common_type(common, data_type)
        if common is None:
            return None
    return common


def literal_type(value: int, data_type: pa.DataType) -> Type:
    """The type that Spark gives an integer literal beside a DECIMAL: one with just its digits, except for a TINYINT."""
    return data_type if data_type == pa.int8() else pa.decimal128(max(1, len(str(abs(value)))), 0)


def is_joined_as_text(kind: Type) -> bool:
    """Whether `||` and concat cast a value of a type to a text."""
    return is_number(kind) or kind in (STRING, BOOLEAN, *_DATETIMES)


def arithmetic_type(operator: str, left: Type, right: Type) -> Type:
    """The type of `left operator right`; None if only Spark knows."""
    if left is None or right is None:
        return None
    if operator == "||":
        return STRING if is_joined_as_text(left) and is_joined_as_text(right) else None
    if is_number(left) and is_number(right):
        if operator == "DIV":
            return BIGINT
        if operator in _SHIFTS:
            return shifted_type(left)
        if is_float(left) or is_float(right):
            return DOUBLE if operator == "/" else _common_number(left, right)
        if is_decimal(left) or is_decimal(right):
            return _decimal_arithmetic(operator, as_decimal(left), as_decimal(right))
        return DOUBLE if operator == "/" else _common_number(left, right)
    if STRING in (left, right) and (is_number(left) or is_number(right)):
        return _arithmetic_with_string(operator, right if left == STRING else left)
    if operator in ("+", "-") and left == DATE and is_integer(right) and right != BIGINT:
        return DATE
    if operator == "-" and left in _DATETIMES and right in _DATETIMES:
        return DAY_INTERVAL
    return None


def _arithmetic_with_string(operator: str, number: Type) -> Type:
    """The type of arithmetic between a string and a number; None if only Spark knows."""
    if operator in ("+", "-", "*", "%"):
        return BIGINT if is_integer(number) else DOUBLE
    return DOUBLE if operator == "/" else None


def shifted_type(shifted: Type) -> Type:
    """The type of a number whose bits are shifted; None if only Spark knows."""
    return BIGINT if shifted == BIGINT else INT if is_integer(shifted) else None


def _decimal_arithmetic(operator: str, left: pa.Decimal128Type, right: pa.Decimal128Type) -> Type:
    """The type of `left operator right`, by Spark's rules for precision and scale; None for other operators."""
    p1, s1, p2, s2 = left.precision, left.scale, right.precision, right.scale
    if operator in ("+", "-"):
        scale = max(s1, s2)
        return adjusted(max(p1 - s1, p2 - s2) + scale + 1, scale)
    if operator == "*":
        return adjusted(p1 + p2 + 1, s1 + s2)
    if operator == "/":
        scale = max(6, s1 + p2 + 1)
        return adjusted(p1 - s1 + s2 + scale, scale)
    if operator == "%":
        scale = max(s1, s2)
        return adjusted(min(p1 - s1, p2 - s2) + scale, scale)
    return None


def adjusted(precision: int, scale: int) -> pa.Decimal128Type:
    """A DECIMAL of at most 38 digits; digits of the fraction beyond six are given up before whole ones."""
    if precision <= MAX_PRECISION:
        return pa.decimal128(precision, scale)
    whole = precision - scale
    return pa.decimal128(MAX_PRECISION, max(MAX_PRECISION - whole, min(scale, 6)))


def spark_type(column: pl.Series) -> str:
    """Spark's name for the type of a column, or Arrow's if Spark has no such type."""
    kind = column.head(0).to_arrow().type
    return name_of(normalise(kind)) if normalise(kind) is not None else str(kind)


def name_of(data_type: Type) -> str:
    """The type by Spark's name, for messages."""
    if data_type is None:
        return "a value"
    if is_decimal(data_type):
        return f"DECIMAL({data_type.precision},{data_type.scale})"
    names = {
        BOOLEAN: "BOOLEAN",
        pa.int8(): "TINYINT",
        pa.int16(): "SMALLINT",
        INT: "INT",
        BIGINT: "BIGINT",
        FLOAT: "FLOAT",
        DOUBLE: "DOUBLE",
        STRING: "STRING",
        BINARY: "BINARY",
        DATE: "DATE",
        TIMESTAMP: "TIMESTAMP",
        TIMESTAMP_NTZ: "TIMESTAMP_NTZ",
        TIME: "TIME",
        NULL: "NULL",
        DAY_INTERVAL: "INTERVAL",
        MONTH_INTERVAL: "INTERVAL",
    }
    if data_type in names:
        return names[data_type]
    if pa.types.is_map(data_type):
        return "MAP"
    return "STRUCT" if pa.types.is_struct(data_type) else "ARRAY"
