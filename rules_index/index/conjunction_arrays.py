"""The conjunctions that all engines share: terms over region codes, as flat arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

DISJUNCTION = -1
"""The attribute, in `Conjunctions.terms`, of a term that names a shared disjunction."""


@dataclass(frozen=True)
class Conjunctions:
    """All conjunctions of a rule set, independent of the engine. Arrays are int32 unless a dtype is given.

    sizes       [attributes] the number of codes of each attribute, including those of NULL and of rows that raised
    set_start   [sets + 1] int64, offsets into intervals
    intervals   [intervals, 2] closed, ascending, disjoint ranges of codes
    start       [conjunctions + 1] int64, offsets into terms
    terms       [terms, 2] (attribute, set), at most one per attribute, or (`DISJUNCTION`, shared disjunction)
    target      [conjunctions] the number of the shared disjunction, or the ordinal of the rule, that the conjunction
                belongs to; both ascend
    disjunction_start  [disjunctions + 1] the conjunctions of each shared disjunction; these come before those of rules,
                       and a shared disjunction names only earlier ones
    """

    sizes: np.ndarray
    set_start: np.ndarray
    intervals: np.ndarray
    start: np.ndarray
    terms: np.ndarray
    target: np.ndarray
    disjunction_start: np.ndarray

    @property
    def disjunctions(self) -> int:
        """Number of shared disjunctions."""
        return len(self.disjunction_start) - 1
