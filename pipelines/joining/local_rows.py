"""The rows of a join's micro-batch, read in this process and brought to the parts in which they can be joined.

What is left out, and where rows go, is as `rows` and `placed_rows` have it for Spark.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipelines.errors import NeedsSparkError, SourceError
from pipelines.joining.local_keys import common_type, comparable, instants
from pipelines.joining.parts import Parts
from pipelines.joining.sides import SideFiles, has_few_new, least_time
from pipelines.lake.folder_log import FolderLog
from pipelines.lake.lake import first_line
from pipelines.lake.schema import OPAQUE, arrow_schema_of, nullable
from pipelines.sources.source import Add
from rules_index.index.inputs import path_parts
from rules_index.join.worker import KEY, NEW, OWNED, STREAM, TIME, own_column
from rules_index.workers.source_files import SourceFile, UnreadableFileError, read_batches, source_files

if TYPE_CHECKING:
    from pipelines.joining.runner import Planned
    from pipelines.settings.model import Join
    from pipelines.workspace import Workspace
    from rules_index.join import JoinIndex

_T = TypeVar("_T")

FEW_ROWS, ROWS, BYTES = 1 << 14, 1 << 18, 64 << 20
"""Rows that are not worth a part of their own; rows and bytes, before compression, that a part has at most, about."""
PIECE_BYTES = 16 << 20
"""Bytes of row groups, before compression, from which it pays to have another thread."""
WORTH = 0.5
"""Share of a stream's rows that a filter leaves, above which it costs more than it saves."""
COPIES = 4
"""Copies of a row that slices of time may cost, about: a slice is at least so small a part of the longest window."""
_BATCH_ROWS = 1 << 16


@dataclass
class SideReader:
    """Reads the rows of one stream that can join: with their event time, whether they are new, their key, and the
    stream's columns."""

    side: SideFiles
    number: int
    time: str
    keys: tuple[str, ...]
    types: Sequence[pa.DataType]
    zone: str
    schema: pa.Schema
    filters: bool | None = field(default=None)

    @property
    def names(self) -> list[str]:
        """The stream's columns."""
        return list(self.schema.names)

    @property
    def made(self) -> pa.Schema:
        """The columns of the rows that are read."""
        keys = [pa.field(f"{KEY}{place}", kind) for place, kind in enumerate(self.types)]
        own = [pa.field(own_column(self.side.stream.name, each.name), each.type) for each in self.schema]
        return pa.schema([pa.field(TIME, pa.int64()), pa.field(NEW, pa.bool_()), *keys, *own])

    def files(self, adds: Sequence[Add]) -> list[SourceFile]:
        """Files of the source."""
        assert isinstance(self.side.source.log, FolderLog)
        return source_files(adds, self.side.source.log.file)

    def times(self, files: Sequence[SourceFile]) -> Iterator[np.ndarray]:
        """The event times of the rows of files that can join, without anything else being read."""
        for batch in read_batches(files, self.schema, [self.time, *self.keys]):
            yield self._joining(batch)[0].to_numpy()

    def rows(self, files: Sequence[SourceFile], new: bool, least: int | None, late: bool) -> Iterator[pa.RecordBatch]:
        """The rows of files that can join: those whose time is not before `least`, or, with `late`, these alone."""
        for batch in read_batches(files, self.schema):
            times, keys, present = self._joining(batch)
            if least is not None:
                kept = (times.to_numpy() < least) == late
                times, keys = times.filter(pa.array(kept)), [key.filter(pa.array(kept)) for key in keys]
                present[present] = kept
            own = [_plain(batch.column(name)) for name in self.schema.names]
            if not present.all():
                own = [column.filter(pa.array(present)) for column in own]
            if len(times):
                arrays = [times, pa.array(np.full(len(times), new)), *keys, *own]
                yield pa.RecordBatch.from_arrays(arrays, schema=self.made)

    def _joining(self, batch: pa.RecordBatch) -> tuple[pa.Array, list[pa.Array], np.ndarray]:
        """Times and keys of the rows that have both, and which of all rows [rows] bool these are."""
        times = instants(batch.column(self.time), self.zone)
        keys = [comparable(_plain(batch.column(n)), kind) for n, kind in zip(self.keys, self.types, strict=True)]
        valid = [column.is_valid().to_numpy(zero_copy_only=False) for column in (times, *keys)]
        present: np.ndarray = np.array(reduce(np.logical_and, valid))
        if not present.all():
            chosen = pa.array(present)
            times, keys = times.filter(chosen), [key.filter(chosen) for key in keys]
        return times, keys, present


