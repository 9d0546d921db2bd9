"""Casts of constants, and the bounds that a constant has among the values of a column of another type."""

from __future__ import annotations

import bisect
import math
import re
from decimal import Decimal
from fractions import Fraction

import pyarrow as pa

from rules_index.domains.values import NAN_KEY, Key, ValueSet, float_key, interval, successor
from rules_index.language.coercion import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER_BITS,
    MAX_PRECISION,
    NULL,
    STRING,
    is_decimal,
    is_float,
    is_integer,
    is_number,
)
from rules_index.language.evaluation import datetime_parser, string_casts
from rules_index.language.literals import nearest_float32
from rules_index.language.type_names import TIMESTAMP, TIMESTAMP_NTZ
from rules_index.language.typed import Constant

_BIGINT = re.compile(r"([+-]?)0*([0-9]{1,19})")
_INTEGER = re.compile(r"[+-]?[0-9]{1,40}")
_NUMBER = re.compile(r"[+-]?(?:[0-9]{1,300}\.?[0-9]{0,300}|\.[0-9]{1,300})(?:[eE][+-]?[0-9]{1,4})?")
_SPECIAL = {"nan": float("nan")} | {
    sign + name: float(sign + "inf") for sign in ("", "+", "-") for name in ("inf", "infinity")
}
_LOWEST_FLOAT_KEY = float_key(float("-inf"))


FLIPPED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<=", "<=>": "<=>"}
"""The operator that means the same with its sides exchanged."""


def key_of(constant: Constant) -> Key:
    """The key of a constant that is not NULL."""
    value = constant.value
    if isinstance(value, float):
        return float_key(value)
    if isinstance(value, str):
        return value.encode()
    return value if isinstance(value, bytes) else int(value)


def truth(operator: str, left: Constant, right: Constant) -> bool | None:
    """The result of comparing two constants of one type; None for NULL, except by `<=>`."""
    if left.value is None or right.value is None:
        return left.value is None and right.value is None if operator == "<=>" else None
    first, second = key_of(left), key_of(right)
    outcomes = {
        "=": first == second,
        "<=>": first == second,
        "<>": first != second,
        "<": first < second,
        "<=": first <= second,
        ">": first > second,
        ">=": first >= second,
    }
    return outcomes[operator]


def domain(data_type: pa.DataType) -> tuple[Key, Key | None]:
    """The least and the greatest key of a type; None as the greatest for strings."""
    if is_float(data_type):
        return _LOWEST_FLOAT_KEY, NAN_KEY
    if data_type in (STRING, BINARY):
        return b"", None
    if data_type == BOOLEAN:
        return 0, 1
    if is_decimal(data_type):
        greatest = 10**data_type.precision - 1
        return -greatest, greatest
    bits = INTEGER_BITS.get(data_type, 31 if data_type == DATE else 63)
    return -(1 << bits), (1 << bits) - 1


def clamp(values: ValueSet, data_type: pa.DataType) -> ValueSet:
    """The same set of values, without the cuts outside of the type's domain."""
    if not values.cuts:
        return values
    least, greatest = domain(data_type)
    cuts = values.cuts
    below = bisect.bisect_right(cuts, least)
    inside = len(cuts) if greatest is None else bisect.bisect_right(cuts, greatest)
    return ValueSet(values.start ^ (below % 2 == 1), cuts[below : max(below, inside)])


def comparison(operator: str, low: Key, high: Key, data_type: pa.DataType) -> ValueSet:
    """The values that satisfy `value operator constant`, given the constant's bounds (`cut`): `low` is the first key
    not below it, `high` the first key above it."""
    if operator in ("=", "<=>"):
        values = interval(low, high)
    elif operator == "<>":
        values = ~interval(low, high)
    elif operator == "<":
        values = interval(None, low)
    elif operator == "<=":
        values = interval(None, high)
    elif operator == ">":
        values = interval(high, None)
    else:
        values = interval(low, None)
    return clamp(values, data_type)


