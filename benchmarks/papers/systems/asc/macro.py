"""Searches a macro-sequence: the order of evaluating constructs that is best on average (ASC paper, section 4.2)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.jit import jit
from rules_index.engines.asc.constructs import SelectionConstructs
from rules_index.engines.asc.evaluate import Bitmaps, evaluate
from rules_index.kernels.vectors import count_bits


@dataclass(frozen=True)
class Choice:
    """The measurements of a monitoring period for the candidate sequences, each the sequence so far plus one attribute.

    attributes  [candidates] int32
    values      [candidates] float64: conditional selectivities, lowest best, until the sequence is a cover set
                (definition 3); then tuple dropping ratios, highest best (definition 4)
    covering    whether the sequence so far is a cover set
    chosen      the attribute appended
    """

    attributes: np.ndarray
    values: np.ndarray
    covering: bool
    chosen: int


class MacroSearch:
    """Extends a macro-sequence by one attribute per monitoring period of `tau` rows, in n - 1 periods (section 4.2.3).

    Phase 1 appends the attribute with the lowest conditional selectivity until the sequence is a cover set (not
    necessarily a minimal one, because the choice is greedy). Phase 2 appends the attribute with the highest tuple
    dropping ratio. Ties in phase 2 are decided by the lower selectivity of the attribute alone, measured in the first
    period; all other ties by the lower attribute (*ours*). The constructs must not change meanwhile.
    """

    def __init__(self, constructs: SelectionConstructs, tau: int) -> None:
        if tau < 1:
            raise ValueError(f"a monitoring period has at least one row, not tau = {tau}")
        self._constructs = constructs
        self._tau = tau
        self._left = constructs.attributes
        self._found: list[int] = []
        self._alone = np.zeros(len(constructs.sizes))
        self._start_period()
        self.choices: list[Choice] = []
        """The measurements and choices, by period."""
        self.monitoring_cost = 0
        """The constructs evaluated for monitoring: the sequence so far until the row is dropped, then each
        candidate."""
        self._finish_if_one_is_left()

    @property
    def remaining(self) -> int:
        """The rows that are still to be observed; 0 when the sequence is complete."""
        periods = max(0, len(self._left) - 1)
        return periods * self._tau - self._seen

    @property
    def macro(self) -> np.ndarray:
        """The sequence so far [.] int32; all p-attributes when no rows remain to be observed."""
        return np.array(self._found, np.int32)

    @property
    def cover(self) -> int:
        """The number of attributes at the start of the sequence that form the cover set; if it is not complete yet, the
        length of the sequence."""
        open_ = self._constructs.bitmaps.live.copy()
        for number, attribute in enumerate(self._found):
            if not open_.any():
                return number
            open_ &= ~self._constructs.bitmaps.qub[attribute]
        return len(self._found)

    def observe(self, codes: np.ndarray) -> None:
        """Monitors rows, codes [attributes, rows] int32, at most `remaining` of them."""
        at = 0
        while at < codes.shape[1] and self.remaining:
            upto = min(codes.shape[1], at + self._tau - self._seen)
            rows = self._constructs.rows(codes[:, at:upto])
            self.monitoring_cost += _observe(
                rows, self._constructs.bitmaps, self.macro, self._left, self._uncovered(),
                self._passed, self._dropped,
            )  # fmt: skip
            self._seen += upto - at
            at = upto
            if self._seen == self._tau:
                self._choose()

    def _uncovered(self) -> np.ndarray:
        """A bitmap of the queries that name no attribute of the sequence: the k - w of equation 1."""
        bitmaps = self._constructs.bitmaps
        uncovered = bitmaps.live.copy()
        for attribute in self._found:
            uncovered &= ~bitmaps.qub[attribute]
        return uncovered

    def _choose(self) -> None:
        uncovered = int(np.bitwise_count(self._uncovered()).sum())
        if uncovered:
            values = self._passed / (uncovered * self._tau)
            order = np.lexsort((self._left, values))
            if not self._found:
                self._alone[self._left] = values
        else:
            values = self._dropped / self._tau
            order = np.lexsort((self._left, self._alone[self._left], -values))
        chosen = int(self._left[order[0]])
        self.choices.append(Choice(self._left, values, uncovered == 0, chosen))
        self._append(chosen)
        self._finish_if_one_is_left()

    def _append(self, attribute: int) -> None:
        self._found.append(attribute)
        self._left = self._left[self._left != attribute]
        self._start_period()

    def _finish_if_one_is_left(self) -> None:
        if len(self._left) == 1:
            self._append(int(self._left[0]))

    def _start_period(self) -> None:
        self._seen = 0
        self._passed = np.zeros(len(self._left), np.int64)
        self._dropped = np.zeros(len(self._left), np.int64)


@jit
def _observe(
    codes: np.ndarray,
    bitmaps: Bitmaps,
    prefix: np.ndarray,
    candidates: np.ndarray,
    uncovered: np.ndarray,
    passed: np.ndarray,
    dropped: np.ndarray,
) -> int:
    """Adds rows to the instance counters of the candidate sequences. Returns the number of constructs evaluated.

    prefix: the sequence so far, which each of `candidates` would extend. passed [candidates] int64: evaluation
    instances passed, the ones of GRB among the `uncovered` bits (equation 2); dropped [candidates] int64: rows whose
    GRB is all zeros.
    """
    cost = 0
    grb = np.empty(bitmaps.words, np.uint64)
    for row in range(codes.shape[1]):
        for word in range(bitmaps.words):
            grb[word] = bitmaps.live[word]
        left = True
        for attribute in prefix:
            if left:
                left = evaluate(grb, bitmaps.qrb, bitmaps.region_at[attribute] + codes[attribute, row], bitmaps.words)
                cost += 1
        for candidate in range(len(candidates)):
            if not left:
                dropped[candidate] += 1
                continue
            region = bitmaps.region_at[candidates[candidate]] + codes[candidates[candidate], row]
            instances = np.int64(0)
            any_left = np.uint64(0)
            for word in range(bitmaps.words):
                kept = grb[word] & bitmaps.qrb[region, word]
                any_left |= kept
                instances += np.int64(count_bits(kept & uncovered[word]))
            passed[candidate] += instances
            dropped[candidate] += any_left == 0
            cost += 1
    return cost
