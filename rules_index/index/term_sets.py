"""The sets that boxes cannot express: terms of several intervals, such as IN, NOT IN and `<>`. A box only has the
lowest and the highest code of such a set. A search tests the set itself, and counts that as the paper counts a
predicate."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rules_index.arrays import gather_indices
from rules_index.index.conjunction_arrays import DISJUNCTION, Conjunctions
from rules_index.kernels.bisection import first_reaching
from rules_index.kernels.jit import inlined


class TermSets(NamedTuple):
    """The terms of boxes whose set has gaps between its lowest and its highest code, by the box's key.

    start       [keys + 1] int64 into `attributes`; a box with a greater key has none
    attributes  [.] int32
    set_start   [. + 1] int64 into `intervals`
    intervals   [., 2] int32, closed, ascending, disjoint
    """

    start: np.ndarray
    attributes: np.ndarray
    set_start: np.ndarray
    intervals: np.ndarray


NO_SETS = TermSets(np.zeros(1, np.int64), np.empty(0, np.int32), np.zeros(1, np.int64), np.empty((0, 2), np.int32))
"""The term sets of boxes that express their conjunctions fully."""


def sets_of(c: Conjunctions) -> TermSets:
    """The term sets of the conjunctions of rules; their keys are 0, 1, ..."""
    first = int(c.disjunction_start[-1])
    conjunctions = len(c.target) - first
    begin, end = c.intervals[c.set_start[:-1], 0], c.intervals[c.set_start[1:] - 1, 1]
    codes = np.concatenate([[0], np.cumsum(c.intervals[:, 1].astype(np.int64) - c.intervals[:, 0] + 1)])
    gaps = codes[c.set_start[1:]] - codes[c.set_start[:-1]] <= end.astype(np.int64) - begin
    pairs = c.terms[c.start[first] :]
    at = np.flatnonzero(pairs[:, 0] != DISJUNCTION)
    at = at[gaps[pairs[at, 1]]]
    owner = np.repeat(np.arange(conjunctions), np.diff(c.start)[first:])[at]
    which = pairs[at, 1]
    places, set_start = gather_indices(c.set_start, which)
    start = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=conjunctions))]).astype(np.int64)
    return TermSets(start, pairs[at, 0].astype(np.int32), set_start, c.intervals[places].astype(np.int32))


@inlined
def has_sets(sets: TermSets, key: int) -> bool:
    """Whether a box has terms whose set has gaps."""
    return key + 1 < len(sets.start) and sets.start[key + 1] > sets.start[key]


@inlined
def set_number(sets: TermSets, key: int, attribute: int) -> int:
    """The number of the box's set on an attribute; -1 if the box expresses the term fully."""
    if key + 1 < len(sets.start):
        for place in range(sets.start[key], sets.start[key + 1]):
            if sets.attributes[place] == attribute:
                return place
    return -1


@inlined
def set_shares(sets: TermSets, number: int, low: int, high: int) -> bool:
    """Whether a set has a code in [low, high]."""
    begin, end = sets.set_start[number], sets.set_start[number + 1]
    at = first_reaching(low, begin, end, sets.intervals)
    return at < end and sets.intervals[at, 0] <= high
