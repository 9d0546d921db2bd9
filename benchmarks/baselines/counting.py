"""SIFT, the counting algorithm (Yan and Garcia-Molina), with ranges enumerated, and the k-index (Whang and others).

Both file every expression under each pair of an attribute and a value that one of its predicates accepts. SIFT counts
how often an expression is met on the lists of an event's pairs. The k-index has lists by the number K of predicates and
walks K of them at once, by ascending expression, skipping what cannot be in K lists. Expressions have no negation here.
"""

from __future__ import annotations

import numpy as np

from benchmarks.baselines.expressions import (
    Events,
    Expressions,
    accepted,
    counts_of_accepted,
    pair_offsets,
    room,
)
from benchmarks.jit import inlined, jit
from rules_index.arrays import offsets_of

NO_ID = np.iinfo(np.int32).max


def _postings(given: Expressions, group: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(start [groups of pairs + 1] int64, keys [.] int32): expressions by group [expressions] and pair."""
    counts = counts_of_accepted(given)
    pair = pair_offsets(given)
    owner = np.repeat(np.arange(len(given.start) - 1, dtype=np.int32), np.diff(given.start))
    keys = np.repeat(owner, counts)
    lists = np.repeat(pair[given.attribute] + group[owner] * pair[-1], counts) + accepted(given, counts)
    start = offsets_of(np.bincount(lists, minlength=int((group.max(initial=0) + 1) * pair[-1])))
    return start, _filed(keys, lists, start[:-1].copy())


@jit
def _filed(keys: np.ndarray, lists: np.ndarray, at: np.ndarray) -> np.ndarray:
    filed = np.empty(len(keys), np.int32)
    for entry in range(len(keys)):
        filed[at[lists[entry]]] = keys[entry]
        at[lists[entry]] += 1
    return filed


class Sift:
    """Counters of satisfied predicates, one for each expression."""

    def __init__(self, given: Expressions) -> None:
        self._pair = pair_offsets(given)
        self._size = np.diff(given.start).astype(np.int32)
        self._start, self._keys = _postings(given, np.zeros(len(self._size), np.int64))

    def match(self, events: Events) -> tuple[np.ndarray, np.ndarray]:
        """(offsets, keys), the keys of an event in no order."""
        return _count(events, self._pair, self._size, self._start, self._keys)


@jit
def _count(
    events: Events, pair: np.ndarray, size: np.ndarray, start: np.ndarray, keys: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    offsets = np.zeros(len(events.attribute) + 1, np.int64)
    found = np.empty(1024, np.int32)
    counter = np.zeros(len(size), np.int32)
    count = 0
    for number in range(len(events.attribute)):
        for again in range(2):
            for place in range(events.attribute.shape[1]):
                attribute = events.attribute[number, place]
                if attribute < 0:
                    continue
                at = pair[attribute] + events.value[number, place]
                for entry in range(start[at], start[at + 1]):
                    key = keys[entry]
                    if again:
                        counter[key] = 0
                        continue
                    counter[key] += 1
                    if counter[key] == size[key]:
                        found = room(found, count + 1)
                        found[count] = key
                        count += 1
        offsets[number + 1] = count
    return offsets, found[:count]


class KIndex:
    """Lists by the number K of predicates."""

    def __init__(self, given: Expressions) -> None:
        size = np.diff(given.start)
        self._pair = pair_offsets(given)
        self._most = int(size.max(initial=0))
        self._start, self._keys = _postings(given, size - 1)

    def match(self, events: Events) -> tuple[np.ndarray, np.ndarray]:
        """(offsets, keys)."""
        return _walk(events, self._pair, self._most, self._start, self._keys)


@jit
def _walk(
    events: Events, pair: np.ndarray, most: int, start: np.ndarray, keys: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    width = events.attribute.shape[1]
    offsets = np.zeros(len(events.attribute) + 1, np.int64)
    found = np.empty(1024, np.int32)
    head = np.empty(width, np.int32)
    at, end = np.empty(width, np.int64), np.empty(width, np.int64)
    count = 0
    for number in range(len(events.attribute)):
        for k in range(min(most, width), 0, -1):
            lists = 0
            for place in range(width):
                attribute = events.attribute[number, place]
                if attribute < 0:
                    continue
                which = (k - 1) * pair[-1] + pair[attribute] + events.value[number, place]
                if start[which] < start[which + 1]:
                    at[lists], end[lists] = start[which], start[which + 1]
                    head[lists] = keys[start[which]]
                    _settle(head, at, end, lists)
                    lists += 1
            while lists >= k and head[k - 1] != NO_ID:
                key = head[k - 1]
                if head[0] == key:
                    found = room(found, count + 1)
                    found[count] = key
                    count += 1
                    key += 1
                # lists before the K-th one, and those equal to it where it matched, go on to `key`
                last = k - 1
                while last < lists and head[last] < key:
                    last += 1
                for place in range(last):
                    at[place] = _skip(keys, at[place], end[place], key)
                    head[place] = keys[at[place]] if at[place] < end[place] else NO_ID
                for place in range(1, lists):
                    _settle(head, at, end, place)
        offsets[number + 1] = count
    return offsets, found[:count]


@inlined
def _settle(head: np.ndarray, at: np.ndarray, end: np.ndarray, place: int) -> None:
    """Moves a list to its place among those before it, by head."""
    while place > 0 and head[place - 1] > head[place]:
        head[place - 1], head[place] = head[place], head[place - 1]
        at[place - 1], at[place] = at[place], at[place - 1]
        end[place - 1], end[place] = end[place], end[place - 1]
        place -= 1


@inlined
def _skip(keys: np.ndarray, at: int, end: int, key: int) -> int:
    """The first entry from `at` on of at least `key`: strides that double, then halves."""
    stride = 1
    while at + stride < end and keys[at + stride] < key:
        at += stride
        stride *= 2
    low, high = at, min(at + stride, end)
    while low < high:
        middle = (low + high) // 2
        if keys[middle] < key:
            low = middle + 1
        else:
            high = middle
    return low
