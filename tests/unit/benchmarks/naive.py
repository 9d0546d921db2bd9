"""Naive twins of predicate matching: algorithm 8 on numbers, and implication by painting cells."""

from __future__ import annotations

import math

import numpy as np

from benchmarks.papers.systems.disjunctive.intervals import Disjunction

Box = dict[str, tuple[float, float]]
"""Closed intervals, or open at infinity, by dimension."""


def lengths(box: Box) -> dict[str, float]:
    return {name: high - low for name, (low, high) in box.items()}


def widened(box: Box, query: Box, dimensions: list[str]) -> tuple[float, float, Box]:
    """(i, e, the box widened so that it holds the query), as algorithm 8 has them."""
    free = (-math.inf, math.inf)
    wide = {name: box.get(name, free) for name in dimensions}
    e = 0.0
    for name in sorted(dimensions, key=lambda name: lengths(wide)[name]):
        (low, high), (low_q, high_q) = wide[name], query.get(name, free)
        if low <= low_q and high_q <= high:
            continue
        a = sum(more for more in (low - low_q, high_q - high) if 0 < more < math.inf)
        e += a * math.prod(length for other, length in lengths(wide).items() if other != name and 0 < length < math.inf)
        wide[name] = (min(low, low_q), max(high, high_q))
    i = sum(math.isinf(end) for interval in wide.values() for end in interval)
    return i, e, {name: interval for name, interval in wide.items() if interval != free}


def cells(predicate: Disjunction) -> np.ndarray:
    """Which cells [codes of each dimension] bool of the space a predicate holds on."""
    found = np.zeros(predicate.space.sizes, bool)
    for box in predicate.boxes:
        found[tuple(slice(low, high + 1) for low, high in box.tolist())] = True
    return found
