"""Tagged rows and their matches as files of their Delta tables, written by the workers that match them.

A row crosses from Spark to the worker once, as Arrow, and from there into Parquet: its own columns are not taken
apart and put together again for the sake of one more.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from rules_index.index.annotations import Annotations
from rules_index.index.compiled import CompiledRules, RuleId
from rules_index.workers.delta_files import PLAIN, DeltaFile, Layout, partition_text
from rules_index.workers.source_files import SourceFile, UnreadableFileError, read_batches

RESULT = "name string, entry string, figures string"
"""Columns, as Spark spells them, of what `write_files` gives."""
UNREADABLE = "unreadable"
"""In place of a table's name: the rows of a piece must come through Spark's own reader."""
_MOST_OPEN, _MOST_WAITING = 32, 128 << 20
"""Files of one table that are written at a time, and bytes of rows that wait to be written to them."""
_SMALL_DICTIONARY = 1 << 18
"""Ids of fewer bytes in all go to Parquet as a dictionary, which saves it from looking up each of them."""


@dataclass(frozen=True)
class Task:
    """How a micro-batch's rows are written.

    `columns` are the source's columns in the tagged table, `keys` those of them that a match repeats. `stamps` are
    columns with one value for all rows. `folders` gives, by name, `tagged` and, where matches are kept and not yet
    written, `matches`; `layouts` how the rows of these lie in files; `annotations` what tagged rows get beside ids.
    """

    id_type: pa.DataType
    columns: tuple[str, ...]
    keys: tuple[str, ...]
    stamps: Mapping[str, pa.Scalar]
    only_matched: bool
    codec: str
    footer: Mapping[str, str]
    folders: Mapping[str, str]
    layouts: Mapping[str, Layout] = field(default_factory=dict)
    annotations: Annotations | None = None


class Files:
    """The files of one table that one partition of rows becomes: one for each of the table's partitions."""

    def __init__(self, folder: str, task: Task, layout: Layout) -> None:
        self._folder, self._task, self._layout = folder, task, layout
        self._open: dict[tuple[str | None, ...], DeltaFile] = {}
        self._entries: list[dict[str, Any]] = []

    def write(self, rows: pa.RecordBatch) -> None:
        """Add rows."""
        for values, part in self._parts(rows):
            file = self._open.pop(values, None)
            if file is None:
                partition = dict(zip(self._layout.partition_by, values, strict=True))
                task = self._task
                file = DeltaFile(self._folder, part.schema, task.codec, task.footer, self._layout, partition)
            self._open[values] = file  # the last one used is the last one in the order
            file.write(part)
        if len(self._open) > _MOST_OPEN:
            for values in list(self._open)[:-_MOST_OPEN]:
                self._entries.append(self._open.pop(values).close())
        while sum(file.waiting_bytes for file in self._open.values()) > _MOST_WAITING:
            max(self._open.values(), key=lambda file: file.waiting_bytes).flush()

    def _parts(self, rows: pa.RecordBatch) -> Iterator[tuple[tuple[str | None, ...], pa.RecordBatch]]:
        """The rows of each partition with the partition's values, without the partition's columns."""
        names = self._layout.partition_by
        if not names:
            yield (), rows
            return
        kept = rows.drop_columns(list(names))
        numbers = np.zeros(len(rows), np.int64)
        for name in names:
            column = rows.column(name)
            if pa.types.is_dictionary(column.type):  # whose NULLs have no code
                column = column.dictionary_decode()
            codes = column.dictionary_encode(null_encoding="encode")
            numbers = numbers * (len(codes.dictionary) + 1) + codes.indices.to_numpy(zero_copy_only=False)
            numbers = np.unique(numbers, return_inverse=True)[1].reshape(-1)
        order = np.argsort(numbers, kind="stable")
        starts = np.flatnonzero(np.diff(numbers[order], prepend=-1))
        for start, stop in pairwise([*starts.tolist(), len(rows)]):
            first = int(order[start])
            values = tuple(partition_text(rows.column(name)[first].as_py()) for name in names)
            yield values, kept if len(starts) == 1 else kept.take(pa.array(order[start:stop]))

    def close(self) -> list[dict[str, Any]]:
        """Finish the files; their `add` entries."""
        while self._open:
            values, file = next(iter(self._open.items()))
            self._entries.append(file.close())
            del self._open[values]
        return self._entries

    def abandon(self) -> None:
        """Remove what was written."""
        for file in self._open.values():
            file.abandon()
        for entry in self._entries:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(self._folder, unquote(entry["path"])))


