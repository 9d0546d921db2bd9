"""Memory that libraries keep after it was freed."""

from __future__ import annotations

import ctypes
import os

import pyarrow as pa


def release_freed_memory() -> None:
    """Gives memory that was freed back to the system, where the C library can: after the many small objects of a step
    it keeps several times what is in use, and the next step needs large arrays, which do not go there."""
    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
    if trim is not None:
        trim(ctypes.c_size_t(0))
