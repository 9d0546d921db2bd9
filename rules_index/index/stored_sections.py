"""Reads the sections of an artifact; their offsets and lengths are checked against its size first."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from rules_index.index.array_checks import require
from rules_index.index.artifact import ALIGNMENT, DTYPES


def stored_array(reference: Any, body: memoryview) -> np.ndarray:
    """The array that `Sections.array` added, read-only and not copied. Raises `InvalidArraysError` for a reference
    outside of the sections."""
    name, position, shape = reference
    require(name in DTYPES and isinstance(position, int) and position >= 0 and position % ALIGNMENT == 0, "sections")
    require(1 <= len(shape) <= 2 and all(isinstance(n, int) and 0 <= n <= len(body) for n in shape), "sections")
    dtype = np.dtype(name)
    count = int(np.prod(shape, dtype=object))
    require(position + count * dtype.itemsize <= len(body), "sections")
    array = np.frombuffer(body, dtype, count, position) if count else np.empty(0, dtype)
    array = array.reshape(shape)
    array.setflags(write=False)
    return array


def stored_data(reference: Any, body: memoryview) -> memoryview:
    """The bytes that `Sections.data` added, not copied. Raises `InvalidArraysError` for a reference outside of the
    sections."""
    position, length = reference
    require(
        isinstance(position, int) and isinstance(length, int) and 0 <= position <= position + length <= len(body),
        "sections",
    )
    return body[position : position + length]


def stored_table(reference: Any, body: memoryview) -> pa.Table:
    """The table that `Sections.table` added. Raises `InvalidArraysError` or `pa.ArrowException` if it is malformed."""
    table = pa.ipc.open_stream(pa.py_buffer(stored_data(reference, body))).read_all()
    table.validate(full=True)
    return table
