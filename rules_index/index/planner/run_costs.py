"""Which attributes conjunctions are sliced by, and what they are expected to cost there."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from rules_index.index.conjunction_arrays import DISJUNCTION
from rules_index.index.planner.costs import Costs
from rules_index.index.planner.expected import CHUNK_ROWS, Expected
from rules_index.kernels.sorted_runs import SLICE_WORDS


class Slices:
    """Expected costs of slicings."""

    def __init__(self, of: Expected, costs: Costs) -> None:
        self.of = of
        self.costs = costs

    def choose(self, cost: np.ndarray) -> list[int]:
        """The attributes by which slicing saves most, each only where it saves more than it costs."""
        chosen: list[int] = []
        best = cost.copy()
        each = self._sorting(cost > 0) / self.of.scale
        of_terms = self.of.terms.attribute[self._by_attribute]
        owner, sliced = self._cost_of(self._by_attribute, cost)
        total = np.bincount(of_terms, np.maximum(0, best[owner] - sliced), minlength=len(self.of.c.sizes))
        saved = {a: float(total[a]) for a in np.flatnonzero(total > each).tolist()}
        while saved:
            attribute = max(saved, key=lambda a: saved[a])
            saved[attribute] = self._saved(attribute, cost, best)
            if saved[attribute] < max(saved.values()):
                continue
            if saved.pop(attribute) <= each:
                break
            chosen.append(attribute)
            owner, sliced = self._slice_cost(attribute, cost)
            best[owner] = np.minimum(best[owner], sliced)
        return sorted(chosen)

    def _saved(self, attribute: int, cost: np.ndarray, best: np.ndarray) -> float:
        owner, sliced = self._slice_cost(attribute, cost)
        return float(np.maximum(0, best[owner] - sliced).sum())

    @cached_property
    def _by_attribute(self) -> np.ndarray:
        """The terms that a conjunction could be sliced by, those of one attribute together."""
        at = np.flatnonzero((self.of.terms.attribute != DISJUNCTION) & (self.of.terms.pieces > 0))
        return np.asarray(at[np.argsort(self.of.terms.attribute[at], kind="stable")])

    @cached_property
    def _starts(self) -> np.ndarray:
        """Where the terms of every attribute start among these [attributes + 1]."""
        attributes = np.arange(len(self.of.c.sizes) + 1)
        return np.searchsorted(self.of.terms.attribute[self._by_attribute], attributes)

    def _slice_cost(self, attribute: int, cost: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self._cost_of(self._by_attribute[self._starts[attribute] : self._starts[attribute + 1]], cost)

    def _cost_of(self, at: np.ndarray, cost: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of these terms the conjunction of each, and what it costs where it is sliced by the term."""
        owner = self.of.terms.owner[at]
        # where the interval begins and where it ends, a block has other rows too
        reached = np.minimum(1, self.of.share[at] + np.float32(2 * 64 * SLICE_WORDS / CHUNK_ROWS))
        sliced = reached * self.costs.slice * self.of.lengths[owner] + self.costs.survivor * self.of.matches[owner]
        sliced += self.costs.check * self.of.checked[owner]
        return owner, np.where(cost[owner] > 0, sliced, 0).astype(np.float32)

    def place(self, slicings: Sequence[int], cost: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The slicing attribute of every conjunction, -1 where it costs less without, and what it costs there."""
        slicing, best = np.full(self.of.count, -1, np.int32), cost.copy()
        for attribute in slicings:
            owner, sliced = self._slice_cost(attribute, cost)
            better = sliced < best[owner]
            slicing[owner[better]], best[owner[better]] = attribute, sliced[better]
        return slicing, best

    def cost(self, slicing: np.ndarray, slicings: Sequence[int], in_bitmaps: np.ndarray) -> float:
        """Of conjunctions in these slicings [conjunctions], -1 for none; those `in_bitmaps` [conjunctions] bool are
        sliced or scanned."""
        if not len(slicings):
            return 0.0
        each = 0.0
        every = np.ones(self.of.count, np.float32)
        for attribute in slicings:
            owner, sliced = self._slice_cost(attribute, every)
            each += float(sliced[slicing[owner] == attribute].sum(dtype=np.float64))
        return self.of.scale * each + len(slicings) * self._sorting(in_bitmaps)

    def _sorting(self, in_bitmaps: np.ndarray) -> float:
        """Of one slicing, whatever is sliced: sorting the rows, and filling the bitmaps of these conjunctions."""
        bitmaps = self.costs.few_rows * self.of.bitmaps(in_bitmaps)
        return self.costs.sort + self.costs.gather * len(self.of.c.sizes) + bitmaps
