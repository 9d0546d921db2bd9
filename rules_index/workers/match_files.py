"""Writes the matches of rows as a file of their Delta table: one row for each pair of a rule and a row, sorted by rule.

Until pairs are written, only the ordinals of their rules are kept, and for each row its number of pairs and its keys.
Their columns are made after sorting, one row group at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rules_index.workers.delta_file_writer import SORTED_ROWS, Layout, NewFile
from rules_index.workers.encoded_chunks import EncodedChunks, constant_of
from rules_index.workers.file_statistics import float_bounds, statistics
from rules_index.workers.parquet_columns import CompositeFile, encoded, encoded_row_groups

if TYPE_CHECKING:
    from rules_index.workers.task import Task

_PAIRS, _KEY_BYTES, _ROW_GROUPS = 1 << 22, 32 << 20, 64
"""Pairs are sorted and written once there are so many, or the keys of their rows have so many bytes. The more pairs are
sorted together, the smaller is the part of them that the row groups with a given rule contain. A pair takes 4 bytes
while it waits, and 8 more while it is sorted. Sorted pairs are written in at most so many row groups, if these have
SORTED_ROWS or more: each row group costs 100 microseconds or more, however few rows it has."""
_ENCODED_BYTES = 16 << 20
"""About the most bytes of encoded row groups in memory: keys may be long, and each is repeated for each rule."""
_LONG_RUN = 64
"""If each rule has so many pairs on average, its ids are written as runs, without a value for each pair."""


class MatchFiles:
    """The file of matches for one piece of rows."""

    def __init__(self, folder: str, task: Task, layout: Layout, ids: pa.Array) -> None:
        """ids: the ids of all rules by ordinal, which ascend. The layout must have no partitions."""
        self._folder, self._task, self._layout, self._ids = folder, task, layout, ids
        self._ordinals: list[np.ndarray] = []
        self._lengths: list[np.ndarray] = []
        self._keys: list[pa.RecordBatch] = []
        self._waiting = self._key_bytes = 0
        self._file: _MatchFile | None = None

    def add(self, keys: pa.RecordBatch, offsets: np.ndarray, ordinals: np.ndarray) -> None:
        """Adds rows: their keys, and the rules that they match. Row r matches ordinals[offsets[r]:offsets[r + 1]],
        int32."""
        start = 0
        while start < len(keys):
            stop = int(np.searchsorted(offsets, offsets[start] + _PAIRS, side="right")) - 1
            stop = min(max(stop, start + 1), len(keys))
            lengths = np.diff(offsets[start : stop + 1]).astype(np.int32)
            matched = np.flatnonzero(lengths)
            if len(matched):
                part = keys.slice(start, stop - start)
                part = part if len(matched) == len(part) else part.take(pa.array(matched))
                self._ordinals.append(ordinals[offsets[start] : offsets[stop]])
                self._lengths.append(lengths[matched])
                self._keys.append(part)
                self._waiting += len(self._ordinals[-1])
                self._key_bytes += part.nbytes
            if self._waiting >= _PAIRS or self._key_bytes >= _KEY_BYTES:
                self._flush()
            start = stop

    def close(self) -> list[dict[str, Any]]:
        """Finishes the file; returns its `add` entry, or none if there is no pair."""
        self._flush()
        return [self._file.close()] if self._file is not None else []

    def abandon(self) -> None:
        """Removes what was written."""
        if self._file is not None:
            self._file.abandon()

    def _flush(self) -> None:
        """Writes the pairs that wait."""
        if not self._waiting:
            return
        ordinals, lengths = np.concatenate(self._ordinals), np.concatenate(self._lengths)
        keys = pa.Table.from_batches(self._keys).combine_chunks()
        self._ordinals, self._lengths, self._keys = [], [], []
        self._waiting = self._key_bytes = 0
        # imported here, so that a command that finds nothing to do does not load Numba
        from rules_index.kernels.rows_by_rule import rows_by_rule

        starts, rows = np.zeros(len(self._ids) + 2, np.int64), np.empty(len(ordinals), np.int32)
        rows_by_rule(ordinals, lengths, starts, rows)
        if self._file is None:
            self._file = _MatchFile(self._folder, self._task, self._layout, self._schema(keys.schema))
        self._file.write(self._row_groups(starts[:-1], rows, keys))

    def _schema(self, keys: pa.Schema) -> pa.Schema:
        """The columns of the file."""
        versions = [("rules_version", pa.int64()), ("source_version", pa.int64())]
        fields = [(name, keys.field(name).type) for name in self._task.keys]
        schema = pa.schema([("rule_id", self._ids.type), *fields, *versions])
        return pa.schema([schema.field(name) for name in self._layout.columns or schema.names])

    def _row_groups(self, starts: np.ndarray, rows: np.ndarray, keys: pa.Table) -> Iterator[_RowGroup]:
        """Yields the pairs one row group at a time. Rule r has the pairs starts[r] up to starts[r + 1]; rows: [pairs]
        int32, the index of each pair's row in `keys`."""
        constants = {"rules_version": pa.array([self._task.stamps["rules_version"]])}
        for name in keys.column_names:
            constant = constant_of(keys[name])
            if constant is not None:
                constants[name] = constant
        size = max(SORTED_ROWS, -(-len(rows) // _ROW_GROUPS))
        are_long = np.count_nonzero(np.diff(starts)) * _LONG_RUN <= len(rows)
        for start in range(0, len(rows), size):
            taken = pa.array(rows[start : start + size])
            ids, lengths = self._runs(starts, start, start + len(taken))
            runs = {name: (value, np.array([len(taken)])) for name, value in constants.items()}
            columns = {
                name: pc.take(keys[name], taken, boundscheck=False)
                for name in keys.column_names
                if name not in constants
            }
            if are_long:
                runs["rule_id"] = ids, lengths
            else:
                columns["rule_id"] = _repeated(ids, lengths)
            yield _RowGroup(len(taken), runs, pa.table(columns))

    def _runs(self, starts: np.ndarray, start: int, stop: int) -> tuple[pa.Array, np.ndarray]:
        """The ids of the rules that have pairs from `start` up to `stop`, and how many each has."""
        first = int(np.searchsorted(starts, start, side="right")) - 1
        last = int(np.searchsorted(starts, stop, side="left"))
        lengths = np.diff(np.clip(starts[first : last + 1], start, stop))
        used = np.flatnonzero(lengths)
        return self._ids.take(pa.array(used + first)), lengths[used]


def _repeated(ids: pa.Array, lengths: np.ndarray) -> pa.Array:
    """Each id as often as its length says; text ids with a dictionary."""
    codes = pa.array(np.repeat(np.arange(len(ids), dtype=np.int32), lengths))
    return pa.DictionaryArray.from_arrays(codes, ids) if pa.types.is_string(ids.type) else ids.take(codes)


@dataclass(frozen=True)
class _RowGroup:
    """The rows of a row group.

    runs: columns of long runs of equal values, as values and how often each comes; columns: all others.
    """

    rows: int
    runs: Mapping[str, tuple[pa.Array, np.ndarray]]
    columns: pa.Table


class _MatchFile:
    """The file being written."""

    def __init__(self, folder: str, task: Task, layout: Layout, schema: pa.Schema) -> None:
        self._file = NewFile(folder, task.codec, {})
        self._task, self._indexed, self._schema = task, layout.indexed, schema
        self._floats = float_bounds(schema)
        self._out = CompositeFile(self._file.path)

    def write(self, groups: Iterator[_RowGroup]) -> None:
        """Adds row groups, of which the same columns have runs."""
        for first in groups:
            self._write_some(first, groups)

    def _write_some(self, first: _RowGroup, others: Iterator[_RowGroup]) -> None:
        """Adds a row group, and as many others as are encoded in memory at a time."""
        runs, sizes = EncodedChunks(self._task.codec), list[int]()

        def columns_of(group: _RowGroup) -> pa.Table:
            """Encodes the runs of a row group, and returns its other columns."""
            for name, (values, lengths) in group.runs.items():
                runs.add_runs(len(sizes), name, values, lengths)
            for name in self._floats:
                self._floats[name].add(group.columns[name])
            sizes.append(group.rows)
            return group.columns

        made = encoded_row_groups(columns_of(first), map(columns_of, others), self._task.codec, _ENCODED_BYTES)
        for number, rows in enumerate(sizes):
            columns = [(runs if name in first.runs else made, number, name) for name in self._schema.names]
            self._out.add(rows, columns)

    def close(self) -> dict[str, Any]:
        """Finishes the file; returns its `add` entry."""
        empty = encoded(self._schema.empty_table(), self._task.codec)
        elements = [empty.schema_of(name) for name in self._schema.names]
        self._out.close(elements, empty.created_by, self._task.footer)
        written = pq.read_metadata(self._file.path)
        return self._file.added(statistics(written, self._schema, self._floats, self._indexed))

    def abandon(self) -> None:
        """Removes what was written."""
        self._out.abandon()
        self._file.remove()
