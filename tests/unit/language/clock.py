"""Limits of CPU time, longer if this machine is slow or does other work."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager

_USUAL = 0.06
"""Seconds that the loop of `_slowness` takes on a machine of today that does nothing else."""


def within(limit: float, seconds: float) -> bool:
    """Whether what took these seconds of CPU would take less than the limit on a machine that does nothing else. How
    slow this one is, is measured now, if that matters: other work beside a test comes and goes."""
    return seconds < limit or seconds < limit * _slowness()


def _slowness() -> float:
    started = time.process_time()
    found = {}
    for number in range(1_000_000):
        found[number & 1023] = number
    return (time.process_time() - started) / _USUAL


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
