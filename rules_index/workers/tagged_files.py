"""Writes tagged rows and their matches as files of their Delta tables, in the workers that match them.

A row crosses from Spark to the worker once, as Arrow, and goes from there into Parquet: Spark need not convert all its
columns again only to add one more.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rules_index.workers.copied_files import CopiedFiles, LargeRowGroupError, copied_row_groups
from rules_index.workers.delta_file_writer import PLAIN
from rules_index.workers.match_files import MatchFiles
from rules_index.workers.parquet_columns import ParquetFooterError
from rules_index.workers.source_file_reader import SourceFile, read_batches
from rules_index.workers.table_files import Files
from rules_index.workers.task import Task

if TYPE_CHECKING:
    from rules_index.index.compiled import CompiledRules, RuleId

RESULT = "name string, entry string, figures string"
"""The columns, in Spark's notation, of what `write_files` returns."""
UNREADABLE = "unreadable"
"""In place of a table's name, it says that only Spark's own reader can read the rows of a piece."""
_MOST_MATCHES, _MOST_GROWTH = 1 << 23, 8
"""About the most matches that a thread has in memory, and the most times by which a part has more rows than the one
before it."""
_MOST_BYTES = (1 << 30) - 1
"""The most bytes of the texts of `_MOST_MATCHES` ids; an array holds twice as many."""
_FEW_ROWS, _FEW_BYTES = 1 << 14, 16 << 20
"""Neighbouring batches are joined as long as they have no more rows and bytes together."""
_SMALL_DICTIONARY = 1 << 18
"""If all ids have no more bytes, they may be the dictionary of a batch's lists, including those that it lacks."""


