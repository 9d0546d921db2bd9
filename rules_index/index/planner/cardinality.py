"""What is expected of conjunctions: how many rows satisfy their terms."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rules_index.index.conjunction_arrays import DISJUNCTION, Conjunctions
from rules_index.index.layout import set_widths, terms_of
from rules_index.kernels.bitmaps import COARSE_CODES
from rules_index.kernels.prefilter import MOST_CHUNK_ROWS

CHUNK_ROWS = MOST_CHUNK_ROWS
"""Rows of a chunk for hash tables and sorted runs."""
KEY_CODES = 4
"""The most codes of a set by which a conjunction is filed in a hash table."""


@dataclass(frozen=True)
class Frequencies:
    """How often rows satisfy what conjunctions ask for.

    codes    [codes] the share of rows with each code, one attribute after the other
    sets     [sets] float32, the share of rows in each set
    matches  [conjunctions] the share of rows that satisfy each conjunction; None where it was not counted
    """

    codes: np.ndarray
    sets: np.ndarray
    matches: np.ndarray | None = None


class Expected:
    """Expectations for some of a rule set's conjunctions, each of which stands for `scale` of them.

    terms, and for each: share [terms] float32 of rows in its set, widths [terms] the number of its codes, narrow_enough
    [terms] bool whether its codes can be part of a table's key. alike [attributes]: the number of equally frequent
    coarse codes that would be met as often as the codes of such terms.

    For each conjunction [conjunctions]: lengths, the number of its terms; matches and counted, the share of rows that
    satisfy it, as expected, and as counted or 0; checked, the number of codes of a row that need an exact check because
    they are rounded; sure, how many of these the coarse codes decide nevertheless.
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
        self.matches = self._held(self.share) if counted is None else counted
        self.checked, self.sure = self._checked()
        self.alike = self._alike()

    def rarest(self, share: np.ndarray, count: int) -> np.ndarray:
        """The smallest shares [count, conjunctions] among each conjunction's terms, 1 where it has fewer."""
        order = np.lexsort((share, self.terms.owner))
        begin = np.cumsum(self.lengths) - self.lengths
        padded = np.append(share[order], share.dtype.type(1))
        return np.array([padded[np.where(self.lengths > k, begin + k, len(order))] for k in range(count)])

    def _held(self, share: np.ndarray) -> np.ndarray:
        """The share of rows [conjunctions] that satisfy all terms of a conjunction, given the share of each term."""
        logs = np.bincount(self.terms.owner, weights=np.log(np.maximum(share, 1e-12)), minlength=self.count)
        return np.asarray(np.exp(logs))

    def _checked(self) -> tuple[np.ndarray, np.ndarray]:
        # the appended one stands for shared disjunctions
        rounded = np.append(self.c.sizes, 0)[self.terms.attribute] > COARSE_CODES
        if not rounded.any():
            return np.zeros(self.count), np.zeros(self.count)
        count = np.bincount(self.terms.owner[rounded], minlength=self.count)
        # an interval can end inside a coarse code on either side
        left, inner = (
            self._held(np.clip(self.share + by * rounded / COARSE_CODES, 0, 1).astype(np.float32)) for by in (1, -1)
        )
        return count * np.maximum(left, self.matches), count * np.minimum(inner, self.matches)

    def _alike(self) -> np.ndarray:
        at, attributes = np.flatnonzero(self.narrow_enough), len(self.c.sizes)
        owner = self.terms.attribute[at]
        share = np.bincount(owner, weights=self.share[at] / self.widths[at], minlength=attributes)
        count = np.bincount(owner, minlength=attributes)
        return np.asarray(np.clip(count / np.maximum(share, 1e-9), 1, np.clip(self.c.sizes, 1, COARSE_CODES)))

    @property
    def named(self) -> int:
        """The number of attributes that conjunctions name."""
        return len(np.unique(self.terms.attribute[self.terms.attribute != DISJUNCTION]))

    def bitmaps(self, of: np.ndarray) -> float:
        """The approximate number of bitmaps that these conjunctions need: one for every end of an interval."""
        at = of[self.terms.owner] & (self.terms.attribute != DISJUNCTION)
        ends = 2 * self.scale * np.bincount(self.terms.attribute[at], minlength=len(self.c.sizes))
        return float(np.minimum(ends, np.minimum(self.c.sizes, COARSE_CODES)).sum())
