"""Freed memory goes back to the system."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from rules_index.memory import release_freed_memory

STATUS = Path("/proc/self/status")
GLIBC = STATUS.exists() and hasattr(ctypes.CDLL(None), "malloc_trim")


def resident() -> int:
    lines = STATUS.read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmRSS"))


def test_it_can_be_asked_for_anywhere() -> None:
    release_freed_memory()
    release_freed_memory()


@pytest.mark.skipif(not GLIBC, reason="the C library keeps what it wants")
def test_what_lies_between_things_in_use_goes_back() -> None:
    objects = [b"%d" % number * 1_000 for number in range(50_000)]
    # those that stay keep the heap from shrinking by itself
    del objects[: len(objects) - 10]
    before = resident()
    release_freed_memory()
    assert before - resident() > 100 << 20
    assert len(objects) == 10