def write_files(compiled: CompiledRules, task: Task, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Tags the rows of one partition and writes them.

    Batches have the columns that the index reads, `task.columns` and `source_version`. Yields one row with the figures
    (JSON: `rows`, `matches`, and `errors` as pairs of a rule id and a number of rows), and one row for each file with
    the table's name and the `add` entry for its log (JSON). An `OSError` leaves no file behind.
    """
    yield _tag(compiled, task, batches, {name: _writer(compiled, task, name) for name in task.folders})


def write_piece(
    compiled: CompiledRules, task: Task, files: Sequence[SourceFile], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """`write_files` for all rows of source files, whose table has the columns of `schema`. Columns that the files store
    as the tagged table does are copied. Raises `UnreadableFileError` if only Spark can read one of the files."""
    batches = partial(read_batches, files, schema)
    if "tagged" in task.folders and not task.only_matched:
        layout = task.layouts.get("tagged", PLAIN)
        with contextlib.suppress(LargeRowGroupError, ParquetFooterError):
            if groups := copied_row_groups(files, schema, task.codec, layout.partition_by):
                folder = task.folders["tagged"]
                plain = Files(folder, task, layout)
                copied = CopiedFiles(folder, task.codec, task.footer, layout, groups, plain)
                others = {name: _writer(compiled, task, name) for name in task.folders if name != "tagged"}
                yield _tag(compiled, task, batches(), {**others, "tagged": copied})
                return
    yield from write_files(compiled, task, batches())


def _matched(
    compiled: CompiledRules, batches: Iterator[pa.RecordBatch], all_ids: pa.Array
) -> Iterator[tuple[pa.RecordBatch, pa.ListArray, np.ndarray, dict[RuleId, int]]]:
    """Yields the batches in parts, each with the rows' rule ids, the concatenated ordinals [matches] int32 of these
    rules, and the number of rows on which each rule raised. all_ids: the ids of all rules by ordinal.

    Rows are matched so many at a time that they should have at most `_MOST_MATCHES` matches, judging by the rows
    before. The first time there are so few that each row may match all rules. If there are more than twice as many
    matches nevertheless, the part is divided, since readers' arrays hold at most 2 GiB of ids.
    """
    most_matches = _MOST_MATCHES
    if pa.types.is_string(all_ids.type) and len(all_ids):
        most_matches = min(most_matches, _MOST_BYTES // max(1, pc.max(pc.binary_length(all_ids)).as_py()))
    rows_at_once = max(1, most_matches // max(len(all_ids), 1))
    for batch in batches:
        start = 0
        while start < len(batch):
            part = batch.slice(start, rows_at_once)
            offsets, ordinals, raised = compiled.match_ordinals(part)
            first = 0
            while first < len(part):
                fitting = int(np.searchsorted(offsets, offsets[first] + 2 * most_matches, side="right")) - 1
                last = max(first + 1, fitting)
                part_ordinals = ordinals[offsets[first] : offsets[last]]
                ids = _id_lists(offsets[first : last + 1] - offsets[first], part_ordinals, all_ids)
                yield part.slice(first, last - first), ids, part_ordinals, raised
                # the errors of the whole part are counted with its first rows
                first, raised = last, {}
            start += len(part)
            expected_rows = most_matches * len(part) // max(len(ordinals), 1)
            rows_at_once = max(1, min(expected_rows, _MOST_GROWTH * rows_at_once))


def unreadable() -> pa.RecordBatch:
    """The result for a piece that only Spark's own reader can read."""
    return pa.RecordBatch.from_pydict({"name": [UNREADABLE], "entry": [""], "figures": [""]})


def _writer(compiled: CompiledRules, task: Task, name: str) -> Files | MatchFiles:
    """The writer of a table of the task, "tagged" or "matches"."""
    layout = task.layouts.get(name, PLAIN)
    if name == "matches":
        return MatchFiles(task.folders[name], task, layout, compiled.ids.cast(task.id_type))
    return Files(task.folders[name], task, layout)


def _tag(
    compiled: CompiledRules,
    task: Task,
    batches: Iterator[pa.RecordBatch],
    writers: Mapping[str, Files | MatchFiles | CopiedFiles],
) -> pa.RecordBatch:
    """Matches rows and writes them by the writers of the tables, by name. Returns what `write_files` yields."""
    rows = matches = 0
    errors: Counter[Any] = Counter()
    all_ids = compiled.ids.cast(task.id_type)
    try:
        for batch, ids, ordinals, raised in _matched(compiled, joined(batches), all_ids):
            rows, matches = rows + len(ids), matches + len(ids.values)
            errors.update(raised)
            for writer in writers.values():
                if isinstance(writer, MatchFiles):
                    writer.add(batch.select([*task.keys, "source_version"]), ids.offsets.to_numpy(), ordinals)
                elif len(tagged := _tagged_rows(batch, ids, ordinals, task)):
                    writer.write(tagged)
        entries = [(name, json.dumps({"add": entry})) for name, writer in writers.items() for entry in writer.close()]
    except BaseException:
        for writer in writers.values():
            writer.abandon()
        raise
    figures = json.dumps({"rows": rows, "matches": matches, "errors": list(errors.items())})
    columns = {
        "name": ["", *(name for name, _ in entries)],
        "entry": ["", *(entry for _, entry in entries)],
        "figures": [figures, *("" for _ in entries)],
    }
    return pa.RecordBatch.from_pydict(columns)


def joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in the same order, with small batches joined.

    Matching does some work once per batch, such as calling an Arrow function for each part of a rule. That takes
    milliseconds: far longer than matching the rows of a small file, of which a source may have thousands.
    """
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if waiting and (rows + len(batch) > _FEW_ROWS or size + batch.nbytes > _FEW_BYTES):
            yield _concatenated(waiting)
            waiting, rows, size = [], 0, 0
        waiting.append(batch)
        rows, size = rows + len(batch), size + batch.nbytes
    if waiting:
        yield _concatenated(waiting)


def _concatenated(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _id_lists(offsets: np.ndarray, ordinals: np.ndarray, all_ids: pa.Array) -> pa.ListArray:
    """The rows' lists of rule ids, which are dictionary-encoded: so no id is looked at once for each row that has it.
    all_ids: the ids of all rules by ordinal."""
    if all_ids.nbytes > _SMALL_DICTIONARY or len(ordinals) < len(all_ids):
        is_used = np.zeros(len(all_ids), bool)
        is_used[ordinals] = True
        used = np.flatnonzero(is_used)
        codes = np.empty(len(all_ids), np.int32)
        codes[used] = np.arange(len(used), dtype=np.int32)
        ordinals, all_ids = codes[ordinals], all_ids.take(pa.array(used))
    values = pa.DictionaryArray.from_arrays(pa.array(ordinals), all_ids)
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), values)


def _tagged_rows(batch: pa.RecordBatch, ids: pa.ListArray, ordinals: np.ndarray, task: Task) -> pa.RecordBatch:
    """The batch as rows of the tagged table."""
    columns = {name: batch.column(name) for name in task.columns}
    columns["rule_ids"] = ids
    if task.annotations is not None:
        columns |= task.annotations.of_ordinals(ids.offsets.to_numpy(), ordinals)
    columns |= _stamps(batch, task, ("rules_version", "index_fingerprint", "source_version", "tagged_at"))
    tagged = pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
    if task.only_matched:
        tagged = tagged.filter(pa.array(np.diff(ids.offsets.to_numpy()) > 0))
    return tagged


def _stamps(batch: pa.RecordBatch, task: Task, names: tuple[str, ...]) -> dict[str, pa.Array]:
    """The columns that follow the source's, by name: a single value for all rows, or the batch's own column."""
    found: dict[str, pa.Array] = {}
    for name in names:
        value = task.stamps.get(name)
        found[name] = batch.column(name) if value is None else repeated(value, len(batch))
    return found


def repeated(value: pa.Scalar, rows: int) -> pa.Array:
    """One value for all rows; a text as a dictionary, which takes less memory and is written sooner."""
    if not pa.types.is_string(value.type):
        return pa.repeat(value, rows)
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([value.as_py()]))
