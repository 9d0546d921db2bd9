"""A second of CPU, as long as this machine takes for it beside what else it is doing."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager

_USUAL = 0.06
"""Seconds that the loop below takes on a machine of today that does nothing else."""


def _measured() -> float:
    started = time.process_time()
    found = {}
    for number in range(1_000_000):
        found[number & 1023] = number
    return (time.process_time() - started) / _USUAL


SECOND = max(1.0, _measured())


_frozen = False


@contextmanager
def heap_of_its_own() -> Iterator[None]:
    """The objects that other tests have left are not searched for garbage meanwhile; within itself it collects alone,
    since the first end of several would return all objects to the collector, which takes a second for each test."""
    global _frozen
    gc.collect()
    if _frozen:
        yield
        return
    gc.freeze()
    _frozen = True
    try:
        yield
    finally:
        _frozen = False
        gc.unfreeze()
