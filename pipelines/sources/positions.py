"""Positions in a source, and slices of its files, which can be recorded in `runs` and taken again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Add = tuple[int, dict[str, Any]]
"""A file: the version that added it, and the log's `add` action."""
MAX_FILES = 10_000
"""Maximum number of files in one slice, so that a source of tiny files is planned in bounded memory."""


@dataclass(frozen=True, slots=True)
class Position:
    """A position in the source: before file `index` of `version`.

    With `snapshot` the index counts all files of the version, else only the files that its commit added.
    """

    version: int
    index: int = 0
    snapshot: bool = False

    def is_beyond(self, newest: int) -> bool:
        """True if a table that ends with version `newest` cannot have been read up to this position."""
        return self.version > newest + (0 if self.index or self.snapshot else 1)


@dataclass(frozen=True, slots=True)
class Slice:
    """The files from `start` up to `end`, read with the columns that the source has at `schema_version`.

    table_id: differs for a table that is created later at the same place; skipped: the slice is a commit that changed
    rows and that the operator chose to skip, without files; lost: the places, among the files between start and end, of
    deleted files that the operator chose to skip.
    """

    table_id: str
    start: Position
    end: Position
    schema_version: int
    files: tuple[Add, ...]
    skipped: bool = False
    lost: tuple[int, ...] = ()

    @property
    def bytes(self) -> int:
        """Total size of the files in bytes."""
        return sum(int(add["size"]) for _, add in self.files)

    def to_plan(self) -> dict[str, Any]:
        """The slice in the form of a plan in `runs`, as JSON values."""
        return {
            "table_id": self.table_id,
            "start": _position_to_plan(self.start),
            "end": _position_to_plan(self.end),
            "schema_version": self.schema_version,
            "files": len(self.files),
            "bytes": self.bytes,
            "skipped": self.skipped,
            **({"lost": list(self.lost)} if self.lost else {}),
        }


def _position_to_plan(position: Position) -> dict[str, Any]:
    return {"version": position.version, "index": position.index, "snapshot": position.snapshot}


def position_from_plan(plan: Mapping[str, Any]) -> Position:
    """A position from a plan's `start` or `end`."""
    return Position(int(plan["version"]), int(plan["index"]), bool(plan["snapshot"]))


def fitting(files: list[Add], max_bytes: int, size: int, count: int) -> list[Add]:
    """The leading files that fit after `count` files of `size` bytes; the first file of a slice always fits."""
    taken = 0
    for _, add in files:
        size += int(add["size"])
        count += 1
        if count > 1 and (size > max_bytes or count > MAX_FILES):
            break
        taken += 1
    return files[:taken]
