"""Conjunctions hold exactly where the formula is TRUE in three-valued logic, and never explode."""

import random

import pyarrow as pa
import pytest

from rules_index.compiling.conjunctions import Conjunction, Expansion, SharedDisjunction
from rules_index.domains.values import interval, points
from rules_index.language.formula import And, Fixed, Formula, Not, Or, Predicate, Truth
from rules_index.language.typed import Leaf
from tests.unit.naive import RAISED, truth

ATTRIBUTES = [Leaf("a", pa.int32()), Leaf("b", pa.int32()), Leaf("derived_c", pa.bool_(), "f(c)")]


def random_formula(depth: int) -> Formula:
    kind = random.random()
    if depth == 0 or kind < 0.3:
        true = random.choice([points([random.randint(0, 3)]), interval(random.randint(0, 3), None), ~points([1, 2])])
        false = random.choice([~true, points([]), ~true & interval(2, None)])
        return Predicate(random.choice(ATTRIBUTES), true, false, random.choice(list(Truth)))
    if kind < 0.35:
        return Fixed(random.choice(list(Truth)))
    if kind < 0.5:
        return Not(random_formula(depth - 1))
    operands = tuple(random_formula(depth - 1) for _ in range(random.randint(0, 4)))
    return And(operands) if kind < 0.75 else Or(operands)


def holds(conjunctions: tuple[Conjunction, ...], expansion: Expansion, row: dict[Leaf, object]) -> bool:
    def term_holds(term: object) -> bool:
        if isinstance(term, SharedDisjunction):
            return holds(term.conjunctions, expansion, row)
        key = row[expansion.attributes[term.attribute]]  # type: ignore[attr-defined, index]
        if key is RAISED:
            return False
        return term.null if key is None else key in term.values  # type: ignore[attr-defined]

    return any(all(term_holds(term) for term in conjunction) for conjunction in conjunctions)


@pytest.mark.slow
def test_conjunctions_hold_where_the_formula_is_true() -> None:
    for seed in range(1500):
        random.seed(seed)
        formula = random_formula(4)
        expansion = Expansion()
        conjunctions = expansion.conjunctions_of(formula)
        for _ in range(12):
            row: dict[Leaf, object] = {leaf: random.choice([None, 0, 1, 2, 3]) for leaf in ATTRIBUTES}
            if random.random() < 0.3:
                row[ATTRIBUTES[2]] = RAISED
            assert holds(conjunctions, expansion, row) == (truth(formula, row) is Truth.TRUE), seed


def equals(column: int, value: int) -> Predicate:
    return Predicate(Leaf(f"c{column}", pa.int32()), points([value]), ~points([value]), Truth.NULL)


def size_of(conjunctions: tuple[Conjunction, ...], seen: set[SharedDisjunction]) -> int:
    total = 0
    for conjunction in conjunctions:
        total += len(conjunction)
        for term in conjunction:
            if isinstance(term, SharedDisjunction) and term not in seen:
                seen.add(term)
                total += size_of(term.conjunctions, seen)
    return total


@pytest.mark.parametrize("negated", [False, True])
def test_fifty_ors_under_and_stay_in_proportion(negated: bool) -> None:
    ors = tuple(Or((equals(i % 9, i), equals(i % 7 + 9, i))) for i in range(50))
    formula: Formula = And(ors)
    if negated:
        formula = Not(Or(tuple(Not(each) for each in ors)))
    assert size_of(Expansion().conjunctions_of(formula), set()) < 5_000


def test_a_thousand_alternatives_on_one_column_are_one_literal() -> None:
    (conjunction,) = Expansion().conjunctions_of(Or(tuple(equals(0, i) for i in range(1000))))
    assert len(conjunction) == 1


def test_a_thousand_alternatives_of_two_columns_are_a_thousand_conjunctions() -> None:
    formula = Or(tuple(And((equals(0, i), equals(1, i + 1))) for i in range(1000)))
    assert len(Expansion().conjunctions_of(formula)) == 1000
