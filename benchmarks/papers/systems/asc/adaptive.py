"""Evaluates rows along a sequence that is rearranged as their distribution changes (ASC paper, section 5.2)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from benchmarks.papers.systems.asc.hybrid import HybridSearch
from benchmarks.papers.systems.asc.macro import MacroSearch
from rules_index.engines.asc.constructs import SelectionConstructs
from rules_index.engines.asc.evaluate import COSTS, DROPPED, Order

USUAL_LAMBDA = 10_000
"""The rows of a recomputation period in figures 6 and 7."""


class Period(NamedTuple):
    """A recomputation period: its rows, the cost of evaluating them, the additional cost of monitoring (the paper does
    not say whether it counts), the dropping ratio d_cur, and whether the sequence is rearranged after the period."""

    rows: int
    constructs_evaluated: int
    monitoring_cost: int
    dropping_ratio: float
    rearranged: bool


class AdaptiveSearch:
    """Evaluates rows and monitors them for a better sequence.

    Monitoring begins with the first row and after each decision to rearrange. It searches a macro-sequence and, if
    `hybrid`, then micro-arrows for it; from then on the new sequence is used. Its d_init is the dropping ratio of the
    recomputation period in which it was completed (*ours*). After every later period of `lambda_` rows the sequence is
    rearranged if |(d_cur - d_init) / d_init| >= `mu` (equation 5). If d_init is 0, it is rearranged if d_cur is not 0;
    if mu is 0, always.

    `tau` is the number of rows of a monitoring period. By default it is the largest share of `lambda_` with which all
    monitoring fits into one recomputation period (*ours*). A change of the constructs restarts the monitoring.
    """

    def __init__(
        self,
        constructs: SelectionConstructs,
        lambda_: int = USUAL_LAMBDA,
        mu: float = 0.0,
        hybrid: bool = True,
        tau: int | None = None,
    ) -> None:
        self._constructs = constructs
        self._lambda = lambda_
        self._mu = mu
        self._hybrid = hybrid
        self._given_tau = tau
        self.periods: list[Period] = []
        """The periods that have ended."""
        self._counts = np.zeros(len(COSTS), np.int64)
        self._rows = self._monitoring_cost = 0
        self._d_init: float | None = None
        self._order = constructs.order()
        self._start_over()

    @property
    def order(self) -> Order:
        """The current evaluation sequence."""
        return self._order

    def search_rows(self, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray, dict[str, int]]:
        """(offsets, keys, costs) like `SelectionConstructs.search_rows`, for the next rows of the stream; the costs
        also have `monitoring_cost`."""
        if self._version != self._constructs.version:
            self._start_over()
        counts = [np.zeros(1, np.int64)]
        keys = [np.empty(0, np.int32)]
        total = np.zeros(len(COSTS) + 1, np.int64)
        at = 0
        while at < codes.shape[1]:
            step = self._lambda - self._rows
            if self._monitor is not None:
                step = min(step, self._monitor.remaining)
            rows = codes[:, at : at + step]
            offsets, found, costs = self._constructs.search_rows(rows, self._order)
            counts.append(np.diff(offsets))
            keys.append(found)
            monitored = self._observe(rows)
            spent = np.array([*costs.values(), monitored])
            total += spent
            self._counts += spent[:-1]
            self._monitoring_cost += monitored
            self._rows += rows.shape[1]
            at += rows.shape[1]
            if self._rows == self._lambda:
                self._end_period()
        names = (*COSTS, "monitoring_cost")
        return np.cumsum(np.concatenate(counts)), np.concatenate(keys), dict(zip(names, total.tolist(), strict=True))

    def _start_over(self) -> None:
        """Orders the p-attributes as in the last macro-sequence, appends new ones, and starts monitoring."""
        self._version = self._constructs.version
        attributes = self._constructs.attributes
        former = self._order.macro[np.isin(self._order.macro, attributes)]
        self._order = self._constructs.order(np.append(former, np.setdiff1d(attributes, former)))
        searches = 2 if self._hybrid else 1
        self._tau = self._given_tau or max(1, self._lambda // max(1, searches * len(attributes)))
        if searches * (len(attributes) - 1) * self._tau > self._lambda:
            raise ValueError(f"monitoring {len(attributes)} attributes does not fit into lambda_ = {self._lambda} rows")
        self._start_monitoring()

    def _start_monitoring(self) -> None:
        self._d_init = None
        self._monitor: MacroSearch | HybridSearch | None = MacroSearch(self._constructs, self._tau)
        self._advance()

    def _observe(self, rows: np.ndarray) -> int:
        """Passes rows to the search that is monitoring, if there is one. Returns the constructs that it evaluated."""
        if self._monitor is None:
            return 0
        before = self._monitor.monitoring_cost
        self._monitor.observe(rows)
        cost = self._monitor.monitoring_cost - before
        self._advance()
        return cost

    def _advance(self) -> None:
        """Goes on from a complete macro-sequence to the search for its micro-arrows, and from a complete search to
        using the new sequence."""
        monitor = self._monitor
        if isinstance(monitor, MacroSearch) and monitor.remaining == 0:
            if self._hybrid:
                monitor = HybridSearch(self._constructs, monitor.macro, self._tau)
            else:
                self._order, monitor = self._constructs.order(monitor.macro), None
        if isinstance(monitor, HybridSearch) and monitor.remaining == 0:
            self._order, monitor = monitor.order, None
        self._monitor = monitor

    def _end_period(self) -> None:
        d_cur = int(self._counts[DROPPED]) / self._rows
        if self._monitor is None and self._d_init is None:
            self._d_init = d_cur
        rearranged = self._d_init is not None and self._must_rearrange(d_cur, self._d_init)
        self.periods.append(Period(self._rows, int(self._counts[0]), self._monitoring_cost, d_cur, rearranged))
        self._counts[:] = 0
        self._rows = self._monitoring_cost = 0
        if rearranged:
            self._start_monitoring()

    def _must_rearrange(self, d_cur: float, d_init: float) -> bool:
        if self._mu == 0:
            return True
        return d_cur > 0 if d_init == 0 else abs((d_cur - d_init) / d_init) >= self._mu
