"""What is expected of conjunctions: how many rows they hold, and what it costs to scan them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rules_index.engines.choice.costs import measured_costs
from rules_index.engines.flat import GATE, Conjunctions
from rules_index.engines.layout import BLOCK_ROWS, set_widths, terms_of
from rules_index.kernels.bitmaps import COARSE_CODES
from rules_index.kernels.code_vectors import DIGITS
from rules_index.kernels.llvm import GROUP
from rules_index.kernels.scan import FEW_WORDS
from rules_index.kernels.sift import MOST_CHUNK_ROWS
from rules_index.kernels.summaries import FEW_LOOKS, RAREST, SKIMMED

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
    share of the rows that satisfy each, as expected, and as counted, or 0; scan_cost [conjunctions] float32; skims,
    whether that is by summaries (`kernels.summaries`), and halved, whether by halves of bitmaps.
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
        every = self.bitmaps(np.ones(self.count, bool))
        alone, (skimming, groups) = self._bitmaps_cost(), self._summaries_cost()
        codes_only = bool((self.terms.low == self.terms.high).all() and self.lengths.max(initial=0) <= SKIMMED)
        self.halved = codes_only and bool(self.scale * groups.sum() * SKIMMED <= FEW_LOOKS * GROUP * every)
        # each of the bitmaps that are looked at is two then
        skimming += self.halved * self.costs.group / BLOCK_ROWS * groups
        more = self._bitmap_cost(every, skims=True) - self._bitmap_cost(every, skims=False)
        self.skims = bool(self.scale * skimming.sum() + more < self.scale * alone.sum())
        self.scan_cost = np.asarray(skimming if self.skims else alone, np.float32)

    def bitmap_cost(self, of: np.ndarray) -> float:
        """A row's bits in all bitmaps that scanning these conjunctions [conjunctions] bool needs, and in summaries."""
        return self._bitmap_cost(self.bitmaps(of), self.skims)

    def _bitmap_cost(self, bitmaps: float, skims: bool) -> float:
        if not skims:
            return bitmaps * self.costs.bitmap
        filled = min(bitmaps, 2 * DIGITS * len(self.c.sizes)) if self.halved else bitmaps
        return filled * self.costs.bitmap + bitmaps * self.costs.summary

    def _bitmaps_cost(self) -> np.ndarray:
        """Of every conjunction [conjunctions] float32 in a block of bitmaps that are filled already."""
        first, second = self._rarest(self.share, 2)
        words = BLOCK_ROWS / 64
        left = words * -np.expm1(-64.0 * first * second)
        further = np.where(left > FEW_WORDS, self.costs.narrow, left * self.costs.word / BLOCK_ROWS)
        cost = self.costs.scan + further * (self.lengths > 2)
        return np.asarray(cost + self._matches_cost(), np.float32)

    def _summaries_cost(self) -> tuple[np.ndarray, np.ndarray]:
        """Of every conjunction [conjunctions] in a block of summaries that are made already, and in how many groups of
        words it may have a row: whether it may by the rarest terms, and in which groups by all."""
        # an interval of some codes has no summary
        single = (self.terms.pieces != 1) | (self.terms.low == self.terms.high)
        held = self._rarest(1 - (1 - np.where(single, self.share, 1.0)) ** 8, SKIMMED)
        rarest, all_ = held[:RAREST].prod(0), held.prod(0)
        places = BLOCK_ROWS / 8
        likely = -np.expm1(-places * (rarest + self.matches))
        # in the summaries by turns an eight of rows is eight bits
        shared = places * (all_ * -np.expm1(-8.0 * all_) + 8 * self.matches)
        groups = GROUP * -np.expm1(-shared / GROUP)
        cost = self.costs.skim + (self.costs.likely * likely + self.costs.group * groups) / BLOCK_ROWS
        return np.asarray(cost + self._matches_cost()), groups

    def _matches_cost(self) -> np.ndarray:
        found = -np.expm1(-BLOCK_ROWS * self.matches) / BLOCK_ROWS
        return np.asarray(self.costs.survivor * self.matches + self.costs.found * found)

    def _rarest(self, share: np.ndarray, count: int) -> np.ndarray:
        """The least shares [count, conjunctions] of each conjunction's terms, 1 where it has fewer."""
        order = np.lexsort((share, self.terms.owner))
        begin = np.cumsum(self.lengths) - self.lengths
        padded = np.append(share[order], share.dtype.type(1))
        return np.array([padded[np.where(self.lengths > k, begin + k, len(order))] for k in range(count)])

    def _expected_matches(self) -> np.ndarray:
        logs = np.bincount(self.terms.owner, weights=np.log(np.maximum(self.share, 1e-12)), minlength=self.count)
        return np.asarray(np.exp(logs))

    def bitmaps(self, of: np.ndarray) -> float:
        """About how many bitmaps these conjunctions need: one for every end of an interval."""
        at = of[self.terms.owner] & (self.terms.attribute != GATE)
        ends = 2 * self.scale * np.bincount(self.terms.attribute[at], minlength=len(self.c.sizes))
        return float(np.minimum(ends, np.minimum(self.c.sizes, COARSE_CODES)).sum())
