"""Compiles the distinct clauses of a rule set to literals: clauses of one template together, the others one by one."""

from __future__ import annotations

from typing import Any

import numpy as np

from rules_index.compiling.conjunctions import ALWAYS as EVERY_ROW
from rules_index.compiling.conjunctions import NEVER as NO_ROW
from rules_index.compiling.conjunctions import Conjunction, Expansion, Literal
from rules_index.compiling.literal_sets import ALWAYS, NEVER, LiteralSets
from rules_index.compiling.templates.clause_templates import Batch, instantiate
from rules_index.compiling.templates.clauses import StringPool, grouped_by_shape
from rules_index.domains.value_sets import SetArrays
from rules_index.domains.values import EVERYTHING
from rules_index.language.compiler import Compiler
from rules_index.language.formula import Formula, Predicate, predicates_of
from rules_index.language.operations import can_raise
from rules_index.language.typed import Expression, Leaf

COMPLEMENT, SEVERAL, REFUSED = -3, -4, -5
"""These replace a literal's number, for: the complement of the literal for the other truth value, made on demand; a
clause that is more than one literal; a clause that does not compile."""
_MOST_KNOWN = 1 << 16
"""The most clauses with cached conjunctions."""


class ClauseLiterals:
    """For each clause a literal for the rows on which it is FALSE, and one for those on which it is TRUE.

    literal    [2, clauses] int32, the literal for FALSE and for TRUE: its number, or one of `NEVER`, `ALWAYS`,
               `COMPLEMENT`, `SEVERAL` and `REFUSED`
    attribute  [clauses] int32, the attribute of a clause that is a single predicate, else -1
    question   [clauses] int32, equal for clauses that compare the same attribute, which can raise, with the same
               constants: one of them can be the negation of the other; -1 for other clauses
    """

    def __init__(
        self, clauses: StringPool, negated: np.ndarray, compiler: Compiler, expansion: Expansion, literals: LiteralSets
    ) -> None:
        """Compiles clauses, and numbers their attributes in `expansion` and their literals in `literals`.

        negated: [clauses] bool, the clauses for which a literal for FALSE is made at once.
        """
        self.literal = np.full((2, len(clauses)), REFUSED, np.int32)
        self.attribute = np.full(len(clauses), -1, np.int32)
        self.question = np.full(len(clauses), -1, np.int32)
        self._questions: dict[tuple[int, tuple[Any, ...]], int] = {}
        self._compiler, self._expansion, self._literals = compiler, expansion, literals
        self._several: dict[int, Formula] = {}
        self._known: dict[tuple[int, bool], tuple[Conjunction, ...]] = {}
        for alike in grouped_by_shape(clauses):
            batch = instantiate(alike, clauses, compiler)
            rest = alike.clauses
            if batch is not None:
                self._add_batch(batch, rest[batch.known], negated)
                rest = rest[~batch.known]
            for clause in rest.tolist():
                self._add_single(clause, clauses[clause].decode())

    def append(self, attribute: Leaf, sets: SetArrays) -> int:
        """Adds clauses on an attribute whose keys are integers: TRUE where it is in the clause's set, NULL where it is
        NULL. Returns the number of the first."""
        number = self._number_of(attribute)
        added = np.stack([np.full(len(sets), COMPLEMENT, np.int32), self._literals.extend(number, sets)])
        self.literal = np.concatenate([self.literal, added], axis=1)
        self.attribute = np.concatenate([self.attribute, np.full(len(sets), number, np.int32)])
        return len(self.attribute) - len(sets)

    def attributes(self, clause: int) -> list[int]:
        """The attributes that a clause names, from left to right."""
        if clause not in self._several:
            return [int(self.attribute[clause])]
        return [self._expansion.number_of(p.attribute) for p in predicates_of(self._several[clause])]

    def conjunctions(self, clause: int, wanted: bool) -> tuple[Conjunction, ...]:
        """The conjunctions for the rows on which a clause is TRUE or, if not `wanted`, FALSE. It must not be
        `REFUSED`."""
        found = self._known.get((clause, wanted))
        if found is None:
            if len(self._known) == _MOST_KNOWN:
                self._known.clear()
            found = self._known[clause, wanted] = self._expanded(clause, wanted)
        return found

    def _expanded(self, clause: int, wanted: bool) -> tuple[Conjunction, ...]:
        if clause in self._several:
            return self._expansion.conjunctions_of(self._several[clause], wanted)
        literal = int(self.literal[int(wanted), clause])
        if literal == COMPLEMENT:
            true = int(self.literal[1, clause])
            values = EVERYTHING if true == NEVER else ~self._literals[true].values
            return NO_ROW if values.is_empty else (frozenset((Literal(int(self.attribute[clause]), values, False),)),)
        if literal < 0:
            return EVERY_ROW if literal == ALWAYS else NO_ROW
        return (frozenset((self._literals[literal],)),)

    def _number_of(self, attribute: Expression) -> int:
        number = self._expansion.number_of(attribute)
        self._literals.grow(self._expansion.attributes)
        return number

    def _add_batch(self, batch: Batch, clauses: np.ndarray, negated: np.ndarray) -> None:
        number = self._number_of(batch.leaf)
        sets = self._literals.columns[number].referring(batch.sets, batch.strings)
        self.attribute[clauses] = number
        self.literal[1, clauses] = self._literals.extend(number, sets)
        self.literal[0, clauses] = COMPLEMENT
        turned = np.flatnonzero(negated[clauses])
        if len(turned):
            self.literal[0, clauses[turned]] = self._literals.extend(number, sets.take(turned).complements())

    def _add_single(self, clause: int, text: str) -> None:
        try:
            formula = self._compiler.compile_clause(text)
        except MemoryError:
            raise
        except Exception:  # rules with this clause are compiled one by one, which reports the error
            return
        if isinstance(formula, Predicate):
            self.attribute[clause] = self._number_of(formula.attribute)
            for wanted in (False, True):
                found = self._expansion.conjunctions_of(formula, wanted)
                literal = next(iter(found[0]), None) if found else None
                number = self._literals.add(literal) if isinstance(literal, Literal) else ALWAYS if found else NEVER
                self.literal[int(wanted), clause] = number
            if formula.true != formula.false and can_raise(formula.attribute):
                asked = (int(self.attribute[clause]), formula.true.cuts)
                self.question[clause] = self._questions.setdefault(asked, len(self._questions))
        elif formula is not None:
            self._several[clause] = formula
            self.literal[:, clause] = SEVERAL
