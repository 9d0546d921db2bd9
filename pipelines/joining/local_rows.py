"""Reads the rows of a join's micro-batch in this process, and partitions them by key so that each part can be joined.

Filters and partitioning are the same as those of `spark_rows` and `shuffled_rows` for Spark.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipelines.joining import partitioning
from pipelines.joining.local_sides import SideReader, new_files, reading, side_readers
from pipelines.joining.partitioning import MAX_PASSING_SHARE, MAX_SLICE_COPIES
from pipelines.joining.parts import Parts
from pipelines.joining.sides import SideFiles, has_few_new
from pipelines.sources.pieces import cores, each_in_threads, pieces_of
from pipelines.sources.positions import Add
from rules_index.join.window_partners import FARTHEST
from rules_index.join.worker import KEY, OWNED, STREAM, TIME, own_column
from rules_index.names import path_parts
from rules_index.workers.source_file_reader import SourceFile, naming

if TYPE_CHECKING:
    from pipelines.settings.model import Join
    from pipelines.workspace import Workspace
    from rules_index.join.index import JoinIndex

_T = TypeVar("_T")

ROWS, BYTES = 1 << 18, 64 << 20
"""About how many rows and uncompressed bytes a part has."""
_BATCH_ROWS = 1 << 16


class LocalRows:
    """The rows that joins read together; they are read on first use."""

    def __init__(
        self,
        workspace: Workspace,
        widest_join: Join,
        sides: Sequence[SideFiles],
        indexes: Sequence[JoinIndex],
        least: int | None = None,
    ) -> None:
        """widest_join: the streams, the keys and the longest windows of all joins; indexes: of each join; least: the
        event time (microseconds) before which new rows come too late."""
        self.workspace, self.join, self.sides = workspace, widest_join, sides
        self.indexes, self.least = indexes, least
        self.readers = side_readers(widest_join, sides, indexes[0].compiled.time_zone)
        self._lock = threading.Lock()
        self._parts: Parts | None = None
        self._loaded: dict[int, tuple[pa.Table, int]] = {}

    def new_count(self) -> int:
        """How many new rows there are, those for quarantine included."""
        files = [each for reader in self.readers for each in reader.files(new_files(reader.side))]
        deleted = sum(file.kept.false_count for file in files if file.kept is not None)
        return sum(int(pq.read_metadata(file.path).num_rows) for file in files) - deleted

    def latest_and_late(self) -> tuple[int | None, int]:
        """The latest event time (microseconds) among new rows with time and key, and how many of them come too late."""

        def look(reader: SideReader, piece: list[SourceFile]) -> tuple[int | None, int]:
            """The same for some files of one side."""
            latest, late = None, 0
            for times in reader.times(piece):
                if len(times):
                    latest = int(times.max()) if latest is None else max(latest, int(times.max()))
                    late += 0 if self.least is None else int((times < self.least).sum())
            return latest, late

        found = self._each_piece([(reader, new_files(reader.side)) for reader in self.readers], look)
        latest = [time for time, _ in found if time is not None]
        return max(latest, default=None), sum(late for _, late in found)

    def late_rows(self) -> Iterator[tuple[SideReader, pa.RecordBatch]]:
        """The rows that come too late, in batches, each with the reader of its stream."""
        for reader in self.readers:
            with reading(reader):
                files = reader.files(new_files(reader.side))
                yield from ((reader, batch) for batch in reader.rows(files, True, self.least, late=True))

    def tasks(self) -> list[Callable[[], Iterator[pa.RecordBatch]]]:
        """A function for each part, or for each time slice of a large part, that yields its rows for the worker."""
        parts = self._partitioned()
        found: list[Callable[[], Iterator[pa.RecordBatch]]] = []
        for part in range(parts.count):
            rows = parts.rows(part)
            slices = max(1, -(-rows // (2 * ROWS)))
            if rows:
                found += [self._task(part, number, slices) for number in range(slices)]
        return found

    def release(self) -> None:
        """Free the rows."""
        if self._parts is not None:
            self._parts.close()
            self._parts, self._loaded = None, {}

    def _task(self, part: int, number: int, slices: int) -> Callable[[], Iterator[pa.RecordBatch]]:
        def rows() -> Iterator[pa.RecordBatch]:
            """The rows of the part or slice, by event time."""
            table = self._part(part, slices)
            if slices == 1:
                yield from _ordered(table, np.arange(table.num_rows), np.ones(table.num_rows, bool))
                return
            yield from self._slice(table, number, slices)

        return rows

    def _slice(self, table: pa.Table, number: int, slices: int) -> Iterator[pa.RecordBatch]:
        """The rows of one time slice of a part: those that it owns, and earlier ones that a window reaches."""
        times, stream = table[TIME].to_numpy(), table[STREAM].to_numpy()
        even = np.sort(times)[np.arange(1, slices) * len(times) // slices]
        bounds = [-FARTHEST]
        shortest = max(self.join.window.values()) // MAX_SLICE_COPIES
        for bound in even.tolist():
            if bound > times.min() and (len(bounds) == 1 or bound - bounds[-1] >= max(shortest, 1)):
                bounds.append(bound)
        if number >= len(bounds):
            return
        low, high = [*bounds, FARTHEST][number : number + 2]
        windows = np.array([min(self.join.window[name], FARTHEST) for name in self.join.streams], np.int64)
        chosen = np.flatnonzero((times + windows[stream] >= low) & (times < high))
        yield from _ordered(table, chosen, times[chosen] >= low)

    def _part(self, part: int, slices: int) -> pa.Table:
        """The rows of a part; cached until its last slice has been taken."""
        assert self._parts is not None
        if slices == 1:
            return self._united(part)
        with self._lock:
            table, left = self._loaded.get(part) or (self._united(part), slices)
            self._loaded[part] = table, left - 1
            if left == 1:
                del self._loaded[part]
        return table

    def _united(self, part: int) -> pa.Table:
        """The rows of all sides of a part; columns that a side lacks are NULL."""
        assert self._parts is not None
        schema = self._schema()
        tables = []
        for reader in self.readers:
            rows = self._parts.table(part, reader.number)
            if rows is None:
                continue
            stream = pa.array(np.full(rows.num_rows, reader.number, np.int8))
            have = {STREAM: stream, **{name: rows[name] for name in rows.column_names}}
            arrays = [have[f.name] if f.name in have else pa.nulls(rows.num_rows, f.type) for f in schema]
            tables.append(pa.Table.from_arrays(arrays, schema=schema))
        return pa.concat_tables(tables).combine_chunks()

    def _schema(self) -> pa.Schema:
        keys = 2 + len(self.readers[0].types)
        shared = list(self.readers[0].made)[:keys]
        own = [each for reader in self.readers for each in list(reader.made)[keys:]]
        return pa.schema([pa.field(STREAM, pa.int8()), *shared, *own])

    def _partitioned(self) -> Parts:
        """The parts, filled on the first call: with new rows first, then with earlier rows that may join them."""
        if self._parts is not None:
            return self._parts
        total, size = self._sizes()
        count = max(min(cores(), -(-total // partitioning.MIN_PARTITION_ROWS)), -(-total // ROWS), -(-size // BYTES), 1)
        parts = Parts(count, len(self.readers))
        if total <= partitioning.MIN_PARTITION_ROWS:
            for reader in self.readers:
                reader.filters = False
        wanted = {r.number: _NewKeys() for r in self.readers if r.side.earlier and has_few_new(r.side, self.sides)}

        def take(reader: SideReader, piece: list[SourceFile], new: bool) -> None:
            """Filter the rows of some files, and add them to the parts."""
            for batch in reader.rows(piece, new, self.least if new else None, late=False):
                if new:
                    for number, keys in wanted.items():
                        if number != reader.number:
                            keys.add(batch, len(reader.types))
                elif reader.number in wanted:
                    batch = wanted[reader.number].filtered(batch)
                self._put(parts, reader, self._useful(reader, batch))

        try:
            self._each_piece([(r, new_files(r.side)) for r in self.readers], lambda r, piece: take(r, piece, True))
            self._each_piece([(r, r.side.earlier) for r in self.readers], lambda r, piece: take(r, piece, False))
        except BaseException:
            parts.close()
            raise
        self._parts = parts
        return parts

    def _put(self, parts: Parts, reader: SideReader, batch: pa.RecordBatch) -> None:
        """Add rows to the parts given by a hash of their key."""
        if not len(batch):
            return
        if parts.count == 1:
            parts.add(0, reader.number, batch)
            return
        keys = {f"{KEY}{place}": batch.column(f"{KEY}{place}") for place in range(len(reader.types))}
        frame = pl.DataFrame({name: pl.from_arrow(column) for name, column in keys.items()})
        part = (frame.hash_rows(seed=0) % parts.count).to_numpy().astype(np.int64)
        order = np.argsort(part, kind="stable")
        ends = np.cumsum(np.bincount(part, minlength=parts.count)).tolist()
        rows = batch.take(pa.array(order))
        for number, (start, end) in enumerate(pairwise([0, *ends])):
            if end > start:
                parts.add(number, reader.number, rows.slice(start, end - start))

    def _useful(self, reader: SideReader, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that may satisfy a rule. If most rows of the first batch may, later batches are not filtered."""
        name = reader.side.stream.name
        if reader.filters is None:
            reader.filters = all(index.can_filter(name) for index in self.indexes)
            if reader.filters and len(batch):
                found = self._wanted_by_rules(reader, batch)
                reader.filters = bool(found.mean() <= MAX_PASSING_SHARE)
                return batch.filter(pa.array(found))
        return batch.filter(pa.array(self._wanted_by_rules(reader, batch))) if reader.filters and len(batch) else batch

    def _wanted_by_rules(self, reader: SideReader, batch: pa.RecordBatch) -> np.ndarray:
        name = reader.side.stream.name
        found: np.ndarray = reduce(
            np.logical_or, (index.useful(name, _read_by(index, reader, batch)) for index in self.indexes)
        )
        return found

    def _sizes(self) -> tuple[int, int]:
        """Rows and uncompressed bytes of all files."""
        rows = size = 0
        for reader in self.readers:
            for file in reader.files(reader.side.files):
                with reading(reader), naming(file.path):
                    footer = pq.read_metadata(file.path)
                rows += footer.num_rows
                size += sum(footer.row_group(i).total_byte_size for i in range(footer.num_row_groups))
        return rows, size

    def _each_piece(
        self,
        files: Sequence[tuple[SideReader, Sequence[Add]]],
        work: Callable[[SideReader, list[SourceFile]], _T],
    ) -> list[_T]:
        """The results of `work` for pieces of the sides' files, run by threads.

        NeedsSparkError for a file that only Spark can read. The first error is raised.
        """
        pieces: list[tuple[SideReader, list[SourceFile]]] = []
        for reader, adds in files:
            with reading(reader):
                pieces += [(reader, piece) for piece in pieces_of(reader.files(adds), cores())]

        def do(each: tuple[SideReader, list[SourceFile]]) -> _T:
            with reading(each[0]):
                return work(*each)

        return each_in_threads(pieces, do)


