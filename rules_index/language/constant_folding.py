"""The values of operations on constants, computed once while a rule is compiled, as Spark's optimiser does."""

from __future__ import annotations

from rules_index.language import constants
from rules_index.language.coercion import is_float
from rules_index.language.evaluation.constant_values import constant_of
from rules_index.language.evaluation.evaluate import evaluate
from rules_index.language.typed import Constant, Expression, Operation


def folded(expression: Expression | None) -> Expression | None:
    """An operation or, if its operands are constants, its value or an operation that raises on every row; None if only
    Spark can evaluate it."""
    if isinstance(expression, Operation) and all(isinstance(each, Constant) for each in expression.operands):
        return _value(expression) or Operation("raise", expression.operands[:1], expression.type)
    return expression


def _value(operation: Operation) -> Constant | None:
    """The value of an operation on constants; None if it raises."""
    found = evaluate(operation, {}, 1)
    return None if found.raised is not None and found.raised.any() else constant_of(found.values)


def arithmetic_of_constants(name: str, left: Constant, right: Constant) -> Constant | None:
    """A sum, difference or product of constants of one type; None if it raises."""
    if left.value is None or right.value is None:
        return Constant(None, left.type)
    if is_float(left.type):
        return _value(Operation(name, (left, right), left.type))
    value = {
        "add": left.value + right.value,
        "subtract": left.value - right.value,
        "multiply": left.value * right.value,
    }[name]
    least, greatest = constants.domain(left.type)
    assert isinstance(least, int) and isinstance(greatest, int)
    return Constant(value, left.type) if least <= value <= greatest else None
