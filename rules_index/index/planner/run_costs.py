"""Chooses the attributes to sort runs by, and estimates the cost of conjunctions in sorted runs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from rules_index.index.conjunction_arrays import DISJUNCTION
from rules_index.index.planner.cardinality import CHUNK_ROWS, Expected
from rules_index.index.planner.costs import Costs
from rules_index.kernels.sorted_runs import RUN_WORDS


class RunCosts:
    """The expected costs of conjunctions in sorted runs; `expected` are the expectations for these conjunctions."""

    def __init__(self, expected: Expected, costs: Costs) -> None:
        self.expected = expected
        self.costs = costs

    def choose(self, cost: np.ndarray) -> list[int]:
        """The attributes by which sorting saves most, ascending; each saves more than it costs. cost [conjunctions]:
        what each conjunction costs otherwise; 0 for those that are not considered."""
        chosen: list[int] = []
        best = cost.copy()
        each = self._sorting(cost > 0) / self.expected.scale
        of_terms = self.expected.terms.attribute[self._by_attribute]
        owner, in_runs = self._cost_of(self._by_attribute, cost)
        total = np.bincount(of_terms, np.maximum(0, best[owner] - in_runs), minlength=len(self.expected.c.sizes))
        saved = {a: float(total[a]) for a in np.flatnonzero(total > each).tolist()}
        while saved:
            attribute = max(saved, key=lambda a: saved[a])
            # what an attribute saves can only shrink as others are chosen: it is computed again only for the best one
            # (lazy greedy)
            saved[attribute] = self._saved(attribute, cost, best)
            if saved[attribute] < max(saved.values()):
                continue
            if saved.pop(attribute) <= each:
                break
            chosen.append(attribute)
            owner, in_runs = self._run_cost(attribute, cost)
            best[owner] = np.minimum(best[owner], in_runs)
        return sorted(chosen)

    def _saved(self, attribute: int, cost: np.ndarray, best: np.ndarray) -> float:
        """What sorting by an attribute saves beyond the runs that are chosen already; `best` [conjunctions] is the cost
        with these."""
        owner, in_runs = self._run_cost(attribute, cost)
        return float(np.maximum(0, best[owner] - in_runs).sum())

    @cached_property
    def _by_attribute(self) -> np.ndarray:
        """The terms by which a conjunction can be in a sorted run, grouped by attribute."""
        at = np.flatnonzero((self.expected.terms.attribute != DISJUNCTION) & (self.expected.terms.pieces > 0))
        return np.asarray(at[np.argsort(self.expected.terms.attribute[at], kind="stable")])

    @cached_property
    def _starts(self) -> np.ndarray:
        """The offset [attributes + 1] of every attribute in `_by_attribute`."""
        attributes = np.arange(len(self.expected.c.sizes) + 1)
        return np.searchsorted(self.expected.terms.attribute[self._by_attribute], attributes)

    def _run_cost(self, attribute: int, cost: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The conjunctions that can be in the run of an attribute, and the cost of each there."""
        return self._cost_of(self._by_attribute[self._starts[attribute] : self._starts[attribute + 1]], cost)

    def _cost_of(self, at: np.ndarray, cost: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """For each of the terms `at`, its conjunction, and the conjunction's cost in a run sorted by the term's
        attribute."""
        owner = self.expected.terms.owner[at]
        # the blocks at both ends of the interval also have rows outside of it
        reached = np.minimum(1, self.expected.share[at] + np.float32(2 * 64 * RUN_WORDS / CHUNK_ROWS))
        in_runs = (
            reached * self.costs.run_scan_ns * self.expected.lengths[owner]
            + self.costs.hit_ns * self.expected.matches[owner]
        )
        in_runs += self.costs.check_ns * self.expected.checked[owner]
        return owner, np.where(cost[owner] > 0, in_runs, 0).astype(np.float32)

    def place(self, sort_attributes: Sequence[int], cost: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The sort attribute of every conjunction, -1 if no run is cheaper than `cost` [conjunctions]; and the
        conjunction's cost there, or else `cost`."""
        sorted_by, best = np.full(self.expected.count, -1, np.int32), cost.copy()
        for attribute in sort_attributes:
            owner, in_runs = self._run_cost(attribute, cost)
            better = in_runs < best[owner]
            sorted_by[owner[better]], best[owner[better]] = attribute, in_runs[better]
        return sorted_by, best

    def cost(self, sorted_by: np.ndarray, sort_attributes: Sequence[int], in_bitmaps: np.ndarray) -> float:
        """The cost per row of sorted runs. sorted_by [conjunctions]: the attribute of each conjunction's run, or -1.
        in_bitmaps [conjunctions] bool: which conjunctions are in sorted runs or scanned, and so need bitmaps."""
        if not len(sort_attributes):
            return 0.0
        each = 0.0
        every = np.ones(self.expected.count, np.float32)
        for attribute in sort_attributes:
            owner, in_runs = self._run_cost(attribute, every)
            each += float(in_runs[sorted_by[owner] == attribute].sum(dtype=np.float64))
        return self.expected.scale * each + len(sort_attributes) * self._sorting(in_bitmaps)

    def _sorting(self, in_bitmaps: np.ndarray) -> float:
        """The fixed cost of one sorted run: sorting the rows, and filling the bitmaps of the conjunctions
        `in_bitmaps`."""
        bitmaps = self.costs.small_block_bitmap_ns * self.expected.bitmaps(in_bitmaps)
        return self.costs.run_sort_ns + self.costs.run_gather_ns * len(self.expected.c.sizes) + bitmaps
