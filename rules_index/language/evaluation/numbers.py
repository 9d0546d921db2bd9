"""The functions of numbers that are evaluated here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Decimal
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rules_index.language.coercion import BIGINT, DOUBLE, INT, is_decimal, is_float, is_integer
from rules_index.language.evaluation import argument_types
from rules_index.language.evaluation.scalar import Columns, Result, ScalarFunction, filled, like

_WHOLE = 2.0**53
"""The magnitude from which on no DOUBLE has a fraction."""
_NEAR_HALF = 1e-3
"""A fraction of at most this distance from a half is rounded by the number's decimal digits, since multiplying by the
unit is inexact. Where the error of the multiplication is larger, that is the distance."""
_EXACT_TO = 2.0**50
"""A number whose product with the unit has at least this magnitude is rounded by its decimal digits."""
_MOST_DIGITS = 12
"""The most digits behind the point to which a DOUBLE is rounded here."""


def _floor_or_ceiling(rounded: Callable[[pa.Array], pa.Array]) -> Callable[[Columns, str], Result]:
    def evaluate(columns: Columns, _: str) -> Result:
        """Rounds in the type that Spark returns for the column's: BIGINT or a DECIMAL."""
        column = columns[0]
        if is_integer(column.type):
            return column.cast(BIGINT), None
        if not is_float(column.type):
            # rounding can add a digit
            wider = pa.decimal128(min(column.type.precision + 1, 38), column.type.scale)
            return rounded(column.cast(wider)), None
        values = np.nan_to_num(filled(rounded(column)), nan=0.0, posinf=2.0**63, neginf=-(2.0**63))
        limits = np.iinfo(np.int64)
        whole = np.clip(values, -(2.0**63), 2.0**62).astype(np.int64)
        # Java clamps values beyond BIGINT to its limits
        large = values >= 2.0**62
        whole[large] = [min(int(value), limits.max) for value in values[large].tolist()]
        return like(column, whole, BIGINT), None

    return evaluate


def _round(columns: Columns, _: str, halves: str = ROUND_HALF_UP) -> Result:
    """`round(number, digits)` or `bround`: halves away from 0 or to even digits. A DOUBLE is rounded as its shortest
    decimal form."""
    column, digits = columns[0], columns[1][0].as_py() if len(columns) > 1 else 0
    if is_integer(column.type):
        return column, None
    values = filled(column)
    unit = 10.0**digits
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = np.abs(values) * unit
        whole = np.floor(scaled)
        fraction = scaled - whole
        near = np.maximum(_NEAR_HALF, 4 * np.spacing(scaled))
        rounded = np.copysign((whole + (fraction > 0.5)) / unit, values)
        found = np.where(np.abs(values) < _WHOLE, rounded, values)
        by_digits = (np.abs(values) < _WHOLE) & ((np.abs(fraction - 0.5) < near) | (scaled >= _EXACT_TO))
    place = Decimal(1).scaleb(-digits)
    found[by_digits] = [float(Decimal(repr(each)).quantize(place, halves)) for each in values[by_digits].tolist()]
    found[found == 0] = 0.0  # Spark's decimals have no negative zero
    return like(column, found, DOUBLE), None


def _round_decimal(columns: Columns, _: str, halves: str = "half_towards_infinity") -> Result:
    """`round` or `bround` of a DECIMAL to at most as many digits as it has behind the point. The result can have one
    digit more before the point."""
    column, digits = columns[0], columns[1][0].as_py()
    wider = column.cast(pa.decimal128(column.type.precision + 1, column.type.scale))
    return pc.round(wider, digits, halves), None


def _are_few_digits(digits: Sequence[int]) -> bool:
    return not digits or 0 <= digits[0] <= _MOST_DIGITS


def _sign(columns: Columns, _: str) -> Result:
    values = filled(columns[0]).astype(np.float64)
    return like(columns[0], np.where(values == 0, values, np.sign(values)), DOUBLE), None


def _rint(columns: Columns, _: str) -> Result:
    """`rint(number)`: the nearest whole number as a DOUBLE, halves to even ones."""
    return like(columns[0], np.rint(filled(columns[0]).astype(np.float64)), DOUBLE), None


def _square_root(columns: Columns, _: str) -> Result:
    with np.errstate(invalid="ignore"):
        return like(columns[0], np.sqrt(filled(columns[0]).astype(np.float64)), DOUBLE), None


