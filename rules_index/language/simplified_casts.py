"""Casts that Spark's optimiser leaves out, and with them what they would change."""

from __future__ import annotations

import pyarrow as pa

from rules_index.language.coercion import DOUBLE, FLOAT, is_integer
from rules_index.language.typed import Expression, Operation


def past_float(expression: Expression, target: pa.DataType) -> Expression:
    """What is cast to `target` in place of an expression.

    An integer that is cast to FLOAT and then to DOUBLE is cast to DOUBLE at once, without the rounding to a FLOAT:
    `CAST(16777217 AS FLOAT)` of a column equals the DOUBLE 16777217. Any other expression stays.
    """
    if not isinstance(expression, Operation) or expression.name not in ("cast", "try_cast"):
        return expression
    (operand,) = expression.operands
    is_dropped = is_integer(operand.type) and expression.type == FLOAT and target == DOUBLE
    return operand if is_dropped else expression
