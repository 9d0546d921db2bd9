"""Matches tagged rows again with the rules that differ: counts the rows that change, and writes their new ids.

The ids of rules that do not differ stay; the others are replaced by the ids of the rules that a row matches now.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from rules_index.arrays import decoded, gather_indices, offsets_of, segment_counts, segment_ids
from rules_index.index.annotations import Annotations, plain
from rules_index.workers.table_files import Files
from rules_index.workers.task import Task

if TYPE_CHECKING:
    from rules_index.index.compiled import CompiledRules

FILE, IN_RANGE = "deltatag:file", "deltatag:in_range"
"""Columns that batches have beside the table's: the number of a row's file, and whether the row is to be matched."""
COUNTS = "file bigint, changed bigint, emptied bigint"
"""The columns, in Spark's notation, of what `count_changes` yields."""


@dataclass(frozen=True)
class RowRange:
    """Rows with a value of `column`, a date or a time, that is at least `low` and less than `high`. One of the two can
    be None, for no bound. A row without a value is in no range."""

    column: str
    low: pa.Scalar | None
    high: pa.Scalar | None

    @property
    def type(self) -> pa.DataType:
        """The type of the column."""
        bound = self.low if self.low is not None else self.high
        assert bound is not None
        return bound.type

    def holds(self, values: pa.Array) -> pa.BooleanArray:
        """Which rows, by their values of the column, are in the range."""
        found = pa.repeat(True, len(values))
        if self.low is not None:
            found = pc.and_(found, pc.greater_equal(values, self.low))
        if self.high is not None:
            found = pc.and_(found, pc.less(values, self.high))
        return pc.fill_null(found, False)


@dataclass(frozen=True)
class ReplacedIds:
    """The ids that rows lose before they are matched again: those in `ids_in_rows`, or all (`everything`).

    annotations: what the present rules give rows beside ids, None if nothing.
    """

    id_type: pa.DataType
    ids_in_rows: pa.Array
    everything: bool = False
    annotations: Annotations | None = None

    @property
    def reads_ids(self) -> bool:
        """Whether the present ids of rows are needed: because rows may lose some, or annotations depend on all ids."""
        return self.everything or len(self.ids_in_rows) > 0 or self.annotations is not None

    @property
    def columns(self) -> pa.Schema:
        """The tagged table's columns of annotations, which are compared with the annotations that rows should have."""
        return pa.schema(list(self.annotations.types().items()) if self.annotations is not None else [])


def new_ids(
    compiled: CompiledRules | None,
    replaced: ReplacedIds,
    batch: pa.RecordBatch,
    matched: pa.ListArray | None = None,
) -> tuple[pa.ListArray, np.ndarray]:
    """Returns each row's new ids, dictionary-encoded, and a mask [rows] bool of the rows whose ids or annotations
    change.

    `batch` has the columns that the index reads, IN_RANGE if not all rows are to be matched, and rule_ids unless no row
    has an id that it could lose. matched: the result of `matched_ids`, if it is known already.
    """
    before, now, removed, changed = _difference(compiled, replaced, batch, matched)
    ids = (_replaced(before, now, removed, changed) if changed.any() else before).array()
    if replaced.annotations is not None and set(replaced.columns.names) <= set(batch.schema.names):
        changed |= _differing(replaced.annotations, batch, ids) & _in_range(batch)
    return ids, changed


def changed_rows(
    compiled: CompiledRules | None, replaced: ReplacedIds, batch: pa.RecordBatch, matched: pa.ListArray
) -> tuple[np.ndarray, np.ndarray]:
    """Returns masks [rows] bool: of the rows whose ids or annotations change, and of those that then have no id any
    more. matched: the result of `matched_ids`; for the others see `new_ids`."""
    if replaced.annotations is not None:
        ids, changed = new_ids(compiled, replaced, batch, matched)
        return changed, changed & (np.diff(ids.offsets.to_numpy()) == 0)
    before, now, removed, changed = _difference(compiled, replaced, batch, matched)
    lost = segment_counts(removed, before.offsets) if removed.any() else 0
    return changed, changed & (before.lengths - lost + now.lengths == 0)


