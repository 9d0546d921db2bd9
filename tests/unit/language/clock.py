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


@contextmanager
def heap_of_its_own() -> Iterator[None]:
    """The objects that other tests have left are not searched for garbage meanwhile."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