def side_readers(join: Join, sides: Sequence[SideFiles], zone: str) -> list[SideReader]:
    """What reads each stream. NeedsSparkError where only Spark compares the keys or reads the columns."""
    schemas = [nullable(arrow_schema_of(json.dumps({"fields": side.fields}))) for side in sides]
    for side, schema in zip(sides, schemas, strict=True):
        for each in schema:
            if _is_opaque(each.type):
                raise NeedsSparkError(f"only Spark reads the column {each.name} of {side.stream.name}")
    spelled = [{name.lower(): name for name in schema.names} for schema in schemas]
    streams = [side.stream.name for side in sides]
    columns = [
        tuple(names[key.lower()] for key in join.on[stream]) for stream, names in zip(streams, spelled, strict=True)
    ]
    types = []
    for named in zip(*columns, strict=True):
        kinds = [schema.field(name).type for schema, name in zip(schemas, named, strict=True)]
        pairs = zip(streams, named, strict=True)
        types.append(common_type(kinds, "the keys " + ", ".join(f"{stream}.{name}" for stream, name in pairs)))
    times = [names[str(s.stream.event_time).lower()] for names, s in zip(spelled, sides, strict=True)]
    return [
        SideReader(side, number, times[number], columns[number], types, zone, schemas[number])
        for number, side in enumerate(sides)
    ]


