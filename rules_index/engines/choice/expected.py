"""What is expected of conjunctions: how many rows they hold, and what it costs to scan them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rules_index.engines.choice.costs import measured_costs
from rules_index.engines.flat import GATE, Conjunctions
from rules_index.engines.layout import BLOCK_ROWS, set_widths, terms_of
from rules_index.kernels.bitmaps import COARSE_CODES
from rules_index.kernels.scan import FEW_WORDS
from rules_index.kernels.sift import MOST_CHUNK_ROWS

CHUNK_ROWS = MOST_CHUNK_ROWS
"""Rows that are keyed and sliced together."""
KEY_CODES = 4
"""Most codes of a set that a conjunction is keyed by."""


@dataclass(frozen=True)
class Frequencies:
    """How often rows have what conjunctions ask for.

    sets     [sets] float32, the share of the rows in each set
    alike    [attributes] the number of codes that, being all alike, would be as often equal in two rows
    matches  [conjunctions] the share of the rows that satisfy each, None where it was not counted
    """

    sets: np.ndarray
    alike: np.ndarray
    matches: np.ndarray | None = None


class Expected:
    """Some of a rule set's conjunctions, each of which stands for `scale` of them, and what scanning costs.

    terms, and of each: share [terms] float32 of the rows in its set, widths [terms] codes of it, narrow_enough [terms]
    bool, whether a conjunction may be keyed by it. lengths [conjunctions] terms; matches, counted [conjunctions] the
    share of the rows that satisfy each, as expected, and as counted, or 0; scan_cost [conjunctions] float32.
    """

    def __init__(self, c: Conjunctions, conjunctions: np.ndarray, frequencies: Frequencies, scale: float) -> None:
        self.c = c
        self.alike = frequencies.alike
        self.costs = measured_costs()
        self.count = len(conjunctions)
        self.scale = scale
        self.terms = terms_of(c, conjunctions)
        named = self.terms.attribute != GATE
        self.share = np.ones(len(named), np.float32)
        self.share[named] = frequencies.sets[self.terms.which[named]]
        self.widths = np.full(len(named), KEY_CODES + 1)
        self.widths[named] = set_widths(c)[self.terms.which[named]]
        self.narrow_enough = self.widths <= KEY_CODES
        self.lengths = np.bincount(self.terms.owner, minlength=self.count)
        counted = frequencies.matches
        self.counted = np.zeros(self.count) if counted is None else counted
        self.matches = self._expected_matches() if counted is None else counted
        self.scan_cost = self._scan_cost()

    def _scan_cost(self) -> np.ndarray:
        """Of every conjunction [conjunctions] float32 in a block of bitmaps that are filled already."""
        order = np.lexsort((self.share, self.terms.owner))
        lengths = self.lengths
        begin = np.cumsum(lengths) - lengths
        padded = np.append(self.share[order], np.float32(1))
        first = padded[np.where(lengths > 0, begin, len(order))]
        second = padded[np.where(lengths > 1, begin + 1, len(order))]
        words = BLOCK_ROWS / 64
        left = words * -np.expm1(-64.0 * first * second)
        further = np.where(left > FEW_WORDS, self.costs.narrow, left * self.costs.word / BLOCK_ROWS)
        found = -np.expm1(-BLOCK_ROWS * self.matches) / BLOCK_ROWS
        cost = self.costs.scan + further * (lengths > 2)
        cost += self.costs.survivor * self.matches + self.costs.found * found
        return np.asarray(cost, np.float32)

    def _expected_matches(self) -> np.ndarray:
        logs = np.bincount(self.terms.owner, weights=np.log(np.maximum(self.share, 1e-12)), minlength=self.count)
        return np.asarray(np.exp(logs))

    def bitmaps(self, of: np.ndarray) -> float:
        """About how many bitmaps these conjunctions need: one for every end of an interval."""
        at = of[self.terms.owner] & (self.terms.attribute != GATE)
        ends = 2 * self.scale * np.bincount(self.terms.attribute[at], minlength=len(self.c.sizes))
        return float(np.minimum(ends, np.minimum(self.c.sizes, COARSE_CODES)).sum())
