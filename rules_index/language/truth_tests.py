"""Formulas derived from formulas: their negation, and tests of their truth."""

from __future__ import annotations

from rules_index.domains.values import EVERYTHING, NOTHING, ValueSet
from rules_index.language import constants, operations
from rules_index.language.formula import Fixed, Formula, Not, Predicate, Truth
from rules_index.language.typed import Constant, Expression, Leaf, leaves_of

TRUE, FALSE = ValueSet(False, (1,)), ValueSet(True, (1,))
"""The values of a BOOLEAN attribute that is true, and of one that is false."""


def is_plain(formula: Formula) -> bool:
    """Whether a formula is a predicate on a column, which means the same wherever it occurs."""
    return isinstance(formula, Predicate) and isinstance(formula.attribute, Leaf) and formula.attribute.text is None


def negate(formula: Formula) -> Formula:
    """NOT of a formula, pushed into a single predicate."""
    if isinstance(formula, Predicate):
        null = formula.null if formula.null == Truth.NULL else Truth(1 - formula.null)
        return Predicate(formula.attribute, formula.false, formula.true, null)
    if isinstance(formula, Fixed):
        return Fixed(formula.truth if formula.truth == Truth.NULL else Truth(1 - formula.truth))
    return formula.operand if isinstance(formula, Not) else Not(formula)


def are_proven(operands: tuple[Formula, ...]) -> bool:
    """Whether Spark may know the result of an AND or OR from its text, because one operand is the negation of another.

    It then evaluates neither, so that no error is raised.
    """
    raising = [each for each in operands if isinstance(each, Predicate) and operations.can_raise(each.attribute)]
    seen = {(each.attribute, each.true) for each in raising}
    return any(each.true != each.false and (each.attribute, each.false) in seen for each in raising)


def fixed(constant: Constant) -> Fixed:
    """A constant truth value."""
    return Fixed(Truth.NULL if constant.value is None else Truth(int(constant.value)))


def truth_test(predicate: Predicate, word: str) -> Predicate:
    """`predicate IS TRUE`, `IS FALSE` or `IS UNKNOWN` on the same attribute."""
    if word in ("UNKNOWN", "NULL"):
        true = ~(predicate.true | predicate.false)
        wanted = Truth.NULL
    else:
        true = predicate.true if word == "TRUE" else predicate.false
        wanted = Truth.TRUE if word == "TRUE" else Truth.FALSE
    true = constants.clamp(true, predicate.attribute.type)
    return Predicate(predicate.attribute, true, ~true, Truth(int(predicate.null == wanted)))


def with_null(operator: str, attribute: Expression) -> Formula:
    """A comparison with NULL. Spark does not evaluate the other side, so that no error is raised, unless it is
    `<=>`."""
    if operator == "<=>":
        return Predicate(attribute, NOTHING, EVERYTHING, Truth.TRUE)
    if any(leaf.text is not None for leaf in leaves_of(attribute)):  # Spark has yet to accept its text
        return Predicate(attribute, NOTHING, NOTHING, Truth.NULL)
    return Fixed(Truth.NULL)
