"""The index as one file: memory-mapped, checksummed, validated; never pickle.

    offset  bytes
    0       8    magic "DELTATAG"
    8       4    format version, little endian
    12      4    length of the header
    16      32   SHA-256 of everything that follows
    48      .    header: JSON (attributes, inputs, sections, statistics), padded with spaces
    .       .    sections, each aligned to 64 bytes: NumPy arrays and Arrow IPC streams

Whatever the bytes are, loading (`rules_index.index.loading`) gives an index or `ArtifactError`: the checksum finds
damage, and every offset, length and code is checked against its bounds before a kernel sees it, so that foreign bytes
with a right checksum cannot lead it astray either.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from rules_index.errors import ArtifactError

FORMAT_VERSION = 11
"""Of the artifact; it is part of every fingerprint."""
MAGIC = b"DELTATAG"
ALIGNMENT = 64
_PREFIX = struct.Struct("<8sII32s")
DTYPES = {"int32", "int64", "uint8", "float64"}


def pieces_of(header: Mapping[str, Any], sections: Sections) -> list[bytes | memoryview]:
    """The artifact's bytes one behind the other: the sections themselves, since copies of large ones take memory."""
    text = json.dumps(header).encode()
    text += b" " * (-(_PREFIX.size + len(text)) % ALIGNMENT)
    checksum = hashlib.sha256(text)
    for part in sections.parts:
        checksum.update(part)
    return [_PREFIX.pack(MAGIC, FORMAT_VERSION, len(text), checksum.digest()), text, *sections.parts]


def save(pieces: Sequence[bytes | memoryview], path: str | Path) -> None:
    """Writes the artifact beside `path` and renames it onto it, so that no reader sees half a file."""
    target = Path(path)
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with open(beside, "wb") as file:
            file.writelines(pieces)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, target)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def read_header(view: memoryview) -> dict[str, Any]:
    """The header, and as `_start` where the sections begin; `ArtifactError` where the bytes are no whole artifact."""
    if len(view) < _PREFIX.size:
        raise ArtifactError("The file is too short to be an index.")
    magic, version, length, checksum = _PREFIX.unpack_from(view)
    if magic != MAGIC:
        raise ArtifactError("The file is not an index.")
    if version != FORMAT_VERSION:
        raise ArtifactError(
            f"The index has format {version}, this version reads {FORMAT_VERSION}; compile the rules again."
        )
    if hashlib.sha256(view[_PREFIX.size :]).digest() != checksum:
        raise ArtifactError("The index is damaged (its checksum does not agree); compile the rules again.")
    try:
        header = json.loads(bytes(view[_PREFIX.size : _PREFIX.size + length]))
    except (ValueError, RecursionError) as error:
        raise ArtifactError("The index has no readable header; compile the rules again.") from error
    if not isinstance(header, dict):
        raise ArtifactError("The index has no readable header; compile the rules again.")
    header["_start"] = _PREFIX.size + length
    return header


class Sections:
    """Collects aligned sections; a reference is (kind, position, ...), positions relative to the first."""

    def __init__(self) -> None:
        self.parts: list[bytes | memoryview] = []
        self._position = 0

    def array(self, array: np.ndarray) -> list[Any]:
        """Adds an array; its reference is (type, position, shape)."""
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        return [array.dtype.name, self._add(data), list(array.shape)]

    def table(self, table: pa.Table) -> list[int]:
        """Adds a table as a stream of Arrow's; its reference is (position, length)."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return self.data(memoryview(sink.getvalue()))

    def data(self, data: bytes | memoryview) -> list[int]:
        """Adds bytes as they are; their reference is (position, length)."""
        return [self._add(memoryview(data)), len(data)]

    def _add(self, data: memoryview) -> int:
        """Where the bytes begin; behind them stand zeros up to where the next may begin."""
        at = self._position
        padding = bytes(-len(data) % ALIGNMENT)
        self.parts += [data, padding]
        self._position += len(data) + len(padding)
        return at
