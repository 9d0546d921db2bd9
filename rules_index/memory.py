"""Returns memory to the system that libraries have freed but keep."""

from __future__ import annotations

import ctypes

import pyarrow as pa


def release_freed_memory() -> None:
    """Returns freed memory to the system, where the C library can. After a step with many small objects, it keeps
    several times the memory that is in use, and the large arrays of the next step do not fit into the gaps."""
    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(ctypes.c_size_t(0))