def _difference(
    compiled: CompiledRules | None, replaced: ReplacedIds, batch: pa.RecordBatch, matched: pa.ListArray | None
) -> tuple[_Lists, _Lists, np.ndarray, np.ndarray]:
    """Returns the ids that rows have; the ids of the rules that differ and match them, with codes that begin with those
    of the former; which ids [.] bool rows lose; and which rows [rows] bool change."""
    now = _Lists.of(matched_ids(compiled, replaced, batch) if matched is None else matched)
    before = _Lists.of(_lists(batch, replaced))
    now = now.over(before.ids)
    removed = _removed(before, replaced)
    counts = now.lengths
    # a row changes if it gets another number of ids than it loses, or as many of which one differs
    changed: np.ndarray = counts != (segment_counts(removed, before.offsets) if removed.any() else 0)
    as_many = ~changed & (counts > 0)
    if as_many.any():
        old = before.codes[removed & np.repeat(as_many, before.lengths)]
        differs = old != now.codes[np.repeat(as_many, counts)]
        changed[np.repeat(np.flatnonzero(as_many), counts[as_many])[differs]] = True
    return before, now, removed, changed & _in_range(batch)


def _in_range(batch: pa.RecordBatch) -> np.ndarray | bool:
    """Which rows [rows] bool are to be matched; True for all."""
    if IN_RANGE not in batch.schema.names:
        return True
    found: np.ndarray = pc.fill_null(batch.column(IN_RANGE), False).to_numpy(zero_copy_only=False)
    return found


@dataclass(frozen=True)
class _Lists:
    """Lists of ids. Row r has `ids[codes[offsets[r]:offsets[r + 1]]]`. All work is on integer codes; texts are touched
    once for each distinct id."""

    offsets: np.ndarray
    codes: np.ndarray
    ids: pa.Array

    @classmethod
    def of(cls, lists: pa.ListArray) -> _Lists:
        """The lists of an Arrow array, with values that may be dictionary-encoded; NULL has no ids."""
        offsets = lists.offsets.to_numpy()
        # flatten copies a dictionary's indices
        values = lists.flatten() if lists.null_count else lists.values.slice(offsets[0], offsets[-1] - offsets[0])
        coded = values if pa.types.is_dictionary(values.type) else values.dictionary_encode()
        return cls(offsets - offsets[0], coded.indices.to_numpy(), coded.dictionary)

    @property
    def lengths(self) -> np.ndarray:
        """The number of ids of each row."""
        found: np.ndarray = np.diff(self.offsets)
        return found

    def over(self, ids: pa.Array) -> _Lists:
        """The same lists with other codes: the given ids come first, followed by the present ones that they lack."""
        places = pc.index_in(self.ids, value_set=ids)
        lacking = places.is_null().to_numpy(zero_copy_only=False)
        codes = pc.fill_null(places, 0).to_numpy().copy()
        codes[lacking] = np.arange(len(ids), len(ids) + lacking.sum())
        return _Lists(self.offsets, codes[self.codes], pa.concat_arrays([ids, self.ids.filter(pa.array(lacking))]))

    def array(self) -> pa.ListArray:
        """The lists as an Arrow array, dictionary-encoded, without unused ids."""
        used = np.flatnonzero(np.bincount(self.codes, minlength=len(self.ids)))
        ids, codes = self.ids, self.codes
        if len(used) < len(ids):
            places = np.zeros(len(ids), np.int32)
            places[used] = np.arange(len(used))
            ids, codes = ids.take(pa.array(used)), places[codes]
        values = pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32, copy=False)), ids)
        return pa.ListArray.from_arrays(pa.array(self.offsets.astype(np.int32)), values)


