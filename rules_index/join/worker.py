"""The work of a worker on one partition of a join: reads the rows of all sides, ordered by time, and returns tagged
joined rows.

Workers import this library and nothing else of the project. A partition is read once, front to back. Only a chunk of
rows is in memory, together with the earlier rows that a window still reaches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rules_index.join.index import JoinIndex, Method
from rules_index.join.joined_batches import Piece
from rules_index.join.window_partners import FARTHEST, Side
from rules_index.names import path_parts
from rules_index.workers.spark_worker import open_index

STREAM, TIME, NEW, OWNED, KEY = "#stream", "#time", "#new", "#owned", "#key"
"""Columns of a partition's rows besides those of the streams (`own_column`) and the derived ones. In a row, the columns
of all streams but its own are NULL. Spark passes plain columns far faster than STRUCTs of them."""
CHUNK_ROWS, CHUNK_BYTES = 1 << 19, 1 << 28
"""Rows are matched in chunks: a chunk ends when it has so many rows, or so many bytes, and before the last event time
read, which the next batch may continue."""
OUTPUT_ROWS = 1 << 14
"""The most joined rows of a batch that is returned."""
_KEPT = 4
_indexes: dict[tuple[str, tuple[str, ...]], JoinIndex] = {}


@dataclass(frozen=True)
class JoinTask:
    """The parameters of a worker's task.

    streams  names, in the configuration's order, which breaks ties between rows of one time
    columns  for each stream
    windows  for each stream, microseconds
    keys     how many columns the join's key has: `#key0`, `#key1`, ...
    id_type  string or int64
    method   how joined rows are found
    """

    streams: tuple[str, ...]
    columns: tuple[tuple[str, ...], ...]
    windows: tuple[int, ...]
    keys: int
    id_type: pa.DataType
    method: Method = "batch"


def own_column(stream: str, column: str) -> str:
    """The name of a stream's column among those of all streams."""
    return f"{stream}#{column}"


def open_join(path: str, streams: tuple[str, ...]) -> JoinIndex:
    """Returns the index in a file, which is opened once per process. The file's name must change with its content."""
    found = _indexes.get((path, streams))
    if found is None:
        found = JoinIndex.of(open_index(path), streams)
        while len(_indexes) >= _KEPT:
            del _indexes[next(iter(_indexes))]
        _indexes[path, streams] = found
    return found


def join_partition(
    index: JoinIndex, task: JoinTask, batches: Iterable[pa.RecordBatch], chunk_rows: int = CHUNK_ROWS
) -> Iterator[pa.RecordBatch]:
    """Yields the joined rows that satisfy a rule: one STRUCT per stream, and `rule_ids`, ascending.

    batches: rows by ascending event time, each with its key (of any type that Arrow can encode as a dictionary; a row
    with a NULL joins nothing), whether it is new, and whether it is owned, that is, whether joined rows with it as
    their anchor belong to this partition.
    """
    before: pa.Table | None = None
    ids = index.compiled.ids.cast(task.id_type)
    for chunk in _chunks(batches, chunk_rows):
        rows, owned = chunk, chunk[OWNED].to_numpy()
        if before is not None:
            rows = pa.concat_tables([before, chunk]).combine_chunks()
            owned = np.concatenate([np.zeros(before.num_rows, bool), owned])
        sides, numbers = _sides(index, task, rows, owned)
        for piece in index.match(sides, task.windows, method=task.method):
            yield from _joined(ids, task, rows, numbers, piece)
        before = _still_reached(rows, task)


def _chunks(batches: Iterable[pa.RecordBatch], least: int) -> Iterator[pa.Table]:
    """Yields tables made from at least `least` rows, or `CHUNK_BYTES`, except the last one. Rows of one time are in the
    same table."""
    waiting: list[pa.RecordBatch] = []
    count = size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        waiting.append(batch)
        count, size = count + batch.num_rows, size + batch.nbytes
        if count < least and size < CHUNK_BYTES:
            continue
        table = pa.Table.from_batches(waiting)
        times = table[TIME].to_numpy()
        # the next batch may have more rows of the last time
        complete = int(np.searchsorted(times, times[-1]))
        if complete:
            yield table.slice(0, complete).combine_chunks()
        waiting = table.slice(complete).to_batches()
        count, size = count - complete, sum(each.nbytes for each in waiting)
    if count:
        yield pa.Table.from_batches(waiting).combine_chunks()


