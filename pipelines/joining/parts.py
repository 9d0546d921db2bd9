"""Rows of a join partitioned by key, in memory up to a limit; beyond it they spill to a file."""

from __future__ import annotations

import io
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO

import pyarrow as pa

from pipelines.errors import ScratchError, not_written
from pipelines.scratch import scratch_folder

KEPT_BYTES = 256 << 20
"""Bytes of rows in memory above which all rows spill to the file."""


@dataclass
class _SideRows:
    """One side's rows in one part: batches in memory, and (offset, length) of those in the file."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    spilled: list[tuple[int, int]] = field(default_factory=list)
    rows: int = 0


class Parts:
    """Rows in parts, which several threads may add to. The file has no name, so that the system always removes it."""

    def __init__(self, parts: int, sides: int) -> None:
        """parts, sides: how many parts and sides there are."""
        self.count = parts
        self._held = [[_SideRows() for _ in range(sides)] for _ in range(parts)]
        self._bytes = 0
        self._file: IO[bytes] | None = None
        self._lock = threading.Lock()

    def add(self, part: int, side: int, batch: pa.RecordBatch) -> None:
        """Add rows of a side; ScratchError if there is no space for the file."""
        with self._lock:
            held = self._held[part][side]
            held.batches.append(batch)
            held.rows += len(batch)
            self._bytes += batch.nbytes
            if self._bytes > KEPT_BYTES:
                try:
                    self._spill()
                except OSError as error:
                    what = f"Rows of a join cannot be written to the folder for scratch files, {scratch_folder()}"
                    raise ScratchError(str(not_written(what, error))) from error

    def rows(self, part: int) -> int:
        """Rows of all sides in a part."""
        return sum(held.rows for held in self._held[part])

    def table(self, part: int, side: int) -> pa.Table | None:
        """The rows of a side in a part; None if there are none."""
        held = self._held[part][side]
        batches = [*self._read(held.spilled), *held.batches]
        return pa.Table.from_batches(batches) if batches else None

    def close(self) -> None:
        """Free the rows, and remove the file."""
        self._held = []
        if self._file is not None:
            self._file.close()
            self._file = None

    def _spill(self) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(dir=scratch_folder(), prefix="join-")  # noqa: SIM115
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        offset = self._file.seek(0, io.SEEK_END)
        for sides in self._held:
            for held in sides:
                if not held.batches:
                    continue
                with pa.ipc.new_stream(self._file, held.batches[0].schema, options=options) as writer:
                    for batch in held.batches:
                        writer.write_batch(batch)
                end = self._file.tell()
                held.spilled.append((offset, end - offset))
                held.batches, offset = [], end
        self._bytes = 0

    def _read(self, spilled: list[tuple[int, int]]) -> Iterator[pa.RecordBatch]:
        for offset, length in spilled:
            assert self._file is not None
            with self._lock:
                self._file.seek(offset)
                data = self._file.read(length)
            yield from pa.ipc.open_stream(pa.py_buffer(data))
