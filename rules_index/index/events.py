"""Events that are expressions: each offers sets of codes for some attributes.

An event matches a conjunction if, for each attribute that the conjunction names, it offers at least one of the codes in
the conjunction's set (the BE-Tree paper, section 3.2). It satisfies no term on an attribute for which it offers
nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rules_index.index.conjunction_arrays import Conjunctions
from rules_index.single_events.exact import ExactTerms, meets

NO_INTERVALS = np.empty((0, 2), np.int32)
ABSENT = np.iinfo(np.int32).max

Event = tuple[np.ndarray, np.ndarray, np.ndarray]
"""attributes [.] int32, distinct; start [. + 1] int64, the offsets of each attribute's intervals; intervals [., 2]
int32 of codes, closed and ascending."""


def offered_by(event: Event) -> dict[int, np.ndarray]:
    """The offered intervals [., 2] of codes, by attribute."""
    attributes, start, intervals = event
    pairs = np.asarray(intervals).reshape(-1, 2)
    return {int(attribute): pairs[start[place] : start[place + 1]] for place, attribute in enumerate(attributes)}


def rules_met(c: Conjunctions, event: Event) -> np.ndarray:
    """The rules [.] int32, ascending, with a conjunction that the event matches. Tests every conjunction."""
    numbers = np.arange(c.disjunction_start[-1], len(c.target))
    return np.unique(c.target[numbers[met(terms_of(c), numbers, offered_event(event, len(c.sizes)))]])


class Offered(NamedTuple):
    """An event as kernels read it.

    first, last  [attributes] int32, the lowest and highest code offered for each attribute; `ABSENT` and -1 for none
    start        [attributes, 2] int64, the range of its intervals in `intervals`
    intervals    [., 2] int32; a row has none
    """

    first: np.ndarray
    last: np.ndarray
    start: np.ndarray
    intervals: np.ndarray


def offered_row(codes: np.ndarray) -> Offered:
    """A row of codes [attributes] as an event."""
    codes = np.ascontiguousarray(codes, np.int32)
    return Offered(codes, codes, np.zeros((len(codes), 2), np.int64), NO_INTERVALS)


def offered_event(event: Event, attributes: int) -> Offered:
    """The event over `attributes` attributes as kernels read it."""
    named, start, intervals = event
    first, last = np.full(attributes, ABSENT, np.int32), np.full(attributes, -1, np.int32)
    ranges = np.zeros((attributes, 2), np.int64)
    intervals = np.ascontiguousarray(intervals, np.int32).reshape(-1, 2)
    some = start[1:] > start[:-1]
    begin, end, attribute = start[:-1][some], start[1:][some], named[some]
    first[attribute], last[attribute] = intervals[begin, 0], intervals[end - 1, 1]
    ranges[attribute, 0], ranges[attribute, 1] = begin, end
    return Offered(first, last, ranges, intervals)


def terms_of(c: Conjunctions) -> ExactTerms:
    """The conjunctions as `met` reads them. Their dtypes never vary, so that its kernel is compiled once."""
    arrays = (c.start, c.terms, c.set_start, c.intervals, c.disjunction_start)
    kinds = (np.int64, np.int32, np.int64, np.int32, np.int32)
    views = [np.ascontiguousarray(array, kind).view() for array, kind in zip(arrays, kinds, strict=True)]
    for view in views:
        view.setflags(write=False)
    return ExactTerms(*views)


def met(terms: ExactTerms, numbers: np.ndarray, event: Offered) -> np.ndarray:
    """Which of the conjunctions `numbers` [.] an event matches, bool."""
    result: np.ndarray = meets(np.ascontiguousarray(numbers, np.int64), terms, *event)
    return result
