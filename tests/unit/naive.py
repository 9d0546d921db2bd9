"""Naive twins: what the library does, in a dozen plain lines each, to compare it with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rules_index.language.formula import And, Fixed, Formula, Not, Predicate, Truth

RAISED = object()
"""Stands for the value of an attribute whose evaluation raised."""


def truth(formula: Formula, row: Mapping[Any, Any]) -> Truth:
    """SQL's three-valued truth of a formula on one row: attribute -> key, None (NULL) or `RAISED`."""
    if isinstance(formula, Fixed):
        return formula.truth
    if isinstance(formula, Not):
        inner = truth(formula.operand, row)
        return inner if inner is Truth.NULL else Truth(1 - inner)
    if isinstance(formula, Predicate):
        key = row[formula.attribute]
        if key is RAISED:
            return Truth.NULL
        if key is None:
            return formula.null
        return Truth.TRUE if key in formula.true else Truth.FALSE if key in formula.false else Truth.NULL
    operands = [truth(operand, row) for operand in formula.operands]
    settling, other = (Truth.FALSE, Truth.TRUE) if isinstance(formula, And) else (Truth.TRUE, Truth.FALSE)
    if settling in operands:
        return settling
    return Truth.NULL if Truth.NULL in operands else other
