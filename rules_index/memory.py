"""Freed memory that libraries keep."""

from __future__ import annotations

import ctypes
import os

import pyarrow as pa


def release_freed_memory() -> None:
    """Returns freed memory to the system, where the C library can. After the many small objects of one step it keeps
    several times what is in use, and the large arrays of the next step do not fit there."""
    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
    if trim is not None:
        trim(ctypes.c_size_t(0))
