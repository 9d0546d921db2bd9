"""The conjunctions of rules as boxes: products of sets of regions, without the regions that no value is in.

A conjunction's box has one set of regions for each attribute that it names. A shared disjunction is treated as a
further attribute, independent of all others, which the box requires to be TRUE. So a box contains at least the rows
that the conjunction matches, and what is shown for all rows of a box is true of the conjunction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from rules_index.arrays import gather_indices, offsets_of, segment_counts, segment_ids
from rules_index.domains.region_codes import Regions
from rules_index.domains.value_sets import SetArrays
from rules_index.implication.representatives import representatives
from rules_index.implication.shared_disjunctions import without_shared_disjunctions
from rules_index.index.compiled import CompiledRules
from rules_index.index.conjunction_arrays import DISJUNCTION, Conjunctions
from rules_index.kernels.jit import jit
from rules_index.language.operations import can_raise
from rules_index.language.typed import Expression


class BoxArrays(NamedTuple):
    """The boxes as kernels read them. Codes are those of `Codes`, which skip regions without a value.

    sizes       [dimensions] int32, number of codes
    set_start   [sets + 1] int64, offsets into intervals
    intervals   [., 2] int32, closed, ascending, with a gap between neighbours; no set is empty or full
    start       [boxes + 1] int64, offsets into the next two
    dimensions  [.] int32, ascending within a box
    sets        [.] int32; equal sets of a dimension have the same number
    """

    sizes: np.ndarray
    set_start: np.ndarray
    intervals: np.ndarray
    start: np.ndarray
    dimensions: np.ndarray
    sets: np.ndarray


@dataclass(frozen=True)
class Codes:
    """The codes of the boxes: they number the regions of each attribute that have a value from 0, without gaps.

    start     [attributes + 1] int64, offsets into `region`
    region    [.] int32, the region code, as in a code matrix, for each code
    old_start [attributes + 1] int64, offsets into `code`
    code      [.] int32, the code for each region code, -1 if no row has it
    values    for each attribute a value of each region, NULL if it has none; the regions of NULL and of rows that
              raised, which come last, are left out
    """

    start: np.ndarray
    region: np.ndarray
    old_start: np.ndarray
    code: np.ndarray
    values: tuple[pa.Array, ...]

    @classmethod
    def of(cls, attributes: Sequence[Expression], regions: Sequence[Regions]) -> Codes:
        """The codes of a compiled rule set. Every attribute can be NULL, and has a code for rows that raised if its
        evaluation can raise."""
        values = tuple(representatives(each) for each in regions)
        held = [
            np.append(np.asarray(found.is_valid()), [True, can_raise(attribute)])
            for attribute, found in zip(attributes, values, strict=True)
        ]
        exist = np.concatenate([np.empty(0, bool), *held])
        old_start = offsets_of(np.array([each.size for each in regions], np.int64))
        start = offsets_of(segment_counts(exist, old_start))
        owner = segment_ids(old_start)
        region = (np.arange(len(exist)) - old_start[owner])[exist].astype(np.int32)
        code = np.where(exist, np.cumsum(exist) - 1 - start[owner], -1).astype(np.int32)
        return cls(start, region, old_start, code, values)

    @property
    def sizes(self) -> np.ndarray:
        """Number of codes [attributes] int32."""
        return np.diff(self.start).astype(np.int32)


@dataclass(frozen=True)
class RegionBoxes:
    """The boxes of all conjunctions that are satisfiable, by rule.

    arrays       for kernels. The attributes are followed by a dimension for each shared disjunction, with the codes 0
                 and 1 (TRUE), and the boxes by one that contains every row
    codes        of the attributes
    rule         [boxes] int32, ascending; boxes that `with_boxes` adds belong to no rule
    alternative  [boxes] int32, the conjunction's number within its rule
    rules        number of rules
    unreachable  [., 2] int32 (rule, alternative) of the unsatisfiable conjunctions
    """

    arrays: BoxArrays
    codes: Codes
    rule: np.ndarray
    alternative: np.ndarray
    rules: int
    unreachable: np.ndarray

    @property
    def everything(self) -> int:
        """The box that contains every row."""
        return len(self.arrays.start) - 2

    @property
    def added(self) -> np.ndarray:
        """The boxes that belong to no rule."""
        return np.arange(len(self.rule), self.everything)

    @cached_property
    def rule_start(self) -> np.ndarray:
        """The first box [rules + 1] int64 of each rule."""
        return np.searchsorted(self.rule, np.arange(self.rules + 1))

    def of_rule(self, rule: int) -> np.ndarray:
        """The boxes of a rule."""
        return np.arange(self.rule_start[rule], self.rule_start[rule + 1])

    def with_boxes(self, added: Sequence[Mapping[int, np.ndarray]]) -> RegionBoxes:
        """Adds boxes that belong to no rule. Each maps the dimensions that it names to its codes there, ascending; a
        box without a code in some dimension is left out."""
        a = self.arrays
        kept = [
            {d: held for d in sorted(box) if len(held := box[d]) < a.sizes[d]}
            for box in added
            if all(map(len, box.values()))
        ]
        sets = [_intervals(held) for box in kept for held in box.values()]
        lengths = offsets_of(np.array([len(box) for box in kept], np.int64))
        arrays = a._replace(
            set_start=np.concatenate(
                [a.set_start[:-1], a.set_start[-1] + offsets_of(np.array([len(each) for each in sets], np.int64))]
            ),
            intervals=np.concatenate([a.intervals, *sets]),
            start=np.concatenate([a.start[:-1], a.start[-1] + np.append(lengths[1:], lengths[-1])]),
            dimensions=np.append(a.dimensions, [d for box in kept for d in box]).astype(np.int32),
            sets=np.append(a.sets, len(a.set_start) - 1 + np.arange(len(sets))).astype(np.int32),
        )
        return replace(self, arrays=arrays)

    def only(self, kept: np.ndarray) -> RegionBoxes:
        """Only the boxes `kept` [boxes] bool; the conjunctions of the others become unreachable. Every box must belong
        to a rule: call this before `with_boxes`."""
        a = self.arrays
        gather, start = gather_indices(a.start, np.append(np.flatnonzero(kept), self.everything))
        dead = np.stack([self.rule[~kept], self.alternative[~kept]], axis=1)
        return replace(
            self,
            arrays=a._replace(start=start, dimensions=a.dimensions[gather], sets=a.sets[gather]),
            rule=self.rule[kept],
            alternative=self.alternative[kept],
            unreachable=np.concatenate([self.unreachable, dead]).astype(np.int32),
        )

    def without(self, dimensions: np.ndarray) -> BoxArrays:
        """The boxes without their sets in some dimensions [dimensions] bool; each contains the same rows or more."""
        a = self.arrays
        kept = ~dimensions[a.dimensions]
        start = offsets_of(segment_counts(kept, a.start))
        return a._replace(start=start, dimensions=a.dimensions[kept], sets=a.sets[kept])

    def naming(self, dimensions: np.ndarray) -> np.ndarray:
        """Which boxes [boxes] bool name one of some dimensions [dimensions] bool."""
        return segment_counts(dimensions[self.arrays.dimensions], self.arrays.start)[:-1] > 0


def conjunctions_of(compiled: CompiledRules) -> Conjunctions:
    """The conjunctions of a compiled rule set."""
    arrays = compiled.index.arrays
    return Conjunctions(**{name: arrays[name] for name in Conjunctions.__dataclass_fields__})


def boxes_of(compiled: CompiledRules, most: int = 0) -> RegionBoxes:
    """The boxes of a compiled rule set. Its shared disjunctions are expanded if that gives at most `most`
    conjunctions."""
    conjunctions = conjunctions_of(compiled)
    codes = Codes.of(compiled.attributes, compiled.regions)
    plain = without_shared_disjunctions(conjunctions, most) if most else None
    return region_boxes(plain or conjunctions, codes, len(compiled))


def _intervals(codes: np.ndarray) -> np.ndarray:
    """Ascending codes as closed intervals [., 2] int32."""
    begins = np.diff(codes, prepend=codes[:1] - 2) > 1
    return np.stack([codes[begins], codes[np.append(begins[1:], True)]], axis=1).astype(np.int32)


def region_boxes(conjunctions: Conjunctions, codes: Codes, rules: int) -> RegionBoxes:
    """The boxes of a rule set's conjunctions."""
    c = conjunctions
    set_start, intervals, attribute = _sets(c, codes)
    empty = np.diff(set_start) == 0
    full = np.zeros(len(empty), bool)
    full[~empty] = _is_full(intervals, set_start[:-1][~empty], codes.sizes[attribute[~empty]])
    full &= np.diff(set_start) == 1
    alive, kept = _settle(c.start, c.terms, c.target, c.disjunction_start, empty, full)
    first = int(c.disjunction_start[-1])
    owner = segment_ids(c.start)
    chosen = np.flatnonzero(kept & alive[owner] & (owner >= first))
    disjunction = c.terms[chosen, 0] == DISJUNCTION
    dimension = np.where(disjunction, len(c.sizes) + c.terms[chosen, 1], c.terms[chosen, 0])
    number, set_start, intervals = _distinct(set_start, intervals, attribute)
    sets = np.where(
        disjunction, len(set_start) - 2, number[np.where(disjunction, 0, c.terms[chosen, 1])] if len(number) else 0
    )
    box_of = np.cumsum(alive[first:]) - 1
    box = box_of[owner[chosen] - first]
    order = np.lexsort((dimension, box))
    boxes = int(alive[first:].sum())
    start = offsets_of(np.append(np.bincount(box, minlength=boxes), 0))
    target = c.target[first:]
    alternative = np.arange(len(target)) - np.searchsorted(target, target)
    dead = ~alive[first:]
    return RegionBoxes(
        BoxArrays(
            np.concatenate([codes.sizes, np.full(c.disjunctions, 2, np.int32)]),
            set_start,
            intervals,
            start,
            dimension[order].astype(np.int32),
            sets[order].astype(np.int32),
        ),
        codes,
        target[~dead],
        alternative[~dead].astype(np.int32),
        rules,
        np.stack([target[dead], alternative[dead]], axis=1).astype(np.int32),
    )