def write_files(compiled: CompiledRules, task: Task, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Tag the rows of one partition and write them.

    Batches hold the columns that the index reads, `task.columns` and `source_version`. Gives one row with the
    figures (`rows`, `matches`, and `errors` as pairs of rule id and rows, JSON) and one for each file with the
    table's name and the `add` entry for its log (JSON). OSError leaves no file behind.
    """
    files = {name: Files(folder, task, task.layouts.get(name, PLAIN)) for name, folder in task.folders.items()}
    rows = matches = 0
    errors: Counter[Any] = Counter()
    known = compiled.ids.cast(task.id_type)
    try:
        for batch in batches:
            ids, ordinals, raised = _ids(compiled, batch, known)
            rows, matches = rows + len(ids), matches + len(ids.values)
            errors.update(raised)
            for name, its in files.items():
                made = _MADE[name](batch, ids, ordinals, task)
                if len(made):
                    its.write(made)
        entries = [(name, json.dumps({"add": entry})) for name, its in files.items() for entry in its.close()]
    except BaseException:
        for its in files.values():
            its.abandon()
        raise
    figures = json.dumps({"rows": rows, "matches": matches, "errors": list(errors.items())})
    columns = {
        "name": ["", *(name for name, _ in entries)],
        "entry": ["", *(entry for _, entry in entries)],
        "figures": [figures, *("" for _ in entries)],
    }
    yield pa.RecordBatch.from_pydict(columns)


def write_piece(
    compiled: CompiledRules, task: Task, files: Sequence[SourceFile], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """As `write_files`, of the rows of files of a table with the columns of `schema`; one row named UNREADABLE, and no
    file, where only Spark reads one of them."""
    try:
        yield from write_files(compiled, task, read_batches(files, schema))
    except UnreadableFileError:
        yield pa.RecordBatch.from_pydict({"name": [UNREADABLE], "entry": [""], "figures": [""]})


def _ids(
    compiled: CompiledRules, batch: pa.RecordBatch, known: pa.Array
) -> tuple[pa.ListArray, np.ndarray, dict[RuleId, int]]:
    """The rows' rule ids, as a dictionary of all ids, `known`, where that is small; the rules' ordinals one behind the
    other, and the errors by rule.

    Several threads may match with the index at a time.
    """
    if not compiled.inputs:
        batch = pa.RecordBatch.from_arrays([pa.nulls(len(batch))], ["_"])
    offsets, ordinals, errors = compiled.match_ordinals(batch)
    if pa.types.is_string(known.type) and known.nbytes <= _SMALL_DICTIONARY:
        values = pa.DictionaryArray.from_arrays(pa.array(ordinals), known)
    else:
        values = known.take(pa.array(ordinals))
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), values), ordinals, errors


def _tagged(batch: pa.RecordBatch, ids: pa.ListArray, ordinals: np.ndarray, task: Task) -> pa.RecordBatch:
    """Rows of the tagged table."""
    columns = {name: batch.column(name) for name in task.columns}
    columns["rule_ids"] = ids
    if task.annotations is not None:
        columns |= task.annotations.of_ordinals(ids.offsets.to_numpy(), ordinals)
    columns |= _stamps(batch, task, ("rules_version", "index_fingerprint", "source_version", "tagged_at"))
    made = pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
    if task.only_matched:
        made = made.filter(pa.array(np.diff(ids.offsets.to_numpy()) > 0))
    return made


def _pairs(batch: pa.RecordBatch, ids: pa.ListArray, ordinals: np.ndarray, task: Task) -> pa.RecordBatch:
    """Rows of the matches: one for each id of each row."""
    rows = pa.array(np.repeat(np.arange(len(ids)), np.diff(ids.offsets.to_numpy())))
    columns = {"rule_id": ids.values}
    columns |= {name: batch.column(name).take(rows) for name in task.keys}
    taken = pa.RecordBatch.from_arrays([batch.column("source_version").take(rows)], ["source_version"])
    columns |= _stamps(taken, task, ("rules_version", "source_version"))
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def _stamps(batch: pa.RecordBatch, task: Task, names: tuple[str, ...]) -> dict[str, pa.Array]:
    """Columns behind the source's: of one value, or as the batch has them."""
    found: dict[str, pa.Array] = {}
    for name in names:
        value = task.stamps.get(name)
        if value is None:
            found[name] = batch.column(name)
        elif pa.types.is_string(value.type):
            numbers = pa.array(np.zeros(len(batch), np.int32))
            found[name] = pa.DictionaryArray.from_arrays(numbers, pa.array([value.as_py()]))
        else:
            found[name] = pa.repeat(value, len(batch))
    return found


_MADE = {"tagged": _tagged, "matches": _pairs}
