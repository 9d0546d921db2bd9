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
from rules_index.expressions.tree import Leaf
from rules_index.regions import Layout, Regions
from rules_index.rules import Rejects, Rule

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

    def raising(self, kept: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """CSR arrays: for each rule the attributes it uses whose evaluation may fail on a row."""
        used = np.asarray(self._used, np.int64)
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

    def finish(self, kept: np.ndarray | None) -> tuple[Conjunctions, tuple[Regions, ...]]:
        """The conjunctions of the rules that stay, over region codes, and the regions of every attribute."""
        gate_terms = _Terms()
        gate_start = [0]
        for gate in self.expansion.gates:
            for conjunction in gate.conjunctions:
                gate_terms.add(conjunction, self._literals)
            gate_start.append(len(gate_terms.start) - 1)
        layouts, regions = self._lay_out()
        set_start, intervals = self._intervals(layouts)
        owner = np.repeat(np.arange(len(self.rules)), np.diff(np.asarray(self._of_rule)))
        rule_terms = self._conjunctions.arrays()
        if kept is not None:
            rule_terms = rule_terms.only(kept[owner])
            owner = (np.cumsum(kept) - 1)[owner[kept[owner]]]
        terms = gate_terms.arrays().followed_by(rule_terms)
        attribute_of = np.fromiter((literal.attribute for literal in self._literals), np.int32, len(self._literals))
        pairs = np.empty((len(terms.terms), 2), np.int32)
        literal = terms.terms >= 0
        pairs[literal, 0] = attribute_of[terms.terms[literal]]
        pairs[literal, 1] = terms.terms[literal]
        pairs[~literal, 0] = GATE
        pairs[~literal, 1] = -1 - terms.terms[~literal]
        gates = np.repeat(np.arange(len(gate_start) - 1), np.diff(gate_start))
        return Conjunctions(
            sizes=np.array([region.size for region in regions], np.int32),
            set_start=set_start,
            intervals=intervals,
            start=terms.start,
            terms=pairs,
            target=np.concatenate([gates, owner]).astype(np.int32),
            gate_start=np.array(gate_start, np.int32),
        ), regions

    def _lay_out(self) -> tuple[list[Layout], tuple[Regions, ...]]:
        sets: list[dict[object, None]] = [{} for _ in self.expansion.attributes]
        for literal in self._literals:
            sets[literal.attribute][literal.values] = None
        layouts = [regions_module.lay_out(values) for values in sets]  # type: ignore[arg-type]
        kinds = [attribute.type for attribute in self.expansion.attributes]
        regions = tuple(regions_module.build(layout, kind) for layout, kind in zip(layouts, kinds, strict=True))
        for region in regions:
            for each in region.arrays.values():
                each.setflags(write=False)
        return layouts, regions

    def _intervals(self, layouts: Sequence[Layout]) -> tuple[np.ndarray, np.ndarray]:
        """The codes of every literal, that of NULL included, as CSR intervals."""
        flat = array("i")
        starts = array("q", [0])
        for literal in self._literals:
            layout = layouts[literal.attribute]
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
