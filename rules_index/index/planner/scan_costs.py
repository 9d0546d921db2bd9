"""What it is expected to cost to scan conjunctions, in each of the ways that the kernel has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rules_index.index.layout import BLOCK_ROWS, coarse_shift
from rules_index.index.planner.costs import Costs
from rules_index.index.planner.expected import Expected
from rules_index.kernels.equality_blocks import CODES, NAMED, WIDEST, shuffles
from rules_index.kernels.llvm import GROUP, LANES
from rules_index.kernels.scan import FEW_WORDS
from rules_index.kernels.summaries import FEW_SHARED, RAREST, SUMMARY_TERMS
from rules_index.kernels.transposed_lists import RULES, TRANSPOSED_HITS


@dataclass(frozen=True)
class ScanMethod:
    """One way to scan: nanoseconds a row of each conjunction [conjunctions] float32, and of what some of them
    [conjunctions] bool share. That function is not to refer to what has the way: a cycle would keep, for a while, all
    the terms in memory."""

    each: np.ndarray
    shared: Callable[[np.ndarray], float]


class ScanCosts:
    """Expected costs of scanning.

    ways: by name, "bitmaps", "summaries" (`kernels.summaries`) and "equality blocks" (`kernels.equality_blocks`), those
    that these conjunctions allow. best: the name of the one that is cheapest for all; each [conjunctions] float32,
    nanoseconds a row of each conjunction in it.
    """

    def __init__(self, of: Expected, costs: Costs, scan_method: str | None = None) -> None:
        """scan_method: the only one to reckon with, where these conjunctions allow it."""
        self.of = of
        self.costs = costs
        self._every = np.ones(of.count, bool)
        scan_methods = self.scan_methods = self._scan_methods(scan_method)
        self.best = min(scan_methods, key=lambda name: self._cost(scan_methods[name], self._every))
        self.each = scan_methods[self.best].each

    def _scan_methods(self, only: str | None) -> dict[str, ScanMethod]:
        makers = {
            "bitmaps": self._by_bitmaps,
            "summaries": self._by_summaries,
            "equality blocks": self._by_equality_blocks,
        }
        made = {name: make() for name, make in makers.items() if only in (None, name)}
        if only is None and made["summaries"] is None:
            # the kernel makes equality blocks in place of summaries
            made["equality blocks"] = None
        # what some conjunctions allow all others may not
        return {name: scan_method for name, scan_method in made.items() if scan_method is not None} or {
            "bitmaps": self._by_bitmaps()
        }

    def cost(self, scanned: np.ndarray) -> float:
        """A row in the conjunctions `scanned` [conjunctions] bool, and in what they share, the cheapest way."""
        return min(self._cost(scan_method, scanned) for scan_method in self.scan_methods.values())

    def cost_of_all(self) -> float:
        """A row in all conjunctions, where lists may be made from bitmaps (`kernels.transposed_lists`)."""
        matches = float(self.of.matches.sum())
        if matches * RULES <= TRANSPOSED_HITS * self.of.count or "bitmaps" not in self.scan_methods:
            return self.cost(self._every)
        costs = self.costs
        more = matches * (costs.transposed_hit_ns - costs.hit_ns) + costs.transpose_ns * self.of.count
        # what coarse codes tell for sure is not checked then
        more -= costs.check_ns * float(self.of.sure.sum())
        return self._cost(self.scan_methods["bitmaps"], self._every) + self.of.scale * more

    def _cost(self, scan_method: ScanMethod, scanned: np.ndarray) -> float:
        return self.of.scale * float(scan_method.each[scanned].sum(dtype=np.float64)) + scan_method.shared(scanned)

    def _by_bitmaps(self) -> ScanMethod:
        """In a block of bitmaps that are filled already, each conjunction for itself."""
        of, costs = self.of, self.costs
        first, second = of.rarest(of.share, 2)
        words = BLOCK_ROWS / 64
        left = words * -np.expm1(-64.0 * first * second)
        further = np.where(left > FEW_WORDS, costs.narrow_ns, left * costs.word_ns / BLOCK_ROWS)
        cost = costs.scan_ns + further * (of.lengths > 2) + self._matches_cost()
        return ScanMethod(np.asarray(cost, np.float32), lambda scanned: costs.bitmap_ns * of.bitmaps(scanned))

    def _by_summaries(self) -> ScanMethod | None:
        """In a block of summaries that are made already: whether rows may satisfy a conjunction by the rarest terms,
        and in which groups of words by all."""
        of, terms, costs = self.of, self.of.terms, self.costs
        # an interval of some codes has no summary
        single = (terms.pieces != 1) | (terms.low == terms.high)
        held = of.rarest(1 - (1 - np.where(single, of.share, 1.0)) ** 8, SUMMARY_TERMS)
        rarest, all_ = held[:RAREST].prod(0), held.prod(0)
        places = BLOCK_ROWS / 8
        likely = -np.expm1(-places * (rarest + of.matches))
        met = places * (all_ + of.matches)
        groups = GROUP * -np.expm1(-met / GROUP)
        bitmaps = of.bitmaps(self._every)
        # then the kernel has none
        if of.scale * of.count * SUMMARY_TERMS < bitmaps or groups.sum() > FEW_SHARED * of.count:
            return None
        looking = costs.summary_hit_ns * likely + costs.word_group_ns * groups
        cost = costs.summary_scan_ns + looking / BLOCK_ROWS + self._matches_cost()

        def shared(scanned: np.ndarray) -> float:
            bitmaps = of.bitmaps(scanned)
            return bitmaps * (costs.bitmap_ns + costs.summary_ns)

        return ScanMethod(np.asarray(cost, np.float32), shared)

    def _by_equality_blocks(self) -> ScanMethod | None:
        """Filed under their rarest codes, and compared with rows 64 at once."""
        of, terms, costs = self.of, self.of.terms, self.costs
        interval = np.flatnonzero(terms.pieces == 1)
        shift = coarse_shift(of.c.sizes)[terms.attribute[interval]]
        code = terms.low[interval] >> shift
        single = code == terms.high[interval] >> shift
        codes, code = interval[single], code[single]
        attributes = len(np.unique(terms.attribute[codes]))
        named = np.bincount(terms.owner[codes], minlength=of.count)
        if not shuffles() or attributes > WIDEST or not of.count or named.min() == 0:
            return None
        rarest = np.lexsort((of.share[codes], terms.owner[codes]))[np.cumsum(named) - named]
        first = codes[rarest]
        place = terms.attribute[first].astype(np.int64) * CODES + code[rarest]
        _, at, filed = np.unique(place, return_inverse=True, return_counts=True)
        equality_blocks = np.ceil(of.scale * filed / LANES) / (of.scale * filed)
        share = np.ones(len(terms.owner), np.float32)
        share[codes] = of.share[codes]
        left = np.maximum(of.rarest(share, 1 + NAMED).prod(0), of.matches)
        cost = costs.equality_block_ns * of.share[first] * equality_blocks[at] + costs.equality_hit_ns * left
        cost += costs.hit_ns * of.matches + costs.check_ns * of.checked
        all_tested = bool((np.minimum(named, 1 + NAMED) == of.lengths).all()) and not of.c.disjunctions

        def shared(scanned: np.ndarray) -> float:
            filled = 0.0 if all_tested else of.bitmaps(scanned)
            return costs.row_by_code_ns * attributes + costs.bitmap_ns * filled

        return ScanMethod(np.asarray(cost, np.float32), shared)

    def _matches_cost(self) -> np.ndarray:
        found = -np.expm1(-BLOCK_ROWS * self.of.matches) / BLOCK_ROWS
        alone = self.costs.hit_ns * self.of.matches + self.costs.conjunction_hit_ns * found
        return np.asarray(alone + self.costs.check_ns * self.of.checked)
