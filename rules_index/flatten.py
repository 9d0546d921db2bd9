"""Formulae, rule by rule, to the flat arrays of conjunctions over region codes that an engine is built from."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from rules_index import regions as regions_module
from rules_index.conjunctions import Conjunction, Expansion, Gate, Literal, can_raise, leaves_of
from rules_index.engines.flat import GATE, Conjunctions
from rules_index.errors import RuleError
from rules_index.expressions.formula import And, Formula, Not, Or, Predicate
from rules_index.expressions.tree import Expression, Leaf
from rules_index.regions import Layout, Regions
from rules_index.rules import Rejects, Rule
from rules_index.values import ValueSet

Analyse = Callable[[Sequence[Leaf]], Sequence[str | None]]
"""Given derived leaves, tells for each None or a sentence on why Spark refuses it."""


class Flattener:
    """Takes one rule after the other and keeps only numbers of it: of literals, gates and attributes."""

    def __init__(self) -> None:
        self.expansion = Expansion()
        self.rules: list[Rule] = []
        self._literals: dict[Literal, int] = {}
        self._conjunctions = _Terms()
        self._of_rule = array("q", [0])
        self._used = array("q")
        self._used_start = array("q", [0])

    def add(self, rule: Rule, formula: Formula) -> None:
        """Appends a rule; raises `RuleError` where its formula is nested too deeply."""
        try:
            alternatives = self.expansion.conjunctions_of(formula)
        except RecursionError:
            raise RuleError("TOO_DEEP", "The expression is nested too deeply; write it with fewer brackets.") from None
        self._used.extend(sorted({self.expansion.number_of(p.attribute) for p in _predicates(formula)}))
        self._used_start.append(len(self._used))
        for conjunction in alternatives:
            self._conjunctions.add(conjunction, self._literals)
        self._of_rule.append(len(self._conjunctions.start) - 1)
        self.rules.append(rule)

    def refuse(self, analyse: Analyse, rejects: Rejects) -> np.ndarray | None:
        """Which rules [rules] bool stay, those that name a derived leaf which Spark refuses being rejected; None
        where all do."""
        leaves: dict[Leaf, list[int]] = {}
        for number, attribute in enumerate(self.expansion.attributes):
            for leaf in leaves_of(attribute):
                if leaf.text is not None:
                    leaves.setdefault(leaf, []).append(number)
        refused: dict[int, tuple[Leaf, str]] = {}
        for leaf, message in zip(leaves, analyse(list(leaves)) if leaves else (), strict=True):
            if message is not None:
                refused.update((number, (leaf, message)) for number in leaves[leaf])
        if not refused:
            return None
        kept = np.ones(len(self.rules), bool)
        used, starts = np.asarray(self._used), np.asarray(self._used_start)
        owner = np.repeat(np.arange(len(self.rules)), np.diff(starts))
        for place in np.flatnonzero(np.isin(used, list(refused)))[::-1]:
            kept[owner[place]] = False
        for ordinal in np.flatnonzero(~kept):
            leaf, message = next(refused[n] for n in used[starts[ordinal] : starts[ordinal + 1]] if n in refused)
            position = self.rules[ordinal].expression.find(leaf.text or "")
            error = RuleError("ANALYSIS", message, position if position >= 0 else None)
            rejects.add(self.rules[ordinal].rule_id, error)
        return kept

    def finish(self, kept: np.ndarray | None) -> Flattened:
        """The conjunctions of the rules that stay, over region codes, and no attribute, gate or set that only
        others would need."""
        owner = np.repeat(np.arange(len(self.rules)), np.diff(np.asarray(self._of_rule)))
        rule_terms = self._conjunctions.arrays()
        if kept is not None:
            rule_terms = rule_terms.only(kept[owner])
            owner = (np.cumsum(kept) - 1)[owner[kept[owner]]]
        gate_terms, gate_lengths = self._gate_terms(rule_terms)
        terms = gate_terms.followed_by(rule_terms)
        is_literal = terms.terms >= 0
        literals = list(self._literals)
        used, numbers = np.unique(terms.terms[is_literal], return_inverse=True)
        chosen = [literals[number] for number in used]
        attribute_of = np.fromiter((literal.attribute for literal in chosen), np.int64, len(chosen))
        raising_start, raising = self._raising(kept)
        attributes, renumbered = np.unique(np.concatenate([attribute_of, raising]), return_inverse=True)
        attribute_of, raising = renumbered[: len(chosen)], renumbered[len(chosen) :]
        expressions = tuple(self.expansion.attributes[number] for number in attributes)
        layouts, regions = _lay_out(chosen, attribute_of, expressions)
        set_start, intervals = _intervals(chosen, attribute_of, layouts)
        pairs = np.empty((len(terms.terms), 2), np.int32)
        pairs[is_literal, 0] = attribute_of[numbers]
        pairs[is_literal, 1] = numbers
        pairs[~is_literal, 0] = GATE
        pairs[~is_literal, 1] = -1 - terms.terms[~is_literal]
        gate_start = np.zeros(len(gate_lengths) + 1, np.int32)
        np.cumsum(gate_lengths, out=gate_start[1:])
        conjunctions = Conjunctions(
            sizes=np.array([region.size for region in regions], np.int32),
            set_start=set_start,
            intervals=intervals,
            start=terms.start,
            terms=pairs,
            target=np.concatenate([np.repeat(np.arange(len(gate_lengths)), gate_lengths), owner]).astype(np.int32),
            gate_start=gate_start,
        )
        return Flattened(conjunctions, expressions, regions, (raising_start, raising.astype(np.int64)))

    def _raising(self, kept: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """CSR arrays: for each rule that stays the attributes it uses whose evaluation may fail on a row."""
        used = np.array(self._used, np.int64)
        lengths = np.diff(np.asarray(self._used_start))
        owner = np.repeat(np.arange(len(lengths)), lengths)
        failing = np.array([can_raise(attribute) for attribute in self.expansion.attributes], bool)
        chosen = failing[used] if len(used) else np.empty(0, bool)
        counts = np.bincount(owner[chosen], minlength=len(lengths))
        if kept is not None:
            chosen &= kept[owner]
            counts = counts[kept]
        starts = np.zeros(len(counts) + 1, np.int64)
        np.cumsum(counts, out=starts[1:])
        return starts, used[chosen]

    def _gate_terms(self, rule_terms: _TermArrays) -> tuple[_TermArrays, np.ndarray]:
        """The conjunctions of the gates that the rules reach, by gate, and their number for each; gates are
        renumbered in the terms of both."""
        gates = self.expansion.gates
        reached = np.zeros(len(gates), bool)
        reached[-1 - rule_terms.terms[rule_terms.terms < 0]] = True
        for gate in reversed(gates):
            if reached[gate.number]:
                inner = (term.number for c in gate.conjunctions for term in c if isinstance(term, Gate))
                reached[list(inner)] = True
        collected = _Terms()
        chosen = [gate for gate in gates if reached[gate.number]]
        for gate in chosen:
            for conjunction in gate.conjunctions:
                collected.add(conjunction, self._literals)
        gate_terms = collected.arrays()
        number = np.cumsum(reached) - 1
        for terms in (gate_terms.terms, rule_terms.terms):
            named = terms < 0
            terms[named] = -1 - number[-1 - terms[named]]
        return gate_terms, np.array([len(gate.conjunctions) for gate in chosen], np.int64)


@dataclass(frozen=True)
class Flattened:
    """All that an index is made of but its engine; `raising` as in `CompiledRules`."""

    conjunctions: Conjunctions
    attributes: tuple[Expression, ...]
    regions: tuple[Regions, ...]
    raising: tuple[np.ndarray, np.ndarray]


def _lay_out(
    literals: Sequence[Literal], attribute_of: np.ndarray, expressions: Sequence[Expression]
) -> tuple[list[Layout], tuple[Regions, ...]]:
    sets: list[dict[ValueSet, None]] = [{} for _ in expressions]
    for literal, number in zip(literals, attribute_of.tolist(), strict=True):
        sets[number][literal.values] = None
    layouts = [regions_module.lay_out(values) for values in sets]
    pairs = zip(layouts, expressions, strict=True)
    regions = tuple(regions_module.build(layout, expression.type) for layout, expression in pairs)
    for region in regions:
        for each in region.arrays.values():
            each.setflags(write=False)
    return layouts, regions


def _intervals(
    literals: Sequence[Literal], attribute_of: np.ndarray, layouts: Sequence[Layout]
) -> tuple[np.ndarray, np.ndarray]:
    """The codes of every literal, that of NULL included, as CSR intervals."""
    flat = array("i")
    starts = array("q", [0])
    for literal, number in zip(literals, attribute_of.tolist(), strict=True):
        layout = layouts[number]
        ends = layout.intervals(literal.values)
        if literal.null:
            if ends and ends[-1] == layout.count - 1:
                ends[-1] = layout.count
            else:
                ends += (layout.count, layout.count)
        flat.extend(ends)
        starts.append(len(flat) // 2)
    return np.array(starts, np.int64), np.array(flat, np.int32).reshape(-1, 2)


@dataclass(frozen=True)
class _TermArrays:
    """Conjunctions as `start` [conjunctions + 1] int64 into `terms` int32: a literal, or -1 - a gate."""

    start: np.ndarray
    terms: np.ndarray

    def only(self, kept: np.ndarray) -> _TermArrays:
        lengths = np.diff(self.start)
        start = np.zeros(int(kept.sum()) + 1, np.int64)
        np.cumsum(lengths[kept], out=start[1:])
        return _TermArrays(start, self.terms[np.repeat(kept, lengths)])

    def followed_by(self, other: _TermArrays) -> _TermArrays:
        start = np.concatenate([self.start, other.start[1:] + self.start[-1]])
        return _TermArrays(start, np.concatenate([self.terms, other.terms]))


class _Terms:
    """Growing conjunctions."""

    def __init__(self) -> None:
        self.start = array("q", [0])
        self._terms = array("i")

    def add(self, conjunction: Conjunction, literals: dict[Literal, int]) -> None:
        self._terms.extend(
            sorted(
                -1 - term.number if isinstance(term, Gate) else literals.setdefault(term, len(literals))
                for term in sorted(conjunction, key=_order)
            )
        )
        self.start.append(len(self._terms))

    def arrays(self) -> _TermArrays:
        return _TermArrays(np.array(self.start, np.int64), np.array(self._terms, np.int32))


def _order(term: Literal | Gate) -> int:
    """Literals by attribute, then gates by number: literals are numbered alike in every run."""
    return term.attribute if isinstance(term, Literal) else (1 << 40) + term.number


def _predicates(formula: Formula) -> Iterable[Predicate]:
    if isinstance(formula, Predicate):
        yield formula
    elif isinstance(formula, Not):
        yield from _predicates(formula.operand)
    elif isinstance(formula, (And, Or)):
        for operand in formula.operands:
            yield from _predicates(operand)
