"""Chooses which conjunctions are scanned, in hash tables or in sorted runs, by their expected cost per row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rules_index.index.conjunction_arrays import Conjunctions
from rules_index.index.layout import AccessPlan, scan_all
from rules_index.index.planner import selectivity
from rules_index.index.planner.cardinality import CHUNK_ROWS, Expected, Frequencies
from rules_index.index.planner.costs import Costs, measured_costs
from rules_index.index.planner.hash_table_costs import TableAssignment, TableCosts
from rules_index.index.planner.run_costs import RunCosts
from rules_index.index.planner.scan_costs import ScanCosts
from rules_index.kernels.bitmaps import COARSE_CODES
from rules_index.kernels.lists import MANY

SAMPLED = 20_000
"""The number of conjunctions, drawn at random, for which tables and sorted runs are chosen."""
GAIN = 0.9
"""Tables and sorted runs are used only if they are expected to cost less than this share of scanning all conjunctions.
Costs are not known more exactly, and large tables cost more when other work shares the caches."""


@dataclass(frozen=True)
class CostedPlan:
    """An access plan and its expected cost in nanoseconds per row, not counting matches."""

    access_plan: AccessPlan
    cost: float

    @property
    def keyed(self) -> int:
        """The number of conjunctions in hash tables."""
        return int((self.access_plan.table >= 0).sum())

    @property
    def in_runs(self) -> int:
        """The number of conjunctions in sorted runs."""
        return int((self.access_plan.sorted_by >= 0).sum())

    @property
    def scanned(self) -> int:
        """The number of conjunctions that are scanned."""
        return len(self.access_plan.table) - self.keyed - self.in_runs


def plans(c: Conjunctions, sample: np.ndarray | None = None) -> tuple[CostedPlan, CostedPlan]:
    """Two plans: scanning every conjunction, and the cheapest mixture of scanning, hashing and sorting. Both are the
    same plan if no mixture is cheaper (`GAIN`).

    sample: codes [attributes, rows] of some rows, or None.
    """
    planner = Planner(expectations(c, sampled(c), sample, counted=True), measured_costs())
    scanning = planner.scan_all()
    found = [planner.choose(keyed, in_runs) for keyed, in_runs in ((False, True), (True, False), (True, True))]
    if any(each.scanned.any() for each in found):
        # scanning even a few conjunctions can require the bitmaps of all attributes, so plans that scan none are tried,
        # too
        found += [planner.choose(keyed=True, in_runs=in_runs, eagerness=10.0) for in_runs in (False, True)]
    cost, best = min(((planner.cost(each), each) for each in found), key=lambda each: each[0])
    whole = CostedPlan(scan_all(c), planner.cost(scanning))
    if cost >= GAIN * whole.cost:
        return whole, whole
    return whole, CostedPlan(access_plan(c, sample, planner, best), cost)


def access_plan(c: Conjunctions, sample: np.ndarray | None, planner: Planner, candidate: CandidatePlan) -> AccessPlan:
    """The plan of all conjunctions of rules, with the tables and sorted runs that were chosen for a random sample of
    them."""
    count = len(c.target) - int(c.disjunction_start[-1])
    if count > planner.expected.count:
        every = expectations(c, np.arange(count), sample, counted=False)
        planner = Planner(every, planner.costs, planner.scanning.best)
    return planner.place(candidate)


def sampled(c: Conjunctions) -> np.ndarray:
    """A random sample of the conjunctions of rules, as ascending numbers; all of them if there are few."""
    count = len(c.target) - int(c.disjunction_start[-1])
    if count <= SAMPLED:
        return np.arange(count)
    return np.sort(np.random.default_rng(0).choice(count, SAMPLED, replace=False))


def expectations(c: Conjunctions, drawn: np.ndarray, sample: np.ndarray | None, counted: bool) -> Expected:
    """The expectations for the conjunctions `drawn`. counted: count their matches in the sample of rows instead of
    guessing them."""
    code_shares = selectivity.code_shares(c, sample)
    sets = selectivity.set_shares(c, code_shares)
    first = int(c.disjunction_start[-1])
    some = counted and sample is not None and sample.shape[1] > 0
    matches = selectivity.matches(c, first + drawn, sample) if some and sample is not None else None
    scale = max(1, len(c.target) - first) / max(1, len(drawn))
    return Expected(c, first + drawn, Frequencies(code_shares, sets, matches), scale)


@dataclass(frozen=True)
class CandidatePlan:
    """A plan that the planner considers. Conjunctions in neither a table nor a sorted run are scanned.

    assignment       the hash table of each conjunction
    sort_attributes  the attributes of the sorted runs
    sorted_by        [conjunctions] int32, the one of `sort_attributes` in whose sorted run the conjunction is, or -1
    eagerness        the factor on the cost of scanning with which tables and runs were chosen
    """

    assignment: TableAssignment
    sort_attributes: tuple[int, ...]
    sorted_by: np.ndarray
    eagerness: float = 1.0

    @property
    def scanned(self) -> np.ndarray:
        """Which conjunctions [conjunctions] bool are scanned."""
        return np.asarray((self.assignment.table < 0) & (self.sorted_by < 0))


class Planner:
    """Estimates the costs of access plans."""

    def __init__(self, expected: Expected, costs: Costs, scan_method: str | None = None) -> None:
        """expected: the expectations for the conjunctions that are planned. scan_method: the only scan method to
        consider, if it is possible for them (`scan_costs.ScanCosts`)."""
        self.expected = expected
        self.costs = costs
        self.scanning = ScanCosts(expected, costs, scan_method)
        self.tables = TableCosts(expected, costs)
        self.runs = RunCosts(expected, costs)

    def scan_all(self) -> CandidatePlan:
        """The plan that scans every conjunction."""
        assignment, _ = self.tables.place((), self.scanning.each)
        return CandidatePlan(assignment, (), np.full(self.expected.count, -1, np.int32))

    def choose(self, keyed: bool, in_runs: bool, eagerness: float = 1.0) -> CandidatePlan:
        """The cheapest plan with tables, sorted runs or both. eagerness: a factor on the cost of scanning."""
        cost = self.scanning.each * np.float32(eagerness)
        sort_attributes = self.runs.choose(cost) if in_runs else []
        best = self.runs.place(sort_attributes, cost)[1]
        tables = self.tables.choose(best) if keyed else []
        assignment, _ = self.tables.place(tables, best)
        sort_attributes = self.runs.choose(np.where(assignment.table < 0, cost, 0)) if in_runs else []
        return self._with_runs(assignment, sort_attributes, eagerness)

    def place(self, candidate: CandidatePlan) -> AccessPlan:
        """The access plan of this planner's conjunctions with the tables and sort attributes of a candidate."""
        cost = self.scanning.each * np.float32(candidate.eagerness)
        assignment, _ = self.tables.place(
            candidate.assignment.tables, self.runs.place(candidate.sort_attributes, cost)[1]
        )
        sorted_by = self._with_runs(assignment, candidate.sort_attributes, candidate.eagerness).sorted_by
        return AccessPlan(
            assignment.table,
            sorted_by,
            assignment.tables,
            candidate.sort_attributes,
            CHUNK_ROWS,
            self.expected.code_shares,
        )

    def _with_runs(
        self, assignment: TableAssignment, sort_attributes: Sequence[int], eagerness: float
    ) -> CandidatePlan:
        """The candidate with this table assignment in which the other conjunctions are in sorted runs, where that costs
        less than scanning."""
        sorted_by, _ = self.runs.place(sort_attributes, self.scanning.each)
        sorted_by[assignment.table >= 0] = -1
        return CandidatePlan(assignment, tuple(sort_attributes), sorted_by, eagerness)

    def cost(self, candidate: CandidatePlan) -> float:
        """Nanoseconds per row: the sum over the kernel's steps of how often they are executed times their cost."""
        costs, sizes = self.costs, self.expected.c.sizes
        rest, scanned = candidate.assignment.table < 0, candidate.scanned
        copied = costs.copy_byte_ns if sizes.max(initial=0) <= COARSE_CODES else costs.coarsen_ns
        total = costs.row_ns + copied * self.expected.named + self.tables.cost(candidate.assignment)
        total += self.runs.cost(candidate.sorted_by, candidate.sort_attributes, rest)
        if scanned.all():
            return total + self.scanning.cost_of_all()
        if scanned.any():
            total += self.scanning.cost(scanned)
        if len(candidate.assignment.tables) != 1 or candidate.sort_attributes or scanned.any():
            # hits from several sources are not in the order of the lists: all matches must be sorted
            matches = float(self.expected.matches.sum()) * self.expected.scale
            total += (costs.large_hit_sort_ns if matches > MANY / 2 else costs.hit_sort_ns) * matches
        return total
