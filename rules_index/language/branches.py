"""What Spark knows of an operation on a CASE whose branches are constants, without the CASE's conditions.

Spark moves an operation with constants into the branches. If all branches are equal then, it evaluates no condition, so
that none raises. This matters only where a condition can raise.
"""

from __future__ import annotations

from rules_index.domains.values import is_indexable
from rules_index.language import constants
from rules_index.language.coercion import IncompatibleTypesError, common_type
from rules_index.language.nodes import Node
from rules_index.language.operations import can_raise
from rules_index.language.typed import Constant, Expression, Operation, operations_of, outcomes_of


def common_outcome(operator: str, case: Expression | None, other: Expression | None, zone: str) -> bool | None:
    """The truth of `case operator other`, if it is the same for the constants of all branches; None if it is not."""
    found = _outcomes(operator, case, other, zone)
    return found.pop() if len(found) == 1 else None


def is_never_true(operator: str, left: Expression | None, right: Expression | None, zone: str) -> bool:
    """Whether a comparison of a CASE with a constant is FALSE for some branches and NULL for the others. In some places
    Spark takes NULL for FALSE, and evaluates no condition there."""
    sides = ((operator, left, right), (constants.FLIPPED[operator], right, left))
    return any(_outcomes(each, case, other, zone) == {False, None} for each, case, other in sides)


def _outcomes(operator: str, case: Expression | None, other: Expression | None, zone: str) -> set[bool | None]:
    """The truths of `case operator other` for all branches; empty for another expression than a CASE of constants."""
    if not (isinstance(other, Constant) and has_constant_branches(case)):
        return set()
    assert isinstance(case, Operation)
    return {_truth(operator, each, other, zone) for each in outcomes_of(case)}


def has_constant_branches(expression: Expression | None) -> bool:
    """Whether an expression is a CASE between constants that has a condition which can raise."""
    if not (isinstance(expression, Operation) and expression.name == "case"):
        return False
    return all(isinstance(each, Constant) for each in outcomes_of(expression)) and can_raise(expression)


def is_moved_into_branches(attribute: Expression) -> bool:
    """Whether Spark may move an operation within an attribute's expression into the branches of a CASE, which may then
    be equal."""
    return any(
        each.name != "case"
        and any(map(has_constant_branches, each.operands))
        and all(isinstance(operand, Constant) or has_constant_branches(operand) for operand in each.operands)
        for each in operations_of(attribute)
    )


def has_literal_branches(node: Node) -> bool:
    """Whether a node is a CASE or `if` between literals."""
    if node.kind == "call" and node.value == "if":
        return all(each.kind == "literal" for each in node.children[1:])
    if node.kind != "case":
        return False
    children = node.children[1:] if node.value else node.children
    results = [*children[1::2], *(children[-1:] if len(children) % 2 else ())]
    return all(each.kind == "literal" for each in results)


def _truth(operator: str, value: Expression, other: Constant, zone: str) -> bool | None:
    assert isinstance(value, Constant)
    try:
        common = common_type(value.type, other.type)
    except IncompatibleTypesError:
        return None
    if common is None or not is_indexable(common):
        return None
    first, second = constants.cast(value, common, zone), constants.cast(other, common, zone)
    return None if first is None or second is None else constants.truth(operator, first, second)
