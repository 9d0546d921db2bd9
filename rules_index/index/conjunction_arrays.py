"""The conjunctions that all engines share: terms over region codes, as flat arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rules_index.arrays import segment_ids

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

    def rules_that_name(self, attribute: int) -> np.ndarray:
        """The rules [.] int32, ascending, that name an attribute, directly or through shared disjunctions."""
        of_rules, conjunction = int(self.disjunction_start[-1]), segment_ids(self.start)
        is_disjunction = self.terms[:, 0] == DISJUNCTION
        naming, found = self.terms[:, 0] == attribute, -1
        while naming.sum() > found:
            found = naming.sum()
            named = np.unique(conjunction[naming])
            disjunctions = self.target[named[named < of_rules]]
            naming |= is_disjunction & np.isin(self.terms[:, 1], disjunctions)
        return np.unique(self.target[named[named >= of_rules]])
