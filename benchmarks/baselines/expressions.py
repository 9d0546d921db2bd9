"""What the baselines of the BE-Tree paper match: conjunctions of predicates with events of attributes and values."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from benchmarks.jit import inlined, inner, jit
from rules_index.arrays import offsets_of


class Expressions(NamedTuple):
    """Conjunctions, each with at most one predicate an attribute.

    sizes      [attributes] int32, values of each: 0, 1, ..
    start      [expressions + 1] int64 into the predicates
    attribute  [predicates] int32, ascending within an expression
    low, high  [predicates] int32, the least and the greatest value that satisfies the predicate
    which      [predicates] int32, the set of a predicate that not all values between satisfy, or -1
    set_start  [sets + 1] int64 into intervals [., 2] int32, closed, ascending, disjoint
    """

    sizes: np.ndarray
    start: np.ndarray
    attribute: np.ndarray
    low: np.ndarray
    high: np.ndarray
    which: np.ndarray
    set_start: np.ndarray
    intervals: np.ndarray


class Events(NamedTuple):
    """attribute, value [events, most attributes] int32; the attribute is -1 where an event has fewer."""

    attribute: np.ndarray
    value: np.ndarray


@inlined
def satisfies(value: int, predicate: int, given: Expressions) -> bool:
    """Whether a value, -1 where the event has none, satisfies a predicate."""
    if value < given.low[predicate] or value > given.high[predicate]:
        return False
    which = given.which[predicate]
    if which < 0:
        return True
    for place in range(given.set_start[which], given.set_start[which + 1]):
        if value <= given.intervals[place, 1]:
            return value >= given.intervals[place, 0]
    return False


@inlined
def spread(events: Events, number: int, values: np.ndarray) -> None:
    """Writes an event's values to `values` [attributes] int32; see `clear`."""
    for place in range(events.attribute.shape[1]):
        if events.attribute[number, place] >= 0:
            values[events.attribute[number, place]] = events.value[number, place]


@inlined
def clear(events: Events, number: int, values: np.ndarray) -> None:
    """Takes them away."""
    for place in range(events.attribute.shape[1]):
        if events.attribute[number, place] >= 0:
            values[events.attribute[number, place]] = -1


@inner
def room(found: np.ndarray, needed: int) -> np.ndarray:
    """`found`, or a larger copy."""
    if needed <= len(found):
        return found
    larger = np.empty(max(needed, 2 * len(found)), np.int32)
    larger[: len(found)] = found
    return larger


def is_equality(given: Expressions) -> np.ndarray:
    """Which predicates [predicates] bool ask for one value."""
    return (given.low == given.high) & (given.which < 0)


@jit
def accepted(given: Expressions, counted: np.ndarray) -> np.ndarray:
    """The values [.] int32 that satisfy each predicate, one behind the other, `counted` [predicates] of each."""
    values = np.empty(counted.sum(), np.int32)
    at = 0
    for predicate in range(len(given.attribute)):
        which = given.which[predicate]
        if which < 0:
            for value in range(given.low[predicate], given.high[predicate] + 1):
                values[at] = value
                at += 1
        else:
            for place in range(given.set_start[which], given.set_start[which + 1]):
                for value in range(given.intervals[place, 0], given.intervals[place, 1] + 1):
                    values[at] = value
                    at += 1
    return values


def counts_of_accepted(given: Expressions) -> np.ndarray:
    """How many values [predicates] int64 satisfy each predicate."""
    counts = given.high.astype(np.int64) - given.low + 1
    lengths = (given.intervals[:, 1] - given.intervals[:, 0] + 1).astype(np.int64)
    total = np.concatenate([[0], np.cumsum(lengths)])
    in_sets = total[given.set_start[1:]] - total[given.set_start[:-1]]
    counts[given.which >= 0] = in_sets[given.which[given.which >= 0]]
    return counts


def pair_offsets(given: Expressions) -> np.ndarray:
    """Where the values of each attribute begin [attributes + 1] int64 if pairs of both are numbered through."""
    return offsets_of(given.sizes)


class Scan:
    """SCAN: one expression after the other, each until a predicate fails."""

    def __init__(self, given: Expressions) -> None:
        self._given = given

    def match(self, events: Events) -> tuple[np.ndarray, np.ndarray]:
        """(offsets [events + 1] int64, keys [.] int32) of the expressions that each event satisfies."""
        return _scan(events, self._given)


@jit
def _scan(events: Events, given: Expressions) -> tuple[np.ndarray, np.ndarray]:
    offsets = np.zeros(len(events.attribute) + 1, np.int64)
    found = np.empty(1024, np.int32)
    values = np.full(len(given.sizes), -1, np.int32)
    count = 0
    for number in range(len(events.attribute)):
        spread(events, number, values)
        for key in range(len(given.start) - 1):
            at, end = given.start[key], given.start[key + 1]
            while at < end and satisfies(values[given.attribute[at]], at, given):
                at += 1
            if at == end:
                found = room(found, count + 1)
                found[count] = key
                count += 1
        clear(events, number, values)
        offsets[number + 1] = count
    return offsets, found[:count]