def _sets(c: Conjunctions, codes: Codes) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns all sets as codes, (offsets [sets + 1] int64, intervals [., 2] int32), and the attribute [sets] int64 of
    each."""
    attribute = np.zeros(len(c.set_start) - 1, np.int64)
    named = c.terms[:, 0] != DISJUNCTION
    attribute[c.terms[named, 1]] = c.terms[named, 0]
    owner = segment_ids(c.set_start)
    base = codes.old_start[attribute[owner]]
    before = np.concatenate([[0], np.cumsum(codes.code >= 0)])
    low = before[base + c.intervals[:, 0]] - before[base]
    high = before[base + c.intervals[:, 1] + 1] - before[base] - 1
    held = low <= high
    low, high, owner = low[held], high[held], owner[held]
    # intervals are adjacent now if no region between them has a value: they become one
    opens = np.ones(len(low), bool)
    opens[1:] = (owner[1:] != owner[:-1]) | (low[1:] > high[:-1] + 1)
    closes = np.append(opens[1:], True)[: len(low)]
    intervals = np.stack([low[opens], high[closes]], axis=1).astype(np.int32)
    return offsets_of(np.bincount(owner[opens], minlength=len(attribute))), intervals, attribute


def _is_full(intervals: np.ndarray, first: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Which of the intervals `first` [.] contain all codes of their attributes, of which there are `sizes` [.]."""
    return np.asarray((intervals[first, 0] == 0) & (intervals[first, 1] == sizes - 1))


