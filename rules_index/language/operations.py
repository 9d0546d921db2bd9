"""Typed trees that Arrow and NumPy evaluate exactly as Spark does."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from rules_index.domains.values import is_indexable
from rules_index.language import constants
from rules_index.language.coercion import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INTEGER_BITS,
    MAX_PRECISION,
    STRING,
    arithmetic_type,
    as_decimal,
    is_decimal,
    is_float,
    is_integer,
    is_number,
    literal_type,
)
from rules_index.language.constant_folding import arithmetic_of_constants, folded, folded_call
from rules_index.language.evaluation import decimal_division, function_registry
from rules_index.language.nodes import Node, is_never_null
from rules_index.language.simplified_casts import past_float
from rules_index.language.type_names import TIMESTAMP, TIMESTAMP_NTZ
from rules_index.language.typed import Constant, Expression, Leaf, Operation, has_null, may_be_constant

_ARITHMETIC = {"+": "add", "-": "subtract", "*": "multiply"}
_DIVISIONS = {"/": "divide", "%": "remainder", "DIV": "quotient", "PMOD": "positive_remainder"}
_QUIET_ARITHMETIC = (*_ARITHMETIC.values(), "divide", "remainder")
_SHIFTS = {"<<": "shiftleft", ">>": "shiftright", ">>>": "shiftrightunsigned"}
MAX_CHAIN = 40
"""The longest chain of arithmetic operators that is evaluated here; its tree is as deep as the chain is long."""


def as_type(expression: Expression, target: pa.DataType, zone: str) -> Expression | None:
    """The expression cast to a type; None if only Spark can do that."""
    if expression.type == target:
        return expression
    if isinstance(expression, Constant):
        return constants.cast(expression, target, zone)
    if is_number(expression.type) and target == BOOLEAN:
        return Operation("cast", (expression,), target)
    if is_number(expression.type) and is_number(target):
        operand = None if _may_round(expression, target) else past_float(expression, target)
        return operand and Operation("cast", (operand,), target)
    kind, from_text = expression.type, is_integer(target) or is_decimal(target) or target in (DOUBLE, DATE, BOOLEAN)
    to_text = target == STRING and (is_integer(kind) or kind == BOOLEAN or is_decimal(kind))
    if (kind == STRING and from_text) or to_text or (kind == BOOLEAN and is_integer(target)):
        return Operation("cast", (expression,), target)
    if target == STRING and (pa.types.is_timestamp(expression.type) or expression.type == DATE):
        return folded_call("shown_time", [expression], STRING, zone)
    if target in (TIMESTAMP, TIMESTAMP_NTZ) and (expression.type == DATE or pa.types.is_timestamp(expression.type)):
        return folded_call("timestamp_of" if target == TIMESTAMP else "ntz_of", [expression], target, zone)
    if pa.types.is_timestamp(expression.type) and target == DATE:
        return folded_call("date", [expression], DATE, zone)
    if expression.type == STRING and target in (TIMESTAMP, TIMESTAMP_NTZ):
        return folded_call("to_timestamp" if target == TIMESTAMP else "to_timestamp_ntz", [expression], target, zone)
    return None


def _may_round(expression: Expression, target: pa.DataType) -> bool:
    """Whether Spark may cast a DECIMAL to DOUBLE on its way to an integer, so that 0.99999999999999999 becomes 1. It
    does so with values of up to 18 digits that were computed and not read; from 17 digits on, a DOUBLE may differ."""
    is_read = isinstance(expression, Leaf) and expression.text is None
    kind = expression.type
    return is_integer(target) and target != BIGINT and is_decimal(kind) and 17 <= kind.precision <= 18 and not is_read


def quiet(expression: Expression | None) -> Expression | None:
    """A cast or arithmetic that returns NULL where it would raise; None if only Spark can evaluate that."""
    if isinstance(expression, Constant):
        return expression  # it did not raise
    if isinstance(expression, Operation) and expression.name == "raise":
        return Constant(None, expression.type)
    if isinstance(expression, Operation) and expression.name in ("cast", *_QUIET_ARITHMETIC):
        return Operation(f"try_{expression.name}", expression.operands, expression.type)
    if isinstance(expression, Operation) and expression.parameters[:1] == ("to_timestamp",):
        return folded_call("try_to_timestamp", expression.operands, expression.type, expression.parameters[1])
    return None


def is_sum(expression: Expression | None, prefix: str = "") -> bool:
    """Whether an expression is a sum, difference or product of integers; with the prefix `try_`, one that is NULL where
    it overflows. Spark may reorder an operator over one, and then another part overflows."""
    names = [prefix + name for name in _ARITHMETIC.values()]
    return isinstance(expression, Operation) and is_integer(expression.type) and expression.name in names


def cast_or_raise(expression: Expression, target: pa.DataType, zone: str) -> Expression | None:
    """A value cast to a type. A constant text that has no value in this type becomes an operation that raises on every
    row. None if only Spark can evaluate the cast."""
    found = as_type(expression, target, zone)
    if expression.type == TIMESTAMP and is_number(target):
        return _seconds(expression, target, zone)
    if found is None and isinstance(expression, Constant) and constants.raises(expression, target):
        return Operation("raise", (expression,), target)
    return found


def _seconds(time: Expression, target: pa.DataType, zone: str) -> Expression | None:
    """A TIMESTAMP cast to a number: the seconds since 1970, with their fraction for a DOUBLE and rounded down for an
    integer. None if only Spark can evaluate that."""
    if is_integer(target):
        seconds = folded_call("unix_seconds", [time], BIGINT, zone)
        return None if seconds is None else as_type(seconds, target, zone)
    micros = folded_call("unix_micros", [time], BIGINT, zone)
    if target != DOUBLE or micros is None or isinstance(micros, Constant):
        return None
    return Operation("divide", (Operation("cast", (micros,), DOUBLE), Constant(1e6, DOUBLE)), DOUBLE)


def condition(expression: Expression | None, kind: pa.DataType | None, zone: str) -> Expression | None:
    """The tree of a condition of type `kind`, with a STRING cast to BOOLEAN like in Spark; None if only Spark can
    evaluate it."""
    if expression is None or kind == BOOLEAN:
        return expression
    return cast_or_raise(expression, BOOLEAN, zone) if kind == STRING else None


def _is_moved(values: Sequence[Expression | None], common: pa.DataType) -> bool:
    """Whether Spark may compare dates or times without casting them, because it moves the cast to a constant
    (`moved_casts`)."""
    if common not in (TIMESTAMP, TIMESTAMP_NTZ):
        return False
    known = [each for each in values if each is not None]
    return any(
        each.type != common
        and not isinstance(each, Constant)
        and (each.type == DATE or pa.types.is_timestamp(each.type))
        and any(may_be_constant(other) for other in known if other is not each)
        for each in known
    )


def members(values: Sequence[Expression | None], common: pa.DataType, zone: str) -> list[Expression | None]:
    """The operands of IN, the value and the list, in their common type; None for each that only Spark can evaluate. The
    list ends with the first element that raises whenever it is compared, since none behind it is ever evaluated."""
    if _is_moved(values, common):
        return [None] * len(values)
    cast = as_type if isinstance(values[0], Constant) else cast_or_raise
    found: list[Expression | None] = []
    for each in values:
        found.append(None if each is None else cast(each, common, zone))
        if values[0] is not None and found[-1] is not None and may_skip("=", values[0], found[-1]):
            found[-1] = None
        if isinstance(last := found[-1], Operation) and last.name == "raise":
            break
    return found


def can_raise(expression: Expression) -> bool:
    """Whether evaluating the expression can raise on some row."""
    if isinstance(expression, Constant):
        return False
    if isinstance(expression, Leaf):
        return expression.text is not None
    if expression.name in ("add", "subtract", "multiply", "negate", "abs") and not is_float(expression.type):
        return True
    if expression.name in _DIVISIONS.values() and _may_divide_by_zero(expression):
        return True
    if expression.name == "cast" and not _is_widening(expression.operands[0].type, expression.type):
        return True
    if expression.name == "raise" or (expression.name == "call" and function_registry.raises(expression)):
        return True
    return any(can_raise(operand) for operand in expression.operands)


def _may_divide_by_zero(division: Operation) -> bool:
    """Whether the divisor can be zero, or the quotient of BIGINTs overflow."""
    divisor = division.operands[1]
    return not isinstance(divisor, Constant) or divisor.value == 0 or (division.name, divisor.value) == ("quotient", -1)


def is_sure(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether a cast for a comparison can neither raise nor return NULL for a value that is not NULL."""
    return source == target or (is_number(source) and is_number(target))


