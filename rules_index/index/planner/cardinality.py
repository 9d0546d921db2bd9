"""Estimates how many rows satisfy the terms of conjunctions, and whole conjunctions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rules_index.index.conjunction_arrays import DISJUNCTION, Conjunctions
from rules_index.index.layout import set_widths, terms_of
from rules_index.kernels.bitmaps import COARSE_CODES
from rules_index.kernels.prefilter import MOST_CHUNK_ROWS

CHUNK_ROWS = MOST_CHUNK_ROWS
"""Rows of a chunk if there are hash tables or sorted runs."""
KEY_CODES = 4
"""A conjunction can be filed in a hash table by a term whose set has at most so many codes."""


@dataclass(frozen=True)
class Frequencies:
    """Shares of rows.

    codes    [codes] with each code, one attribute after the other
    sets     [sets] float32, in each set
    matches  [conjunctions] that satisfy each conjunction; None if not counted
    """

    codes: np.ndarray
    sets: np.ndarray
    matches: np.ndarray | None = None


class Expected:
    """Expectations for some conjunctions of a rule set, each of which stands for `scale` conjunctions.

    terms          their terms, and for each term [terms]:
    share          float32, the share of rows in its set
    widths         the number of codes of its set
    narrow_enough  bool, whether its codes can be part of a table's key

    For each conjunction [conjunctions]:

    lengths        the number of its terms
    matches        the share of rows that satisfy it: counted, or else expected
    counted        the counted share; 0 if it was not counted
    checked        how many exact checks a row is expected to need because codes are rounded
    decided        how many of these the coarse codes decide nevertheless

    effective_codes  [attributes] with so many coarse codes, all equally frequent, an attribute would have the codes of
                     its narrow terms as often as it has them
    """

    def __init__(self, c: Conjunctions, conjunctions: np.ndarray, frequencies: Frequencies, scale: float) -> None:
        self.c = c
        self.code_shares = frequencies.codes
        self.count = len(conjunctions)
        self.scale = scale
        self.terms = terms_of(c, conjunctions)
        named = self.terms.attribute != DISJUNCTION
        self.share = np.ones(len(named), np.float32)
        self.share[named] = frequencies.sets[self.terms.which[named]]
        self.widths = np.full(len(named), KEY_CODES + 1)
        self.widths[named] = set_widths(c)[self.terms.which[named]]
        self.narrow_enough = self.widths <= KEY_CODES
        self.lengths = np.bincount(self.terms.owner, minlength=self.count)
        counted = frequencies.matches
        self.counted = np.zeros(self.count) if counted is None else counted
        self.matches = self._joint_share(self.share) if counted is None else counted
        self.checked, self.decided = self._checked()
        self.effective_codes = self._effective_codes()

    def rarest(self, share: np.ndarray, count: int) -> np.ndarray:
        """The `count` smallest of the shares [terms] of each conjunction's terms: [count, conjunctions], 1 if it has
        fewer terms."""
        order = np.lexsort((share, self.terms.owner))
        begin = np.cumsum(self.lengths) - self.lengths
        padded = np.append(share[order], share.dtype.type(1))
        return np.array([padded[np.where(self.lengths > k, begin + k, len(order))] for k in range(count)])

    def _joint_share(self, share: np.ndarray) -> np.ndarray:
        """The share of rows [conjunctions] that satisfy all terms of a conjunction, given the share [terms] of each;
        terms are assumed to be independent."""
        logs = np.bincount(self.terms.owner, weights=np.log(np.maximum(share, 1e-12)), minlength=self.count)
        return np.asarray(np.exp(logs))

    def _checked(self) -> tuple[np.ndarray, np.ndarray]:
        # -1, for shared disjunctions, reads the appended element
        rounded = np.append(self.c.sizes, 0)[self.terms.attribute] > COARSE_CODES
        if not rounded.any():
            return np.zeros(self.count), np.zeros(self.count)
        count = np.bincount(self.terms.owner[rounded], minlength=self.count)
        # on either side, an interval can end inside a coarse code
        left, inner = (
            self._joint_share(np.clip(self.share + by * rounded / COARSE_CODES, 0, 1).astype(np.float32))
            for by in (1, -1)
        )
        return count * np.maximum(left, self.matches), count * np.minimum(inner, self.matches)

    def _effective_codes(self) -> np.ndarray:
        at, attributes = np.flatnonzero(self.narrow_enough), len(self.c.sizes)
        owner = self.terms.attribute[at]
        share = np.bincount(owner, weights=self.share[at] / self.widths[at], minlength=attributes)
        count = np.bincount(owner, minlength=attributes)
        return np.asarray(np.clip(count / np.maximum(share, 1e-9), 1, np.clip(self.c.sizes, 1, COARSE_CODES)))

    @property
    def named(self) -> int:
        """The number of attributes that conjunctions name."""
        return len(np.unique(self.terms.attribute[self.terms.attribute != DISJUNCTION]))

    def bitmaps(self, chosen: np.ndarray) -> float:
        """The approximate number of bitmaps that the conjunctions `chosen` [conjunctions] bool need: one for every end
        of an interval."""
        at = chosen[self.terms.owner] & (self.terms.attribute != DISJUNCTION)
        ends = 2 * self.scale * np.bincount(self.terms.attribute[at], minlength=len(self.c.sizes))
        return float(np.minimum(ends, np.minimum(self.c.sizes, COARSE_CODES)).sum())