def _differing(annotations: Annotations, batch: pa.RecordBatch, ids: pa.ListArray) -> np.ndarray:
    """Which rows [rows] bool have other annotations than their ids give them."""
    found = np.zeros(len(batch), bool)
    for name, column in plain(annotations.of_ids(ids)).items():
        held, wanted = (pl.Series(pl.from_arrow(each)) for each in (batch.column(name), column))
        found |= held.cast(wanted.dtype).ne_missing(wanted).to_numpy()
    return found


def _replaced(before: _Lists, found: _Lists, removed: np.ndarray, changed: np.ndarray) -> _Lists:
    """Returns the new lists: a row that `changed` keeps the ids that are not `removed`, gets those of `found`, and is
    sorted again. The codes of `found` index ids that begin with those of `before`."""
    rows = np.flatnonzero(changed)
    places, starts = gather_indices(before.offsets, rows)
    stays = ~removed[places]
    matched, found_starts = gather_indices(found.offsets, rows)
    owners = np.concatenate([segment_ids(starts)[stays], segment_ids(found_starts)])
    made = np.concatenate([before.codes[places[stays]], found.codes[matched]])
    rank = _ranks(made, found.ids)
    # kept and new ids of a row are each in order, so that a stable sort only has to merge them
    made = made[np.argsort(owners * (len(rank) + 1) + rank[made], kind="stable")]
    lengths = before.lengths
    lengths[rows] = np.bincount(owners, minlength=len(rows))
    offsets = offsets_of(lengths)
    codes = np.empty(offsets[-1], np.int32)
    targets = gather_indices(offsets, rows)[0]
    codes[targets] = made
    codes[_all_but(targets, len(codes))] = before.codes[_all_but(places, len(before.codes))]
    return _Lists(offsets, codes, found.ids)


def _ranks(codes: np.ndarray, ids: pa.Array) -> np.ndarray:
    """The rank [ids] int64 of each id among the ids that occur in `codes`; 0 for ids that do not."""
    used = np.flatnonzero(np.bincount(codes, minlength=len(ids)))
    ranks = np.zeros(len(ids), np.int64)
    ranks[used] = pc.rank(ids.take(pa.array(used)), tiebreaker="first").to_numpy()
    return ranks


def _all_but(places: np.ndarray, count: int) -> np.ndarray:
    """A mask [count] bool that is FALSE at some places."""
    found = np.ones(count, bool)
    found[places] = False
    return found


def matched_ids(compiled: CompiledRules | None, replaced: ReplacedIds, batch: pa.RecordBatch) -> pa.ListArray:
    """Returns for each row the ids of the rules of `compiled` that it satisfies, as lists of dictionary-encoded values.
    These are the rules that differ; without an index there are none."""
    if compiled is None:
        return _empty(len(batch), replaced)
    offsets, ordinals, _ = compiled.match_ordinals(batch)
    values = pa.DictionaryArray.from_arrays(pa.array(ordinals), compiled.ids.cast(replaced.id_type))
    return pa.ListArray.from_arrays(pa.array(offsets).cast(pa.int32()), values)


def _lists(batch: pa.RecordBatch, replaced: ReplacedIds) -> pa.ListArray:
    if "rule_ids" not in batch.schema.names:
        return _empty(len(batch), replaced)
    lists: pa.ListArray = batch.column("rule_ids")
    coded = pa.types.is_dictionary(lists.type.value_type)
    return lists if coded else lists.cast(pa.list_(replaced.id_type))


def _empty(rows: int, replaced: ReplacedIds) -> pa.ListArray:
    return pa.ListArray.from_arrays(pa.array(np.zeros(rows + 1, np.int32)), pa.array([], replaced.id_type))


