"""The log of a table whose creation was killed before its first commit: a folder that Spark takes for a Delta table
without versions, and neither reads nor creates."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from pipelines.lake.table_cache import local_folder

_PATIENCE = 3.0
"""Seconds to wait for the first commit of another run that may be creating the table right now."""


def remove_unfinished_log(uri: str, exists: Callable[[], bool]) -> bool:
    """Remove the log of a table in a folder if it has no commit; returns whether it was removed.

    exists: whether the table exists by now. A concurrent creation gets some seconds to finish first.
    """
    place = local_folder(uri)
    log = Path(place) / "_delta_log" if place is not None else None
    if log is None or not log.is_dir():
        return False
    until = time.monotonic() + _PATIENCE
    while time.monotonic() < until:
        if exists():
            return False
        time.sleep(0.1)
    try:
        for left in log.iterdir():
            if not left.name.startswith("."):
                return False
            left.unlink(missing_ok=True)
        log.rmdir()
    except OSError:
        return False
    return True
