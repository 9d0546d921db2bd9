"""Table 1: the values that a predicate allows, as one interval of codes."""

from __future__ import annotations

from collections.abc import Sequence

OPERATORS = ("<", "<=", "=", "<>", ">", ">=", "IN", "NOT IN", "BETWEEN")


def interval(operator: str, values: Sequence[int], lowest: int, highest: int) -> tuple[int, int]:
    """The closed interval within the domain [lowest, highest] that Table 1 gives for a predicate.

    operator: one of `OPERATORS`; values: its operand, its set (in any order), or the two ends of BETWEEN. The interval
    of `IN`, `<>` and `NOT IN` also has values that the predicate excludes; evaluating the predicate itself rejects
    them. Raises `ValueError` if the interval is empty, or the operator is unknown.
    """
    if operator not in OPERATORS:
        raise ValueError(f"operator {operator!r} is not one of {', '.join(OPERATORS)}")
    low, high = lowest, highest
    if operator in ("=", "IN", "BETWEEN"):
        low, high = min(values), max(values)
    elif operator in ("<", "<="):
        high = values[0] - (operator == "<")
    elif operator in (">", ">="):
        low = values[0] + (operator == ">")
    if operator == "BETWEEN" and values[0] > values[1]:
        raise ValueError(f"BETWEEN {values[0]} AND {values[1]} holds for no value")
    low, high = max(low, lowest), min(high, highest)
    if low > high:
        raise ValueError(f"{operator} {list(values)} holds for no value in [{lowest}, {highest}]")
    return low, high
