"""Which conjunctions are scanned, keyed or sliced: by what each is expected to cost a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from rules_index.engines.choice import shares
from rules_index.engines.choice.expected import CHUNK_ROWS, Expected, Frequencies
from rules_index.engines.choice.keys import Keys
from rules_index.engines.choice.slices import Slices
from rules_index.engines.flat import Conjunctions
from rules_index.engines.layout import Placement
from rules_index.kernels.dense import DENSE, RULES
from rules_index.kernels.lists import MANY

SAMPLED = 20_000
"""Conjunctions by which tables and slicings are chosen."""
GAIN = 0.95
"""Up to so much of the cost of scanning all, tables and slicings are chosen: where little is to be gained, what large
tables cost beside other work in the caches would be lost."""


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
    code_shares = shares.code_shares(c, sample)
    sets, alike = shares.set_shares(c, code_shares), shares.alike_codes(c, code_shares)
    first = int(c.gate_start[-1])
    count = len(c.target) - first
    draw = np.random.default_rng(0)
    drawn: np.ndarray = np.arange(count)
    if count > SAMPLED:
        drawn = np.sort(draw.choice(count, SAMPLED, replace=False))
    matches = None if sample is None or not sample.shape[1] else shares.matches(c, first + drawn, sample)
    scale = max(1, count) / max(1, len(drawn))
    planner = _Planner(Expected(c, first + drawn, Frequencies(sets, alike, matches), scale))
    scanning = planner.choose(keyed=False, sliced=False)
    found = [planner.choose(keyed, sliced) for keyed, sliced in ((False, True), (True, False), (True, True))]
    if any(each.scans for each in found):
        # the last scanned conjunctions may cost the bitmaps of all attributes
        found += [planner.choose(keyed=True, sliced=sliced, eagerness=10.0) for sliced in (False, True)]
    best = min(found, key=lambda each: each.cost)
    nowhere = np.full(count, -1, np.int32)
    scan_all = Plan(Placement(nowhere, nowhere, (), ()), scanning.cost)
    if best.cost >= GAIN * scanning.cost:
        return scan_all, scan_all
    if len(drawn) < count:
        planner = _Planner(Expected(c, np.arange(first, first + count), Frequencies(sets, alike), 1.0))
    placement = planner.place(best)
    return scan_all, Plan(replace(placement, shares=code_shares), best.cost)


@dataclass(frozen=True)
class _Choice:
    """The tables and slicings of a placement, whether it scans, and its expected cost."""

    tables: list[tuple[int, ...]]
    slicings: list[int]
    scans: bool
    cost: float
    eagerness: float


class _Planner:
    """Expected costs of placements."""

    def __init__(self, of: Expected) -> None:
        self.of = of
        self.keys = Keys(of)
        self.slices = Slices(of)

    def choose(self, keyed: bool, sliced: bool, eagerness: float = 1.0) -> _Choice:
        """With or without tables and slicings; `eagerness` is how much dearer scanning is taken to be."""
        cost = self.of.scan_cost * np.float32(eagerness)
        slicings = self.slices.choose(cost) if sliced else []
        best = self.slices.place(slicings, cost)[1]
        tables = self.keys.choose(best) if keyed else []
        table, key_cost, entries = self.keys.place(tables, best)
        rest = table < 0
        slicings = self.slices.choose(np.where(rest, cost, 0)) if sliced else []
        slicing, slice_cost = self.slices.place(slicings, self.of.scan_cost)
        scanned = rest & (slicing < 0)
        total = key_cost[~rest].sum() + slice_cost[rest].sum()
        matches = float(self.of.matches.sum())
        if scanned.all():
            if matches * RULES > DENSE * self.of.count:
                total -= (self.of.costs.survivor - self.of.costs.dense) * matches
        elif len(tables) != 1 or slicings or scanned.any():
            # then those that are scanned are put into order with all others
            many = matches * self.of.scale > MANY / 2
            total += (self.of.costs.many if many else self.of.costs.order) * matches
        total = float(total) * self.of.scale + self._fixed(tables, (table, entries), slicings, scanned, rest & ~scanned)
        return _Choice(tables, slicings, bool(scanned.any()), total, eagerness)

    def place(self, choice: _Choice) -> Placement:
        """The conjunctions in the tables and slicings chosen."""
        cost = self.of.scan_cost * np.float32(choice.eagerness)
        table, _, _ = self.keys.place(choice.tables, self.slices.place(choice.slicings, cost)[1])
        slicing, _ = self.slices.place(choice.slicings, self.of.scan_cost)
        slicing[table >= 0] = -1
        return Placement(table, slicing, choice.tables, choice.slicings, CHUNK_ROWS)

    def _fixed(
        self,
        tables: Sequence[tuple[int, ...]],
        filed: tuple[np.ndarray, np.ndarray],
        slicings: Sequence[int],
        scanned: np.ndarray,
        sliced: np.ndarray,
    ) -> float:
        """What every row costs, whatever it matches; `filed` are the table and the entries of every conjunction."""
        costs, attributes = self.of.costs, len(self.of.c.sizes)
        keyed = filed[0] >= 0
        entries = np.bincount(filed[0][keyed], weights=filed[1][keyed], minlength=len(tables)) * self.of.scale
        total = costs.coarsen * attributes + sum(map(self.keys.probe_cost, tables, entries.tolist()))
        if scanned.any() or self.of.c.gates:
            total += self.of.bitmap_cost(scanned)
        if slicings:
            each = costs.sort + costs.gather * attributes + costs.few_rows * self.of.bitmaps(scanned | sliced)
            total += each * len(slicings)
        return total
