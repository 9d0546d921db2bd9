"""Chooses the files to compact: those of similar size, so that each row is rewritten only a few times.

This is tiered compaction, as in a log-structured merge tree: the files of a tier become one file of the next tier. The
number of small files in a partition is then bounded, and the cost of a compaction does not grow with the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pipelines.lake.added_files import action_rows, files_in
from pipelines.lake.merging import WHOLE_FILE

if TYPE_CHECKING:
    from deltalake import DeltaTable

LEAST_IN_RUN, LEAST = 32, 2
"""Minimum number of files of one tier and partition to compact: in a run, and in the verb maintain."""
MOST_BYTES = 1 << 30
"""Maximum bytes in one commit, which bounds the work that a conflict wastes."""
_TIERS = (256 << 10, 2 << 20, 16 << 20, WHOLE_FILE)


@dataclass(frozen=True, slots=True)
class File:
    """A file of a table: path in the log, size in bytes, partition values, and time of writing in milliseconds."""

    path: str
    size: int
    partition: tuple[Any, ...] = ()
    written: int = 0


def files_of(table: DeltaTable) -> list[File]:
    """The files of a table's version."""
    actions = files_in(table, flatten=True)
    names = [name for name in actions.column_names if name.startswith("partition.")]
    rows = action_rows(actions.select(["path", "size_bytes", "modification_time", *names]))
    return [
        File(row["path"], row["size_bytes"], tuple(row[name] for name in names), row["modification_time"])
        for row in rows
    ]


def file_of(add: dict[str, Any]) -> File:
    """A file by its `add` action."""
    values = tuple(sorted((add.get("partitionValues") or {}).items()))
    return File(add["path"], int(add["size"]), values, int(add["modificationTime"]))


def groups_to_merge(files: Iterable[File], least: int) -> list[list[File]]:
    """Groups of at least `least` files of similar size. Each becomes one file, or several of about `WHOLE_FILE`."""
    found: list[list[File]] = []
    for small in _by_partition(files):
        taken: list[File] = []
        for tier, below in enumerate(_TIERS):
            here = [file for file in small if _tier(file.size) == tier]
            # the files taken so far become one file, of this tier or of a higher one
            is_here = bool(taken) and _bytes(taken) < below
            if len(here) + is_here >= least:
                taken += here
            if taken and (is_here or _bytes(taken) < below):
                found += _parts(taken)
                taken = []
        found += _parts(taken)
    return found


def _parts(files: list[File]) -> Iterator[list[File]]:
    """The files by time of writing, in parts of bounded size; a part of a single file is dropped."""
    part: list[File] = []
    for file in sorted(files, key=lambda file: (file.written, file.path)):
        if part and _bytes(part) + file.size > MOST_BYTES:
            yield from [part] if len(part) > 1 else []
            part = []
        part.append(file)
    yield from [part] if len(part) > 1 else []


def _bytes(files: Iterable[File]) -> int:
    return sum(file.size for file in files)


def _by_partition(files: Iterable[File]) -> Iterator[list[File]]:
    partitions: dict[tuple[Any, ...], list[File]] = {}
    for file in files:
        if file.size < WHOLE_FILE:
            partitions.setdefault(file.partition, []).append(file)
    yield from partitions.values()


def _tier(size: int) -> int:
    return next(tier for tier, below in enumerate(_TIERS) if size < below)
