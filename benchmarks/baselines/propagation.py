"""Propagation (Fabret and others): expressions clustered by an access predicate, the equality that is rarest.

An event looks up the clusters of its pairs of attribute and value; the other predicates of what stands there are
evaluated where they are, each expression until one fails. The published algorithm first sets a bit for every different
predicate that the event satisfies, which pays where few predicates are shared by many expressions; here hardly two
ranges are the same, and evaluating them in the clusters is faster (ours). Expressions without an equality are scanned.
"""

from __future__ import annotations

import numpy as np

from benchmarks.baselines.expressions import (
    Events,
    Expressions,
    clear,
    is_equality,
    pair_offsets,
    room,
    satisfies,
    spread,
)
from benchmarks.jit import inlined, jit
from rules_index.arrays import offsets_of


class Propagation:
    """Clusters of predicates, one behind the other in memory; the last cluster has no access predicate."""

    def __init__(self, given: Expressions) -> None:
        expressions = len(given.start) - 1
        self._pair = pair_offsets(given)
        owner = np.repeat(np.arange(expressions), np.diff(given.start))
        equal = np.flatnonzero(is_equality(given))
        pair = self._pair[given.attribute[equal]] + given.low[equal]
        often = np.bincount(pair, minlength=int(self._pair[-1]))
        order = np.lexsort((often[pair], owner[equal]))
        first = np.ones(len(order), bool)
        first[1:] = owner[equal][order][1:] != owner[equal][order][:-1]
        access = np.full(expressions, -1, np.int64)
        access[owner[equal][order[first]]] = equal[order[first]]
        cluster = np.full(expressions, self._pair[-1])
        cluster[access >= 0] = self._pair[given.attribute[access[access >= 0]]] + given.low[access[access >= 0]]
        self._keys = np.lexsort((np.diff(given.start), cluster)).astype(np.int32)
        self._start = offsets_of(np.bincount(cluster, minlength=int(self._pair[-1]) + 1))
        kept = np.ones(len(given.attribute), bool)
        kept[access[access >= 0]] = False
        # predicates in the order of the clusters
        place = np.empty(expressions, np.int64)
        place[self._keys] = np.arange(expressions)
        rest = np.flatnonzero(kept)
        rest = rest[np.argsort(place[owner[rest]], kind="stable")]
        self._rest = given._replace(
            start=offsets_of(np.bincount(place[owner[rest]], minlength=expressions)),
            attribute=given.attribute[rest], low=given.low[rest], high=given.high[rest], which=given.which[rest],
        )  # fmt: skip

    def match(self, events: Events) -> tuple[np.ndarray, np.ndarray]:
        """(offsets, keys), the keys of an event in no order."""
        return _propagate(events, self._pair, self._start, self._keys, self._rest)


@jit
def _propagate(
    events: Events, pair: np.ndarray, start: np.ndarray, keys: np.ndarray, rest: Expressions
) -> tuple[np.ndarray, np.ndarray]:
    offsets = np.zeros(len(events.attribute) + 1, np.int64)
    found = np.empty(1024, np.int32)
    values = np.full(len(rest.sizes), -1, np.int32)
    count = 0
    for number in range(len(events.attribute)):
        spread(events, number, values)
        for place in range(-1, events.attribute.shape[1]):
            cluster = pair[-1]
            if place >= 0:
                if events.attribute[number, place] < 0:
                    continue
                cluster = pair[events.attribute[number, place]] + events.value[number, place]
            found = room(found, count + start[cluster + 1] - start[cluster])
            count = _check(start[cluster], start[cluster + 1], keys, rest, values, found, count)
        clear(events, number, values)
        offsets[number + 1] = count
    return offsets, found[:count]


@inlined
def _check(
    begin: int, end: int, keys: np.ndarray, rest: Expressions, values: np.ndarray, found: np.ndarray, count: int
) -> int:
    for entry in range(begin, end):
        at, last = rest.start[entry], rest.start[entry + 1]
        while at < last and satisfies(values[rest.attribute[at]], at, rest):
            at += 1
        if at == last:
            found[count] = keys[entry]
            count += 1
    return count
