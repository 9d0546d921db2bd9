"""Expands shared disjunctions: conjunctions that name them become conjunctions with each of their alternatives."""

from __future__ import annotations

from itertools import pairwise
from typing import TypeAlias

import numpy as np

from rules_index.index.conjunction_arrays import DISJUNCTION, Conjunctions

_Set: TypeAlias = tuple[tuple[int, int], ...]
_Box: TypeAlias = dict[int, _Set]
"""The intervals of codes of each attribute that a conjunction names."""


def without_shared_disjunctions(conjunctions: Conjunctions, most: int) -> Conjunctions | None:
    """The same rules without shared disjunctions; None if that takes more than `most` conjunctions, including those of
    the disjunctions."""
    c = conjunctions
    if c.disjunctions == 0:
        return c
    sets = [tuple((low, high) for low, high in c.intervals[begin:end].tolist()) for begin, end in pairwise(c.set_start)]
    disjunctions: list[list[_Box]] = [[] for _ in range(c.disjunctions)]
    rules: list[tuple[int, _Box]] = []
    made = 0
    for number, target in enumerate(c.target.tolist()):
        boxes: list[_Box] = [{}]
        for attribute, which in c.terms[c.start[number] : c.start[number + 1]].tolist():
            choices = disjunctions[which] if attribute == DISJUNCTION else [{attribute: sets[which]}]
            boxes = [both for box in boxes for other in choices if (both := _both(box, other)) is not None]
            if made + len(boxes) > most:
                return None
        made += len(boxes)
        if number < c.disjunction_start[-1]:
            disjunctions[target] += boxes
        else:
            rules += [(target, box) for box in boxes]
    return _flat(c.sizes, rules)


def _both(left: _Box, right: _Box) -> _Box | None:
    """The rows that are in both boxes; None if there are none."""
    found = dict(left)
    for attribute, wanted in right.items():
        shared = _intersection(found[attribute], wanted) if attribute in found else wanted
        if not shared:
            return None
        found[attribute] = shared
    return found


def _intersection(left: _Set, right: _Set) -> _Set:
    found = []
    i = j = 0
    while i < len(left) and j < len(right):
        low, high = max(left[i][0], right[j][0]), min(left[i][1], right[j][1])
        if low <= high:
            found.append((low, high))
        if left[i][1] < right[j][1]:
            i += 1
        else:
            j += 1
    return tuple(found)


def _flat(sizes: np.ndarray, rules: list[tuple[int, _Box]]) -> Conjunctions:
    """The boxes as conjunctions, each of the rule with its number; sizes: [attributes], number of codes."""
    numbers: dict[_Set, int] = {}
    by_attribute: dict[tuple[int, int], int] = {}
    terms: list[tuple[int, int]] = []
    ends = [0]
    # a set belongs to one attribute: equal sets of two attributes are two sets
    listed: list[_Set] = []
    for _, box in rules:
        for attribute, which in sorted(box.items()):
            key = (attribute, numbers.setdefault(which, len(numbers)))
            if key not in by_attribute:
                by_attribute[key] = len(listed)
                listed.append(which)
            terms.append((attribute, by_attribute[key]))
        ends.append(len(terms))
    return Conjunctions(
        sizes=sizes,
        set_start=np.cumsum([0, *map(len, listed)]).astype(np.int64),
        intervals=np.array([pair for which in listed for pair in which], np.int32).reshape(-1, 2),
        start=np.array(ends, np.int64),
        terms=np.array(terms, np.int32).reshape(-1, 2),
        target=np.array([rule for rule, _ in rules], np.int32),
        disjunction_start=np.zeros(1, np.int32),
    )
