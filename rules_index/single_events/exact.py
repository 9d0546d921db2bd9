"""Tests conjunctions term by term on one event: with the sets themselves, not only their bounds, and with shared
disjunctions."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rules_index.kernels.bisection import first_reaching
from rules_index.kernels.jit import inlined, jit

DISJUNCTION = -1
"""The attribute, in `terms`, of a term that names a shared disjunction."""
_UNKNOWN, _FAILED, _PASSED = 0, 1, 2


class ExactTerms(NamedTuple):
    """Conjunctions; the fields are those of `index.conjunction_arrays.Conjunctions`."""

    start: np.ndarray
    terms: np.ndarray
    set_start: np.ndarray
    intervals: np.ndarray
    disjunction_start: np.ndarray


@inlined
def _shares(
    begin: int, end: int, intervals: np.ndarray, low: int, high: int, start: int, stop: int, offered: np.ndarray
) -> bool:
    """Whether the intervals [begin, end) of a set contain an offered code: one in [low, high] or, if the event offers
    several intervals [start, stop), in one of those."""
    at = start
    while True:
        if stop - start > 1:
            low, high = offered[at, 0], offered[at, 1]
        reached = first_reaching(low, begin, end, intervals)
        if reached < end and intervals[reached, 0] <= high:
            return True
        at += 1
        if at >= stop:
            return False


@jit
def meets(
    conjunctions: np.ndarray, c: ExactTerms, first: np.ndarray, last: np.ndarray, start: np.ndarray, offered: np.ndarray
) -> np.ndarray:
    """Returns which of `conjunctions` [.] (numbers) an event matches, as bool; the event is given as in
    `access_lists.search_event`. For a row, `first` and `last` are its codes, and there are no offered intervals."""
    met = np.zeros(len(conjunctions), np.bool_)
    disjunctions = np.zeros(len(c.disjunction_start) - 1, np.uint8)
    waiting = np.empty(len(disjunctions) + 1, np.int64)
    for i in range(len(conjunctions)):
        while True:
            disjunction = _blocked(conjunctions[i], c, first, last, start, offered, disjunctions)
            if disjunction < 0:
                met[i] = disjunction == -1
                break
            # decides this disjunction and those that it needs, depth first; one names only earlier ones, so this
            # terminates
            waiting[0] = disjunction
            depth = 1
            while depth > 0:
                disjunction = waiting[depth - 1]
                state = np.uint8(_FAILED)
                needed = np.int64(-1)
                for conjunction in range(c.disjunction_start[disjunction], c.disjunction_start[disjunction + 1]):
                    needed = _blocked(conjunction, c, first, last, start, offered, disjunctions)
                    if needed >= 0:
                        break
                    if needed == -1:
                        state = np.uint8(_PASSED)
                        break
                if needed >= 0:
                    waiting[depth] = needed
                    depth += 1
                else:
                    disjunctions[disjunction] = state
                    depth -= 1
    return met


@jit
def _blocked(
    conjunction: int, c: ExactTerms, first: np.ndarray, last: np.ndarray, start: np.ndarray, offered: np.ndarray,
    disjunctions: np.ndarray,
) -> Any:  # fmt: skip
    """Returns -1 if the event matches the conjunction, -2 if it does not, else a shared disjunction that must be
    decided first."""
    needed = np.int64(-1)
    for term in range(c.start[conjunction], c.start[conjunction + 1]):
        attribute, which = c.terms[term, 0], c.terms[term, 1]
        if attribute == DISJUNCTION:
            if disjunctions[which] == _FAILED:
                return -2
            if disjunctions[which] == _UNKNOWN:
                needed = np.int64(which)
            continue
        if last[attribute] < 0:
            return -2
        if not _shares(
            c.set_start[which], c.set_start[which + 1], c.intervals, first[attribute], last[attribute],
            start[attribute, 0], start[attribute, 1], offered,
        ):  # fmt: skip
            return -2
    return needed
