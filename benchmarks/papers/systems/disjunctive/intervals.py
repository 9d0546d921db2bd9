"""Disjunctive predicates over intervals (Kuntschke and Kemper, section 2.1) as boxes of region codes.

The constants of all predicates to be compared divide each dimension into regions: each constant, the values between two
of them, and NULL, which comes last. An interval is then a closed range of codes whatever its ends are, and a part that
is cut off is never empty. The position of each region on the number line is kept as well, for lengths.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from benchmarks.papers.systems.disjunctive.box_bitmaps import BoxBitmaps
from benchmarks.papers.systems.disjunctive.dimensions import Lines, SortedBoxes, measured
from benchmarks.papers.systems.disjunctive.streams import Streams
from rules_index.arrays import offsets_of, segment_ids
from rules_index.index.boxes import Boxes


@dataclass(frozen=True, slots=True)
class Interval:
    """The values from `low` to `high`, without NULL; an open or infinite end is excluded."""

    low: float = -math.inf
    high: float = math.inf
    low_open: bool = False
    high_open: bool = False


Conjunctive: TypeAlias = Mapping[str, Interval | None]
"""A conjunctive predicate: for each dimension that it references an interval, or None for IS NULL. In a dimension that
it does not reference it is TRUE for every value and for NULL."""


@dataclass(frozen=True)
class Space:
    """The data space D and its regions.

    names      [dimensions]
    constants  for each dimension, ascending
    sizes      [dimensions] int32, number of codes, including that of NULL
    lower      [dimensions, most codes] float64, lower end of each region; infinity for NULL and unused codes
    upper      [dimensions, most codes] float64
    open       [dimensions, most codes] bool, whether the region's finite ends are excluded
    """

    names: tuple[str, ...]
    constants: tuple[tuple[float, ...], ...]
    sizes: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    open: np.ndarray

    @property
    def lines(self) -> Lines:
        """The position of codes on the number line, as kernels read it."""
        return Lines(self.sizes, self.lower, self.upper)

    @classmethod
    def of(cls, *predicates: Iterable[Conjunctive], whole: Collection[str] = ()) -> Space:
        """The space of all dimensions and constants of some predicates; `whole` dimensions have only integers."""
        found: dict[str, set[float]] = {}
        for box in (box for predicate in predicates for box in predicate):
            for name, interval in box.items():
                ends = (interval.low, interval.high) if interval is not None else ()
                found.setdefault(name, set()).update(end for end in ends if math.isfinite(end))
        names = tuple(sorted(found))
        constants = tuple(tuple(sorted(found[name])) for name in names)
        regions = [_regions(each, name in whole) for name, each in zip(names, constants, strict=True)]
        sizes = np.array([len(each) + 1 for each in regions], np.int32)
        lower, upper = np.full((2, len(names), int(sizes.max(initial=1))), np.inf)
        is_open = np.zeros(lower.shape, bool)
        for dimension, each in enumerate(regions):
            lower[dimension, : len(each)], upper[dimension, : len(each)], is_open[dimension, : len(each)] = zip(
                *each, strict=True
            )
        return cls(names, constants, sizes, lower, upper, is_open)

    def encode(self, predicate: Iterable[Conjunctive]) -> Disjunction:
        """The boxes of a predicate over this space; conjunctions that no row satisfies are left out.

        Raises `ValueError` for a dimension or a constant that the space does not have.
        """
        boxes = [box for box in map(self._box, predicate) if (box[:, 0] <= box[:, 1]).all()]
        return Disjunction(self, np.array(boxes, np.int32).reshape(-1, len(self.names), 2))

    def codes(self, rows: np.ndarray) -> np.ndarray:
        """The code matrix [dimensions, rows] int32 of rows [dimensions, rows] float64; NaN stands for NULL."""
        found = np.empty(rows.shape, np.int32)
        for dimension, values in enumerate(rows):
            null = self.sizes[dimension] - 1
            upper = self.upper[dimension, :null]
            code = np.searchsorted(upper, values)
            # the end of an open region is the next region, which has only that value
            code[(code < null) & self.open[dimension, code] & (values == self.upper[dimension, code])] += 1
            found[dimension] = np.where(np.isnan(values), null, code)
        return found

    def decode(self, boxes: np.ndarray) -> list[dict[str, Interval | None]]:
        """Boxes [boxes, dimensions, 2] of codes as conjunctive predicates.

        Raises `ValueError` for a range of NULL and some values, but not all: no `Interval` can express that.
        """
        return [
            {
                name: self._interval(dimension, *box[dimension].tolist())
                for dimension, name in enumerate(self.names)
                if box[dimension, 0] > 0 or box[dimension, 1] < self.sizes[dimension] - 1
            }
            for box in boxes
        ]

    def _box(self, conjunctive: Conjunctive) -> np.ndarray:
        box = np.stack([np.zeros_like(self.sizes), self.sizes - 1], axis=1)
        for name, interval in conjunctive.items():
            dimension = self.names.index(name)
            null = int(self.sizes[dimension]) - 1
            box[dimension] = null if interval is None else self._codes(dimension, interval)
        return box

    def _codes(self, dimension: int, interval: Interval) -> tuple[int, int]:
        """The first and the last code of an interval; (1, 0) if it has no value."""
        for end in (interval.low, interval.high):
            if math.isfinite(end) and end not in self.constants[dimension]:
                raise ValueError(f"{end} is not a constant of the space's {self.names[dimension]}")
        null = int(self.sizes[dimension]) - 1
        lower, upper = self.lower[dimension, :null], self.upper[dimension, :null]
        low_open = self.open[dimension, :null] | np.isinf(lower)
        high_open = self.open[dimension, :null] | np.isinf(upper)
        inside = (lower > interval.low) | ((lower == interval.low) & (low_open | (not interval.low_open)))
        inside &= (upper < interval.high) | ((upper == interval.high) & (high_open | (not interval.high_open)))
        codes = np.flatnonzero(inside).tolist()
        return (codes[0], codes[-1]) if codes else (1, 0)

    def _interval(self, dimension: int, low: int, high: int) -> Interval | None:
        null = int(self.sizes[dimension]) - 1
        if low == null:
            return None
        if high == null:
            raise ValueError(f"a range of {self.names[dimension]} holds NULL and some values")
        return Interval(
            float(self.lower[dimension, low]),
            float(self.upper[dimension, high]),
            bool(self.open[dimension, low]) and low > 0,
            bool(self.open[dimension, high]) and high < null - 1,
        )


def _regions(constants: Sequence[float], whole: bool) -> list[tuple[float, float, bool]]:
    """(lower, upper, open) of the regions into which constants divide a dimension. If it has only integers (`whole`),
    regions without one are left out, and the others have integers as ends, which they include."""
    ends = [-math.inf, *constants, math.inf]
    regions = [(ends[0], ends[1], True)]
    for low, high in pairwise(ends[1:]):
        regions += [(low, low, False), (low, high, True)]
    if not whole:
        return regions
    shrunk = [
        (
            low if math.isinf(low) else float(math.floor(low) + 1),
            high if math.isinf(high) else float(math.ceil(high) - 1),
        )
        for low, high, _ in regions[::2]
    ]
    points = [(value, value) if value.is_integer() else (value, value - 1) for value in map(float, constants)]
    found = [shrunk[0], *(pair for both in zip(points, shrunk[1:], strict=True) for pair in both)]
    return [(low, high, False) for low, high in found if low <= high]


@dataclass(frozen=True)
class Disjunction:
    """A disjunctive predicate: the union of its conjunctive subpredicates.

    boxes: [boxes, dimensions, 2] int32, closed ranges of codes, none of them empty. A dimension that a subpredicate
    does not reference has all codes, including that of NULL.
    """

    space: Space
    boxes: np.ndarray

    def __len__(self) -> int:
        """Number of subpredicates."""
        return len(self.boxes)

    @cached_property
    def measures(self) -> SortedBoxes:
        """The boxes with the measures that the order of work depends on."""
        return SortedBoxes(*measured(self.boxes, self.space.lines))

    @cached_property
    def alone(self) -> Predicates:
        """This predicate alone, as `Predicates`."""
        return Predicates.of([self])

    @property
    def order(self) -> np.ndarray:
        """The boxes [boxes] int64 in the order of work."""
        return self.alone.order

    @property
    def sparse(self) -> Boxes:
        """The boxes with only the dimensions that they reference, for indexes and evaluation."""
        named = (self.boxes[:, :, 0] > 0) | (self.boxes[:, :, 1] < self.space.sizes - 1)
        _, attributes = np.nonzero(named)
        low, high = self.boxes[named].T
        start = offsets_of(named.sum(axis=1))
        return Boxes(self.space.sizes, start, attributes.astype(np.int32), low.copy(), high.copy())

    def index(self) -> BoxBitmaps:
        """Bitmaps over the boxes."""
        return self.alone.index()

    def decoded(self) -> list[dict[str, Interval | None]]:
        """The subpredicates as intervals. Raises `ValueError` as `Space.decode` does."""
        return self.space.decode(self.boxes)


@dataclass(frozen=True)
class Predicates:
    """Several predicates: their subpredicates concatenated, and the first of each.

    start: [predicates + 1] int64
    """

    subpredicates: Disjunction
    start: np.ndarray

    @classmethod
    def of(cls, predicates: Sequence[Disjunction]) -> Predicates:
        """Concatenates one or more predicates. Raises `ValueError` if they are not over the same space."""
        space = predicates[0].space
        if any(each.space is not space for each in predicates):
            raise ValueError("all predicates must be encoded by one space")
        start = offsets_of(np.array([len(each) for each in predicates], np.int64))
        if len(predicates) == 1:
            return cls(predicates[0], start)
        return cls(Disjunction(space, np.concatenate([each.boxes for each in predicates])), start)

    @cached_property
    def longest(self) -> int:
        """The largest number of subpredicates of one predicate."""
        return int(np.diff(self.start).max(initial=0))

    @cached_property
    def order(self) -> np.ndarray:
        """The subpredicates [.] int64 of each predicate by decreasing volume (6.1): by infinite ends first, then by
        finite volume."""
        measures = self.subpredicates.measures
        return np.lexsort((-measures.volume, -measures.unbounded, segment_ids(self.start)))

    @cached_property
    def streams(self) -> Streams:
        """The predicates as stream predicates."""
        place = np.empty(len(self.order), np.int64)
        place[self.order] = np.arange(len(place))
        return Streams(self.subpredicates.measures, self.order, place, self.start)

    def index(self) -> BoxBitmaps:
        """Bitmaps over the boxes of each predicate."""
        sizes = self.subpredicates.space.sizes
        return BoxBitmaps.of(self.subpredicates.boxes, self.order, self.start, int(sizes.max(initial=0)))
