"""Matches corners of boxes: rows that have the last code in each attribute that the box does not name."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

import numpy as np

from rules_index.arrays import gather_indices, offsets_of, segment_counts, segment_ids
from rules_index.implication.cover import corners
from rules_index.implication.region_boxes import Codes, RegionBoxes
from rules_index.index.conjunction_arrays import DISJUNCTION, Conjunctions
from rules_index.index.engine import Matching
from rules_index.index.hybrid import Hybrid

_MANY_ATTRIBUTES, _TERMS = 1 << 13, 1 << 9
"""From so many attributes on it pays to make an engine for each batch, whose boxes have at least so many terms: making
an engine takes some 10 ms."""
_BLOCK = 1 << 7
"""Rows that are transposed at once, so that they stay in a cache."""


class CornerMatching(Protocol):
    """Finds the rules that are TRUE on corners.

    most_terms: how many terms the boxes of a batch of several rules may have.
    """

    most_terms: int

    def match(self, boxes: np.ndarray, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The rules that the chosen [2 * n] bool corners of the boxes [n] int64 satisfy, as `Matching.match` returns
        them. The corners of a box follow each other."""


def corner_matching(boxes: RegionBoxes, conjunctions: Conjunctions, engine: Matching) -> CornerMatching:
    """The way that is expected to be faster: with all attributes, or batch by batch with those that boxes name.

    With all attributes the time grows with corners times attributes. With those of a batch it grows with corners times
    the batch's attributes, which its terms bound, and for each batch with the terms of all conjunctions. That is least
    with terms * sqrt(2 / boxes) terms in a batch, if a term costs four times as much as a code.
    """
    if len(conjunctions.sizes) < _MANY_ATTRIBUTES:
        return AllAttributes(boxes, engine)
    best = int(len(conjunctions.terms) * np.sqrt(2 / max(len(boxes.rule), 1)))
    return NamedAttributes(boxes, conjunctions, max(best, _TERMS))


def region_codes(rows: np.ndarray, attributes: np.ndarray, codes: Codes) -> np.ndarray:
    """The region codes [attributes, rows] int32 of rows of codes [rows, attributes] in some attributes [.] int64."""
    start = codes.start[attributes]
    regions = np.empty(rows.shape[::-1], np.int32)
    for begin in range(0, len(rows), _BLOCK):
        part = rows[begin : begin + _BLOCK]
        regions[:, begin : begin + _BLOCK] = codes.region[part + start].T
    return regions


class AllAttributes:
    """Gives the engine the codes of all attributes."""

    most_terms = 1 << 62

    def __init__(self, boxes: RegionBoxes, engine: Matching) -> None:
        self._boxes, self._engine = boxes, engine

    def match(self, boxes: np.ndarray, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """See `CornerMatching`."""
        attributes = np.arange(len(self._boxes.codes.sizes))
        rows = corners(boxes, attributes, self._boxes.arrays)[chosen]
        return self._engine.match(region_codes(rows, attributes, self._boxes.codes))


class NamedAttributes:
    """Makes an engine for each batch: its conjunctions have only the attributes that the batch's boxes name.

    All other attributes have their last code in all corners. A conjunction whose term on one of these is FALSE there is
    left out, and the terms that are TRUE there are.
    """

    def __init__(self, boxes: RegionBoxes, conjunctions: Conjunctions, most_terms: int) -> None:
        self.most_terms = most_terms
        c = self._conjunctions = conjunctions
        self._boxes = boxes
        self._owner = segment_ids(c.start)
        self._is_disjunction = c.terms[:, 0] == DISJUNCTION
        # the codes of rows that raised and of NULL come last, and every attribute can be NULL
        last = boxes.codes.region[boxes.codes.start[1:] - 1]
        code_of = np.zeros(len(c.set_start) - 1, np.int32)
        attribute, number = c.terms[~self._is_disjunction].T
        code_of[number] = last[attribute]
        code = code_of[segment_ids(c.set_start)]
        holds = segment_counts((c.intervals[:, 0] <= code) & (code <= c.intervals[:, 1]), c.set_start) > 0
        self._unmet = np.zeros(len(c.terms), bool)
        self._unmet[~self._is_disjunction] = ~holds[number]

    def match(self, boxes: np.ndarray, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """See `CornerMatching`."""
        a = self._boxes.arrays
        named = np.unique(a.dimensions[gather_indices(a.start, boxes)[0]])
        attributes = named[named < len(self._conjunctions.sizes)].astype(np.int64)
        rows = corners(boxes, attributes, a)[chosen]
        regions = np.zeros((len(attributes) + 1, len(rows)), np.int32)
        regions[:-1] = region_codes(rows, attributes, self._boxes.codes)
        return Hybrid.scanning(self._over(attributes)).match(regions)

    def _over(self, attributes: np.ndarray) -> Conjunctions:
        """The conjunctions over some attributes [.] int64, ascending, and a further one with the code 0, which those
        name that have no other term."""
        c = self._conjunctions
        column = np.full(len(c.sizes), -1, np.int32)
        column[attributes] = np.arange(len(attributes))
        inside = self._is_disjunction | (column[c.terms[:, 0]] >= 0)
        possible = segment_counts(self._unmet & ~inside, c.start) == 0
        kept = inside & possible[self._owner]
        lengths = segment_counts(kept, c.start)[possible]
        terms = c.terms[kept]
        of_attribute = terms[:, 0] != DISJUNCTION
        terms[of_attribute, 0] = column[terms[of_attribute, 0]]
        sets, number = np.unique(terms[of_attribute, 1], return_inverse=True)
        terms[of_attribute, 1] = number
        always = (len(attributes), len(sets))
        terms = np.insert(terms, offsets_of(lengths)[:-1][lengths == 0], always, axis=0)
        gather, set_start = gather_indices(c.set_start, sets)
        return replace(
            c,
            sizes=np.append(c.sizes[attributes], 2).astype(np.int32),
            set_start=np.append(set_start, set_start[-1] + 1),
            intervals=np.concatenate([c.intervals[gather], np.zeros((1, 2), np.int32)]),
            start=offsets_of(np.maximum(lengths, 1)),
            terms=terms,
            target=c.target[possible],
            disjunction_start=offsets_of(
                segment_counts(possible[: c.disjunction_start[-1]], c.disjunction_start)
            ).astype(c.disjunction_start.dtype),
        )
