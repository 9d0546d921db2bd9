"""Tagged rows and their matches as files of their Delta tables, written by the workers that match them.

A row crosses from Spark to the worker once, as Arrow, and from there into Parquet: its own columns are not taken
apart and put together again for the sake of one more.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from rules_index.compiled import CompiledRules
from rules_index.delta_files import DeltaFile

RESULT = "name string, entry string, figures string"
"""Columns, as Spark spells them, of what `write_files` gives."""
_SMALL_DICTIONARY = 1 << 18
"""Ids of fewer bytes in all go to Parquet as a dictionary, which saves it from looking up each of them."""


@dataclass(frozen=True)
class Task:
    """How a micro-batch's rows are written.

    `columns` are the source's columns in the tagged table, `keys` those of them that a match repeats. `stamps` are
    columns with one value for all rows. `folders` gives, by name, `tagged` and, where matches are kept and not yet
    written, `matches`.
    """

    id_type: pa.DataType
    columns: tuple[str, ...]
    keys: tuple[str, ...]
    stamps: Mapping[str, pa.Scalar]
    only_matched: bool
    codec: str
    footer: Mapping[str, str]
    folders: Mapping[str, str]


def write_files(compiled: CompiledRules, task: Task, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Tag the rows of one partition and write them.

    Batches hold the columns that the index reads, `task.columns` and `source_version`. Gives one row with the
    figures (`rows`, `matches`, and `errors` as pairs of rule id and rows, JSON) and one for each file with the
    table's name and the `add` entry for its log (JSON). OSError leaves no file behind.
    """
    files: dict[str, DeltaFile] = {}
    rows = matches = 0
    errors: Counter[Any] = Counter()
    known = compiled.ids.cast(task.id_type)
    try:
        for batch in batches:
            ids = _ids(compiled, batch, known)
            rows, matches = rows + len(ids), matches + len(ids.values)
            errors.update(compiled.errors)
            for name, folder in task.folders.items():
                made = _MADE[name](batch, ids, task)
                if len(made):
                    if name not in files:
                        files[name] = DeltaFile(folder, made.schema, task.codec, task.footer)
                    files[name].write(made)
        entries = {name: json.dumps({"add": file.close()}) for name, file in files.items()}
    except BaseException:
        for file in files.values():
            file.abandon()
        raise
    figures = json.dumps({"rows": rows, "matches": matches, "errors": list(errors.items())})
    columns = {
        "name": ["", *entries],
        "entry": ["", *entries.values()],
        "figures": [figures, *("" for _ in entries)],
    }
    yield pa.RecordBatch.from_pydict(columns)


def _ids(compiled: CompiledRules, batch: pa.RecordBatch, known: pa.Array) -> pa.ListArray:
    """The rows' rule ids, as a dictionary of all ids, `known`, where that is small."""
    if not compiled.inputs:
        batch = pa.RecordBatch.from_arrays([pa.nulls(len(batch))], ["_"])
    if not pa.types.is_string(known.type) or known.nbytes > _SMALL_DICTIONARY:
        return compiled.match(batch).cast(pa.list_(known.type))
    offsets, ordinals, compiled.errors = compiled.match_ordinals(batch)
    values = pa.DictionaryArray.from_arrays(pa.array(ordinals), known)
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), values)


def _tagged(batch: pa.RecordBatch, ids: pa.ListArray, task: Task) -> pa.RecordBatch:
    """Rows of the tagged table."""
    columns = {name: batch.column(name) for name in task.columns}
    columns["rule_ids"] = ids
    columns |= _stamps(batch, task, ("rules_version", "index_fingerprint", "source_version", "tagged_at"))
    made = pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
    if task.only_matched:
        made = made.filter(pa.array(np.diff(ids.offsets.to_numpy()) > 0))
    return made


def _pairs(batch: pa.RecordBatch, ids: pa.ListArray, task: Task) -> pa.RecordBatch:
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
