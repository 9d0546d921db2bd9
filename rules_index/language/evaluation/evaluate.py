"""Evaluates typed expressions over a batch, column by column, exactly as Spark does in ANSI mode.

Every operand is computed for all rows. A failure counts only on rows where Spark would have evaluated the operand: not
in a CASE branch that is not taken, on the right of FALSE AND ..., or behind a match in IN.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rules_index.language.evaluation import decimal_division, decimals, function_registry
from rules_index.language.evaluation.arithmetic import cast, divide, integer_operation, negative_or_absolute
from rules_index.language.evaluation.comparison import COMPARISONS, compare
from rules_index.language.evaluation.constant_values import constant_scalar
from rules_index.language.evaluation.evaluated import Evaluated, Mask
from rules_index.language.evaluation.nested import items_of, kept_offsets
from rules_index.language.evaluation.operands import ONE_BY_ONE, Operands, after_first
from rules_index.language.evaluation.scalar import nulls_of
from rules_index.language.patterns import like_matcher, rlike_matcher
from rules_index.language.typed import Constant, Expression, Leaf, Operation, leaves_of
from rules_index.names import path_parts


def evaluate(
    expression: Expression,
    inputs: Mapping[str, Evaluated],
    rows: int,
    cache: dict[Expression, Evaluated] | None = None,
    kept: Collection[Expression] | None = None,
) -> Evaluated:
    """The expression's value on each of `rows` rows, given its leaves' values by name.

    cache: the expressions that were already evaluated for this batch, so that common parts are evaluated once
    kept: the only parts whose values stay in the cache, if memory is short (`repeated_parts`); the operands of
        `ONE_BY_ONE` are then evaluated one by one
    """
    cache = {} if cache is None else cache
    if expression in cache:
        return cache[expression]
    if isinstance(expression, Leaf):
        return inputs[expression.name]
    if isinstance(expression, Constant):
        result = Evaluated(pa.repeat(constant_scalar(expression), rows))
    else:
        operands: Sequence[Evaluated] = Operands(expression, lambda each: evaluate(each, inputs, rows, cache, kept))
        if kept is None or expression.name not in ONE_BY_ONE:
            operands = list(operands)
        result = OPERATIONS[expression.name](expression, operands)
    if kept is None or expression in kept:
        cache[expression] = result
    return result


# Masks of an operand's outcomes


def _nulls(operand: Evaluated) -> Mask:
    """The rows where the operand is NULL and did not raise."""
    return nulls_of(operand.values) & ~_raised(operand)


def _raised(operand: Evaluated) -> Mask:
    """The rows where evaluating the operand raised."""
    return np.zeros(len(operand.values), np.bool_) if operand.raised is None else operand.raised


def _is_true(operand: Evaluated) -> Mask:
    """The rows where a BOOLEAN operand is TRUE."""
    return pc.fill_null(operand.values, False).to_numpy(zero_copy_only=False)


def _is_false(operand: Evaluated) -> Mask:
    """The rows where a BOOLEAN operand is FALSE."""
    return ~pc.fill_null(operand.values, True).to_numpy(zero_copy_only=False)


def _finish(values: pa.Array, raised: Mask | None) -> Evaluated:
    """The values, with NULL where `raised`."""
    if raised is None or not raised.any():
        return Evaluated(values)
    return Evaluated(pc.if_else(pa.array(raised), pa.scalar(None, values.type), values), raised)


def _either(operands: Sequence[Evaluated]) -> Mask | None:
    """The rows where an operand that Spark evaluates raised. Spark stops at the first operand that is NULL."""
    if all(operand.raised is None for operand in operands):
        return None
    raised = np.zeros(len(operands[0].values), np.bool_)
    reached = ~raised
    for operand in operands:
        raised |= reached & _raised(operand)
        reached &= ~nulls_of(operand.values)
    return raised


def _with_more(raised: Mask | None, more: Mask | None) -> Mask | None:
    """The rows that are in either mask; None for no rows."""
    if raised is None or more is None:
        return more if raised is None else raised
    return raised | more


# Operations


def _arithmetic(operation: Operation, operands: Sequence[Evaluated]) -> Evaluated:
    values, failed = _computed(operation, operands)
    return _finish(values, _with_more(_either(operands), failed))


def _quiet_arithmetic(operation: Operation, operands: Sequence[Evaluated]) -> Evaluated:
    """A sum, difference or product that is NULL where it overflows."""
    values, failed = _computed(operation, operands)
    return _finish(_finish(values, failed).values, _either(operands))


def _computed(operation: Operation, operands: Sequence[Evaluated]) -> tuple[pa.Array, Mask | None]:
    """The values of a sum, difference or product, and a mask of the rows where it overflows."""
    name, (left, right) = operation.name.removeprefix("try_"), (operand.values for operand in operands)
    if pa.types.is_decimal(operation.type) and name == "multiply":
        return pc.multiply(left, right), None  # the product's type has all its digits
    if not pa.types.is_decimal(operation.type) and not pa.types.is_integer(operation.type):
        return {"add": pc.add, "subtract": pc.subtract, "multiply": pc.multiply}[name](left, right), None
    operate = decimals.operate if pa.types.is_decimal(operation.type) else integer_operation
    values, failed = operate(name, left, right, operation.type)
    return values, None if failed is None else failed & ~(nulls_of(left) | nulls_of(right))


def _division(operation: Operation, operands: Sequence[Evaluated]) -> Evaluated:
    values, failed = _divided(operation, operands)
    return _finish(values, _with_more(_either(operands[::-1]), failed))  # Spark evaluates the divisor first


def _quiet_division(operation: Operation, operands: Sequence[Evaluated]) -> Evaluated:
    """A division that is NULL where it fails. Spark does not evaluate the dividend where the divisor is 0."""
    values, failed = _divided(operation, operands)
    dividend, divisor = operands
    raised = _either([divisor, dividend])
    if raised is not None and dividend.raised is not None:
        raised &= ~_is_true(Evaluated(pc.equal(divisor.values, 0)))
    return _finish(_finish(values, failed).values, raised)


def _divided(operation: Operation, operands: Sequence[Evaluated]) -> tuple[pa.Array, Mask | None]:
    """The values of a division, and a mask of the rows where it fails."""
    name, (left, right) = operation.name.removeprefix("try_"), (operand.values for operand in operands)
    if not pa.types.is_decimal(operation.type):
        return divide(name, left, right)
    of_decimals = {"divide": decimal_division.divide, "remainder": decimal_division.remainder}[name]
    return of_decimals(left, right, operation.type)


def _sign(operation: Operation, operands: Sequence[Evaluated]) -> Evaluated:
    values, failed = negative_or_absolute(operation.name, operands[0].values)
    return _finish(values, _with_more(operands[0].raised, failed))


def _cast(operation: Operation, operands: Sequence[Evaluated]) -> Evaluated:
    values, failed = cast(operands[0].values, operation.type)
    return _finish(values, _with_more(operands[0].raised, failed))


def _quiet_cast(operation: Operation, operands: Sequence[Evaluated]) -> Evaluated:
    """A cast that is NULL where it fails."""
    values, failed = cast(operands[0].values, operation.type)
    return Evaluated(_finish(values, failed).values, operands[0].raised)


def _raise(operation: Operation, operands: Sequence[Evaluated]) -> Evaluated:
    """An error on every row."""
    rows = len(operands[0].values)
    return Evaluated(pa.nulls(rows, operation.type), np.ones(rows, np.bool_))


def _comparison(operation: Operation, operands: Sequence[Evaluated]) -> Evaluated:
    return _finish(compare(operation.name, operands[0].values, operands[1].values), _either(operands))


def _null_safe_equal(operation: Operation, operands: Sequence[Evaluated]) -> Evaluated:
    left, right = operands
    equal = pc.fill_null(compare("=", left.values, right.values), False)
    both = nulls_of(left.values) & nulls_of(right.values)
    raised = _with_more(left.raised, right.raised)
    return _finish(pc.or_(equal, pa.array(both)), raised)


def _and_or(operation: Operation, operands: Sequence[Evaluated]) -> Evaluated:
    """AND or OR in three-valued logic. Spark evaluates operands from left to right, until one decides the result or
    raises."""
    combine, decides = (pc.and_kleene, _is_false) if operation.name == "and" else (pc.or_kleene, _is_true)
    first = operands[0]
    values, raised = first.values, first.raised
    for operand in after_first(operands):
        if operand.raised is not None:
            raised = _with_more(raised, operand.raised & ~decides(Evaluated(values)))
        values = combine(values, operand.values)
    return _finish(values, raised)


def _not(operation: Operation, operands: Sequence[Evaluated]) -> Evaluated:
    return Evaluated(pc.invert(operands[0].values), operands[0].raised)


def _null_test(operation: Operation, operands: Sequence[Evaluated]) -> Evaluated:
    return _finish(operands[0].values.is_null(), operands[0].raised)


def _in(operation: Operation, operands: Sequence[Evaluated]) -> Evaluated:
    """TRUE at the first equal element, else NULL where the value or an element is NULL, else FALSE."""
    value = operands[0]
    rows = len(value.values)
    found, unknown = np.zeros(rows, np.bool_), nulls_of(value.values)
    raised = _raised(value).copy()
    open_rows = ~unknown
    for element in after_first(operands):
        raised |= open_rows & _raised(element)
        open_rows &= ~raised
        equal = pc.fill_null(compare("=", value.values, element.values), False).to_numpy(zero_copy_only=False)
        found |= open_rows & equal
        unknown |= open_rows & nulls_of(element.values)
        open_rows &= ~equal
    values = pa.array(found, mask=~found & unknown)
    return _finish(values, raised)


def _case(operation: Operation, operands: Sequence[Evaluated]) -> Evaluated:
    """The branch of the first condition that is TRUE. Spark evaluates conditions up to that one, and only its
    branch."""
    otherwise = operands[-1]
    values, raised = otherwise.values, _raised(otherwise)
    for position in range(len(operands) - 3, -1, -2):
        condition, branch = operands[position], operands[position + 1]
        taken = _is_true(condition)
        values = pc.if_else(pa.array(taken), branch.values, values)
        raised = np.where(taken, _raised(branch), raised) | _raised(condition)
    return _finish(values, raised)


def _coalesce(operation: Operation, operands: Sequence[Evaluated]) -> Evaluated:
    """The first value that is not NULL. Spark evaluates operands up to that one."""
    first = operands[0]
    values, raised, open_rows = first.values, _raised(first).copy(), _nulls(first)
    for operand in after_first(operands):
        values = pc.coalesce(values, operand.values)
        raised |= open_rows & _raised(operand)
        open_rows &= _nulls(operand)
    return _finish(values, raised)


def _concat_ws(operation: Operation, operands: Sequence[Evaluated]) -> Evaluated:
    """The texts that are not NULL, joined by the separator. All operands are evaluated."""
    values = [operand.values for operand in operands]
    is_empty = reduce(pc.and_, (each.is_null() for each in values))
    values[0] = pc.if_else(is_empty, "", values[0])  # Arrow leaves out a row that has nothing to join
    joined = pc.binary_join_element_wise(*values, operation.parameters[0], null_handling="skip")
    return _finish(joined, reduce(_with_more, (operand.raised for operand in operands)))


def _extreme(operation: Operation, operands: Sequence[Evaluated]) -> Evaluated:
    """The greatest or least value that is not NULL, the first of equal ones. All operands are evaluated."""
    operator = ">" if operation.name == "greatest" else "<"
    first = operands[0]
    found, raised = first.values, first.raised
    for operand in after_first(operands):
        raised = _with_more(raised, operand.raised)
        better = pc.or_(found.is_null(), pc.fill_null(compare(operator, operand.values, found), False))
        found = pc.if_else(better, operand.values, found)
    return _finish(found, raised)


def _like(operation: Operation, operands: Sequence[Evaluated]) -> Evaluated:
    return Evaluated(like_matcher(*operation.parameters).match(operands[0].values), operands[0].raised)


def _rlike(operation: Operation, operands: Sequence[Evaluated]) -> Evaluated:
    return Evaluated(rlike_matcher(*operation.parameters).match(operands[0].values), operands[0].raised)


def _in_list(operation: Operation, operands: Sequence[Evaluated]) -> Evaluated:
    values = operands[0].values
    found = operation.parameters[0].contains(values)
    return Evaluated(pa.array(found, mask=nulls_of(values)), operands[0].raised)


def _quantified(operation: Operation, operands: Sequence[Evaluated]) -> Evaluated:
    """EXISTS: TRUE where the condition is TRUE for an item, else NULL where it is NULL for one, else FALSE. FORALL:
    FALSE where it is FALSE for an item, else NULL where it is NULL for one, else TRUE."""
    lists = operands[0].values
    items, owner = items_of(lists)
    found = _of_items(operation.parameters[0], items)
    is_exists = operation.name == "exists"
    decided, unknown = np.zeros(len(lists), np.bool_), nulls_of(lists)
    decided[owner[_is_true(found) if is_exists else _is_false(found)]] = True
    unknown[owner[nulls_of(found.values)]] = True
    return Evaluated(pa.array(decided == is_exists, mask=unknown & ~decided), operands[0].raised)


def _filtered(operation: Operation, operands: Sequence[Evaluated]) -> Evaluated:
    """The items for which the condition is TRUE."""
    lists = operands[0].values
    items, owner = items_of(lists)
    kept = _is_true(_of_items(operation.parameters[0], items))
    values = pa.ListArray.from_arrays(
        kept_offsets(lists, owner[kept]), items.filter(pa.array(kept)), type=operation.type
    )
    return Evaluated(values, operands[0].raised)


def _of_items(condition: Expression, items: pa.Array) -> Evaluated:
    """The values of a condition on each item, or on its fields."""
    inputs = {leaf.name: Evaluated(_within(items, path_parts(leaf.name)[1:])) for leaf in leaves_of(condition)}
    return evaluate(condition, inputs, len(items))


def _within(items: pa.Array, path: list[str]) -> pa.Array:
    """The field at a path within structs, NULL where a struct is NULL."""
    for name in path:
        items = pc.struct_field(items, [items.type.get_field_index(name)])
    return items


def _call(operation: Operation, operands: Sequence[Evaluated]) -> Evaluated:
    values, failed = function_registry.call(operation, [operand.values for operand in operands])
    if function_registry.is_eager(operation):
        raised = reduce(_with_more, (operand.raised for operand in operands))
    else:
        raised = _either(operands)
    return _finish(values, _with_more(raised, failed))


OPERATIONS: dict[str, Callable[[Operation, Sequence[Evaluated]], Evaluated]] = {
    "add": _arithmetic,
    "subtract": _arithmetic,
    "multiply": _arithmetic,
    "divide": _division,
    "remainder": _division,
    "quotient": _division,
    "positive_remainder": _division,
    **dict.fromkeys(("try_add", "try_subtract", "try_multiply"), _quiet_arithmetic),
    "try_divide": _quiet_division,
    "try_remainder": _quiet_division,
    "negate": _sign,
    "abs": _sign,
    "cast": _cast,
    "try_cast": _quiet_cast,
    "raise": _raise,
    **dict.fromkeys(COMPARISONS, _comparison),
    "<=>": _null_safe_equal,
    "and": _and_or,
    "or": _and_or,
    "not": _not,
    "is_null": _null_test,
    "in": _in,
    "in_list": _in_list,
    "case": _case,
    "coalesce": _coalesce,
    "greatest": _extreme,
    "least": _extreme,
    "concat_ws": _concat_ws,
    "like": _like,
    "rlike": _rlike,
    **dict.fromkeys(("exists", "forall"), _quantified),
    "filter": _filtered,
    "call": _call,
}
