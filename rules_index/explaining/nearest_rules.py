"""Finds the rules that a row comes nearest to matching: those with a conjunction of which its codes fail the fewest
terms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from rules_index.arrays import gather_indices, segment_ids
from rules_index.index.code_matrix import codes_of_values
from rules_index.index.conjunction_arrays import DISJUNCTION, Conjunctions
from rules_index.index.single_rows import values_of_row

if TYPE_CHECKING:
    from rules_index.index.compiled import CompiledRules, RuleId

MOST_TERMS = 2
"""Rules of which a row fails more terms are left out: a near miss changes at most two columns."""


class NearestRules:
    """Finds the rules of one index that rows nearly match."""

    def __init__(self, compiled: CompiledRules) -> None:
        self._compiled = compiled
        arrays = compiled.index.arrays
        self._conjunctions = Conjunctions(*(arrays[name] for name in Conjunctions.__dataclass_fields__))
        terms = self._conjunctions.terms
        self._is_disjunction = terms[:, 0] == DISJUNCTION
        # most terms occur in many rules, so each distinct one is tested once
        sets = max(1, len(self._conjunctions.set_start) - 1)
        named = terms[~self._is_disjunction].astype(np.int64)
        distinct, self._place = np.unique(named[:, 0] * sets + named[:, 1], return_inverse=True)
        self._distinct = np.stack([distinct // sets, distinct % sets], axis=1)

    def of(self, row: Mapping[str, Any], most: int) -> list[RuleId]:
        """Returns the ids of at most `most` rules that do not match a row, the rules of which it fails the fewest terms
        first.

        row: as for `CompiledRules.match_one`.
        """
        compiled, c = self._compiled, self._conjunctions
        values = values_of_row(row, compiled.inputs, compiled.time_zone)
        codes = codes_of_values(compiled.attributes, compiled.regions, values, 1)[0][:, 0].astype(np.int64)
        lacking = np.zeros(len(c.terms), np.int64)
        lacking[~self._is_disjunction] = self._unmet(codes)[self._place]
        self._count_disjunctions(lacking)
        first = int(c.disjunction_start[-1])
        if first >= len(c.target):
            return []
        counts = _sums(lacking, c.start)[first:]
        opens = np.flatnonzero(np.append(True, np.diff(c.target[first:]) != 0))
        fewest, rules = np.minimum.reduceat(counts, opens), c.target[first:][opens]
        near = np.flatnonzero((fewest > 0) & (fewest <= MOST_TERMS))
        near = near[np.argsort(fewest[near], kind="stable")][:most]
        return [compiled.ids[int(rule)].as_py() for rule in rules[near]]

    def _unmet(self, codes: np.ndarray) -> np.ndarray:
        """Returns which of the distinct terms [.] bool the codes [attributes] do not satisfy."""
        c = self._conjunctions
        gather, offsets = gather_indices(c.set_start, self._distinct[:, 1])
        term = segment_ids(offsets)
        wanted = codes[self._distinct[:, 0]][term]
        held = (c.intervals[gather, 0] <= wanted) & (wanted <= c.intervals[gather, 1])
        unmet = np.ones(len(self._distinct), bool)
        unmet[term[held]] = False
        return unmet

    def _count_disjunctions(self, lacking: np.ndarray) -> None:
        """Sets the count of each term that names a shared disjunction: how many terms fail in the disjunction's nearest
        conjunction."""
        c = self._conjunctions
        found = np.zeros(c.disjunctions, np.int64)
        for disjunction in range(c.disjunctions):
            least = []
            for conjunction in range(int(c.disjunction_start[disjunction]), int(c.disjunction_start[disjunction + 1])):
                span = slice(int(c.start[conjunction]), int(c.start[conjunction + 1]))
                named = self._is_disjunction[span]
                least.append(int(lacking[span][~named].sum() + found[c.terms[span][named, 1]].sum()))
            found[disjunction] = min(least, default=MOST_TERMS + 1)
        lacking[self._is_disjunction] = found[c.terms[self._is_disjunction, 1]]


def _sums(values: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """The sum of each segment."""
    whole = np.concatenate([[0], np.cumsum(values)])
    return np.asarray(whole[offsets[1:]] - whole[offsets[:-1]])
