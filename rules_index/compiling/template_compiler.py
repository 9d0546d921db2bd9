"""Compiles rules of one shape as one template: texts are split into skeletons and clauses, each compiled once."""

from __future__ import annotations

import numpy as np

from rules_index.arrays import gather_indices, segment_ids
from rules_index.compiling.builder import ConjunctionBuilder
from rules_index.compiling.rule_columns import RuleColumns
from rules_index.compiling.templates.clause_literals import REFUSED, ClauseLiterals
from rules_index.compiling.templates.clauses import StringPool, split_clauses
from rules_index.compiling.templates.instances import RuleClauses, instances
from rules_index.compiling.templates.skeletons import Patterns, Skeleton, patterns_of
from rules_index.compiling.validity import validities
from rules_index.language.compiler import Compiler
from rules_index.language.typed import Leaf

LEAST = 2
"""A skeleton that fewer rules have is expanded for each of them."""
_MOST_READ = 1 << 12
"""The most parsed skeletons that are cached."""


class TemplateCompiler:
    """Splits rules into skeletons and clauses, and adds them to `builder`.

    Creating it adds all rules that can be instantiated from templates. `add` is for the others, one by one.
    """

    def __init__(
        self, rules: RuleColumns, compiler: Compiler, event_time_leaf: Leaf | None, builder: ConjunctionBuilder
    ) -> None:
        found = split_clauses(rules.expressions)
        bounded = rules.bounded & (found.skeleton >= 0)
        if event_time_leaf is None:
            found.skeleton[bounded] = -1
        self._builder = builder
        self._skeletons, self._skeleton = found.skeletons, found.skeleton
        patterns, of_rule = _patterns(
            found.skeletons, np.where(found.skeleton >= 0, 2 * found.skeleton.astype(np.int64) + bounded, -1)
        )
        self._read: dict[int, Skeleton] = {}
        self._rules = RuleClauses(of_rule, found.start, found.clause)
        negated = _negated(self._rules, patterns, len(found.clauses))
        self._literals = ClauseLiterals(found.clauses, negated, compiler, builder.expansion, builder.literals)
        repeating = _repeating(self._rules, self._literals.question)
        # Spark may know the result of these from their texts (`truth_tests.are_proven`): they are compiled one by one
        self._skeleton[repeating] = of_rule[repeating] = -1
        if event_time_leaf is not None and bounded.any():
            chosen = np.flatnonzero(bounded)
            first = self._literals.append(
                event_time_leaf, validities(event_time_leaf, rules, chosen, compiler.scope.time_zone)
            )
            self._rules = _with_clauses(self._rules, chosen, first)
        for block in instances(self._rules, patterns, self._literals, builder.literals):
            builder.extend(block)

    def add(self, rule: int) -> bool:
        """Adds a rule if it was split and all its clauses compile; returns whether it was added."""
        number = int(self._skeleton[rule])
        clauses = self._rules.clause[self._rules.start[rule] : self._rules.start[rule + 1]]
        if number < 0 or bool((self._literals.literal[1, clauses] == REFUSED).any()):
            return False
        skeleton = self._read.get(number)
        if skeleton is None:
            if len(self._read) == _MOST_READ:
                self._read.clear()
            skeleton = self._read[number] = Skeleton(self._skeletons[number])
        numbers = clauses.tolist()
        expansion, known = self._builder.expansion, self._literals.conjunctions
        expansion.begin()
        found = skeleton.conjunctions(expansion, lambda place, wanted: known(numbers[place], wanted))
        if len(numbers) > skeleton.clauses:
            found = expansion.all_of([found, known(numbers[-1], True)])
        self._builder.add(rule, found, [number for clause in numbers for number in self._literals.attributes(clause)])
        return True


def _patterns(skeletons: StringPool, kind: np.ndarray) -> tuple[Patterns, np.ndarray]:
    """Returns the patterns that at least `LEAST` rules have, and the pattern [rules] int32 of each rule, or -1. kind:
    [rules] int64, twice the rule's skeleton, plus one if it is bounded; -1 if it has no skeleton."""
    kinds, which, shared = np.unique(kind, return_inverse=True, return_counts=True)
    used = (kinds >= 0) & (shared >= LEAST)
    number = np.where(used, np.cumsum(used) - 1, -1).astype(np.int32)
    return patterns_of((skeletons[each >> 1], bool(each & 1)) for each in kinds[used].tolist()), number[which]


def _negated(rules: RuleClauses, patterns: Patterns, clauses: int) -> np.ndarray:
    """Which clauses [clauses] bool must be FALSE in a conjunction of some rule's pattern."""
    found = np.zeros(clauses, bool)
    turned, offsets = patterns.negated()
    chosen = np.flatnonzero(rules.skeleton >= 0)
    chosen = chosen[np.diff(offsets)[rules.skeleton[chosen]] > 0]
    gather, by_rule = gather_indices(offsets, rules.skeleton[chosen])
    found[rules.clause[rules.start[chosen][segment_ids(by_rule)] + turned[gather]]] = True
    return found


def _repeating(rules: RuleClauses, question: np.ndarray) -> np.ndarray:
    """The rules in which two clauses test the same attribute with the same constants."""
    asked, questions = question[rules.clause], int(question.max(initial=-1)) + 1
    pairs = segment_ids(rules.start).astype(np.int64) * questions + asked
    found, counts = np.unique(pairs[asked >= 0], return_counts=True)
    return found[counts > 1] // max(1, questions)


def _with_clauses(rules: RuleClauses, chosen: np.ndarray, first: int) -> RuleClauses:
    """The chosen rules, each with one more clause at its end; the new clauses are numbered from `first` on."""
    clause = np.insert(rules.clause, rules.start[chosen + 1], first + np.arange(len(chosen), dtype=np.int32))
    more = np.zeros(len(rules.start), np.int64)
    more[chosen + 1] = 1
    return RuleClauses(rules.skeleton, rules.start + np.cumsum(more), clause)