def cut(column: pa.DataType, constant: Constant, zone: str) -> tuple[Key, Key] | None:
    """The bounds of a constant among the values of a column that Spark casts to the constant's type.

    Returns the first key whose cast is not below the constant, and the first whose cast is above it. None if the cast
    is not monotonic or can raise, so that only evaluation row by row is correct.
    """
    target = constant.type
    if column == target or (is_integer(column) and is_integer(target)) or (column == FLOAT and target == DOUBLE):
        key = key_of(constant)
        return key, successor(key)
    if is_number(column) and is_decimal(target):
        scale = column.scale if is_decimal(column) else 0
        if is_float(column) or scale > target.scale:
            return None
        unit = 10 ** (target.scale - scale)
        return -(-constant.value // unit), constant.value // unit + 1
    if is_number(column) and target == DOUBLE:
        return _cut_by_search(column, constant.value)
    offset = datetime_parser.zone_offset(zone)
    if column == DATE and target == TIMESTAMP_NTZ:
        offset = 0
    elif target != TIMESTAMP or column not in (DATE, TIMESTAMP_NTZ) or offset is None:
        return None
    unit = datetime_parser.DAY if column == DATE else 1
    local = constant.value + offset
    return -(-local // unit), local // unit + 1


def _cut_by_search(column: pa.DataType, bound: float) -> tuple[Key, Key]:
    """The bounds of a DOUBLE among integers or decimals. Their cast to DOUBLE rounds, but is monotonic."""
    least, greatest = domain(column)
    assert isinstance(least, int) and isinstance(greatest, int)
    unit = 10**column.scale if is_decimal(column) else 1
    goal = float_key(bound)
    if math.isfinite(bound):
        # a number that rounds to the bound is no farther from it than the next DOUBLE
        ulp = Fraction(math.ulp(bound))
        least = min(max(least, math.floor((Fraction(bound) - ulp) * unit)), greatest + 1)
        greatest = max(min(greatest, math.ceil((Fraction(bound) + ulp) * unit)), least - 1)

    def first(above: bool) -> int:
        """The first key whose cast is not below `bound` or, if `above`, is above it."""
        low, high = least, greatest + 1
        while low < high:
            middle = (low + high) // 2
            key = float_key(middle / unit)
            if key > goal or (key == goal and not above):
                high = middle
            else:
                low = middle + 1
        return low

    return first(False), first(True)


def cast(constant: Constant, target: pa.DataType, zone: str) -> Constant | None:
    """The constant in another type by Spark's ANSI cast; None if that raises, or only Spark knows the result."""
    source, value = constant.type, constant.value
    if source == target:
        return constant
    if value is None:
        return Constant(None, target)
    if source == NULL:
        return None
    found = _cast_value(value, source, target, zone)
    if found is None or (target in (TIMESTAMP, TIMESTAMP_NTZ) and not -(1 << 63) <= int(found) < 1 << 63):
        return None
    return Constant(found, target)


def raises(constant: Constant, target: pa.DataType) -> bool:
    """Whether the cast of a text to another type raises in every time zone; False if only Spark knows, or for other
    values."""
    text = constant.value
    if not isinstance(text, str):
        return False
    if target == BOOLEAN:
        return text.strip(datetime_parser.BLANK).lower() not in string_casts.TRUTHS
    if target in (DATE, TIMESTAMP, TIMESTAMP_NTZ):
        parsed = datetime_parser.parse_date(text) if target == DATE else datetime_parser.parse_timestamp(text)
        return parsed is None and not datetime_parser.names_moment(text) and not datetime_parser.is_time_of_day(text)
    if is_integer(target):
        found = _BIGINT.fullmatch(text.strip(datetime_parser.BLANK))
        return found is None or int(found[1] + found[2]) >> INTEGER_BITS[target] not in (0, -1)
    trimmed = text.strip(string_casts.BLANK_IN_JAVA)
    if is_decimal(target):
        return string_casts.decimal_of(trimmed, target) is None
    return is_float(target) and string_casts.double_of(trimmed) is None


def _cast_value(
    value: object, source: pa.DataType, target: pa.DataType, zone: str
) -> bool | int | float | str | bytes | None:
    """The value of a constant after a cast; None if the cast raises, or only Spark knows the result."""
    if isinstance(value, str) and target == BINARY:
        return value.encode()
    if isinstance(value, str):
        return _from_text(value.strip("".join(map(chr, range(33)))), target, zone)
    if is_integer(source) and type(value) is int:
        if is_integer(target):
            bits = INTEGER_BITS[target]
            return value if -(1 << bits) <= value < 1 << bits else None
        if target == DOUBLE:
            return float(value)
    if is_number(source) and is_number(target):
        exact = _exact(value, source)
        return None if exact is None else _number(exact, source, target)
    if source == BOOLEAN and is_integer(target):
        return int(bool(value))
    if target == STRING and is_integer(source):
        return str(value)
    assert isinstance(value, (int, float, bytes))
    if source == DATE and target == TIMESTAMP:
        return datetime_parser.start_of_day(int(value), zone)
    if source == DATE and target == TIMESTAMP_NTZ:
        return int(value) * datetime_parser.DAY
    if source == TIMESTAMP_NTZ and target == TIMESTAMP:
        return datetime_parser.to_instant(int(value), zone)
    return None


def _exact(value: object, source: pa.DataType) -> Fraction | float | None:
    """A number as a fraction; NaN, infinities and zeros of a float are returned unchanged."""
    if isinstance(value, float):
        return Fraction(value) if value and abs(value) < float("inf") else value
    assert isinstance(value, int)
    return Fraction(value, 10**source.scale) if is_decimal(source) else Fraction(value)


def _number(exact: Fraction | float, source: pa.DataType, target: pa.DataType) -> int | float | None:
    """A number of type `source` as a value of type `target`; None if that cannot hold it."""
    if is_float(target):
        if isinstance(exact, float):
            return exact
        if target == FLOAT:
            return nearest_float32(exact)
        return exact.numerator / exact.denominator
    if isinstance(exact, float):
        return 0 if exact == 0.0 else None
    if is_integer(target):
        if is_decimal(source) and target != BIGINT:
            # Spark first casts to DOUBLE here, so that 0.99999999999999999999 becomes 1
            exact = Fraction(exact.numerator / exact.denominator)
        whole = abs(exact).__floor__() * (-1 if exact < 0 else 1)
        bits = INTEGER_BITS[target]
        return whole if -(1 << bits) <= whole < 1 << bits else None
    if is_float(source):
        return None
    scaled = abs(exact) * 10**target.scale
    unscaled = (scaled + Fraction(1, 2)).__floor__()
    if unscaled >= 10**target.precision:
        return None
    return -unscaled if exact < 0 else unscaled


def _from_text(text: str, target: pa.DataType, zone: str) -> bool | int | float | bytes | None:
    """A text, without blanks around it, as a value of type `target`; None if it has none, or only Spark knows."""
    if is_integer(target):
        if not _INTEGER.fullmatch(text):
            return None
        bits, whole = INTEGER_BITS[target], int(text)
        return whole if -(1 << bits) <= whole < 1 << bits else None
    if is_decimal(target):
        return _decimal_from_text(text, target)
    if is_float(target):
        if text.lower() in _SPECIAL:
            return _SPECIAL[text.lower()]
        if not _NUMBER.fullmatch(text):
            return None
        return float(text) if target == DOUBLE else _float32_of_text(text)
    if target == BOOLEAN:
        return string_casts.TRUTHS.get(text.lower())
    if target == DATE:
        return datetime_parser.parse_date(text)
    if target in (TIMESTAMP, TIMESTAMP_NTZ):
        parsed = datetime_parser.parse_timestamp(text)
        if parsed is None or (parsed.zone is not None and not datetime_parser.is_known(parsed.zone)):
            return None
        return (
            parsed.local if target == TIMESTAMP_NTZ else datetime_parser.to_instant(parsed.local, parsed.zone or zone)
        )
    return None


def _float32_of_text(text: str) -> float:
    """The FLOAT nearest to the number in a text; infinite or zero if it is out of range."""
    exact = Decimal(text)
    if exact and abs(exact.adjusted()) > 60:  # the power of ten would be too large to compute
        return math.copysign(math.inf if exact.adjusted() > 0 else 0.0, exact)
    return nearest_float32(Fraction(exact))


def _decimal_from_text(text: str, target: pa.DataType) -> int | None:
    """The unscaled value of a text as a DECIMAL, rounded half up; None if the text has none, or one too large."""
    if not _NUMBER.fullmatch(text):
        return None
    exact = Decimal(text)
    exponent = exact.as_tuple().exponent
    assert isinstance(exponent, int)
    if len(exact.as_tuple().digits) + exponent > MAX_PRECISION:  # trailing zeros count, even those of a zero
        return None
    if exact.adjusted() < -100:
        return 0
    scaled = abs(Fraction(exact)) * 10**target.scale
    unscaled = (scaled + Fraction(1, 2)).__floor__()
    if unscaled >= 10**target.precision:
        return None
    return -unscaled if exact < 0 else unscaled