class _NewKeys:
    """The distinct values of each key column among new rows, as a semi-join filter without false negatives."""

    def __init__(self) -> None:
        self._keys: list[list[pa.Array]] = []
        self._lock = threading.Lock()

    def add(self, batch: pa.RecordBatch, keys: int) -> None:
        """Add the keys of rows; `keys`: how many columns a key has."""
        with self._lock:
            self._keys = self._keys or [[] for _ in range(keys)]
            for place in range(keys):
                self._keys[place].append(pc.unique(batch.column(f"{KEY}{place}")))

    def filtered(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that may have the key of a new row."""
        if not self._keys:
            return batch.slice(0, 0)
        masks = []
        for place, found in enumerate(self._keys):
            values = pa.chunked_array(found).combine_chunks()
            masks.append(pc.is_in(batch.column(f"{KEY}{place}"), value_set=values))
        return batch.filter(reduce(pc.and_, masks))


def _ordered(table: pa.Table, chosen: np.ndarray, owned: np.ndarray) -> Iterator[pa.RecordBatch]:
    """The chosen rows in batches, in the order of event time, with the column OWNED.

    chosen: their positions [rows] int64; owned: whether each is owned by the part or slice, [rows] bool.
    """
    order = np.argsort(table[TIME].to_numpy()[chosen], kind="stable")
    chosen, owned = chosen[order], owned[order]
    for start in range(0, len(chosen), _BATCH_ROWS):
        rows = table.take(pa.array(chosen[start : start + _BATCH_ROWS]))
        rows = rows.append_column(OWNED, pa.array(owned[start : start + _BATCH_ROWS]))
        yield from rows.combine_chunks().to_batches()


def _read_by(index: JoinIndex, reader: SideReader, batch: pa.RecordBatch) -> pa.Table:
    """The columns of a stream that rules read, under the stream's own names."""
    stream, named = reader.side.stream.name, {}
    for leaf in index.inputs(stream):
        for name in path_parts(leaf.name)[1:2] or reader.names:
            named[name] = batch.column(own_column(stream, name))
    return pa.table(named)
