"""Casts that Spark's optimiser leaves out, and with them what they would change."""

from __future__ import annotations

import pyarrow as pa

from rules_index.language.coercion import DOUBLE, FLOAT, is_integer
from rules_index.language.typed import Expression, Operation, outcomes_of


def past_float(expression: Expression, target: pa.DataType) -> Expression | None:
    """What is cast to `target` in place of an expression; None if only Spark knows.

    An integer that is cast to FLOAT and then to DOUBLE is cast to DOUBLE at once, without the rounding to a FLOAT:
    `CAST(16777217 AS FLOAT)` of a column equals the DOUBLE 16777217. Spark also does so in the branches of a CASE, if
    it moves the second cast there. Any other expression stays.
    """
    if expression.type != FLOAT or target != DOUBLE or not isinstance(expression, Operation):
        return expression
    if expression.name == "case":
        return None if any(past_float(each, target) is not each for each in outcomes_of(expression)) else expression
    if expression.name not in ("cast", "try_cast"):
        return expression
    (operand,) = expression.operands
    return operand if is_integer(operand.type) else expression