def _removed(lists: _Lists, replaced: ReplacedIds) -> np.ndarray:
    """Which ids [.] bool rows lose unless they match them again."""
    if replaced.everything or not len(replaced.ids_in_rows):
        return np.full(len(lists.codes), replaced.everything)
    return is_among(pa.DictionaryArray.from_arrays(pa.array(lists.codes), lists.ids), replaced.ids_in_rows)


def is_among(values: pa.Array, ids: pa.Array) -> np.ndarray:
    """Which values [.] bool, dictionary-encoded or not, are among `ids`."""
    if not pa.types.is_dictionary(values.type):
        found: np.ndarray = pc.is_in(values, ids).to_numpy(zero_copy_only=False)
        return found
    known = pc.is_in(values.dictionary, ids).to_numpy(zero_copy_only=False)
    return known[values.indices.to_numpy()] if known.any() else np.zeros(len(values), bool)


def count_changes(
    compiled: CompiledRules | None, replaced: ReplacedIds, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yields for each batch with rows that change, file by file, how many do and how many of them have no id any more,
    as `COUNTS`."""
    for batch in batches:
        changed, emptied = changed_rows(compiled, replaced, batch, matched_ids(compiled, replaced, batch))
        if not changed.any():
            continue
        files = batch.column(FILE).to_numpy(zero_copy_only=False)
        numbers, which = np.unique(files[changed], return_inverse=True)
        without_ids = emptied[changed] if replaced.reads_ids else np.zeros(len(which), bool)
        columns = [
            pa.array(numbers, pa.int64()),
            pa.array(np.bincount(which), pa.int64()),
            pa.array(np.bincount(which, weights=without_ids).astype(np.int64)),
        ]
        yield pa.RecordBatch.from_arrays(columns, ["file", "changed", "emptied"])


def write_files(
    compiled: CompiledRules | None, replaced: ReplacedIds, task: Task, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Writes rows of the tagged table again with their new ids; yields what `tagged_files.write_files` does.

    `task.columns` are the table's columns; `task.stamps` replace the values of rows that are matched. If
    `task.only_matched`, rows that change and have no id any more are left out.
    """
    files = Files(task.folders["tagged"], task, task.layouts["tagged"])
    rows = count = 0
    try:
        for batch in batches:
            ids, changed = new_ids(compiled, replaced, batch)
            rows, count = rows + len(batch), count + int(changed.sum())
            made = stamped(batch, ids, replaced, task, pa.schema([batch.schema.field(name) for name in task.columns]))
            if task.only_matched:
                made = made.filter(pa.array(~changed | (np.diff(ids.offsets.to_numpy()) > 0)))
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


def stamped(
    batch: pa.RecordBatch, ids: pa.ListArray, replaced: ReplacedIds, task: Task, schema: pa.Schema
) -> pa.RecordBatch:
    """Rows of the tagged table with new ids, their annotations and the task's stamps.

    schema: the table's columns; a column that the rows lack is NULL. Rows that are not to be matched keep their values.
    """
    made = plain(replaced.annotations.of_ids(ids)) if replaced.annotations is not None else {}
    columns = []
    for name, kind in zip(schema.names, schema.types, strict=True):
        if name == "rule_ids":
            columns.append(ids)
        elif name in made:
            columns.append(in_range_only(batch, name, made[name]))
        elif name in task.stamps:
            columns.append(in_range_only(batch, name, pa.repeat(task.stamps[name].cast(kind), len(batch))))
        elif name in batch.schema.names:
            columns.append(decoded(batch.column(name)))
        else:
            columns.append(pa.nulls(len(batch), kind))
    return pa.RecordBatch.from_arrays(columns, schema.names)


def in_range_only(batch: pa.RecordBatch, name: str, new: pa.Array) -> pa.Array:
    """New values of a column for the rows that are to be matched; the others keep theirs."""
    if IN_RANGE not in batch.schema.names:
        return new
    return pc.if_else(pc.fill_null(batch.column(IN_RANGE), False), new, batch.column(name).cast(new.type))
