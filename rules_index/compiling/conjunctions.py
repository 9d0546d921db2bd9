"""A rule's formula as conjunctions of literals: the disjunctive normal form of where the rule is TRUE.

NOT is pushed down: a formula below it is expanded to the rows on which it is FALSE in place of those on which it is
TRUE. Rows on which it is NULL are in neither set, so that NULL needs no third case. OR multiplies conjunctions only
while one AND has at most `DISTRIBUTION_LIMIT` of them. Beyond that the OR becomes a *shared disjunction*: it is
evaluated once a batch, to a row bitmap, for all rules that contain it. So compiling takes time and memory linear in the
length of the rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rules_index.domains.values import ValueSet, union
from rules_index.language.formula import And, Fixed, Formula, Not, Predicate, Truth
from rules_index.language.operations import can_raise
from rules_index.language.typed import Expression
from rules_index.work_budget import Work

DISTRIBUTION_LIMIT = 32
"""The most conjunctions that one AND may become by distribution over its ORs."""

_TERMS_A_STEP = 8
"""The terms of conjunctions, or cuts of values, that count as one step of work."""


@dataclass(frozen=True, slots=True)
class Literal:
    """The rows on which an attribute's value is in `values`, or is NULL if `null` is set.

    `attribute` is the attribute's number in `Expansion.attributes`.
    """

    attribute: int
    values: ValueSet
    null: bool
    _hash: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        # cached: sets of literals ask for it again and again, and a literal can have many values
        object.__setattr__(self, "_hash", hash((self.attribute, self.values, self.null)))

    def __hash__(self) -> int:
        return self._hash


@dataclass(frozen=True, slots=True)
class SharedDisjunction:
    """A disjunction of conjunctions that is evaluated once a batch. Equal disjunctions have the same number."""

    number: int
    conjunctions: tuple[Conjunction, ...] = field(compare=False)


Conjunction = frozenset[Literal | SharedDisjunction]

ALWAYS: tuple[Conjunction, ...] = (frozenset(),)
NEVER: tuple[Conjunction, ...] = ()


class Expansion:
    """Expands formulas to conjunctions, and numbers the attributes that they name."""

    def __init__(self) -> None:
        self.attributes: list[Expression] = []
        self._raising: list[bool] = []
        self._numbers: dict[Expression, int] = {}
        self._by_identity: dict[int, int] = {}
        self._disjunctions: dict[tuple[Conjunction, ...], SharedDisjunction] = {}
        self._work = Work()

    def begin(self) -> None:
        """Gives the next rule its own budget of work."""
        self._work = Work()

    def conjunctions_of(self, formula: Formula, wanted: bool = True) -> tuple[Conjunction, ...]:
        """The conjunctions that together have the rows on which `formula` is TRUE or, if not `wanted`, FALSE. `ALWAYS`
        and `NEVER` stand for all rows and none."""
        if isinstance(formula, Predicate):
            values = formula.true if wanted else formula.false
            null = formula.null is (Truth.TRUE if wanted else Truth.FALSE)
            return self._simplified(Literal(self.number_of(formula.attribute), values, null))
        if isinstance(formula, Not):
            return self.conjunctions_of(formula.operand, not wanted)
        if isinstance(formula, Fixed):
            return ALWAYS if formula.truth is (Truth.TRUE if wanted else Truth.FALSE) else NEVER
        parts = [self.conjunctions_of(operand, wanted) for operand in formula.operands]
        return self.all_of(parts) if isinstance(formula, And) == wanted else self.any_of(parts)

    @property
    def disjunctions(self) -> tuple[SharedDisjunction, ...]:
        """All shared disjunctions by number; each names only earlier ones."""
        return tuple(self._disjunctions.values())

    def number_of(self, attribute: Expression) -> int:
        """The attribute's number; a new attribute gets the next one."""
        number = self._by_identity.get(id(attribute))
        if number is not None and self.attributes[number] is attribute:
            return number
        number = self._numbers.get(attribute)
        if number is None:
            number = self._numbers[attribute] = len(self.attributes)
            self.attributes.append(attribute)
            self._raising.append(can_raise(attribute))
            self._by_identity[id(attribute)] = number
        return number

    def _simplified(self, literal: Literal) -> tuple[Conjunction, ...]:
        if literal.values.is_empty and not literal.null:
            return NEVER
        if self._is_always(literal):
            return ALWAYS
        return (frozenset((literal,)),)

    def _is_always(self, literal: Literal) -> bool:
        return literal.null and literal.values.is_full and not self._raising[literal.attribute]

    def any_of(self, parts: Iterable[Sequence[Conjunction]]) -> tuple[Conjunction, ...]:
        """OR of several parts. Alternatives that are single literals on the same attribute become one literal."""
        single: dict[int, list[Literal]] = {}
        others: dict[Conjunction, None] = {}
        for part in parts:
            self._work.spend(len(part))
            for conjunction in part:
                if not conjunction:
                    return ALWAYS
                member = next(iter(conjunction))
                if len(conjunction) == 1 and isinstance(member, Literal):
                    single.setdefault(member.attribute, []).append(member)
                else:
                    others[conjunction] = None
        merged: list[Conjunction] = []
        for attribute, literals in single.items():
            joined = literals[0]
            if len(literals) > 1:
                self._spend_cuts(literals)
                joined = Literal(
                    attribute,
                    union(x.values for x in literals),
                    any(x.null for x in literals),
                )
            simplified = self._simplified(joined)
            if simplified is ALWAYS:
                return ALWAYS
            merged += simplified
        return (*merged, *others)

    def all_of(self, parts: Sequence[Sequence[Conjunction]]) -> tuple[Conjunction, ...]:
        """AND of several parts: distributed over the smallest ORs first; the larger ones become shared disjunctions."""
        fixed: list[Conjunction] = []
        choices: list[Sequence[Conjunction]] = []
        for part in parts:
            if not part:
                return NEVER
            if len(part) == 1:
                fixed.append(part[0])
            else:
                choices.append(part)
        base = self._merge(fixed)
        if base is None:
            return NEVER
        product: list[Conjunction] = [base]
        disjunctions: set[Literal | SharedDisjunction] = set()
        for choice in sorted(choices, key=len):
            if len(product) * len(choice) <= DISTRIBUTION_LIMIT:
                pairs = (self._merge((left, right)) for left in product for right in choice)
                product = list(dict.fromkeys(merged for merged in pairs if merged is not None))
            else:
                disjunctions.add(self._shared_disjunction(tuple(choice)))
            if not product:
                return NEVER
        self._work.spend(len(product) * len(disjunctions) // _TERMS_A_STEP)
        return tuple(conjunction | disjunctions for conjunction in product) if disjunctions else tuple(product)

    def _shared_disjunction(self, conjunctions: tuple[Conjunction, ...]) -> SharedDisjunction:
        return self._disjunctions.setdefault(conjunctions, SharedDisjunction(len(self._disjunctions), conjunctions))

    def _merge(self, members: Iterable[Conjunction]) -> Conjunction | None:
        """The AND of several conjunctions, with literals on one attribute intersected; None if it is unsatisfiable."""
        literals: dict[int, list[Literal]] = {}
        result: set[Literal | SharedDisjunction] = set()
        for member in members:
            self._work.spend(1 + len(member) // _TERMS_A_STEP)
            for term in member:
                if isinstance(term, SharedDisjunction):
                    result.add(term)
                else:
                    literals.setdefault(term.attribute, []).append(term)
        for attribute, terms in literals.items():
            term = terms[0]
            if len(terms) > 1:
                self._spend_cuts(terms)
                term = Literal(
                    attribute,
                    ~union(~x.values for x in terms),
                    all(x.null for x in terms),
                )
                if term.values.is_empty and not term.null:
                    return None
                if self._is_always(term):
                    continue
            result.add(term)
        return frozenset(result)

    def _spend_cuts(self, literals: Sequence[Literal]) -> None:
        self._work.spend(len(literals) + sum(len(literal.values.cuts) for literal in literals) // _TERMS_A_STEP)
