"""Which conjunctions are scanned, keyed or sliced: by what each is expected to cost a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rules_index.index.conjunction_arrays import Conjunctions
from rules_index.index.layout import Placement, scan_all
from rules_index.index.planner import shares
from rules_index.index.planner.costs import Costs, measured_costs
from rules_index.index.planner.expected import CHUNK_ROWS, Expected, Frequencies
from rules_index.index.planner.run_costs import Slices
from rules_index.index.planner.scan_costs import Scanning
from rules_index.index.planner.table_costs import Filed, Keys
from rules_index.kernels.bitmaps import COARSE_CODES
from rules_index.kernels.lists import MANY

SAMPLED = 20_000
"""Conjunctions by which tables and slicings are chosen."""
GAIN = 0.9
"""Up to so much of the cost of scanning all, tables and slicings are chosen: no cost is known better, and large tables
cost more beside other work in the caches."""


@dataclass(frozen=True)
class Plan:
    """A placement, how many conjunctions it puts where, and its expected nanoseconds a row, matches not counted."""

    placement: Placement
    cost: float

    @property
    def keyed(self) -> int:
        """Conjunctions in tables."""
        return int((self.placement.table >= 0).sum())

    @property
    def sliced(self) -> int:
        """Conjunctions that are sliced."""
        return int((self.placement.slicing >= 0).sum())

    @property
    def scanned(self) -> int:
        """Conjunctions that are scanned."""
        return len(self.placement.table) - self.keyed - self.sliced


def plans(c: Conjunctions, sample: np.ndarray | None = None) -> tuple[Plan, Plan]:
    """Every conjunction scanned, and the cheapest of scanning, keying, slicing and their mixtures.

    sample: codes [attributes, rows] of some rows.
    """
    planner = Planner(expected(c, sampled(c), sample, counted=True), measured_costs())
    scanning = planner.scan_all()
    found = [planner.choose(keyed, sliced) for keyed, sliced in ((False, True), (True, False), (True, True))]
    if any(each.scanned.any() for each in found):
        # the last scanned conjunctions may cost the bitmaps of all attributes
        found += [planner.choose(keyed=True, sliced=sliced, eagerness=10.0) for sliced in (False, True)]
    cost, best = min(((planner.cost(each), each) for each in found), key=lambda each: each[0])
    whole = Plan(scan_all(c), planner.cost(scanning))
    if cost >= GAIN * whole.cost:
        return whole, whole
    return whole, Plan(placement(c, sample, planner, best), cost)


def placement(c: Conjunctions, sample: np.ndarray | None, planner: Planner, choice: Choice) -> Placement:
    """All conjunctions of rules in the tables and slicings that were chosen for some."""
    count = len(c.target) - int(c.disjunction_start[-1])
    if count > planner.of.count:
        every = expected(c, np.arange(count), sample, counted=False)
        planner = Planner(every, planner.costs, planner.scanning.best)
    return planner.place(choice)


def sampled(c: Conjunctions) -> np.ndarray:
    """Some of the conjunctions of rules, all where there are few."""
    count = len(c.target) - int(c.disjunction_start[-1])
    if count <= SAMPLED:
        return np.arange(count)
    return np.sort(np.random.default_rng(0).choice(count, SAMPLED, replace=False))


def expected(c: Conjunctions, drawn: np.ndarray, sample: np.ndarray | None, counted: bool) -> Expected:
    """What is expected of the conjunctions of rules `drawn`, their matches `counted` in the sample or guessed."""
    code_shares = shares.code_shares(c, sample)
    sets = shares.set_shares(c, code_shares)
    first = int(c.disjunction_start[-1])
    some = counted and sample is not None and sample.shape[1] > 0
    matches = shares.matches(c, first + drawn, sample) if some and sample is not None else None
    scale = max(1, len(c.target) - first) / max(1, len(drawn))
    return Expected(c, first + drawn, Frequencies(code_shares, sets, matches), scale)


@dataclass(frozen=True)
class Choice:
    """What becomes of conjunctions: where they are filed, and the slicing [conjunctions] int32 that each is in, one of
    `slicings` or -1; all others are scanned. eagerness: how much dearer scanning was taken to be."""

    filed: Filed
    slicings: tuple[int, ...]
    slicing: np.ndarray
    eagerness: float = 1.0

    @property
    def scanned(self) -> np.ndarray:
        """The conjunctions [conjunctions] bool that are scanned."""
        return np.asarray((self.filed.table < 0) & (self.slicing < 0))


class Planner:
    """Expected costs of placements."""

    def __init__(self, of: Expected, costs: Costs, scan_method: str | None = None) -> None:
        """way: the only one to scan in, where it is allowed (`scanning.Scanning`)."""
        self.of = of
        self.costs = costs
        self.scanning = Scanning(of, costs, scan_method)
        self.keys = Keys(of, costs)
        self.slices = Slices(of, costs)

    def scan_all(self) -> Choice:
        """Every conjunction scanned."""
        filed, _ = self.keys.place((), self.scanning.each)
        return Choice(filed, (), np.full(self.of.count, -1, np.int32))

    def choose(self, keyed: bool, sliced: bool, eagerness: float = 1.0) -> Choice:
        """What costs least with tables, with slicings or both; `eagerness` is how much dearer scanning is taken to
        be."""
        cost = self.scanning.each * np.float32(eagerness)
        slicings = self.slices.choose(cost) if sliced else []
        best = self.slices.place(slicings, cost)[1]
        tables = self.keys.choose(best) if keyed else []
        filed, _ = self.keys.place(tables, best)
        slicings = self.slices.choose(np.where(filed.table < 0, cost, 0)) if sliced else []
        return self._with_slicings(filed, slicings, eagerness)

    def place(self, choice: Choice) -> Placement:
        """The conjunctions in the tables and slicings chosen."""
        cost = self.scanning.each * np.float32(choice.eagerness)
        filed, _ = self.keys.place(choice.filed.tables, self.slices.place(choice.slicings, cost)[1])
        slicing = self._with_slicings(filed, choice.slicings, choice.eagerness).slicing
        return Placement(filed.table, slicing, filed.tables, choice.slicings, CHUNK_ROWS, self.of.code_shares)

    def _with_slicings(self, filed: Filed, slicings: Sequence[int], eagerness: float) -> Choice:
        """What is filed, and the rest in slicings where that costs less than scanning."""
        slicing, _ = self.slices.place(slicings, self.scanning.each)
        slicing[filed.table >= 0] = -1
        return Choice(filed, tuple(slicings), slicing, eagerness)

    def cost(self, choice: Choice) -> float:
        """Nanoseconds a row: the sum of the kernel's steps, how often a row has each times what it costs."""
        costs, sizes = self.costs, self.of.c.sizes
        rest, scanned = choice.filed.table < 0, choice.scanned
        copied = costs.byte if sizes.max(initial=0) <= COARSE_CODES else costs.coarsen
        total = costs.row + copied * self.of.named + self.keys.cost(choice.filed)
        total += self.slices.cost(choice.slicing, choice.slicings, rest)
        if scanned.all():
            return total + self.scanning.cost_of_all()
        if scanned.any():
            total += self.scanning.cost(scanned)
        if len(choice.filed.tables) != 1 or choice.slicings or scanned.any():
            # then those that are scanned are put into order with all others
            matches = float(self.of.matches.sum()) * self.of.scale
            total += (costs.many if matches > MANY / 2 else costs.order) * matches
        return total