def _is_widening(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether a cast certainly cannot raise."""
    if source == STRING:
        return False
    if is_float(target) or target in (STRING, BOOLEAN) or source == BOOLEAN:
        return True
    if is_integer(source) and is_integer(target):
        return INTEGER_BITS[target] >= INTEGER_BITS[source]
    return False


def arithmetic(operator: str, left: Expression, right: Expression, result: pa.DataType, zone: str) -> Expression | None:
    """`left operator right` in its result type; None if only Spark can evaluate it."""
    if operator == "/" and is_decimal(result):
        return _of_decimals("divide", left, right, result, zone)
    if operator == "%" and is_decimal(result):
        return _remainder(left, right, result, zone)
    if operator in _DIVISIONS:
        return _division(_DIVISIONS[operator], left, right, result, zone)
    if operator in ("&", "|", "^") and is_integer(result):
        trees = [as_type(each, result, zone) for each in (left, right)]
        return folded_call(operator, trees, result, zone)
    if operator in _SHIFTS:
        return folded_call(_SHIFTS[operator], [left, right], result, zone)
    name = _ARITHMETIC.get(operator)
    if name is None or not is_number(result) or any(is_sum(each, "try_") for each in (left, right)):
        return None
    if is_decimal(result) and name == "multiply":
        return _of_decimals(name, left, right, result, zone)
    if is_decimal(result) and not _holds_sum(left.type, right.type, result):
        return None
    first, second = as_type(left, result, zone), as_type(right, result, zone)
    if first is None or second is None:
        return None
    if isinstance(first, Constant) and isinstance(second, Constant):
        return arithmetic_of_constants(name, first, second)
    if is_integer(result) and name in ("add", "multiply"):
        return _reordered(name, first, second, result)
    return Operation(name, (first, second), result)


def _of_decimals(name: str, left: Expression, right: Expression, result: pa.DataType, zone: str) -> Expression | None:
    """A product or quotient of decimals, if its type holds all digits of the result. None if Spark drops digits, or for
    NULL."""
    if has_null([left, right]):
        return None
    operator = "*" if name == "multiply" else "/"
    for first in _as_decimals(left):
        for second in _as_decimals(right):
            is_full = first.precision + second.precision + 1 <= MAX_PRECISION
            if name == "divide":
                is_full = decimal_division.is_exact(first, second, result, is_integer(right.type))
            if is_full and arithmetic_type(operator, first, second) == result:
                trees = [as_type(left, first, zone), as_type(right, second, zone)]
                return folded(operation(name, trees, result))
    return None


def _remainder(left: Expression, right: Expression, result: pa.DataType, zone: str) -> Expression | None:
    """A remainder of decimals that are BIGINTs when written as multiples of the finer scale's unit. None for longer
    decimals, and for NULL."""
    if has_null([left, right]):
        return None
    for first in _as_decimals(left):
        for second in _as_decimals(right):
            digits = [each.precision - each.scale + result.scale for each in (first, second)]
            if max(digits) <= decimal_division.MOST_DIGITS and arithmetic_type("%", first, second) == result:
                kinds = [pa.decimal128(each, result.scale) for each in digits]
                trees = [as_type(each, kind, zone) for each, kind in zip((left, right), kinds, strict=True)]
                return folded(operation("remainder", trees, result))
    return None


def _as_decimals(expression: Expression) -> list[pa.Decimal128Type]:
    """The DECIMAL types that Spark may give a value: for an integer the one of its type and, if it is a constant, also
    the one with just its digits; none for values that are not exact numbers."""
    if not is_integer(expression.type) and not is_decimal(expression.type):
        return []
    found = [as_decimal(expression.type)]
    if is_integer(expression.type) and isinstance(expression, Constant) and expression.value is not None:
        found.append(as_decimal(literal_type(expression.value, expression.type)))
    return found


def _division(name: str, left: Expression, right: Expression, result: pa.DataType, zone: str) -> Expression | None:
    """A quotient or remainder in its result type. None if only Spark can evaluate it: a DECIMAL, which it rounds, or
    NULL."""
    of_integers = is_integer(left.type) and is_integer(right.type)
    if not (is_integer(result) or is_float(result)) or (name == "quotient" and not of_integers):
        return None
    first, second = _as_number(left, right, result, zone), _as_number(right, left, result, zone)
    if first is None or second is None or has_null([first, second]):
        return None
    return folded(Operation(name, (first, second), result))


def _as_number(operand: Expression, other: Expression, result: pa.DataType, zone: str) -> Expression | None:
    """An operand of a division in the result type. Spark casts a text beside an integer to BIGINT first."""
    number = as_type(operand, BIGINT, zone) if operand.type == STRING and is_integer(other.type) else operand
    return None if number is None else as_type(number, result, zone)


def _reordered(name: str, first: Expression, second: Expression, result: pa.DataType) -> Expression | None:
    """A sum or product of integers in Spark's order, with its constants folded: `a + 1 + b + 2` becomes `a + b + 3`.

    The order decides whether a part overflows. None if folding the constants overflows.
    """
    parts = [*_parts(name, first), *_parts(name, second)]
    known = [each for each in parts if isinstance(each, Constant)]
    if len(known) < 2:
        return Operation(name, (first, second), result)
    total: Constant | None = known[0]
    for each in known[1:]:
        total = None if total is None else arithmetic_of_constants(name, total, each)
    if total is None:
        return None
    others = [each for each in parts if not isinstance(each, Constant)]
    tree = others[0]
    for other in others[1:]:
        tree = Operation(name, (tree, other), result)
    return Operation(name, (tree, total), result)


def _parts(name: str, expression: Expression) -> list[Expression]:
    if not (isinstance(expression, Operation) and expression.name == name):
        return [expression]
    return [part for operand in expression.operands for part in _parts(name, operand)]


def _holds_sum(left: pa.DataType, right: pa.DataType, result: pa.DataType) -> bool:
    """Whether the result's type has all digits of a sum: no rounding, and no overflow of the casts."""
    for each in (left, right):
        scale = each.scale if is_decimal(each) else 0
        if scale > result.scale:
            return False
    return result.precision < 38


def negated(operand: Expression) -> Expression | None:
    """`- operand`; None if only Spark can evaluate it."""
    if not is_number(operand.type):
        return None
    if isinstance(operand, Constant):
        if operand.value is None:
            return operand
        if is_float(operand.type):
            return Constant(-operand.value, operand.type)
        return arithmetic_of_constants("subtract", Constant(0, operand.type), operand)
    return Operation("negate", (operand,), operand.type)


def compared(operator: str, left: Expression, right: Expression, common: pa.DataType, zone: str) -> Expression | None:
    """A comparison of two expressions in their common type; None if only Spark can evaluate it."""
    if _is_moved((left, right), common):
        return None
    cast = as_type if isinstance(left, Constant) and isinstance(right, Constant) else cast_or_raise
    first, second = cast(left, common, zone), cast(right, common, zone)
    if first is None or second is None or (first == second and can_raise(first)):
        return None  # Spark may know the result of comparing a value with itself, and then does not evaluate the value
    if isinstance(first, Constant) and isinstance(second, Constant):
        return Constant(constants.truth(operator, first, second), BOOLEAN)
    if not is_indexable(common) or may_skip(operator, left, second) or may_skip(operator, right, first):
        return None
    return Operation(operator, (first, second), BOOLEAN)


def may_skip(operator: str, value: Expression, other: Expression) -> bool:
    """Whether Spark may decide a comparison with what it knows as a constant of a wider type without evaluating
    `value`, which can raise.

    It does so if no number of the value's type lies on one side of the constant, or equals it where that is asked: the
    result is then the same for every value, so that one that is never NULL need not be evaluated. Nor is what is
    compared with NULL.
    """
    if has_null([other]):
        return can_raise(value)
    if value.type == other.type or not is_number(value.type) or not can_raise(value) or not may_be_constant(other):
        return False
    bounds = constants.cut(value.type, other, "UTC") if isinstance(other, Constant) else None
    least, greatest = constants.domain(value.type)
    low, high = bounds or (least, least)
    return low <= least or high > greatest or (operator in ("=", "<=>") and low >= high)


def beyond_integers(operator: str, left: Constant) -> bool | None:
    """The truth of `left operator integer` for a DECIMAL literal `left` beyond every BIGINT, whether the integer is
    NULL or not; None for other literals and operators.

    Spark's analyser decides such a comparison before it reads a row, so that it is never NULL.
    """
    if operator not in ("<", "<=", ">", ">=") or not is_decimal(left.type) or left.value is None:
        return None
    unit = 10**left.type.scale
    if left.value > ((1 << 63) - 1) * unit:
        return operator in (">", ">=")
    return operator in ("<", "<=") if left.value < -(1 << 63) * unit else None


def operation(
    name: str, operands: list[Expression | None], data_type: pa.DataType, *parameters: object
) -> Expression | None:
    """An operation; None if one of its operands is None, because only Spark can evaluate that."""
    known = [operand for operand in operands if operand is not None]
    return Operation(name, tuple(known), data_type, parameters) if len(known) == len(operands) else None


def null_test(node: Node, operand: Expression | None) -> Expression | None:
    """The test whether an operand is NULL; FALSE if it never is. None if only Spark can evaluate it.

    A test of an operand that can raise is left to Spark: if Spark knows that the operand is never NULL, it does not
    evaluate it, and no error is raised.
    """
    if operand is not None and is_never_null(node):
        return Constant(False, BOOLEAN)
    return None if operand is None or can_raise(operand) else Operation("is_null", (operand,), BOOLEAN)
