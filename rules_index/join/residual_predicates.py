"""Residual predicates, which are tested on whole joined rows: values computed from several streams, and shared
disjunctions over several streams."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from rules_index.arrays import gather_indices
from rules_index.index.compiled import CompiledRules
from rules_index.index.computed_codes import Computed
from rules_index.index.hybrid import Hybrid
from rules_index.index.inputs import read_leaf, truth_values
from rules_index.join.lists import radix_order
from rules_index.join.local_conjuncts import NOTHING, Split
from rules_index.join.streams import ACROSS, Owners
from rules_index.join.window_partners import OrderedRows
from rules_index.kernels.bisection import in_intervals, in_list
from rules_index.kernels.jit import jit
from rules_index.language.evaluation.evaluated import Evaluated
from rules_index.language.typed import Leaf, leaves_of


class AcrossValues:
    """Values computed from several streams, for the joined rows of one batch of sides."""

    def __init__(self, compiled: CompiledRules, owners: Owners, tables: Sequence[pa.Table]) -> None:
        """tables: for each stream its rows, with columns named as the stream's leaves."""
        self._compiled = compiled
        self._stream = {leaf.name: stream for stream, leaves in enumerate(owners.leaves) for leaf in leaves}
        self._tables = tables
        self._read: dict[str, Evaluated] = {}

    def codes(self, attribute: int, rows: OrderedRows, positions: np.ndarray) -> np.ndarray:
        """The codes [joined rows] int32 of an attribute on joined rows, given their positions [streams, joined
        rows]."""
        expression = self._compiled.attributes[attribute]
        inputs = {leaf.name: self._values(leaf, rows, positions) for leaf in leaves_of(expression)}
        count = positions.shape[1]
        codes = np.empty(count, np.int32)
        Computed(count, inputs).encode(expression, self._compiled.regions[attribute], codes)
        return codes

    def _values(self, leaf: Leaf, rows: OrderedRows, positions: np.ndarray) -> Evaluated:
        if leaf.name not in self._stream:
            return Evaluated(pa.array(rows.time[positions].max(axis=0)).view(leaf.type))
        stream = self._stream[leaf.name]
        if leaf.name not in self._read:
            given = read_leaf(self._tables[stream], leaf)
            self._read[leaf.name] = truth_values(given) if isinstance(given, np.ndarray) else given
        column, row = self._read[leaf.name], rows.row[positions[stream]]
        return Evaluated(column.values.take(pa.array(row)), None if column.raised is None else column.raised[row])


class AcrossTests:
    """Tests the terms and shared disjunctions of conjunctions that need several streams."""

    def __init__(self, split: Split, owners: Owners) -> None:
        self._split = split
        self._owner = owners.stream_of
        # the index of an attribute of one stream among the attributes of that stream
        self._place = np.zeros(len(owners.stream_of), np.int64)
        for parts in split.parts:
            self._place[parts.attributes] = np.arange(len(parts.attributes))
        self._disjunctions = Hybrid.scanning(split.disjunctions.rules) if len(split.disjunctions) else None

    @property
    def needed(self) -> bool:
        """Whether there are any such terms or shared disjunctions."""
        return self._disjunctions is not None or len(self._split.across_terms) > 0

    def hold(
        self,
        conjunction: np.ndarray,
        number: np.ndarray,
        positions: np.ndarray,
        rows: OrderedRows,
        codes: Sequence[np.ndarray],
        values: AcrossValues,
    ) -> np.ndarray:
        """Returns which candidates [candidates] bool pass.

        A candidate is a conjunction and the number of a joined row; the numbers ascend. positions [streams, joined
        rows]: of the rows that each joined row consists of. codes: per stream [attributes, rows] int32.
        """
        held = np.ones(len(conjunction), bool)
        self._test_terms(conjunction, number, positions, rows, values, held)
        if self._disjunctions is not None:
            part = self._split.disjunctions.number[conjunction]
            left = np.flatnonzero(held & (part != NOTHING))
            joined, place = np.unique(number[left], return_inverse=True)
            matched = self._disjunctions.match(self._all_codes(rows, positions[:, joined], codes, values))
            held[left] = _are_listed(place, part[left], *matched)
        return held

    def _test_terms(
        self,
        conjunction: np.ndarray,
        number: np.ndarray,
        positions: np.ndarray,
        rows: OrderedRows,
        values: AcrossValues,
        held: np.ndarray,
    ) -> None:
        """Clears `held` [candidates] bool for candidates that fail a term."""
        terms, offsets = gather_indices(self._split.across_start, conjunction)
        candidate = np.repeat(np.arange(len(conjunction)), np.diff(offsets))
        attributes, sets = self._split.across_terms[terms].T
        order = radix_order(np.ascontiguousarray(attributes))
        ends = np.append(np.flatnonzero(np.diff(attributes[order])) + 1, len(order))
        begin = 0
        for end in ends.tolist() if len(order) else ():
            tested = order[begin:end]
            begin = end
            joined, place = np.unique(number[candidate[tested]], return_inverse=True)
            codes = values.codes(int(attributes[tested[0]]), rows, positions[:, joined])
            _test(codes[place], sets[tested], candidate[tested], self._split.set_start, self._split.intervals, held)

    def _all_codes(
        self, rows: OrderedRows, positions: np.ndarray, codes: Sequence[np.ndarray], values: AcrossValues
    ) -> np.ndarray:
        """Returns the code matrix [attributes, joined rows] of the attributes of shared disjunctions; attributes that
        none names are 0."""
        attributes = self._split.disjunctions.attributes
        matrix = np.zeros((len(attributes), positions.shape[1]), np.int32)
        used = np.zeros(len(attributes), bool)
        terms = self._split.disjunctions.rules.terms
        used[terms[terms[:, 0] >= 0, 0]] = True
        for at in np.flatnonzero(used).tolist():
            attribute = int(attributes[at])
            stream = int(self._owner[attribute])
            if stream == ACROSS:
                matrix[at] = values.codes(attribute, rows, positions)
            else:
                matrix[at] = codes[stream][self._place[attribute]][positions[stream] - rows.begin[stream]]
        return matrix


@jit
def _test(
    codes: np.ndarray, sets: np.ndarray, candidate: np.ndarray, set_start: np.ndarray, intervals: np.ndarray,
    held: np.ndarray,
) -> None:  # fmt: skip
    """Clears `held` for candidates whose code is not in the set."""
    for i in range(len(codes)):
        if not in_intervals(codes[i], set_start[sets[i]], set_start[sets[i] + 1], intervals):
            held[candidate[i]] = False


@jit
def _are_listed(row: np.ndarray, wanted: np.ndarray, offsets: np.ndarray, ordinals: np.ndarray) -> np.ndarray:
    """Whether the list of each row, which ascends, contains the wanted ordinal."""
    found = np.zeros(len(row), np.bool_)
    for i in range(len(row)):
        found[i] = in_list(wanted[i], offsets[row[i]], offsets[row[i] + 1], ordinals)
    return found
