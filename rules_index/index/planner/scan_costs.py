"""Estimates the cost of scanning conjunctions, by each scan method of the kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rules_index.index.layout import BLOCK_ROWS, coarse_shift
from rules_index.index.planner.cardinality import Expected
from rules_index.index.planner.costs import Costs
from rules_index.kernels.equality_blocks import CODES, NAMED, WIDEST, shuffles
from rules_index.kernels.llvm import GROUP, LANES
from rules_index.kernels.scan import FEW_WORDS
from rules_index.kernels.summaries import FEW_SHARED, RAREST, SUMMARY_TERMS
from rules_index.kernels.transposed_lists import RULES, TRANSPOSED_HITS


@dataclass(frozen=True)
class ScanMethod:
    """A scan method and its costs.

    each    [conjunctions] float32, nanoseconds per row of each conjunction
    shared  a function from the conjunctions that are scanned, [conjunctions] bool, to the nanoseconds per row of the
            work that they share. It must not refer to the object that has the method: the cycle would keep all terms in
            memory until the garbage collector runs.
    """

    each: np.ndarray
    shared: Callable[[np.ndarray], float]


class ScanCosts:
    """The expected costs of scanning.

    scan_methods  the methods that are possible for these conjunctions, by name: "bitmaps", "summaries"
                  (`kernels.summaries`) and "equality blocks" (`kernels.equality_blocks`)
    best          the name of the method that is cheapest for all of them
    each          [conjunctions] float32, nanoseconds per row of each conjunction by that method
    """

    def __init__(self, expected: Expected, costs: Costs, scan_method: str | None = None) -> None:
        """expected: the expectations for the conjunctions. scan_method: the only method to consider, if it is possible
        for them."""
        self.expected = expected
        self.costs = costs
        self._every = np.ones(expected.count, bool)
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
            # the kernel uses equality blocks only in place of summaries
            made["equality blocks"] = None
        # a method that is possible for a sample of conjunctions may be impossible for all of them
        return {name: scan_method for name, scan_method in made.items() if scan_method is not None} or {
            "bitmaps": self._by_bitmaps()
        }

    def cost(self, scanned: np.ndarray) -> float:
        """Nanoseconds per row of the conjunctions `scanned` [conjunctions] bool, with the work that they share, by the
        method that is cheapest for them."""
        return min(self._cost(scan_method, scanned) for scan_method in self.scan_methods.values())

    def cost_of_all(self) -> float:
        """Nanoseconds per row if all conjunctions are scanned, so that lists can be made by transposing bitmaps
        (`kernels.transposed_lists`)."""
        matches = float(self.expected.matches.sum())
        if matches * RULES <= TRANSPOSED_HITS * self.expected.count or "bitmaps" not in self.scan_methods:
            return self.cost(self._every)
        costs = self.costs
        more = matches * (costs.transposed_hit_ns - costs.hit_ns) + costs.transpose_ns * self.expected.count
        # rows that coarse codes decide are not checked exactly then
        more -= costs.check_ns * float(self.expected.decided.sum())
        return self._cost(self.scan_methods["bitmaps"], self._every) + self.expected.scale * more

    def _cost(self, scan_method: ScanMethod, scanned: np.ndarray) -> float:
        return self.expected.scale * float(scan_method.each[scanned].sum(dtype=np.float64)) + scan_method.shared(
            scanned
        )

    def _by_bitmaps(self) -> ScanMethod:
        """The method "bitmaps": intersects the terms' bitmaps."""
        expected, costs = self.expected, self.costs
        first, second = expected.rarest(expected.share, 2)
        words = BLOCK_ROWS / 64
        # the expected number of words of a block that the two rarest terms leave
        left = words * -np.expm1(-64.0 * first * second)
        further = np.where(left > FEW_WORDS, costs.narrow_ns, left * costs.word_ns / BLOCK_ROWS)
        cost = costs.scan_ns + further * (expected.lengths > 2) + self._matches_cost()
        return ScanMethod(np.asarray(cost, np.float32), lambda scanned: costs.bitmap_ns * expected.bitmaps(scanned))

    def _by_summaries(self) -> ScanMethod | None:
        """The method "summaries": the summaries of a conjunction's rarest terms say whether it can have a row in a
        block, and then all its summaries say in which groups of words. None if the kernel would not use it."""
        expected, terms, costs = self.expected, self.expected.terms, self.costs
        # an interval of several codes has no summary
        single = (terms.pieces != 1) | (terms.low == terms.high)
        # the shares of summary bits, each for eight rows, that the rarest terms leave
        bit_shares = expected.rarest(1 - (1 - np.where(single, expected.share, 1.0)) ** 8, SUMMARY_TERMS)
        rarest, all_terms = bit_shares[:RAREST].prod(0), bit_shares.prod(0)
        summary_bits = BLOCK_ROWS / 8
        # by the rarest terms, the probability that any bit of a block is left; by all, how many groups have one
        passing = -np.expm1(-summary_bits * (rarest + expected.matches))
        groups = GROUP * -np.expm1(-summary_bits * (all_terms + expected.matches) / GROUP)
        bitmaps = expected.bitmaps(self._every)
        # the conditions of `kernels.summaries.choose_summary_terms`
        if expected.scale * expected.count * SUMMARY_TERMS < bitmaps or groups.sum() > FEW_SHARED * expected.count:
            return None
        looking = costs.summary_hit_ns * passing + costs.word_group_ns * groups
        cost = costs.summary_scan_ns + looking / BLOCK_ROWS + self._matches_cost()

        def shared(scanned: np.ndarray) -> float:
            bitmaps = expected.bitmaps(scanned)
            return bitmaps * (costs.bitmap_ns + costs.summary_ns)

        return ScanMethod(np.asarray(cost, np.float32), shared)

    def _by_equality_blocks(self) -> ScanMethod | None:
        """The method "equality blocks": conjunctions are filed under their rarest codes, and a row is compared with 64
        at once. None if it is not possible for these conjunctions."""
        expected, terms, costs = self.expected, self.expected.terms, self.costs
        interval = np.flatnonzero(terms.pieces == 1)
        shift = coarse_shift(expected.c.sizes)[terms.attribute[interval]]
        code = terms.low[interval] >> shift
        single = code == terms.high[interval] >> shift
        codes, code = interval[single], code[single]
        attributes = len(np.unique(terms.attribute[codes]))
        named = np.bincount(terms.owner[codes], minlength=expected.count)
        if not shuffles() or attributes > WIDEST or not expected.count or named.min() == 0:
            return None
        rarest = np.lexsort((expected.share[codes], terms.owner[codes]))[np.cumsum(named) - named]
        filed_under = codes[rarest]
        list_of = terms.attribute[filed_under].astype(np.int64) * CODES + code[rarest]
        _, list_number, conjunctions = np.unique(list_of, return_inverse=True, return_counts=True)
        # blocks per conjunction: 1 / LANES if a list's last block is full
        blocks = np.ceil(expected.scale * conjunctions / LANES) / (expected.scale * conjunctions)
        share = np.ones(len(terms.owner), np.float32)
        share[codes] = expected.share[codes]
        passing = np.maximum(expected.rarest(share, 1 + NAMED).prod(0), expected.matches)
        cost = (
            costs.equality_block_ns * expected.share[filed_under] * blocks[list_number]
            + costs.equality_hit_ns * passing
        )
        cost += costs.hit_ns * expected.matches + costs.check_ns * expected.checked
        all_tested = bool((np.minimum(named, 1 + NAMED) == expected.lengths).all()) and not expected.c.disjunctions

        def shared(scanned: np.ndarray) -> float:
            filled = 0.0 if all_tested else expected.bitmaps(scanned)
            return costs.row_by_code_ns * attributes + costs.bitmap_ns * filled

        return ScanMethod(np.asarray(cost, np.float32), shared)

    def _matches_cost(self) -> np.ndarray:
        """Nanoseconds per row of each conjunction for its hits and exact checks."""
        found = -np.expm1(-BLOCK_ROWS * self.expected.matches) / BLOCK_ROWS
        alone = self.costs.hit_ns * self.expected.matches + self.costs.conjunction_hit_ns * found
        return np.asarray(alone + self.costs.check_ns * self.expected.checked)
