"""A rule set compiled together as far as its rules are alike: cut into frames and clauses, which are compiled once."""

from __future__ import annotations

import numpy as np

from rules_index.arrays import owners, places
from rules_index.compiling.builder import Flattener
from rules_index.compiling.rule_columns import RuleColumns
from rules_index.compiling.templates.clause_literals import REFUSED, ClauseLiterals
from rules_index.compiling.templates.clauses import Texts, cut
from rules_index.compiling.templates.instances import RuleClauses, instances
from rules_index.compiling.templates.skeletons import Frame, Patterns, patterns_of
from rules_index.compiling.validity import validities
from rules_index.language import Compiler
from rules_index.language.typed import Leaf

LEAST = 2
"""A frame of fewer rules is expanded for each of them."""
_MOST_READ = 1 << 12
"""How many frames are remembered."""


class RulesTogether:
    """The rules of a set by their frames and clauses.

    On creation all rules that can be worked out together are added to `flattener`; `add` adds one of the others.
    """

    def __init__(self, rules: RuleColumns, compiler: Compiler, clock: Leaf | None, flattener: Flattener) -> None:
        found = cut(rules.expressions)
        bounded = rules.bounded & (found.frame >= 0)
        if clock is None:
            found.frame[bounded] = -1
        self._flattener = flattener
        self._frames, self._frame = found.frames, found.frame
        patterns, of_rule = _patterns(
            found.frames, np.where(found.frame >= 0, 2 * found.frame.astype(np.int64) + bounded, -1)
        )
        self._read: dict[int, Frame] = {}
        self._rules = RuleClauses(of_rule, found.start, found.clause)
        negated = _negated(self._rules, patterns, len(found.clauses))
        self._literals = ClauseLiterals(found.clauses, negated, compiler, flattener.expansion, flattener.literals)
        if clock is not None and bounded.any():
            chosen = np.flatnonzero(bounded)
            first = self._literals.append(clock, validities(clock, rules, chosen, compiler.scope.time_zone))
            self._rules = _with_clauses(self._rules, chosen, first)
        for block in instances(self._rules, patterns, self._literals, flattener.literals):
            flattener.extend(block)

    def add(self, rule: int) -> bool:
        """Adds a rule if it was cut and all its clauses compile; tells whether it did."""
        number = int(self._frame[rule])
        clauses = self._rules.clause[self._rules.start[rule] : self._rules.start[rule + 1]]
        if number < 0 or bool((self._literals.literal[1, clauses] == REFUSED).any()):
            return False
        frame = self._read.get(number)
        if frame is None:
            if len(self._read) == _MOST_READ:
                self._read.clear()
            frame = self._read[number] = Frame(self._frames[number])
        numbers = clauses.tolist()
        expansion, known = self._flattener.expansion, self._literals.conjunctions
        expansion.begin()
        found = frame.conjunctions(expansion, lambda place, wanted: known(numbers[place], wanted))
        if len(numbers) > frame.clauses:
            found = expansion.all_of([found, known(numbers[-1], True)])
        self._flattener.add(rule, found, [number for clause in numbers for number in self._literals.attributes(clause)])
        return True


def _patterns(frames: Texts, kind: np.ndarray) -> tuple[Patterns, np.ndarray]:
    """The patterns of what several rules have, and each rule's [rules] int32, or -1; a rule's kind [rules] is twice its
    frame, plus one if it is bounded, or -1 if it has none."""
    kinds, which, shared = np.unique(kind, return_inverse=True, return_counts=True)
    used = (kinds >= 0) & (shared >= LEAST)
    number = np.where(used, np.cumsum(used) - 1, -1).astype(np.int32)
    return patterns_of((frames[each >> 1], bool(each & 1)) for each in kinds[used].tolist()), number[which]


def _negated(rules: RuleClauses, patterns: Patterns, clauses: int) -> np.ndarray:
    """Which clauses [clauses] bool are to be FALSE in a pattern."""
    found = np.zeros(clauses, bool)
    turned, offsets = patterns.negated()
    chosen = np.flatnonzero(rules.frame >= 0)
    chosen = chosen[np.diff(offsets)[rules.frame[chosen]] > 0]
    gather, by_rule = places(offsets, rules.frame[chosen])
    found[rules.clause[rules.start[chosen][owners(by_rule)] + turned[gather]]] = True
    return found


def _with_clauses(rules: RuleClauses, chosen: np.ndarray, first: int) -> RuleClauses:
    """The chosen rules each with one more clause at its end, these being numbered from `first` on."""
    clause = np.insert(rules.clause, rules.start[chosen + 1], first + np.arange(len(chosen), dtype=np.int32))
    more = np.zeros(len(rules.start), np.int64)
    more[chosen + 1] = 1
    return RuleClauses(rules.frame, rules.start + np.cumsum(more), clause)
