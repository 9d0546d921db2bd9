"""Rows that are tagged already, matched again with the rules that differ: whose ids change, and files with the new ids.

An id of a rule that does not differ stays where it is; the others are replaced by what the rows match now.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from rules_index.arrays import offsets_of
from rules_index.index.annotations import Annotations, plain
from rules_index.index.compiled import CompiledRules
from rules_index.workers.tagged_files import Files, Task

FILE, IN_RANGE = "deltatag:file", "deltatag:in_range"
"""Columns of the rows that are handed over: the number of a row's file, and whether the row is to be matched."""
COUNTS = "file bigint, changed bigint, emptied bigint"
"""Columns, as Spark spells them, of what `count_changes` gives."""


@dataclass(frozen=True)
class ReplacedIds:
    """The ids that rows lose before they are matched again: those in `held`, or all (`everything`).

    annotations: what rows get beside ids, by the rules that there are now.
    """

    id_type: pa.DataType
    held: pa.Array
    everything: bool = False
    annotations: Annotations | None = None

    @property
    def reads_ids(self) -> bool:
        """False where no row has an id that it could lose, and nothing is made of its ids."""
        return self.everything or len(self.held) > 0 or self.annotations is not None

    @property
    def columns(self) -> pa.Schema:
        """Those of the tagged table, beside ids, that are compared with what rows are to have."""
        return pa.schema(list(self.annotations.types().items()) if self.annotations is not None else [])


def new_ids(
    compiled: CompiledRules | None,
    replaced: ReplacedIds,
    batch: pa.RecordBatch,
    matched: pa.ListArray | None = None,
) -> tuple[pa.ListArray, np.ndarray]:
    """The ids of each row as they are to be, and of which rows these, or their annotations, change.

    `batch` has the columns that the index reads, IN_RANGE where not all rows are to be matched, and rule_ids unless no
    row has an id that it could lose. matched: what the rows match, where that is known already.
    """
    matched = matched_ids(compiled, replaced, batch) if matched is None else matched
    before = _lists(batch, replaced)
    values, offsets = before.flatten(), _offsets(before)
    own = _own(values, replaced)
    owned = _per_row(own, offsets)
    found = np.diff(_offsets(matched))
    changed = owned != found
    alike = ~changed & (found > 0)
    if alike.any():
        old = values.filter(pa.array(own & np.repeat(alike, np.diff(offsets))))
        new = matched.filter(pa.array(alike)).flatten()
        differs = pc.not_equal(old, new).to_numpy(zero_copy_only=False)
        changed[np.repeat(np.flatnonzero(alike), found[alike])[differs]] = True
    if IN_RANGE in batch.schema.names:
        changed &= pc.fill_null(batch.column(IN_RANGE), False).to_numpy(zero_copy_only=False)
    ids = _replaced(before, matched, own, changed) if changed.any() else before
    names = replaced.columns.names
    if replaced.annotations is not None and set(names) <= set(batch.schema.names):
        other = _differing(replaced.annotations, batch, ids)
        if IN_RANGE in batch.schema.names:
            other &= pc.fill_null(batch.column(IN_RANGE), False).to_numpy(zero_copy_only=False)
        changed |= other
    return ids, changed


def _differing(annotations: Annotations, batch: pa.RecordBatch, ids: pa.ListArray) -> np.ndarray:
    """Which rows [rows] bool have other annotations than their ids are to give them."""
    found = np.zeros(len(batch), bool)
    for name, column in plain(annotations.of_ids(ids)).items():
        held, wanted = (pl.Series(pl.from_arrow(each)) for each in (batch.column(name), column))
        found |= held.cast(wanted.dtype).ne_missing(wanted).to_numpy()
    return found


def _replaced(before: pa.ListArray, matched: pa.ListArray, own: np.ndarray, changed: np.ndarray) -> pa.ListArray:
    """The lists, of rows that changed with the ids that they do not own and those that they matched, in their order."""
    held, found = np.diff(_offsets(before)), np.diff(_offsets(matched))
    kept, new = ~own & np.repeat(changed, held), np.repeat(changed, found)
    rows, values = np.arange(len(changed)), before.flatten()
    owners = np.concatenate([np.repeat(rows, held)[kept], np.repeat(rows, found)[new]])
    made = pa.concat_arrays([values.filter(pa.array(kept)), matched.flatten().filter(pa.array(new))])
    # both parts are in order, and a stable sort merges what is
    made = made.take(pa.array(np.argsort(_keys(owners, made), kind="stable")))
    counts = np.bincount(owners, minlength=len(rows))
    if changed.all():
        return pa.ListArray.from_arrays(pa.array(offsets_of(counts).astype(np.int32)), made)
    begins = np.where(changed, len(values) + offsets_of(counts)[:-1], _offsets(before)[:-1])
    counts = np.where(changed, counts, held)
    offsets = offsets_of(counts)
    places = np.repeat(begins - offsets[:-1], counts) + np.arange(offsets[-1])
    together = pa.concat_arrays([values, made]).take(pa.array(places))
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), together)


