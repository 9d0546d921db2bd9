"""Builds the flat arrays of conjunctions over region codes from which an engine is made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from rules_index.arrays import gather_indices, offsets_of
from rules_index.compiling.attribute_order import AttributeOrder
from rules_index.compiling.conjunctions import (
    Conjunction,
    Expansion,
    Literal,
    SharedDisjunction,
)
from rules_index.compiling.literal_lists import GrowingLists, LiteralLists, join, reached
from rules_index.compiling.literal_sets import LiteralSets, SettledLiterals
from rules_index.compiling.rule_columns import Rejects, RuleColumns
from rules_index.compiling.templates.instances import Instances
from rules_index.domains import region_codes as regions_module
from rules_index.domains.interned_constants import IntegerKeys
from rules_index.domains.region_codes import Regions
from rules_index.errors import RuleError
from rules_index.index.conjunction_arrays import DISJUNCTION, Conjunctions
from rules_index.kernels.sets import number_literals
from rules_index.language.formula import Formula, predicates_of
from rules_index.language.operations import can_raise
from rules_index.language.typed import Expression, Leaf, authors_text, leaves_of

Analyse = Callable[[Sequence[Leaf]], Sequence[RuleError | str | None]]
"""Given derived columns, returns for each None, or why Spark refuses it: a sentence, or an error with its own code."""
_MOST_KNOWN = 1 << 16
"""The most literals that are cached. A literal that many rules share is added once, not for each of them."""


class ConjunctionBuilder:
    """Collects rules, in which literals, shared disjunctions and attributes are replaced by their numbers.

    `kept` [rules] bool are the rules that were added and not refused afterwards.
    """

    def __init__(self, rules: RuleColumns) -> None:
        self.expansion = Expansion()
        self.literals = LiteralSets()
        self.kept = np.zeros(len(rules), bool)
        self._rules = rules
        self._parts: list[LiteralLists] = []
        self._single = GrowingLists()
        self._known: dict[Literal, int] = {}
        self._uses = AttributeOrder(self.expansion.attributes)

    def add(self, rule: int, conjunctions: Iterable[Conjunction], attributes: Iterable[int]) -> None:
        """Adds a rule that is TRUE where one of the conjunctions is. attributes: as its text names them, in order."""
        self.literals.grow(self.expansion.attributes)
        self._uses.add(rule, attributes)
        for conjunction in conjunctions:
            self._single.add(rule, self._numbers(conjunction))
        self.kept[rule] = True

    def add_formula(self, rule: int, formula: Formula) -> None:
        """Adds a rule. Raises `RuleError` if its formula is nested too deeply, or takes too much work."""
        self.expansion.begin()
        try:
            conjunctions = self.expansion.conjunctions_of(formula)
        except RecursionError:
            raise RuleError("TOO_DEEP", "The expression is nested too deeply; write it with fewer brackets.") from None
        self.add(rule, conjunctions, [self.expansion.number_of(p.attribute) for p in predicates_of(formula)])

    def extend(self, instances: Instances) -> None:
        """Adds rules that were instantiated from templates."""
        self._uses.extend(instances)
        self._parts.append(LiteralLists(instances.target, instances.start, instances.terms))
        self.kept[instances.rules] = True

    def _numbers(self, conjunction: Conjunction) -> list[int]:
        return [
            -1 - term.number if isinstance(term, SharedDisjunction) else self._number_of(term) for term in conjunction
        ]

    def _number_of(self, literal: Literal) -> int:
        number = self._known.get(literal)
        if number is None:
            if len(self._known) == _MOST_KNOWN:
                self._known.clear()
            number = self._known[literal] = self.literals.add(literal)
        return number

    def refuse(self, analyse: Analyse, rejects: Rejects) -> None:
        """Rejects the rules that name a derived column which Spark refuses."""
        order = self._uses.order()
        leaves: dict[Leaf, list[int]] = {}
        for place, number in enumerate(order.tolist()):
            for leaf in leaves_of(self.expansion.attributes[number]):
                if leaf.text is not None:
                    leaves.setdefault(leaf, []).append(place)
        refused: dict[int, tuple[Leaf, RuleError | str]] = {}
        for leaf, message in zip(leaves, analyse(list(leaves)) if leaves else (), strict=True):
            if message is not None:
                refused.update((place, (leaf, message)) for place in leaves[leaf])
        rules, attributes = self._uses.computed(self._rank(order))
        chosen = np.isin(attributes, list(refused))
        rules, first = np.unique(rules[chosen], return_index=True)
        for rule, attribute in zip(rules.tolist(), attributes[chosen][first].tolist(), strict=True):
            leaf, message = refused[attribute]
            found = message if isinstance(message, RuleError) else RuleError("ANALYSIS", message)
            position = self._rules.text(rule).find(authors_text(leaf))
            error = RuleError(found.error, found.message, position if position >= 0 else None)
            rejects.add(self._rules.rule_id(rule), error)
        self.kept[rules] = False

    def finish(self) -> FlattenedRules:
        """The conjunctions of the rules that are kept, over region codes. Attributes, shared disjunctions and sets that
        only other rules need are left out."""
        order = self._uses.order()
        rank = self._rank(order)
        settled, disjunctions, rules, literals = self._settled(rank)
        raising_start, raising = self._raising(order, rank)
        used = np.zeros(len(order), bool)
        used[rank[settled.attribute[literals]]] = True
        used[raising] = True
        attributes = order[used]
        place = self._rank(attributes)
        expressions = tuple(self.expansion.attributes[attribute] for attribute in attributes)
        regions, set_start, intervals = _lay_out(expressions, attributes, literals, settled)
        terms = join([disjunctions, rules])
        disjunction_start = np.searchsorted(disjunctions.owner, np.arange(int(disjunctions.owner.max(initial=-1)) + 2))
        conjunctions = Conjunctions(
            sizes=np.array([region.size for region in regions], np.int32),
            set_start=set_start,
            intervals=intervals,
            start=terms.start,
            terms=_pairs(terms.terms, place[settled.attribute[literals]]),
            target=np.concatenate([disjunctions.owner, (np.cumsum(self.kept) - 1)[rules.owner].astype(np.int32)]),
            disjunction_start=disjunction_start.astype(np.int32),
        )
        return FlattenedRules(
            conjunctions, expressions, regions, (raising_start, place[order[raising]].astype(np.int64))
        )

    def _settled(self, rank: np.ndarray) -> tuple[SettledLiterals, LiteralLists, LiteralLists, np.ndarray]:
        """Returns all literals; the conjunctions of the shared disjunctions that kept rules name; the conjunctions of
        the kept rules; and the numbers [used] int64 of the literals that all these conjunctions name. Their terms are
        indices into these numbers."""
        growing = GrowingLists()
        for disjunction in self.expansion.disjunctions:
            for conjunction in disjunction.conjunctions:
                growing.add(disjunction.number, self._numbers(conjunction))
        settled = self.literals.settle(
            np.array([can_raise(attribute) for attribute in self.expansion.attributes], bool)
        )
        parts = [part.renumbered(settled.number).resolved() for part in self._parts]
        self._parts.clear()
        rules = join([*parts, self._single.terms().renumbered(settled.number)]).by_owner()
        of_literal = rank[settled.attribute]
        number = np.full(len(of_literal), -1, np.int32)
        count = number_literals(rules.start, rules.terms, of_literal, number, 0)
        disjunctions, rules = reached(
            growing.terms().renumbered(settled.number),
            len(self.expansion.disjunctions),
            rules.only(self.kept[rules.owner]),
        )
        count = number_literals(disjunctions.start, disjunctions.terms, of_literal, number, count)
        literals = np.empty(count, np.int64)
        literals[number[number >= 0]] = np.flatnonzero(number >= 0)
        used = np.zeros(count, bool)
        for part in (disjunctions, rules):
            used[part.terms[part.terms >= 0]] = True
        places = np.cumsum(used, dtype=np.int32) - 1
        return settled, disjunctions.renumbered(places), rules.renumbered(places), literals[used]

    def _rank(self, order: np.ndarray) -> np.ndarray:
        """The position of each attribute in an order, -1 for one that is not in it."""
        rank = np.full(len(self.expansion.attributes), -1, np.int32)
        rank[order] = np.arange(len(order), dtype=np.int32)
        return rank

    def _raising(self, order: np.ndarray, rank: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """For each rule that is kept, the ranks of the attributes that it names and that can raise on some row, as CSR
        arrays."""
        failing = np.array([can_raise(self.expansion.attributes[attribute]) for attribute in order.tolist()], bool)
        rules, attributes = self._uses.computed(rank)
        chosen = failing[attributes] & self.kept[rules]
        lengths = np.bincount(rules[chosen], minlength=len(self.kept))[self.kept]
        return offsets_of(lengths), attributes[chosen]


@dataclass(frozen=True)
class FlattenedRules:
    """All parts of an index except its engine; `raising` is as in `CompiledRules`."""

    conjunctions: Conjunctions
    attributes: tuple[Expression, ...]
    regions: tuple[Regions, ...]
    raising: tuple[np.ndarray, np.ndarray]


def _pairs(terms: np.ndarray, attribute_of: np.ndarray) -> np.ndarray:
    """Terms as [terms, 2] int32: (attribute, literal), or (`DISJUNCTION`, shared disjunction)."""
    pairs = np.empty((len(terms), 2), np.int32)
    literal = terms >= 0
    pairs[:, 0] = DISJUNCTION
    pairs[literal, 0] = attribute_of[terms[literal]]
    pairs[:, 1] = np.where(literal, terms, -1 - terms)
    return pairs


def _lay_out(
    expressions: Sequence[Expression], attributes: np.ndarray, literals: np.ndarray, settled: SettledLiterals
) -> tuple[tuple[Regions, ...], np.ndarray, np.ndarray]:
    """Returns the regions of each attribute, and the codes of each literal as CSR intervals: offsets [literals + 1]
    int64 into intervals [., 2] int32.

    attributes: [.] int64, the number of each of `expressions`; literals: [.] int64, their numbers in `settled`.
    """
    order = np.argsort(literals, kind="stable")
    bounds = np.searchsorted(literals[order], settled.begin)
    regions: list[Regions] = []
    lengths = np.empty(len(literals), np.int64)
    found: list[np.ndarray] = []
    known: dict[object, tuple[Regions, np.ndarray, np.ndarray]] = {}
    for expression, attribute in zip(expressions, attributes.tolist(), strict=True):
        members = order[bounds[attribute] : bounds[attribute + 1]]
        sets = settled.sets[attribute].take(literals[members] - settled.begin[attribute])
        # there can be many derived columns that are conditions, and all of these have equal regions
        alike = len(sets) <= 2 and isinstance(settled.keys[attribute], IntegerKeys)
        arrays = (sets.start, sets.null, sets.offsets, sets.cuts) if alike else ()
        key = (expression.type, *(array.tobytes() for array in arrays)) if alike else attribute
        coded = known.get(key)
        if coded is None:
            layout = regions_module.lay_out(sets)
            region = regions_module.build(layout, settled.keys[attribute], expression.type)
            coded = (region, *regions_module.intervals(layout, sets))
            if alike:
                known[key] = coded
        regions.append(coded[0])
        lengths[members] = np.diff(coded[1])
        found.append(coded[2])
    start = offsets_of(lengths)
    intervals = np.empty((int(start[-1]), 2), np.int32)
    if found:
        by_attribute = np.concatenate([order[bounds[a] : bounds[a + 1]] for a in attributes.tolist()])
        intervals[gather_indices(start, by_attribute)[0]] = np.concatenate(found)
    for region in regions:
        for each in region.arrays.values():
            each.setflags(write=False)
    return tuple(regions), start, intervals
