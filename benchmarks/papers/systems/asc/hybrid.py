"""Searches a hybrid-sequence: micro-arrows from single regions in addition to a macro-sequence (ASC paper, 4.3)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from benchmarks.jit import jit
from rules_index.engines.asc.constructs import SelectionConstructs
from rules_index.engines.asc.evaluate import Bitmaps, Order, evaluate, next_attribute
from rules_index.kernels.vectors import count_bits

OPEN_ROWS, PASSED, OFFERED, COVERED_ROWS, DROPPED = range(5)
"""The counters of an arrow. Of rows whose path is not yet a cover set: their number, the evaluation instances passed,
and the bits that were open. Of rows whose path is a cover set: their number, and how many were dropped."""


class Tallies(NamedTuple):
    """The counters of a monitoring period, for the regions in which paths ended.

    place    [regions] int32, the region's index in the others, -1 where no path ended
    regions  [places] int64
    counts   [places, p-attributes + 1, 5] int64: for the arrows to the attributes of the macro-sequence, then for the
             macro-arrow
    """

    place: np.ndarray
    regions: np.ndarray
    counts: np.ndarray


class HybridSearch:
    """Extends all hybrid paths by one arrow per monitoring period of `tau` rows, in n - 1 periods.

    A row follows the arrows found so far, up to the first region of its path that no row reached in an earlier period.
    There the path ends, and the candidate arrows are measured on the row. At the end of the period every such region is
    settled: it gets a micro-arrow to the candidate that filtered best, unless the macro-arrow filtered better or there
    was no candidate. A region in which no path ends keeps the macro-arrow.

    The candidates of a row are the attributes in the region's `cab` that are not on its path. They are measured by
    conditional selectivity over the row's open queries (ones of GRB) while the path is not a cover set, then by the
    tuple dropping ratio. If rows of both kinds end in a region, the kind with more rows decides. Ties: the earlier in
    the macro-sequence. Those two rules, and that a region is measured on all paths that end in it, are ours: the paper
    describes a single path. The constructs must not change meanwhile.
    """

    def __init__(self, constructs: SelectionConstructs, macro: np.ndarray, tau: int) -> None:
        if tau < 1:
            raise ValueError(f"a monitoring period has at least one row, not tau = {tau}")
        self._constructs = constructs
        regions = len(constructs.bitmaps.qrb)
        self.order: Order = constructs.order(macro, np.full(regions, -1, np.int32))
        """The sequence so far."""
        self._settled = np.zeros(regions, np.uint8)
        self._tau = tau
        b = constructs.bitmaps
        self._cab = candidate_arrows(b.qrb, b.qub, b.region_at, constructs.sizes, b.words)
        self._periods = max(0, len(macro) - 1)
        self._seen = 0
        self.monitoring_cost = 0
        """The constructs evaluated for monitoring: those of the path, and the candidates at its end."""
        places = min(tau, regions)
        self._tallies = Tallies(
            np.full(regions, -1, np.int32),
            np.zeros(places, np.int64),
            np.zeros((places, len(macro) + 1, DROPPED + 1), np.int64),
        )
        self._ends = 0

    @property
    def remaining(self) -> int:
        """The rows that are still to be observed; 0 when the sequence is complete."""
        return self._periods * self._tau - self._seen

    def observe(self, codes: np.ndarray) -> None:
        """Monitors rows, codes [attributes, rows] int32, at most `remaining` of them."""
        at = 0
        while at < codes.shape[1] and self.remaining:
            upto = min(codes.shape[1], at + self._tau - self._seen)
            rows = self._constructs.rows(codes[:, at:upto])
            self._ends, cost = _observe(
                rows, self._constructs.bitmaps, self.order, self._settled, self._cab,
                self._tallies, self._ends,
            )  # fmt: skip
            self.monitoring_cost += cost
            self._seen += upto - at
            at = upto
            if self._seen == self._tau:
                self._settle()

    def _settle(self) -> None:
        regions = self._tallies.regions[: self._ends]
        counts = self._tallies.counts[: self._ends].astype(np.float64)
        with np.errstate(invalid="ignore"):
            selectivity = counts[..., PASSED] / counts[..., OFFERED]
            kept = 1 - counts[..., DROPPED] / counts[..., COVERED_ROWS]
        covering = counts[:, -1, COVERED_ROWS] > counts[:, -1, OPEN_ROWS]
        # 0 / 0 if no row was measured
        values = np.nan_to_num(np.where(covering[:, None], kept, selectivity), nan=np.inf)
        candidates, macro_arrow = values[:, :-1], values[:, -1]
        lowest = candidates.min(axis=1, initial=np.inf)
        better = np.isfinite(lowest) & (lowest <= macro_arrow)
        best = self.order.macro[candidates.argmin(axis=1)]
        self.order.arrows[regions] = np.where(better, best, -1)
        self._settled[regions] = 1
        self._tallies.place[regions] = -1
        self._periods -= 1
        self._seen = self._ends = 0


@jit
def _observe(
    codes: np.ndarray,
    bitmaps: Bitmaps,
    order: Order,
    settled: np.ndarray,
    cab: np.ndarray,
    tallies: Tallies,
    ends: int,
) -> tuple[int, int]:
    """Adds rows to the tallies, in which `ends` regions are in use. Returns the number of regions in which a path has
    ended in this period, and the number of constructs evaluated."""
    cost = 0
    number = len(order.macro)
    grb = np.empty(bitmaps.words, np.uint64)
    uncovered = np.empty(bitmaps.words, np.uint64)
    geb = np.empty(codes.shape[0], np.uint8)
    for row in range(codes.shape[1]):
        for word in range(bitmaps.words):
            grb[word] = bitmaps.live[word]
            uncovered[word] = bitmaps.live[word]
        geb[:] = 0
        attribute = order.macro[0]
        position = 0
        for _ in range(1, number):
            region = bitmaps.region_at[attribute] + codes[attribute, row]
            left = evaluate(grb, bitmaps.qrb, region, bitmaps.words)
            geb[attribute] = 1
            cost += 1
            for word in range(bitmaps.words):
                uncovered[word] &= ~bitmaps.qub[attribute, word]
            if not left:
                break
            attribute, position, _by_micro = next_attribute(order, region, geb, position)
            if settled[region] == 0:
                place = tallies.place[region]
                if place < 0:
                    place = np.int32(ends)
                    tallies.place[region] = place
                    tallies.regions[place] = region
                    tallies.counts[place] = 0
                    ends += 1
                cost += _measure(
                    codes, row, region, attribute, bitmaps, order, cab, geb, grb, uncovered.any(), tallies.counts[place]
                )
                break
    return ends, cost


@jit
def _measure(
    codes: np.ndarray,
    row: int,
    region: int,
    target: int,
    bitmaps: Bitmaps,
    order: Order,
    cab: np.ndarray,
    geb: np.ndarray,
    grb: np.ndarray,
    is_open: bool,
    counts: np.ndarray,
) -> int:
    """Adds a row to the counters of the candidate arrows from a region, and of its macro-arrow to `target`. Returns the
    number of constructs evaluated. is_open: whether the path is not a cover set."""
    cost = 0
    number = len(order.macro)
    offered = np.int64(0)
    for word in range(bitmaps.words):
        offered += np.int64(count_bits(grb[word]))
    for candidate in range(number):
        attribute = order.macro[candidate]
        if geb[attribute] != 0 or (cab[region, attribute] == 0 and attribute != target):
            continue
        target_region = bitmaps.region_at[attribute] + codes[attribute, row]
        passed = np.int64(0)
        for word in range(bitmaps.words):
            passed += np.int64(count_bits(grb[word] & bitmaps.qrb[target_region, word]))
        cost += 1
        if cab[region, attribute] != 0:
            _add(counts[candidate], is_open, passed, offered)
        if attribute == target:
            _add(counts[number], is_open, passed, offered)
    return cost


@jit
def _add(counts: np.ndarray, is_open: bool, passed: int, offered: int) -> None:
    """Adds one row to the counters [5] int64 of an arrow. passed, offered: evaluation instances passed, and bits that
    were open."""
    if is_open:
        counts[OPEN_ROWS] += 1
        counts[PASSED] += passed
        counts[OFFERED] += offered
    else:
        counts[COVERED_ROWS] += 1
        counts[DROPPED] += passed == 0


@jit
def candidate_arrows(
    qrb: np.ndarray, qub: np.ndarray, region_at: np.ndarray, sizes: np.ndarray, words: int
) -> np.ndarray:
    """`cab` [regions, attributes] uint8: 1 where attribute j, other than the region's own, can still fail a query that
    the region leaves open: `ra[r].qrb & ASC(A_j).qub != 0` (section 4.1)."""
    attributes = len(sizes)
    cab = np.zeros((len(qrb), attributes), np.uint8)
    for attribute in range(attributes):
        if region_at[attribute] < 0:
            continue
        for region in range(region_at[attribute], region_at[attribute] + sizes[attribute]):
            for other in range(attributes):
                if other == attribute:
                    continue
                for word in range(words):
                    if qrb[region, word] & qub[other, word] != 0:
                        cab[region, other] = 1
                        break
    return cab
