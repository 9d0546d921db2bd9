"""What Spark knows of a comparison from the constants of a CASE, without its conditions."""

from __future__ import annotations

from rules_index.language import constants
from rules_index.language.coercion import IncompatibleTypesError, common_type
from rules_index.language.operations import can_raise
from rules_index.language.typed import Constant, Expression, Operation


def common_outcome(operator: str, case: Expression | None, other: Expression | None, zone: str) -> bool | None:
    """The truth of `case operator other`, if it is the same for the constants of all branches; None if it is not.

    Spark then evaluates no condition, so it matters only where one of them can raise.
    """
    if not (isinstance(case, Operation) and case.name == "case" and isinstance(other, Constant) and can_raise(case)):
        return None
    found = {_truth(operator, each, other, zone) for each in (*case.operands[1::2], case.operands[-1])}
    return found.pop() if len(found) == 1 else None


def _truth(operator: str, value: Expression, other: Constant, zone: str) -> bool | None:
    if not isinstance(value, Constant):
        return None
    try:
        common = common_type(value.type, other.type)
    except IncompatibleTypesError:
        return None
    if common is None or not constants.has_keys(common):
        return None
    first, second = constants.cast(value, common, zone), constants.cast(other, common, zone)
    return None if first is None or second is None else constants.truth(operator, first, second)