def _distinct(
    set_start: np.ndarray, intervals: np.ndarray, attribute: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the number [sets] int64 of each set among the distinct ones, and the offsets and intervals of these. One
    more follows them: {1}, for a shared disjunction that must be TRUE."""
    lengths = 2 * np.diff(set_start) + 1
    offsets = offsets_of(lengths)
    flat = np.empty(offsets[-1], np.int64)
    flat[offsets[:-1]] = attribute
    rest = np.ones(len(flat), bool)
    rest[offsets[:-1]] = False
    flat[rest] = intervals.reshape(-1)
    first, number = distinct_lists(offsets, flat)
    gather, start = gather_indices(set_start, first)
    intervals = np.concatenate([intervals[gather], np.ones((1, 2), np.int32)])
    return number, np.append(start, len(intervals)), intervals


def distinct_lists(offsets: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the first list [distinct] int64 of each group of equal lists, and the group [lists] int64 of each list.
    List i is values[offsets[i]:offsets[i + 1]], int64."""
    nowhere = np.zeros(len(offsets) - 1, bool)
    return SetArrays(nowhere, nowhere, offsets, values).distinct()


@jit
def _settle(
    start: np.ndarray,
    terms: np.ndarray,
    target: np.ndarray,
    disjunction_start: np.ndarray,
    empty: np.ndarray,
    full: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Returns which conjunctions [conjunctions] bool may be satisfiable, and which terms [terms] bool exclude some row.

    empty, full: [sets] bool, which sets contain no code, or all of them. The conjunctions of shared disjunctions come
    before those that name them, so one pass is enough.
    """
    disjunctions = len(disjunction_start) - 1
    alive = np.ones(len(target), np.bool_)
    kept = np.ones(len(terms), np.bool_)
    passable = np.zeros(disjunctions, np.bool_)
    always = np.zeros(disjunctions, np.bool_)
    for conjunction in range(len(target)):
        restricts = False
        for term in range(start[conjunction], start[conjunction + 1]):
            number = terms[term, 1]
            if terms[term, 0] == DISJUNCTION:
                never, certain = not passable[number], always[number]
            else:
                never, certain = empty[number], full[number]
            alive[conjunction] &= not never
            kept[term] = not certain
            restricts |= not certain
        if conjunction < disjunction_start[disjunctions] and alive[conjunction]:
            passable[target[conjunction]] = True
            always[target[conjunction]] |= not restricts
    return alive, kept
