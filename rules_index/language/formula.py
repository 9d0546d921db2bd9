"""The formula of a rule: a Boolean formula over predicates on attributes, in three-valued logic."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from rules_index.domains.values import ValueSet
from rules_index.language.typed import Expression


class Truth(IntEnum):
    """SQL's three truth values."""

    FALSE = 0
    TRUE = 1
    NULL = 2


@dataclass(frozen=True, slots=True)
class Predicate:
    """A comparison of one attribute with constants.

    `attribute` is the expression whose value is encoded; equal expressions are one attribute. The predicate is TRUE on
    the values in `true`, FALSE on those in `false` (disjoint), NULL on all others, and `null` where the attribute is
    NULL. On a row where evaluating the attribute raised, it is NULL.
    """

    attribute: Expression
    true: ValueSet
    false: ValueSet
    null: Truth


@dataclass(frozen=True, slots=True)
class And:
    """Conjunction, any number of operands (none: TRUE)."""

    operands: tuple[Formula, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Disjunction, any number of operands (none: FALSE)."""

    operands: tuple[Formula, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """Negation; NOT NULL is NULL."""

    operand: Formula


@dataclass(frozen=True, slots=True)
class Fixed:
    """The same truth value on every row."""

    truth: Truth


Formula = Predicate | And | Or | Not | Fixed


def predicates_of(formula: Formula) -> Iterator[Predicate]:
    """The predicates of a formula, from left to right."""
    if isinstance(formula, Predicate):
        yield formula
    elif isinstance(formula, Not):
        yield from predicates_of(formula.operand)
    elif isinstance(formula, (And, Or)):
        for operand in formula.operands:
            yield from predicates_of(operand)