def _sides(
    index: JoinIndex, task: JoinTask, rows: pa.Table, owned: np.ndarray
) -> tuple[list[Side], tuple[np.ndarray, ...]]:
    """Returns the rows of each stream as a side, and their indices [rows of the stream] among all rows."""
    stream_of, times, new = (rows[name].to_numpy() for name in (STREAM, TIME, NEW))
    keys = key_numbers([rows[f"{KEY}{place}"] for place in range(task.keys)])
    sides, numbers = [], []
    for number in range(len(task.streams)):
        chosen = np.flatnonzero(stream_of == number)
        places = pa.array(chosen)
        columns = {name: column.take(places) for name, column in _inputs(index, task, rows, number).items()}
        # a table without columns would lose its number of rows
        columns[TIME] = rows[TIME].take(places)
        sides.append(Side(pa.table(columns), keys[chosen], times[chosen], new[chosen], owned[chosen]))
        numbers.append(chosen)
    return sides, tuple(numbers)


def _inputs(index: JoinIndex, task: JoinTask, rows: pa.Table, number: int) -> dict[str, pa.ChunkedArray]:
    """Returns the columns of a stream that rules read, for all `rows`; the stream's own columns have the names that
    they have in the stream."""
    stream = task.streams[number]
    columns: dict[str, pa.ChunkedArray] = {}
    for leaf in index.inputs(stream):
        if leaf.text is not None:
            columns[leaf.name] = rows[leaf.name]
            continue
        # a rule that names the stream's whole row reads all its columns
        for name in path_parts(leaf.name)[1:2] or task.columns[number]:
            columns[name] = rows[own_column(stream, name)]
    return columns


def key_numbers(columns: list[pa.ChunkedArray]) -> np.ndarray:
    """Returns a number [rows] int64 for each row: the same for rows that are equal in all columns, -1 for a row with a
    NULL."""
    rows = len(columns[0])
    numbers, null = np.zeros(rows, np.int64), np.zeros(rows, bool)
    for column in columns:
        codes = pc.dictionary_encode(column).combine_chunks()
        if isinstance(codes, pa.ChunkedArray):
            codes = codes.chunk(0) if codes.num_chunks else pa.array([], pa.string()).dictionary_encode()
        null |= codes.indices.is_null().to_numpy(zero_copy_only=False)
        places = codes.indices.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        _, numbers = np.unique(numbers * max(1, len(codes.dictionary)) + places, return_inverse=True)
        numbers = numbers.reshape(-1).astype(np.int64)
    return np.where(null, -1, numbers)


def _joined(
    ids: pa.Array, task: JoinTask, rows: pa.Table, numbers: tuple[np.ndarray, ...], piece: Piece
) -> Iterator[pa.RecordBatch]:
    """Yields the joined rows of a piece in batches."""
    for start in range(0, len(piece), OUTPUT_ROWS):
        stop = min(start + OUTPUT_ROWS, len(piece))
        offsets = piece.offsets[start : stop + 1]
        found = ids.take(pa.array(piece.ordinals[offsets[0] : offsets[-1]]))
        columns: list[pa.Array] = []
        for stream, names, number, row in zip(task.streams, task.columns, numbers, piece.rows, strict=True):
            places = pa.array(number[row[start:stop]])
            fields = [rows[own_column(stream, name)].chunk(0).take(places) for name in names]
            columns.append(pa.StructArray.from_arrays(fields, list(names)))
        lists = pa.ListArray.from_arrays(pa.array((offsets - offsets[0]).astype(np.int32)), found)
        yield pa.RecordBatch.from_arrays([*columns, lists], [*task.streams, "rule_ids"])


def _still_reached(rows: pa.Table, task: JoinTask) -> pa.Table:
    """Returns the rows that rows of a later time can still be joined with."""
    stream_of, times = rows[STREAM].to_numpy(), rows[TIME].to_numpy()
    windows = np.array([min(window, FARTHEST) for window in task.windows], np.int64)
    return rows.filter(pa.array(times + windows[stream_of] > times[-1])).combine_chunks()
