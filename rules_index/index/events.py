"""Events that are expressions: for some attributes, the sets of codes that the event offers.

An event meets a conjunction where it offers, for each attribute that the conjunction names, at least one of the codes
that it asks for (the BE-Tree paper, section 3.2). An attribute that the event does not have meets nothing.
"""

from __future__ import annotations

import numpy as np

from rules_index.index.conjunction_arrays import GATE, Conjunctions

Event = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Attributes [.] int32, each once; start [. + 1] int64 of each one's intervals [., 2] int32 of codes, closed and
ascending."""


def offered_by(event: Event) -> dict[int, np.ndarray]:
    """The intervals [., 2] of codes by attribute."""
    attributes, start, intervals = event
    of = np.asarray(intervals).reshape(-1, 2)
    return {int(attribute): of[start[place] : start[place + 1]] for place, attribute in enumerate(attributes)}


def rules_met(c: Conjunctions, event: Event) -> np.ndarray:
    """The rules [.] int32, ascending, of which an event meets a conjunction."""
    met = _terms_met(c, offered_by(event))
    gate = np.flatnonzero(c.terms[:, 0] == GATE)
    first = int(c.gate_start[-1])
    empty = c.start[1:] == c.start[:-1]
    owner = np.repeat(np.arange(c.gates), np.diff(c.gate_start))
    passed = np.zeros(c.gates, bool)
    while True:
        met[gate] = passed[c.terms[gate, 1]]
        unmet = np.concatenate([[0], np.cumsum(~met)])
        held = empty | (unmet[c.start[1:]] == unmet[c.start[:-1]])
        now = np.bincount(owner, weights=held[:first], minlength=c.gates) > 0
        # a gate may name others, so that each round passes those that the last one has opened
        if np.array_equal(now, passed):
            return np.unique(c.target[first:][held[first:]])
        passed = now


def _terms_met(c: Conjunctions, offered: dict[int, np.ndarray]) -> np.ndarray:
    """Which terms [terms] bool ask for a code that is offered; gates are left out."""
    met = np.zeros(len(c.terms), bool)
    for attribute, of in offered.items():
        named = np.flatnonzero(c.terms[:, 0] == attribute)
        which = c.terms[named, 1]
        lengths = c.set_start[which + 1] - c.set_start[which]
        starts = np.cumsum(lengths) - lengths
        low, high = c.intervals[np.repeat(c.set_start[which] - starts, lengths) + np.arange(lengths.sum())].T
        behind = np.searchsorted(of[:, 1], low)
        inside = behind < len(of)
        inside[inside] = of[behind[inside], 0] <= high[inside]
        if len(named):
            met[named] = np.logical_or.reduceat(inside, starts)
    return met