def _keys(owners: np.ndarray, values: pa.Array) -> np.ndarray:
    """Integers [.] that order values by their rows, then by themselves."""
    coded = values.dictionary_encode()
    rank = pc.rank(coded.dictionary, tiebreaker="first").to_numpy().astype(np.int64)
    return owners * (len(rank) + 1) + rank[coded.indices.to_numpy()]


def matched_ids(compiled: CompiledRules | None, replaced: ReplacedIds, batch: pa.RecordBatch) -> pa.ListArray:
    """The ids of the rules that differ which each row satisfies."""
    kind = pa.list_(replaced.id_type)
    if compiled is None:
        return _empty(len(batch), replaced)
    if not compiled.inputs:
        batch = pa.RecordBatch.from_arrays([pa.nulls(len(batch))], ["_"])
    return compiled.match(batch).cast(kind)


def _lists(batch: pa.RecordBatch, replaced: ReplacedIds) -> pa.ListArray:
    if "rule_ids" not in batch.schema.names:
        return _empty(len(batch), replaced)
    return batch.column("rule_ids").cast(pa.list_(replaced.id_type))


def _empty(rows: int, replaced: ReplacedIds) -> pa.ListArray:
    return pa.ListArray.from_arrays(pa.array(np.zeros(rows + 1, np.int32)), pa.array([], replaced.id_type))


def _offsets(lists: pa.ListArray) -> np.ndarray:
    """Where each row's values begin in `lists.flatten()`, and where the last ones end."""
    found: np.ndarray = lists.offsets.to_numpy()
    return found - found[0]


def _own(values: pa.Array, replaced: ReplacedIds) -> np.ndarray:
    """Which values rows lose unless they match them again."""
    if replaced.everything or not len(replaced.held):
        return np.full(len(values), replaced.everything)
    found: np.ndarray = pc.is_in(values, replaced.held).to_numpy(zero_copy_only=False)
    return found


def _per_row(mask: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """How many values of each row are TRUE."""
    sums = np.concatenate([[0], np.cumsum(mask)])
    return sums[offsets[1:]] - sums[offsets[:-1]]


def count_changes(
    compiled: CompiledRules | None, replaced: ReplacedIds, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """For each file of which a batch has rows that change: how many, and how many of them have no id any more."""
    for batch in batches:
        ids, changed = new_ids(compiled, replaced, batch)
        if not changed.any():
            continue
        files = batch.column(FILE).to_numpy(zero_copy_only=False)
        numbers, which = np.unique(files[changed], return_inverse=True)
        emptied = (np.diff(_offsets(ids)) == 0)[changed] if replaced.reads_ids else np.zeros(len(which), bool)
        columns = [
            pa.array(numbers, pa.int64()),
            pa.array(np.bincount(which), pa.int64()),
            pa.array(np.bincount(which, weights=emptied).astype(np.int64)),
        ]
        yield pa.RecordBatch.from_arrays(columns, ["file", "changed", "emptied"])


def write_files(
    compiled: CompiledRules | None, replaced: ReplacedIds, task: Task, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Write rows of the tagged table anew with their new ids: gives what `tagged_files.write_files` gives.

    `task.columns` are the table's columns; its `stamps` replace those of rows that are matched. `task.only_matched`:
    rows that change and have no id any more are left out.
    """
    files = Files(task.folders["tagged"], task, task.layouts["tagged"])
    rows = count = 0
    try:
        for batch in batches:
            ids, changed = new_ids(compiled, replaced, batch)
            rows, count = rows + len(batch), count + int(changed.sum())
            made = _stamped(batch, ids, task, replaced.annotations)
            if task.only_matched:
                made = made.filter(pa.array(~changed | (np.diff(_offsets(ids)) > 0)))
            if len(made):
                files.write(made)
        entries = [json.dumps({"add": entry}) for entry in files.close()]
    except BaseException:
        files.abandon()
        raise
    figures = json.dumps({"rows": rows, "matches": count, "errors": []})
    columns = {
        "name": ["", *("tagged" for _ in entries)],
        "entry": ["", *entries],
        "figures": [figures, *("" for _ in entries)],
    }
    yield pa.RecordBatch.from_pydict(columns)


def _stamped(batch: pa.RecordBatch, ids: pa.ListArray, task: Task, annotations: Annotations | None) -> pa.RecordBatch:
    made = plain(annotations.of_ids(ids)) if annotations is not None else {}
    in_range = batch.column(IN_RANGE) if IN_RANGE in batch.schema.names else None
    columns = []
    for name in task.columns:
        column = batch.column(name)
        if name == "rule_ids":
            column = ids
        elif name in made:
            new = made[name]
            column = new if in_range is None else pc.if_else(pc.fill_null(in_range, False), new, column.cast(new.type))
        elif name in task.stamps:
            stamp = task.stamps[name].cast(column.type)
            column = (
                pa.repeat(stamp, len(batch))
                if in_range is None
                else pc.if_else(pc.fill_null(in_range, False), stamp, column)
            )
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, list(task.columns))