class LocalRows:
    """The rows of micro-batches that read the same ones, read when they are first asked for."""

    def __init__(self, workspace: Workspace, widest: Join, together: Sequence[Planned]) -> None:
        """widest: the streams, the keys and the longest windows of all joins."""
        first = together[0]
        self.workspace, self.join, self.sides = workspace, widest, first.sides
        self.indexes = [planned.index for planned in together]
        self.least = least_time(first.batch.plan)
        self.readers = side_readers(widest, first.sides, first.index.compiled.time_zone)
        self._lock = threading.Lock()
        self._parts: Parts | None = None
        self._loaded: dict[int, tuple[pa.Table, int]] = {}

    def new_count(self) -> int:
        """New rows, those in quarantine included."""
        files = [each for reader in self.readers for each in reader.files(_new(reader.side))]
        return sum(int(pq.read_metadata(file.path).num_rows) for file in files)

    def latest_and_late(self) -> tuple[int | None, int]:
        """The latest event time of the new rows that can join, and how many of them come too late."""

        def look(reader: SideReader, piece: list[SourceFile]) -> tuple[int | None, int]:
            latest, late = None, 0
            for times in reader.times(piece):
                if len(times):
                    latest = int(times.max()) if latest is None else max(latest, int(times.max()))
                    late += 0 if self.least is None else int((times < self.least).sum())
            return latest, late

        found = self._each_piece([(reader, _new(reader.side)) for reader in self.readers], look)
        latest = [time for time, _ in found if time is not None]
        return max(latest, default=None), sum(late for _, late in found)

    def late_rows(self) -> Iterator[tuple[SideReader, pa.RecordBatch]]:
        """The rows that come too late, with the stream that they are of."""
        for reader in self.readers:
            with _reading(reader):
                files = reader.files(_new(reader.side))
                yield from ((reader, batch) for batch in reader.rows(files, True, self.least, late=True))

    def tasks(self) -> list[Callable[[], Iterator[pa.RecordBatch]]]:
        """What gives the rows of each part, or of each slice of time of a large one, as the worker takes them."""
        parts = self._placed()
        found: list[Callable[[], Iterator[pa.RecordBatch]]] = []
        for part in range(parts.count):
            rows = parts.rows(part)
            slices = max(1, -(-rows // (2 * ROWS)))
            if rows:
                found += [self._task(part, number, slices) for number in range(slices)]
        return found

    def release(self) -> None:
        """Give up what is kept of the rows."""
        if self._parts is not None:
            self._parts.close()
            self._parts, self._loaded = None, {}

    def _task(self, part: int, number: int, slices: int) -> Callable[[], Iterator[pa.RecordBatch]]:
        def rows() -> Iterator[pa.RecordBatch]:
            table = self._part(part, slices)
            if slices == 1:
                yield from _ordered(table, np.arange(table.num_rows), np.ones(table.num_rows, bool))
                return
            yield from self._slice(table, number, slices)

        return rows

    def _slice(self, table: pa.Table, number: int, slices: int) -> Iterator[pa.RecordBatch]:
        """Of a part the rows of one slice of time, which it owns, and those before it that a window reaches from
        there."""
        times, stream = table[TIME].to_numpy(), table[STREAM].to_numpy()
        even = np.sort(times)[np.arange(1, slices) * len(times) // slices]
        bounds = [-np.inf]
        least = max(self.join.window.values()) // COPIES
        for bound in even.tolist():
            if bound > times.min() and (len(bounds) == 1 or bound - bounds[-1] >= max(least, 1)):
                bounds.append(bound)
        if number >= len(bounds):
            return
        low, high = [*bounds, np.inf][number : number + 2]
        windows = np.array([float(self.join.window[name]) for name in self.join.streams])
        chosen = np.flatnonzero((times + windows[stream] >= low) & (times < high))
        yield from _ordered(table, chosen, times[chosen] >= low)

    def _part(self, part: int, slices: int) -> pa.Table:
        """The rows of a part; kept as long as slices of it are left."""
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
        """The rows of all sides, NULL where a side has no such column."""
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

    def _placed(self) -> Parts:
        """The parts, filled at the first call: with the new rows, then with the earlier ones that can join some."""
        if self._parts is not None:
            return self._parts
        total, size = self._sizes()
        cores = os.cpu_count() or 1
        count = max(min(cores, -(-total // FEW_ROWS)), -(-total // ROWS), -(-size // BYTES), 1)
        parts = Parts(count, len(self.readers))
        if total <= FEW_ROWS:
            for reader in self.readers:
                reader.filters = False
        wanted = {r.number: _Wanted() for r in self.readers if r.side.earlier and has_few_new(r.side, self.sides)}

        def take(reader: SideReader, piece: list[SourceFile], new: bool) -> None:
            for batch in reader.rows(piece, new, self.least if new else None, late=False):
                if new:
                    for number, keys in wanted.items():
                        if number != reader.number:
                            keys.add(batch, len(reader.types))
                elif reader.number in wanted:
                    batch = wanted[reader.number].filtered(batch)
                self._put(parts, reader, self._useful(reader, batch))

        try:
            self._each_piece([(r, _new(r.side)) for r in self.readers], lambda r, piece: take(r, piece, True))
            self._each_piece([(r, r.side.earlier) for r in self.readers], lambda r, piece: take(r, piece, False))
        except BaseException:
            parts.close()
            raise
        self._parts = parts
        return parts

    def _put(self, parts: Parts, reader: SideReader, batch: pa.RecordBatch) -> None:
        """Rows to their parts, by a hash of their key."""
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
        """The rows that some rule can want; all of them where the first batch shows that most are."""
        name = reader.side.stream.name
        if reader.filters is None:
            reader.filters = all(index.filters(name) for index in self.indexes)
            if reader.filters and len(batch):
                found = self._wanted_by_rules(reader, batch)
                reader.filters = bool(found.mean() <= WORTH)
                return batch.filter(pa.array(found))
        return batch.filter(pa.array(self._wanted_by_rules(reader, batch))) if reader.filters and len(batch) else batch

    def _wanted_by_rules(self, reader: SideReader, batch: pa.RecordBatch) -> np.ndarray:
        name = reader.side.stream.name
        found: np.ndarray = reduce(
            np.logical_or, (index.useful(name, _read_by(index, reader, batch)) for index in self.indexes)
        )
        return found

    def _sizes(self) -> tuple[int, int]:
        """Rows and bytes, before compression, of all files."""
        rows = size = 0
        for reader in self.readers:
            for file in reader.files(reader.side.files):
                with _reading(reader):
                    footer = pq.read_metadata(file.path)
                rows += footer.num_rows
                size += sum(footer.row_group(i).total_byte_size for i in range(footer.num_row_groups))
        return rows, size

    def _each_piece(
        self,
        files: Sequence[tuple[SideReader, Sequence[Add]]],
        work: Callable[[SideReader, list[SourceFile]], _T],
    ) -> list[_T]:
        """What `work` gives for files of the sides, which threads take. NeedsSparkError for a file that only Spark
        reads; the first failure ends all."""
        pieces = [(r, piece) for r, adds in files for piece in _pieces(r.files(adds)) if adds]

        def do(each: tuple[SideReader, list[SourceFile]]) -> _T:
            with _reading(each[0]):
                return work(*each)

        threads = min(len(pieces), os.cpu_count() or 1)
        if threads <= 1:
            return [do(each) for each in pieces]
        with ThreadPoolExecutor(threads, "deltatag") as pool:
            return list(pool.map(do, pieces))


@contextmanager
def _reading(reader: SideReader) -> Iterator[None]:
    """While inside, errors of reading a source are told as such."""
    try:
        yield
    except UnreadableFileError as error:
        raise NeedsSparkError(str(error)) from error
    except (pa.ArrowException, OSError) as error:
        name = reader.side.stream.name
        raise SourceError(f"The source of {name} cannot be read: {first_line(error)}") from error


class _Wanted:
    """The keys of new rows, each column for itself: no row that they leave out has the key of one of them."""

    def __init__(self) -> None:
        self._keys: list[list[pa.Array]] = []
        self._lock = threading.Lock()

    def add(self, batch: pa.RecordBatch, keys: int) -> None:
        """Take the keys of rows."""
        with self._lock:
            self._keys = self._keys or [[] for _ in range(keys)]
            for place in range(keys):
                self._keys[place].append(pc.unique(batch.column(f"{KEY}{place}")))

    def filtered(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that can have the key of one of the new ones."""
        if not self._keys:
            return batch.slice(0, 0)
        masks = []
        for place, found in enumerate(self._keys):
            values = pa.chunked_array(found).combine_chunks()
            masks.append(pc.is_in(batch.column(f"{KEY}{place}"), value_set=values))
        return batch.filter(reduce(pc.and_, masks))


def _ordered(table: pa.Table, chosen: np.ndarray, owned: np.ndarray) -> Iterator[pa.RecordBatch]:
    """Rows by their event time, each with whether it is owned."""
    order = np.argsort(table[TIME].to_numpy()[chosen], kind="stable")
    chosen, owned = chosen[order], owned[order]
    for start in range(0, len(chosen), _BATCH_ROWS):
        rows = table.take(pa.array(chosen[start : start + _BATCH_ROWS]))
        rows = rows.append_column(OWNED, pa.array(owned[start : start + _BATCH_ROWS]))
        yield from rows.combine_chunks().to_batches()


def _read_by(index: JoinIndex, reader: SideReader, batch: pa.RecordBatch) -> pa.Table:
    """The columns that rules read of a stream, under their own names."""
    stream, named = reader.side.stream.name, {}
    for leaf in index.inputs(stream):
        for name in path_parts(leaf.name)[1:2] or reader.names:
            named[name] = batch.column(own_column(stream, name))
    return pa.table(named)


def _pieces(files: Sequence[SourceFile]) -> list[list[SourceFile]]:
    """The row groups of files in their order, as parts of about equal sizes for threads."""
    groups: list[tuple[SourceFile, int, int]] = []
    for file in files:
        footer = pq.read_metadata(file.path)
        groups += [(file, i, footer.row_group(i).total_byte_size) for i in range(footer.num_row_groups)]
    total = sum(size for _, _, size in groups)
    count = max(1, min(os.cpu_count() or 1, total // PIECE_BYTES))
    pieces: list[list[SourceFile]] = [[] for _ in range(count)]
    before = 0
    for file, group, size in groups:
        number = min(count - 1, (before + size // 2) * count // max(total, 1))
        pieces[number].append(SourceFile(file.path, file.partition, file.version, (group,)))
        before += size
    return [piece for piece in pieces if piece]


def _new(side: SideFiles) -> Sequence[Add]:
    return side.new.files if side.new is not None else ()


def _is_opaque(kind: pa.DataType) -> bool:
    if kind == OPAQUE:
        return True
    return pa.types.is_nested(kind) and any(_is_opaque(kind.field(i).type) for i in range(kind.num_fields))


def _plain(column: pa.Array) -> pa.Array:
    """Texts as such, where a file had them as codes of a dictionary."""
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def struct_of(reader: SideReader, batch: pa.RecordBatch) -> pa.StructArray:
    """The stream's columns of some rows as one column."""
    name = reader.side.stream.name
    fields = [batch.column(own_column(name, column)) for column in reader.names]
    return pa.StructArray.from_arrays(fields, reader.names)


def names_of(readers: Sequence[SideReader]) -> Mapping[str, tuple[str, ...]]:
    """The columns of each stream."""
    return {reader.side.stream.name: tuple(reader.names) for reader in readers}
