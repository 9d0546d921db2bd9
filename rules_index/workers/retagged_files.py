"""Re-tags single files of a tagged table. Only the columns that rules read are decoded; a file whose ids change is
written again, with all other columns copied as they are."""

from __future__ import annotations

import json
import os
import posixpath
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rules_index.arrays import decoded
from rules_index.index.annotations import plain
from rules_index.workers.file_statistics import statistics
from rules_index.workers.parquet_columns import with_columns
from rules_index.workers.retagged_rows import IN_RANGE, ReplacedIds, RowRange, in_range_only, matched_ids, new_ids
from rules_index.workers.source_file_reader import coded_leaves, naming, partition_value
from rules_index.workers.tagged_files import repeated

if TYPE_CHECKING:
    from rules_index.index.compiled import CompiledRules

_KEPT_OF_ADD = ("partitionValues", "tags", "clusteringProvider")


@dataclass(frozen=True)
class FileTask:
    """How files of a table are matched and written.

    folder    of the table, in which files are written
    replaced  the ids that rows lose before they are matched
    columns   the columns that the index and the range `rows` read, with their types
    codec     the compression of columns that are written
    stamps    columns with one value for all rows that are matched
    source    the folder in which files are read; None: `folder`
    rows      the range of rows that are matched, the others keep what they have; None: all rows
    """

    folder: str
    replaced: ReplacedIds
    columns: pa.Schema
    codec: str
    stamps: Mapping[str, pa.Scalar] = field(default_factory=dict)
    source: str | None = None
    rows: RowRange | None = None


@dataclass(frozen=True)
class _MatchedGroup:
    """The result of matching a row group.

    ids: the rows' new ids, None if their present ids were not read; matched: the ids of the rules that differ and match
    each row; changes: whether any row changes.
    """

    ids: pa.ListArray | None
    matched: pa.ListArray
    changes: bool