def _square(columns: Columns, _: str) -> Result:
    """`power(number, 2)`, which Java multiplies; other powers it computes in a way of its own."""
    return pc.multiply(columns[0], columns[0]), None


def _bit(columns: Columns, _: str) -> Result:
    """`getbit(number, place)` with a constant place that counts from the lowest bit."""
    values = filled(columns[0])
    return like(columns[0], ((values >> columns[1][0].as_py()) & 1).astype(np.int8), pa.int8()), None


def _bit_count(columns: Columns, _: str) -> Result:
    """The number of bits that are set in the number as a BIGINT."""
    counts = np.bitwise_count(filled(columns[0]).astype(np.int64).view(np.uint64))
    return like(columns[0], counts, INT), None


def _shift(shifted: Callable[[np.ndarray, np.ndarray], np.ndarray], unsigned: bool = False) -> Any:
    """Returns the function that shifts the bits of its first column; `unsigned`: zeros are shifted in."""

    def evaluate(columns: Columns, _: str) -> Result:
        """Shifts by the lowest 5 bits of a number for an INT and the lowest 6 for a BIGINT, as Java does."""
        column, places = columns
        values = filled(column) if column.type == BIGINT else filled(column).astype(np.int32)
        width = 8 * values.itemsize
        words = values.view(f"u{values.itemsize}") if unsigned else values
        distances = (filled(places).astype(np.int64) & (width - 1)).astype(words.dtype)
        return like(column, shifted(words, distances).view(values.dtype), BIGINT if width == 64 else INT, places), None

    return evaluate


def _bits(combined: Callable[[pa.Array, pa.Array], pa.Array]) -> Callable[[Columns, str], Result]:
    return lambda columns, _: (combined(columns[0], columns[1]), None)


NUMBERS: dict[str, ScalarFunction] = {
    "floor": ScalarFunction(argument_types.one_number, _floor_or_ceiling(pc.floor)),
    **dict.fromkeys(("ceil", "ceiling"), ScalarFunction(argument_types.one_number, _floor_or_ceiling(pc.ceil))),
    "round": ScalarFunction(
        argument_types.number_and_digits,
        _round,
        constants=(1,),
        fits=_are_few_digits,
    ),
    "bround": ScalarFunction(
        argument_types.number_and_digits, partial(_round, halves=ROUND_HALF_EVEN), constants=(1,), fits=_are_few_digits
    ),
    "bround_decimal": ScalarFunction(
        lambda kinds: is_decimal(kinds[0]), partial(_round_decimal, halves="half_to_even"), constants=(1,)
    ),
    "rint": ScalarFunction(argument_types.one_plain_number, _rint),
    "round_decimal": ScalarFunction(lambda kinds: is_decimal(kinds[0]), _round_decimal, constants=(1,)),
    **dict.fromkeys(("sign", "signum"), ScalarFunction(argument_types.one_plain_number, _sign)),
    "sqrt": ScalarFunction(argument_types.one_plain_number, _square_root),
    "&": ScalarFunction(argument_types.two_integers, _bits(pc.bit_wise_and)),
    "|": ScalarFunction(argument_types.two_integers, _bits(pc.bit_wise_or)),
    "~": ScalarFunction(argument_types.one_integer, lambda columns, _: (pc.bit_wise_not(columns[0]), None)),
    "bit_count": ScalarFunction(argument_types.one_integer, _bit_count),
    **dict.fromkeys(
        ("getbit", "bit_get"),
        ScalarFunction(
            argument_types.wide_integer_and_place, _bit, constants=(1,), fits=lambda fixed: 0 <= fixed[0] < 32
        ),
    ),
    **dict.fromkeys(
        ("power", "pow"),
        ScalarFunction(argument_types.two_doubles, _square, constants=(1,), fits=lambda fixed: fixed[0] == 2),
    ),
    "shiftleft": ScalarFunction(argument_types.integer_and_places, _shift(np.left_shift)),
    "shiftright": ScalarFunction(argument_types.integer_and_places, _shift(np.right_shift)),
    "shiftrightunsigned": ScalarFunction(argument_types.integer_and_places, _shift(np.right_shift, unsigned=True)),
    "^": ScalarFunction(argument_types.two_integers, _bits(pc.bit_wise_xor)),
}
