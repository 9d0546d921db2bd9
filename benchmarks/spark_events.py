"""What Spark's event log tells of the tasks of some jobs: their seconds, what they shuffled, what memory they took."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


def settings(folder: Path) -> dict[str, str]:
    """Settings of a session that writes its event log into a folder, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    return {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.dir": folder.absolute().as_uri(),
    }


@dataclass
class Tasks:
    """Tasks that ended.

    seconds        of each task, by its stage
    shuffle_bytes  written by all
    spark_bytes    the most execution memory that one task took of the JVM
    worker_bytes   the most memory that one Python worker had, sampled
    """

    seconds: dict[int, list[float]] = field(default_factory=dict)
    shuffle_bytes: int = 0
    spark_bytes: int = 0
    worker_bytes: int = 0


class EventLog:
    """The log of a running session."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read = 0

    @contextmanager
    def tasks(self) -> Iterator[Tasks]:
        """The tasks that run in the block; filled in when it ends."""
        self._events()
        found = Tasks()
        with _watched_workers() as most:
            yield found
        time.sleep(0.5)
        for event in self._events():
            _add(event, found)
        found.worker_bytes = most[0]

    def _events(self) -> list[dict[str, Any]]:
        """What was written since the last call."""
        (path,) = self._folder.iterdir()
        with path.open("rb") as log:
            log.seek(self._read)
            lines = log.readlines()
        complete = [line for line in lines if line.endswith(b"\n")]
        self._read += sum(map(len, complete))
        return [json.loads(line) for line in complete]


def _add(event: dict[str, Any], found: Tasks) -> None:
    metrics = event.get("Task Metrics")
    if event["Event"] != "SparkListenerTaskEnd" or not metrics:
        return
    info = event["Task Info"]
    found.seconds.setdefault(event["Stage ID"], []).append((info["Finish Time"] - info["Launch Time"]) / 1000)
    found.shuffle_bytes += metrics["Shuffle Write Metrics"]["Shuffle Bytes Written"]
    found.spark_bytes = max(found.spark_bytes, metrics["Peak Execution Memory"])


@contextmanager
def _watched_workers() -> Iterator[list[int]]:
    """A list of one number: the most memory, in bytes, that a Python worker of Spark had while in the block."""
    most, ended = [0], threading.Event()

    def watch() -> None:
        while not ended.wait(0.05):
            most[0] = max(most[0], *_worker_bytes(), 0)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield most
    finally:
        ended.set()
        watcher.join()


def _worker_bytes() -> Iterator[int]:
    page = os.sysconf("SC_PAGE_SIZE")
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if b"pyspark.daemon" in (process / "cmdline").read_bytes():
                yield int((process / "statm").read_text().split()[1]) * page
        except OSError:
            continue
