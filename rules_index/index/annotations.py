"""Annotates rows by their rules: the first rule by priority, all labels, and the highest severity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rules_index.arrays import decoded
from rules_index.index.annotate import COLUMNS, FIRST_RULE_ID, LABELS, SEVERITY, Annotate
from rules_index.index.array_checks import require

_LABELS_A_RULE = 4
"""The expected number of labels of a matched rule; a batch with more is annotated twice."""


@dataclass(frozen=True)
class Annotations:
    """The properties of an index's rules: `rules` has the columns of `annotate.schema`, and a row for each of `ids`."""

    annotate: Annotate
    ids: pa.Array
    rules: pa.Table

    def of_ordinals(self, offsets: np.ndarray, ordinals: np.ndarray) -> dict[str, pa.Array]:
        """The columns of rows, in the order of `COLUMNS`. The rules of row r are `ordinals[offsets[r]:offsets[r + 1]]`;
        offsets is [rows + 1].

        A row without rules has NULL as first rule and severity, and an empty list of labels. Thread-safe.
        """
        made = {FIRST_RULE_ID: self._first, LABELS: self._labels, SEVERITY: self._severity}
        return {name: made[name](offsets, ordinals) for name in COLUMNS if name in self.annotate.columns}

    def of_ids(self, lists: pa.ListArray) -> dict[str, pa.Array]:
        """The columns of rows whose rules are given as lists of ids. Ids that the index does not have are ignored."""
        offsets = lists.offsets.to_numpy()
        values = lists.values.slice(offsets[0], offsets[-1] - offsets[0])
        coded = values if pa.types.is_dictionary(values.type) else values.dictionary_encode()
        found = pc.index_in(coded.dictionary.cast(self.ids.type), value_set=self.ids).take(coded.indices)
        known = found.is_valid().to_numpy(zero_copy_only=False)
        kept = np.concatenate([[0], np.cumsum(known)])[offsets - offsets[0]]
        return self.of_ordinals(kept, found.drop_null().to_numpy())

    def chosen(self, columns: Sequence[str]) -> Annotations | None:
        """The annotations with only the given columns; None if none of them is left."""
        kept = tuple(name for name in self.annotate.columns if name in columns)
        if not kept:
            return None
        annotate = Annotate(kept, self.annotate.severities)
        return Annotations(annotate, self.ids, self.rules.select(annotate.schema.names))

    def types(self) -> dict[str, pa.DataType]:
        """The types of the columns that `of_ids` returns, with dictionaries decoded."""
        kinds = {FIRST_RULE_ID: self.ids.type, LABELS: pa.list_(pa.string()), SEVERITY: pa.string()}
        return {name: kinds[name] for name in COLUMNS if name in self.annotate.columns}

    def _first(self, offsets: np.ndarray, ordinals: np.ndarray) -> pa.Array:
        rank, rules = self._ranks
        best = _reduced(np.minimum, rank[ordinals], offsets, len(rank))
        chosen = pa.array(np.append(rules, 0)[best], mask=best == len(rank))
        return self.ids.take(chosen) if len(self.ids) else pa.nulls(len(best), self.ids.type)

    def _severity(self, offsets: np.ndarray, ordinals: np.ndarray) -> pa.Array:
        worst = _reduced(np.maximum, self._levels[ordinals], offsets, -1)
        codes = pa.array(worst, pa.int32(), mask=worst < 0)
        return pa.DictionaryArray.from_arrays(codes, pa.array(self.annotate.severities, pa.string()))

    def _labels(self, offsets: np.ndarray, ordinals: np.ndarray) -> pa.Array:
        from rules_index.kernels.label_lists import label_lists

        starts, codes, names = self._label_codes
        ends = np.empty(len(offsets), np.int64)
        out = np.empty(max(len(ordinals) * _LABELS_A_RULE, 1), np.int32)
        arguments = (offsets.astype(np.int64), ordinals.astype(np.int32), starts, codes)
        count = label_lists(*arguments, np.full(len(names), -1), ends, out)
        if count > len(out):
            out = np.empty(count, np.int32)
            label_lists(*arguments, np.full(len(names), -1), ends, out)
        values = pa.DictionaryArray.from_arrays(pa.array(out[:count]), names)
        return pa.ListArray.from_arrays(pa.array(ends.astype(np.int32)), values)

    @cached_property
    def _ranks(self) -> tuple[np.ndarray, np.ndarray]:
        """The rank of each rule [rules] by priority, then by id, rules without a priority last; and the rules in that
        order."""
        priority = self.rules.column("priority").combine_chunks()
        last = np.iinfo(np.int64).max
        order = np.argsort(pc.fill_null(priority.cast(pa.int64()), last).to_numpy(), kind="stable")
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        return rank, order

    @cached_property
    def _levels(self) -> np.ndarray:
        """The rank of each rule's severity [rules] int32; -1 for none, or one that is not configured."""
        found = pc.index_in(self.rules.column("severity"), value_set=pa.array(self.annotate.severities, pa.string()))
        levels: np.ndarray = pc.fill_null(found, -1).to_numpy()
        return levels

    @cached_property
    def _label_codes(self) -> tuple[np.ndarray, np.ndarray, pa.StringArray]:
        """Each rule's labels as CSR arrays [rules + 1] int64 and [.] int32 of codes, and the labels by code,
        ascending."""
        lists = _one(self.rules.column("labels"))
        offsets = lists.offsets.to_numpy().astype(np.int64)
        values = lists.flatten()
        names = values.unique()
        names = names.take(pc.sort_indices(names))
        return offsets - offsets[0], pc.index_in(values, value_set=names).to_numpy().astype(np.int32), names


def sound(annotate: Annotate, ids: pa.Array, rules: pa.Table) -> Annotations:
    """The annotations that were read from a file, once they are checked. Raises `InvalidArraysError` if they are
    malformed."""
    require(set(annotate.columns) <= set(COLUMNS), "annotations")
    require(all(isinstance(each, str) for each in annotate.severities), "annotations")
    require(rules.schema == annotate.schema and rules.num_rows == len(ids), "annotations")
    if "labels" in rules.column_names:
        labels = rules.column("labels")
        require(labels.null_count == 0 and pc.list_flatten(labels).null_count == 0, "annotations")
    return Annotations(annotate, ids, rules)


def settings_of(annotations: Annotations | None) -> list[Any]:
    """The settings of annotations that a fingerprint covers; empty without annotations."""
    return [] if annotations is None else [annotations.annotate.settings]


def plain(columns: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
    """The columns with dictionaries decoded to strings."""
    return {name: without_dictionary(column) for name, column in columns.items()}


def without_dictionary(column: pa.Array) -> pa.Array:
    """The column, or its lists, with dictionaries decoded."""
    if pa.types.is_list(column.type) and pa.types.is_dictionary(column.type.value_type):
        return pa.ListArray.from_arrays(column.offsets, column.values.dictionary_decode())
    return decoded(column)


def _reduced(function: Any, values: np.ndarray, offsets: np.ndarray, nothing: int) -> np.ndarray:
    """Reduces each row's values by a ufunc, [rows] int64; `nothing` for a row without values."""
    found = np.full(len(offsets) - 1, nothing, np.int64)
    filled = np.flatnonzero(np.diff(offsets))
    if len(filled):
        found[filled] = function.reduceat(values, offsets[filled])
    return found


def _one(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
