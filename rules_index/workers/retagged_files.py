"""Re-tags single files of a tagged table. Only the columns that rules read are decoded; a file whose ids change is
written again, with all other columns copied as they are."""

from __future__ import annotations

import json
import os
import posixpath
import threading
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import quote, unquote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rules_index.arrays import decoded
from rules_index.index.annotations import plain
from rules_index.workers.encoded_chunks import EncodedChunks
from rules_index.workers.file_statistics import statistics
from rules_index.workers.list_pages import ListPages, may_hold
from rules_index.workers.parquet_columns import ColumnFile, ParquetFooterError, with_columns
from rules_index.workers.retagged_rows import (
    IN_RANGE,
    ReplacedIds,
    RowRange,
    changed_rows,
    in_range_only,
    matched_ids,
    new_ids,
)
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

    matched: the ids of the rules that differ and match each row; changed: the rows that change, [.] int64; emptied: how
    many of these have no id any more, as far as the present ids were read.
    """

    matched: pa.ListArray
    changed: np.ndarray
    emptied: int


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
        size = sum(each.matched.nbytes + each.changed.nbytes for each in groups)
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
    found = list(_matched_groups(compiled, task, add))
    changed = sum(len(each.changed) for each in found)
    if kept is not None and changed and task.rows is None:
        kept.keep(add["path"], found)
    return changed, sum(each.emptied for each in found)


def _matched_groups(compiled: CompiledRules | None, task: FileTask, add: Mapping[str, Any]) -> Iterator[_MatchedGroup]:
    """Matches the rows of a file, one row group at a time."""
    for batch in _batches(task, add, _groups_with_ids(task, add)):
        matched = matched_ids(compiled, task.replaced, batch)
        changed, emptied = changed_rows(compiled, task.replaced, batch, matched)
        has_ids = "rule_ids" in batch.schema.names
        yield _MatchedGroup(matched, np.flatnonzero(changed), int(emptied.sum()) if has_ids else 0)


def _groups_with_ids(task: FileTask, add: Mapping[str, Any]) -> Collection[int] | None:
    """The row groups of a file whose present ids must be read to match them, None for all: because rows may lose some,
    or because annotations depend on all ids."""
    ids = task.replaced.ids_in_rows
    if not task.replaced.reads_ids:
        return ()
    if task.replaced.everything or task.replaced.annotations is not None:
        return None
    try:
        file = ColumnFile(_place(task, add["path"]))
        return [number for number in range(file.row_groups) if may_hold(file, number, "rule_ids", ids)]
    except (ParquetFooterError, KeyError):
        return None  # who reads its rows tells what is wrong with it, or gives rows of older files no ids


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
    file = ColumnFile(_place(task, add["path"]))
    stamps = [pa.field(name, value.type) for name, value in task.stamps.items()]
    fields = [pa.field("rule_ids", pa.list_(task.replaced.id_type)), *task.replaced.columns]
    columns = pa.schema(sorted([*fields, *stamps], key=lambda field: field.name))
    is_copied = all(file.stores(field, task.codec) for field in fields)
    if is_copied and task.rows is None:
        groups = _new_columns(task, add, file, known or _matched_groups(compiled, task, add))
    else:
        groups = _decoded_columns(compiled, task, add, stamps, is_copied)
    try:
        with_columns(file, target, columns, groups, task.codec)
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


_Columns: TypeAlias = dict[str, pa.Array | EncodedChunks | None]
"""The values of a row group in each column that is written again; None: those that it has."""


def _new_columns(
    task: FileTask, add: Mapping[str, Any], file: ColumnFile, groups: Iterable[_MatchedGroup]
) -> Iterator[_Columns]:
    """Yields the columns of each row group that are written again. Of rows whose ids do not change as few are read as
    possible."""
    for number, group in enumerate(groups):
        columns: _Columns = {name: repeated(value, file.rows(number)) for name, value in task.stamps.items()}
        if not len(group.changed):
            yield columns | dict.fromkeys(["rule_ids", *task.replaced.columns.names])
        elif task.replaced.annotations is None and (ids := _with_new_lists(task, add, file, number, group)) is not None:
            yield columns | {"rule_ids": ids}
        else:
            (batch,) = _batches(replace(task, columns=pa.schema([])), add, [number], groups=[number])
            yield columns | _ids_and_annotations(task, new_ids(None, task.replaced, batch, group.matched)[0])


def _with_new_lists(
    task: FileTask, add: Mapping[str, Any], file: ColumnFile, number: int, group: _MatchedGroup
) -> EncodedChunks | None:
    """The ids of a row group, of which only the pages with rows that change are decoded; None if that is impossible."""
    with naming(_place(task, add["path"])):
        pages = ListPages.read(file, number, "rule_ids", task.codec)
        if pages is None:
            return None
        numbers = pages.holding(group.changed)
        before = pages.lists(numbers)
    if before is None:
        return None
    matched = group.matched.take(pa.array(pages.rows_of(numbers)))
    ids, _ = new_ids(None, task.replaced, pa.record_batch({"rule_ids": before}), matched)
    return pages.replaced(numbers, before, ids, task.codec)


def _decoded_columns(
    compiled: CompiledRules | None,
    task: FileTask,
    add: Mapping[str, Any],
    stamps: Sequence[pa.Field],
    is_copied: bool,
) -> Iterator[_Columns]:
    """Yields the columns of each row group that are written again, from the values that its rows have. is_copied:
    whether ids and annotations can be copied if they do not change."""
    for batch in _batches(task, add, None, more=stamps if task.rows is not None else ()):
        ids, rows = new_ids(compiled, task.replaced, batch)
        columns = _ids_and_annotations(task, ids)
        others = {name: columns[name] for name in columns if name != "rule_ids"}
        others |= {name: repeated(value, len(batch)) for name, value in task.stamps.items()}
        if task.rows is not None:
            others = {name: in_range_only(batch, name, decoded(each)) for name, each in others.items()}
        yield {"rule_ids": ids, **others, **(dict.fromkeys(columns) if is_copied and not rows.any() else {})}


def _ids_and_annotations(task: FileTask, ids: pa.ListArray) -> dict[str, pa.Array]:
    """The ids of rows, and their annotations if the table has any."""
    annotations = task.replaced.annotations
    return {"rule_ids": ids, **(plain(annotations.of_ids(ids)) if annotations is not None else {})}


def _batches(
    task: FileTask,
    add: Mapping[str, Any],
    with_ids: Collection[int] | None,
    more: Sequence[pa.Field] = (),
    groups: Iterable[int] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Reads the rows of a file, one batch for each of its row groups, or for each of `groups`.

    A batch has `task.columns`; rule_ids and annotations if its row group is in `with_ids`, which None puts all into;
    the columns `more`; and IN_RANGE if not all rows are to be matched. A column that the file does not store has its
    partition's value, or NULL if the file is older than the column.
    """
    kind = task.replaced.id_type
    kind = pa.dictionary(pa.int32(), kind) if pa.types.is_string(kind) else kind
    ids = [pa.field("rule_ids", pa.list_(kind)), *task.replaced.columns]
    everything = pa.schema([*task.columns, *ids, *more])
    partition = add.get("partitionValues") or {}
    constants = {
        each.name: partition_value(partition[each.name], each.type) for each in everything if each.name in partition
    }
    path = _place(task, add["path"])
    with naming(path):
        footer = pq.read_metadata(path)
    coded = coded_leaves(footer, "rule_ids")
    with pq.ParquetFile(path, metadata=footer, coerce_int96_timestamp_unit="us", read_dictionary=coded) as file:
        for group in range(file.num_row_groups) if groups is None else groups:
            wanted = everything if with_ids is None or group in with_ids else pa.schema([*task.columns, *more])
            held = [name for name in wanted.names if name in file.schema_arrow.names and name not in constants]
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
    return json.dumps(found, ensure_ascii=False)