@dataclass
class KeptMatches:
    """The results of matching files, kept from `count_changes` until `write_file`.

    bytes: how many more bytes may be kept; groups: by the path of a file in the log, the results for its row groups.
    """

    bytes: int
    groups: dict[str, list[_MatchedGroup]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def keep(self, path: str, groups: list[_MatchedGroup]) -> None:
        """Keeps the results for a file's row groups, if there is room for them."""
        size = sum((each.matched if each.ids is None else each.ids).nbytes for each in groups)
        with self._lock:
            if size <= self.bytes:
                self.bytes -= size
                self.groups[path] = groups


def count_changes(
    compiled: CompiledRules | None, task: FileTask, add: Mapping[str, Any], kept: KeptMatches | None = None
) -> tuple[int, int]:
    """Returns how many rows of a file (the log's `add` action) change, and how many of these have no id any more.

    kept: receives what the rows match, for `write_file`.
    """
    changed = emptied = 0
    found = []
    for batch in _batches(task, add, task.replaced.reads_ids):
        matched = matched_ids(compiled, task.replaced, batch)
        ids, rows = new_ids(compiled, task.replaced, batch, matched)
        found.append(_MatchedGroup(ids if task.replaced.reads_ids else None, matched, bool(rows.any())))
        changed += int(rows.sum())
        if task.replaced.reads_ids and rows.any():
            emptied += int((np.diff(ids.offsets.to_numpy())[rows] == 0).sum())
    if kept is not None and changed and task.rows is None:
        kept.keep(add["path"], found)
    return changed, emptied


def write_file(
    compiled: CompiledRules | None, task: FileTask, add: Mapping[str, Any], kept: KeptMatches | None = None
) -> dict[str, Any]:
    """Writes a file (the log's `add` action) again, with the rows' new ids; returns the new file's `add` entry.

    kept: what `count_changes` has kept; a file whose results are there is not matched again.
    """
    known = kept.groups.pop(add["path"], None) if kept is not None else None
    name = posixpath.join(posixpath.dirname(unquote(add["path"])), f"part-{uuid.uuid4()}.{task.codec}.parquet")
    target = os.path.join(task.folder, name)
    os.makedirs(os.path.dirname(target), exist_ok=True)
    try:
        with_columns(_place(task, add["path"]), target, _replaced_columns(compiled, task, add, known), task.codec)
    except BaseException:
        if os.path.exists(target):
            os.unlink(target)
        raise
    written = [*task.replaced.columns.names, *task.stamps]
    return {
        "path": quote(name, "/="),
        **{key: add[key] for key in _KEPT_OF_ADD if add.get(key) is not None},
        "size": os.path.getsize(target),
        "modificationTime": int(os.path.getmtime(target) * 1000),
        "dataChange": True,
        **({"stats": _statistics(add["stats"], written, pq.read_metadata(target))} if add.get("stats") else {}),
    }


def _replaced_columns(
    compiled: CompiledRules | None, task: FileTask, add: Mapping[str, Any], known: Sequence[_MatchedGroup] | None
) -> Iterator[tuple[pa.Table, Sequence[str]]]:
    """Yields for each row group the columns that are written again, and the names of those that do not change."""
    unchanged = ("rule_ids", *task.replaced.columns.names)
    if known is None:
        stamps = [pa.field(name, value.type) for name, value in task.stamps.items()] if task.rows is not None else []
        for batch in _batches(task, add, with_ids=True, more=stamps):
            ids, rows = new_ids(compiled, task.replaced, batch)
            yield _replaced(task, ids, batch), () if rows.any() else unchanged
    elif all(group.ids is not None for group in known):
        yield from ((_replaced(task, group.ids), () if group.changes else unchanged) for group in known)
    else:
        batches = _batches(replace(task, columns=pa.schema([])), add, with_ids=True)
        for group, batch in zip(known, batches, strict=True):
            ids, _ = new_ids(compiled, task.replaced, batch, group.matched)
            yield _replaced(task, ids), () if group.changes else unchanged


def _replaced(task: FileTask, ids: pa.ListArray, batch: pa.RecordBatch | None = None) -> pa.Table:
    """The columns of a row group that are written again. batch: the present rows, needed if not all are in range."""
    columns: dict[str, pa.Array] = {}
    if task.replaced.annotations is not None:
        columns |= plain(task.replaced.annotations.of_ids(ids))
    columns |= {name: repeated(value, len(ids)) for name, value in task.stamps.items()}
    if task.rows is not None and batch is not None:
        columns = {name: in_range_only(batch, name, decoded(column)) for name, column in columns.items()}
    return pa.table({"rule_ids": ids, **columns})


def _batches(
    task: FileTask, add: Mapping[str, Any], with_ids: bool, more: Sequence[pa.Field] = ()
) -> Iterator[pa.RecordBatch]:
    """Reads the rows of a file, one batch for each of its row groups.

    A batch has `task.columns`; if `with_ids`, rule_ids and annotations; the columns `more`; and IN_RANGE if not all
    rows are to be matched. A column that the file does not store has its partition's value, or NULL if the file is
    older than the column.
    """
    kind = task.replaced.id_type
    kind = pa.dictionary(pa.int32(), kind) if pa.types.is_string(kind) else kind
    ids = [pa.field("rule_ids", pa.list_(kind)), *task.replaced.columns] if with_ids else []
    wanted = pa.schema([*task.columns, *ids, *more])
    partition = add.get("partitionValues") or {}
    constants = {
        each.name: partition_value(partition[each.name], each.type) for each in wanted if each.name in partition
    }
    path = _place(task, add["path"])
    with naming(path):
        footer = pq.read_metadata(path)
    coded = coded_leaves(footer, "rule_ids")
    with pq.ParquetFile(path, metadata=footer, coerce_int96_timestamp_unit="us", read_dictionary=coded) as file:
        held = [name for name in wanted.names if name in file.schema_arrow.names and name not in constants]
        for group in range(file.num_row_groups):
            with naming(path):
                table = file.read_row_group(group, columns=held)
            rows = file.metadata.row_group(group).num_rows
            arrays = []
            for each in wanted:
                if each.name not in held:
                    arrays.append(pa.repeat(constants.get(each.name, pa.scalar(None, each.type)), rows))
                    continue
                chunks = table[each.name].cast(each.type).combine_chunks()
                arrays.append(pa.concat_arrays(chunks.chunks) if isinstance(chunks, pa.ChunkedArray) else chunks)
            if not arrays:  # an index that reads no column is matched with rows, too
                yield pa.RecordBatch.from_arrays([pa.nulls(rows)], ["_"])
                continue
            batch = pa.RecordBatch.from_arrays(arrays, list(wanted.names))
            yield (
                batch if task.rows is None else batch.append_column(IN_RANGE, task.rows.holds(batch[task.rows.column]))
            )


def _place(task: FileTask, path: str) -> str:
    return os.path.join(task.source or task.folder, unquote(path))


def _statistics(text: str, columns: Sequence[str], footer: pq.FileMetaData) -> str:
    """The statistics of a file that is written again: those of the columns that were written again are the new file's,
    if the log had any of them."""
    found = json.loads(text)
    new = statistics(footer, footer.schema.to_arrow_schema(), {}, frozenset(columns))
    counted = {name for name in columns if name in found.get("nullCount", {})}
    for part in ("nullCount", "minValues", "maxValues"):
        kept = {name: value for name, value in found.get(part, {}).items() if name not in columns}
        found[part] = kept | {name: value for name, value in new[part].items() if name in counted}
    return json.dumps(found)
