"""Instantiates the patterns of skeletons with the clauses of rules: conjunctions of literals, for all rules at once.

The pattern of a skeleton (`skeletons.py`) can be used as it is unless two clauses of a rule name the same attribute, or
a clause is not a literal, or a literal holds on all rows or on none. Two of these cases are allowed for clauses that
are in all conjunctions of the skeleton: literals on one attribute are intersected here, and literals that hold on all
rows or on none are left to `LiteralLists.resolved`. All other rules are expanded one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rules_index.arrays import gather_indices, offsets_of, segment_counts, segment_ids
from rules_index.compiling.literal_sets import LiteralSets
from rules_index.compiling.templates.clause_literals import SEVERAL, ClauseLiterals
from rules_index.compiling.templates.skeletons import Patterns
from rules_index.kernels.sets import find_repeats

_BLOCK = 1 << 17
"""Rules that are processed at a time, so that temporary arrays stay small compared with the result."""


@dataclass(frozen=True)
class RuleClauses:
    """Rules by skeleton and clauses.

    skeleton  [rules] int32, the number of the pattern, -1 for a rule that has none
    start     [rules + 1] int64, offsets into clause
    clause    [.] int32, the numbers of the clauses of each rule
    """

    skeleton: np.ndarray
    start: np.ndarray
    clause: np.ndarray


@dataclass(frozen=True)
class Instances:
    """Conjunctions of some rules.

    rules       [.] int64, the rules, ascending
    attributes  [.] int32, the attributes that their clauses name, in the order of the texts
    named       [rules + 1] int64, offsets into attributes
    target      [conjunctions] int32, the rule of each, ascending
    start       [conjunctions + 1] int64, offsets into terms
    terms       [.] int32, literals, `NEVER` and `ALWAYS` among them
    """

    rules: np.ndarray
    attributes: np.ndarray
    named: np.ndarray
    target: np.ndarray
    start: np.ndarray
    terms: np.ndarray


def instances(
    rules: RuleClauses, patterns: Patterns, clauses: ClauseLiterals, into: LiteralSets
) -> Iterator[Instances]:
    """Yields, block by block, the conjunctions of the rules that can be instantiated; adds intersections of literals to
    `into`."""
    for first in range(0, len(rules.skeleton), _BLOCK):
        chosen, repeated = _candidates(rules, patterns, clauses, first)
        found = _expanded(rules, patterns, clauses, chosen)
        special = (found.literals < 0) & ~found.common
        kept = np.bincount(found.owner[segment_ids(found.start)[special]], minlength=len(chosen)) == 0
        found = found.only(kept[found.owner])
        if repeated.any():
            found = _intersected(found, repeated[found.owner], clauses, into)
        gather, named = gather_indices(rules.start, chosen[kept])
        attributes = clauses.attribute[rules.clause[gather]]
        target = chosen[found.owner].astype(np.int32)
        yield Instances(chosen[kept], attributes, named, target, found.start, found.literals)


def _candidates(
    rules: RuleClauses, patterns: Patterns, clauses: ClauseLiterals, first: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the rules [.] int64 of a block that can use their pattern, as far as clauses and attributes decide, and
    which of them [.] bool name an attribute twice."""
    chosen = first + np.flatnonzero(rules.skeleton[first : first + _BLOCK] >= 0)
    chosen = chosen[np.diff(patterns.conjunctions)[rules.skeleton[chosen]] > 0]
    gather, named = gather_indices(rules.start, chosen)
    clause = rules.clause[gather]
    common = patterns.common[gather_indices(patterns.slots, rules.skeleton[chosen])[0]]
    # a clause that is not a literal has attribute -1, which indexes the last element
    seen = np.full((int(clauses.attribute.max(initial=-1)) + 2, 2), -1, np.int64)
    repeated, apart = np.zeros((2, len(chosen)), bool)
    find_repeats(named, clauses.attribute[clause], common, seen, repeated, apart)
    holds = ~apart & (segment_counts(clauses.literal[1, clause] <= SEVERAL, named) == 0)
    return chosen[holds], repeated[holds]


@dataclass(frozen=True)
class _ExpandedConjunctions:
    """Conjunctions with their clauses filled in.

    owner              [conjunctions] int64, the index of each one's rule among the chosen ones
    start              [conjunctions + 1] int64, offsets into the others
    clauses, literals  [.] int32
    common             [.] bool, whether the clause is in all conjunctions of its rule
    """

    owner: np.ndarray
    start: np.ndarray
    clauses: np.ndarray
    literals: np.ndarray
    common: np.ndarray

    def only(self, kept: np.ndarray) -> _ExpandedConjunctions:
        """The conjunctions `kept` [conjunctions] bool."""
        if kept.all():
            return self
        gather, start = gather_indices(self.start, np.flatnonzero(kept))
        return _ExpandedConjunctions(
            self.owner[kept], start, self.clauses[gather], self.literals[gather], self.common[gather]
        )


def _expanded(
    rules: RuleClauses, patterns: Patterns, clauses: ClauseLiterals, chosen: np.ndarray
) -> _ExpandedConjunctions:
    """The pattern of each chosen rule, with the rule's clauses filled in."""
    conjunctions, by_rule = gather_indices(patterns.conjunctions, rules.skeleton[chosen])
    owner = segment_ids(by_rule)
    terms, start = gather_indices(patterns.terms, conjunctions)
    rule = np.repeat(chosen[owner], np.diff(start))
    named = rules.clause[rules.start[rule] + patterns.place[terms]]
    common = patterns.common[patterns.slots[rules.skeleton[rule]] + patterns.place[terms]]
    return _ExpandedConjunctions(owner, start, named, clauses.literal[patterns.wanted[terms], named], common)


def _intersected(
    found: _ExpandedConjunctions, chosen: np.ndarray, clauses: ClauseLiterals, into: LiteralSets
) -> _ExpandedConjunctions:
    """Replaces, in the chosen conjunctions [conjunctions] bool, the literals on one attribute by their intersection."""
    owner = segment_ids(found.start)
    joined = np.flatnonzero(chosen[owner] & (found.literals >= 0))
    attribute = clauses.attribute[found.clauses]
    joined = joined[np.lexsort((attribute[joined], owner[joined]))]
    begins = np.ones(len(joined), bool)
    begins[1:] = (owner[joined][1:] != owner[joined][:-1]) | (attribute[joined][1:] != attribute[joined][:-1])
    lengths = np.diff(np.flatnonzero(np.append(begins, True)))
    groups = np.flatnonzero(lengths > 1)
    gather, offsets = gather_indices(offsets_of(lengths), groups)
    literals, first = found.literals.copy(), joined[begins]
    literals[first[groups]] = into.intersect(attribute[first[groups]], literals[joined[gather]], offsets)
    kept = np.ones(len(literals), bool)
    kept[joined[~begins]] = False
    start = offsets_of(segment_counts(kept, found.start))
    return _ExpandedConjunctions(found.owner, start, found.clauses[kept], literals[kept], found.common[kept])
