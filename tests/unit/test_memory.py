"""Freed memory goes back to the system."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pyarrow as pa
import pytest

from rules_index.memory import release_freed_memory

STATUS = Path("/proc/self/status")
GLIBC = STATUS.exists() and hasattr(ctypes.CDLL(None), "malloc_trim")


def resident() -> int:
    lines = STATUS.read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmRSS"))


def test_what_is_in_use_stays() -> None:
    numbers, texts = pa.array(range(100_000)), [str(number) for number in range(1_000)]
    for _ in range(2):
        release_freed_memory()
    assert numbers.to_pylist() == list(range(100_000))
    assert texts == [str(number) for number in range(1_000)]


@pytest.mark.skipif(not GLIBC, reason="the C library keeps what it wants")
def test_what_lies_between_things_in_use_goes_back() -> None:
    objects = [b"%d" % number * 1_000 for number in range(50_000)]
    # those that stay keep the heap from shrinking by itself
    del objects[: len(objects) - 10]
    before = resident()
    release_freed_memory()
    assert before - resident() > 100 << 20
    assert len(objects) == 10
