"""Writes the matches of rows as a file of their Delta table: one row for each pair of a rule and a row, sorted by rule.

Until pairs are written, only the ordinals of their rules are kept, and for each row its number of pairs and its keys.
Their columns are made after sorting, one row group at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rules_index.workers.delta_file_writer import SORTED_ROWS, DeltaFile, Layout, is_constant

if TYPE_CHECKING:
    from rules_index.workers.task import Task

_PAIRS, _KEY_BYTES, _ROW_GROUPS = 1 << 22, 32 << 20, 64
"""Pairs are sorted and written once there are so many, or the keys of their rows have so many bytes. The more pairs are
sorted together, the smaller is the part of them that the row groups with a given rule contain. A pair takes 4 bytes
while it waits, and 8 more while it is sorted. Sorted pairs are written in at most so many row groups, if these have
SORTED_ROWS or more: each row group costs 100 microseconds or more, however few rows it has."""


class MatchFiles:
    """The file of matches for one piece of rows."""

    def __init__(self, folder: str, task: Task, layout: Layout, ids: pa.Array) -> None:
        """ids: the ids of all rules by ordinal, which ascend. The layout must have no partitions."""
        self._folder, self._task, self._layout, self._ids = folder, task, layout, ids
        self._ordinals: list[np.ndarray] = []
        self._lengths: list[np.ndarray] = []
        self._keys: list[pa.RecordBatch] = []
        self._waiting = self._key_bytes = 0
        self._file: DeltaFile | None = None

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
        for part in self._parts(starts[:-1], rows, keys):
            if self._file is None:
                self._file = DeltaFile(self._folder, part.schema, self._task.codec, self._task.footer, self._layout)
            self._file.write_row_group(part)

    def _parts(self, starts: np.ndarray, rows: np.ndarray, keys: pa.Table) -> Iterator[pa.Table]:
        """Yields the pairs as rows of the table, one row group at a time. Rule r has the pairs starts[r] up to
        starts[r + 1]; rows: [pairs] int32, the index of each pair's row in `keys`."""
        constants = {name: keys[name][0] for name in keys.schema.names if is_constant(keys[name])}
        constants |= {name: value for name, value in self._task.stamps.items() if name == "rules_version"}
        names = ("rule_id", *self._task.keys, "rules_version", "source_version")
        size = max(SORTED_ROWS, -(-len(rows) // _ROW_GROUPS))
        for start in range(0, len(rows), size):
            taken = pa.array(rows[start : start + size])
            columns = {"rule_id": self._rule_ids(starts, start, start + len(taken))}
            for name in names[1:]:
                constant = constants.get(name)
                columns[name] = (
                    pc.take(keys[name], taken, boundscheck=False)
                    if constant is None
                    else pa.repeat(constant, len(taken))
                )
            yield pa.table({name: columns[name] for name in self._layout.columns or names})

    def _rule_ids(self, starts: np.ndarray, start: int, stop: int) -> pa.Array:
        """The ids of the pairs from `start` up to `stop`. Text ids get a dictionary without unused values, since the
        writer would write those, too."""
        first = int(np.searchsorted(starts, start, side="right")) - 1
        last = int(np.searchsorted(starts, stop, side="left"))
        lengths = np.diff(np.clip(starts[first : last + 1], start, stop))
        used = np.flatnonzero(lengths)
        codes = np.repeat(np.arange(len(used), dtype=np.int32), lengths[used])
        ids = self._ids.take(pa.array(used + first))
        if not pa.types.is_string(ids.type):
            return ids.take(pa.array(codes))
        return pa.DictionaryArray.from_arrays(pa.array(codes), ids)
