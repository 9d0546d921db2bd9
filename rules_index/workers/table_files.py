"""Writes rows of a table as Parquet files: one file for each of the table's partitions at a time."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from rules_index.arrays import decoded
from rules_index.workers.delta_file_writer import DeltaFile, Layout, partition_text, remove_files
from rules_index.workers.task import Task

_MOST_OPEN, _MOST_WAITING = 32, 128 << 20
"""The most files of one table that are open at a time, and the most bytes of rows that are buffered for them."""


class Files:
    """The files of one table for one piece of rows: one for each of the table's partitions."""

    def __init__(self, folder: str, task: Task, layout: Layout) -> None:
        self._folder, self._task, self._layout = folder, task, layout
        self._open: dict[tuple[str | None, ...], DeltaFile] = {}
        self._entries: list[dict[str, Any]] = []

    def write(self, rows: pa.RecordBatch) -> None:
        """Adds rows."""
        if self._layout.columns:
            rows = rows.select(list(self._layout.columns))
        for values, part in self._parts(rows):
            file = self._open.pop(values, None)
            if file is None:
                partition = dict(zip(self._layout.partition_by, values, strict=True))
                task = self._task
                file = DeltaFile(self._folder, part.schema, task.codec, task.footer, self._layout, partition)
            self._open[values] = file  # moves it to the end: the order is that of the last use
            file.write(part)
        if len(self._open) > _MOST_OPEN:
            for values in list(self._open)[:-_MOST_OPEN]:
                self._entries.append(self._open.pop(values).close())
        while sum(file.waiting_bytes for file in self._open.values()) > _MOST_WAITING:
            max(self._open.values(), key=lambda file: file.waiting_bytes).flush()

    def _parts(self, rows: pa.RecordBatch) -> Iterator[tuple[tuple[str | None, ...], pa.RecordBatch]]:
        """Yields for each partition its values, as the log writes them, and its rows without the partition columns."""
        names = self._layout.partition_by
        if not names:
            yield (), rows
            return
        kept = rows.drop_columns(list(names))
        partition = np.zeros(len(rows), np.int64)  # a number for each partition
        for name in names:
            column = decoded(rows.column(name))  # NULLs of a dictionary have no code
            codes = column.dictionary_encode(null_encoding="encode")
            partition = partition * (len(codes.dictionary) + 1) + codes.indices.to_numpy(zero_copy_only=False)
            # numbered again from 0, so that the product of many columns' codes cannot overflow
            partition = np.unique(partition, return_inverse=True)[1].reshape(-1)
        order = np.argsort(partition, kind="stable")
        starts = np.flatnonzero(np.diff(partition[order], prepend=-1))
        for start, stop in pairwise([*starts.tolist(), len(rows)]):
            first = int(order[start])
            values = tuple(partition_text(rows.column(name)[first]) for name in names)
            yield values, kept if len(starts) == 1 else kept.take(pa.array(order[start:stop]))

    def close(self) -> list[dict[str, Any]]:
        """Finishes the files; returns their `add` entries."""
        while self._open:
            values, file = next(iter(self._open.items()))
            self._entries.append(file.close())
            del self._open[values]
        return self._entries

    def abandon(self) -> None:
        """Removes what was written."""
        for file in self._open.values():
            file.abandon()
        remove_files(self._folder, self._entries)
