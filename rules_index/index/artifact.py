"""The index as one file: memory-mapped, checksummed, validated; never pickle.

    offset  bytes
    0       8    magic "DELTATAG"
    8       4    format version, little endian
    12      4    length of the header
    16      32   SHA-256 of everything that follows
    48      .    header: JSON (attributes, inputs, sections, statistics), padded with spaces
    .       .    sections, each aligned to 64 bytes: NumPy arrays and Arrow IPC streams

Loading (`rules_index.index.loading`) returns an index or raises `ArtifactError`, whatever the bytes are. The checksum
finds damage. Every offset, length and code is checked against its bounds before a kernel reads it, so that forged bytes
with a valid checksum cannot make it read out of bounds. Long value lists, and the full compile that an updated index
changes, may be in another artifact (`rules_index.index.shared_files`).
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from rules_index.errors import ArtifactError

FORMAT_VERSION = 16
"""The version of the artifact's format; it is part of every fingerprint."""
LANGUAGE_VERSION = 3
"""The version of what rules mean: raised if a rule gets another answer, is accepted now, or no longer needs Spark. It
is part of every fingerprint, so that rules are compiled again. An index of an earlier version can still be read."""
MAGIC = b"DELTATAG"
ALIGNMENT = 64
_PREFIX = struct.Struct("<8sII32s")
_NAMED = 40
"""The temporary file's name begins with so many letters of the target's name, since a name may have at most 255
bytes."""
DTYPES = {"int32", "int64", "uint8", "float64"}


def pieces_of(header: Mapping[str, Any], sections: Sections) -> list[bytes | memoryview]:
    """The artifact's bytes as pieces in order. Sections are not copied, because large ones would take memory."""
    text = json.dumps(header).encode()
    text += b" " * (-(_PREFIX.size + len(text)) % ALIGNMENT)
    checksum = hashlib.sha256(text)
    for part in sections.parts:
        checksum.update(part)
    return [_PREFIX.pack(MAGIC, FORMAT_VERSION, len(text), checksum.digest()), text, *sections.parts]


def save(pieces: Sequence[bytes | memoryview], path: str | Path) -> None:
    """Writes the artifact to a temporary file in the folder of `path` and renames it to `path`, so that no reader sees
    a part of it."""
    target = Path(path)
    # a unique name: threads, or processes on several machines, may save to one path at the same time
    beside = target.with_name(f".{target.name[:_NAMED]}.{uuid.uuid4().hex}")
    try:
        with open(beside, "wb") as file:
            file.writelines(pieces)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, target)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def checksum_of(view: memoryview) -> str:
    """The checksum in the artifact's prefix, in hex. `read_header` compares it with the bytes."""
    return str(_PREFIX.unpack_from(view)[3].hex())


def read_header(view: memoryview, is_checked: bool = False) -> dict[str, Any]:
    """The header, with the offset of the sections as `_start`. is_checked: whether the bytes are known to be as they
    were written, and need not be compared with the checksum again. Raises `ArtifactError` for bytes that are not a
    complete artifact."""
    if len(view) < _PREFIX.size:
        raise ArtifactError("The file is too short to be an index.")
    magic, version, length, checksum = _PREFIX.unpack_from(view)
    if magic != MAGIC:
        raise ArtifactError("The file is not an index.")
    if version != FORMAT_VERSION:
        raise ArtifactError(
            f"The index has format {version}, this version reads {FORMAT_VERSION}; compile the rules again."
        )
    if not is_checked and hashlib.sha256(view[_PREFIX.size :]).digest() != checksum:
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
    """Collects an artifact's sections, each aligned. A reference to one has its offset, counted from the first section,
    and its shape or length."""

    def __init__(self) -> None:
        self.parts: list[bytes | memoryview] = []
        self._position = 0

    def array(self, array: np.ndarray) -> list[Any]:
        """Adds an array; returns the reference (dtype, offset, shape)."""
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        return [array.dtype.name, self._add(data), list(array.shape)]

    def table(self, table: pa.Table) -> list[int]:
        """Adds a table as an Arrow IPC stream; returns the reference (offset, length)."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return self.data(memoryview(sink.getvalue()))

    def data(self, data: bytes | memoryview) -> list[int]:
        """Adds bytes; returns the reference (offset, length)."""
        return [self._add(memoryview(data)), len(data)]

    def _add(self, data: memoryview) -> int:
        """Adds bytes, padded with zeros up to the next aligned offset; returns where they begin."""
        at = self._position
        padding = bytes(-len(data) % ALIGNMENT)
        self.parts += [data, padding]
        self._position += len(data) + len(padding)
        return at
