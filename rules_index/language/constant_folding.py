"""Calls as operations, and the values of operations on constants, which are computed once while a rule is compiled, as
Spark's optimiser does."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from rules_index.language import constants
from rules_index.language.coercion import STRING, is_float
from rules_index.language.evaluation import datetime_parser
from rules_index.language.evaluation.constant_values import constant_of
from rules_index.language.evaluation.evaluate import evaluate
from rules_index.language.evaluation.function_registry import FUNCTIONS
from rules_index.language.typed import Constant, Expression, Operation

_LONGEST_TEXTS = 1_000
"""The greatest length in characters of the constant texts of a call that is evaluated while a rule is compiled:
`levenshtein` takes time quadratic in it."""


def folded_call(
    name: str, arguments: Sequence[Expression | None], result: pa.DataType | None, zone: str
) -> Expression | None:
    """The call of a function, folded. None if only Spark can evaluate it, or if an argument is None."""
    function = FUNCTIONS.get(name)
    known = [each for each in arguments if each is not None]
    if function is None or result is None or len(known) < len(arguments):
        return None
    if not known or not function.accepts([each.type for each in known]):
        return None
    fixed = [known[place] for place in function.constants if place < len(known)]
    values = [each.value for each in fixed if isinstance(each, Constant) and each.value is not None]
    if len(values) < len(fixed) or (function.fits is not None and not function.fits(values)):
        return None
    return folded(Operation("call", tuple(known), result, (name, zone)))


def folded(expression: Expression | None) -> Expression | None:
    """An operation or, if its operands are constants, its value or an operation that raises on every row; None if only
    Spark can evaluate it."""
    if not isinstance(expression, Operation):
        return expression
    operands = [each for each in expression.operands if isinstance(each, Constant)]
    if len(operands) < len(expression.operands):
        return expression
    if expression.name == "call" and not _may_be_evaluated(operands):
        return None
    found = evaluate(expression, {}, 1)
    if found.raised is not None and found.raised.any():
        return Operation("raise", expression.operands[:1], expression.type)
    return constant_of(found.values)


def _may_be_evaluated(arguments: Sequence[Constant]) -> bool:
    """Whether a call's texts are short, and none of them may be read as a moment of the current day."""
    texts = [each.value for each in arguments if each.type == STRING and each.value is not None]
    if sum(map(len, texts)) > _LONGEST_TEXTS:
        return False
    return not any(datetime_parser.names_moment(text) or datetime_parser.is_time_of_day(text) for text in texts)


def arithmetic_of_constants(name: str, left: Constant, right: Constant) -> Constant | None:
    """A sum, difference or product of constants of one type; None if it raises."""
    if left.value is None or right.value is None:
        return Constant(None, left.type)
    if is_float(left.type):
        found = folded(Operation(name, (left, right), left.type))
        return found if isinstance(found, Constant) else None
    value = {
        "add": left.value + right.value,
        "subtract": left.value - right.value,
        "multiply": left.value * right.value,
    }[name]
    least, greatest = constants.domain(left.type)
    assert isinstance(least, int) and isinstance(greatest, int)
    return Constant(value, left.type) if least <= value <= greatest else None
