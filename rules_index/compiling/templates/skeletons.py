"""Expands a skeleton of AND, OR and NOT over clauses: for one rule, or once for all rules that share it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from rules_index.arrays import offsets_of, segment_counts
from rules_index.compiling.conjunctions import Conjunction, Expansion, Literal
from rules_index.domains.values import points
from rules_index.kernels.rule_texts import AND, CLAUSE, NOT, OPENING, OR

Clauses = Callable[[int, bool], tuple[Conjunction, ...]]
"""Given a clause's place in the rule, and True or False, returns the conjunctions for the rows on which it is that."""
_ONE = points([1])


@dataclass(frozen=True, slots=True)
class _Node:
    """A node: `kind` is AND, OR or NOT, with operands; or CLAUSE, with the clause's place."""

    kind: int
    operands: tuple[_Node, ...] = ()
    place: int = 0


class Skeleton:
    """A parsed skeleton (`kernels/rule_texts.py`). NOT binds tighter than AND, AND tighter than OR."""

    def __init__(self, skeleton: bytes) -> None:
        self._skeleton = skeleton
        self._at = 0
        self.clauses = 0
        self._root = self._either()

    def conjunctions(self, expansion: Expansion, clauses: Clauses) -> tuple[Conjunction, ...]:
        """The conjunctions that together have the rows on which a rule with these clauses is TRUE, expanded as
        `Expansion` does."""
        return _expanded(self._root, True, expansion, clauses)

    def _either(self) -> _Node:
        return self._chain(OR, self._both)

    def _both(self) -> _Node:
        return self._chain(AND, self._one)

    def _chain(self, kind: int, operand: Callable[[], _Node]) -> _Node:
        """The operands of one connective; nested operands with the same connective are flattened."""
        parts = [operand()]
        while self._skeleton[self._at : self._at + 1] == bytes([kind]):
            self._at += 1
            parts.append(operand())
        if len(parts) == 1:
            return parts[0]
        return _Node(kind, tuple(leaf for part in parts for leaf in (part.operands if part.kind == kind else (part,))))

    def _one(self) -> _Node:
        kind = self._skeleton[self._at]
        self._at += 1
        if kind == NOT:
            return _Node(NOT, (self._one(),))
        if kind == OPENING:
            inner = self._either()
            self._at += 1
            return inner
        self.clauses += 1
        return _Node(CLAUSE, (), self.clauses - 1)


def _expanded(node: _Node, wanted: bool, expansion: Expansion, clauses: Clauses) -> tuple[Conjunction, ...]:
    if node.kind == CLAUSE:
        return clauses(node.place, wanted)
    if node.kind == NOT:
        return _expanded(node.operands[0], not wanted, expansion, clauses)
    parts = [_expanded(operand, wanted, expansion, clauses) for operand in node.operands]
    return expansion.all_of(parts) if (node.kind == AND) == wanted else expansion.any_of(parts)


@dataclass(frozen=True)
class Patterns:
    """The conjunctions of skeletons, valid for rules in which each clause is a literal on an attribute of its own.

    conjunctions  [skeletons + 1] int64, offsets into terms; a skeleton without conjunctions has no pattern
    terms         [conjunctions + 1] int64, offsets into place and wanted
    place         [.] int32, the place of a clause in the rule
    wanted        [.] int8, 1 if the clause has to be TRUE, 0 if FALSE
    slots         [skeletons + 1] int64, offsets into common
    common        [.] bool, for each clause by place whether it is in all conjunctions of the skeleton
    """

    conjunctions: np.ndarray
    terms: np.ndarray
    place: np.ndarray
    wanted: np.ndarray
    slots: np.ndarray
    common: np.ndarray

    def negated(self) -> tuple[np.ndarray, np.ndarray]:
        """The places of clauses that have to be FALSE, by skeleton, and offsets [skeletons + 1] into them."""
        chosen = self.wanted == 0
        return self.place[chosen], offsets_of(segment_counts(chosen, self.terms[self.conjunctions]))


def patterns_of(skeletons: Iterable[tuple[bytes, bool]]) -> Patterns:
    """The patterns of skeletons. A bounded skeleton has one more clause at the end, which must be TRUE too."""
    conjunctions, terms, slots = [0], [0], [0]
    place: list[int] = []
    wanted: list[int] = []
    common: list[bool] = []
    for text, bounded in skeletons:
        skeleton = Skeleton(text)
        found = _pattern(skeleton, bounded)
        uses = [0] * (skeleton.clauses + bounded)
        for conjunction in found:
            literals = sorted((t for t in conjunction if isinstance(t, Literal)), key=lambda literal: literal.attribute)
            place += [literal.attribute for literal in literals]
            wanted += [int(literal.values == _ONE) for literal in literals]
            terms.append(len(place))
            for literal in literals:
                uses[literal.attribute] += 1
        conjunctions.append(len(terms) - 1)
        common += [count == len(found) for count in uses]
        slots.append(len(common))
    return Patterns(
        np.array(conjunctions, np.int64),
        np.array(terms, np.int64),
        np.array(place, np.int32),
        np.array(wanted, np.int8),
        np.array(slots, np.int64),
        np.array(common, bool),
    )


def _pattern(skeleton: Skeleton, bounded: bool) -> tuple[Conjunction, ...]:
    """The conjunctions of a skeleton, with the clauses' places as attributes; none if it needs shared disjunctions."""

    def literal(place: int, wanted: bool) -> tuple[Conjunction, ...]:
        return (frozenset((Literal(place, _ONE if wanted else ~_ONE, False),)),)

    expansion = Expansion()
    found = skeleton.conjunctions(expansion, literal)
    if bounded:
        found = expansion.all_of([found, literal(skeleton.clauses, True)])
    return () if expansion.disjunctions else found
