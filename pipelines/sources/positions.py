"""Where a run stands in a source, and what it takes from there: files, as `runs` keeps them to be taken again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Add = tuple[int, dict[str, Any]]
"""A file: the version that added it, and the log's `add` action."""


@dataclass(frozen=True, slots=True)
class Position:
    """A place in the source: before file `index` of `version`.

    Where `snapshot` is set, the files are those that make up the version, else those that its commit added.
    """

    version: int
    index: int = 0
    snapshot: bool = False


@dataclass(frozen=True, slots=True)
class Slice:
    """The files from `start` up to `end`, read with the columns that the source has at `schema_version`.

    `table_id` tells a source from another one made later at the same place. A slice that is `skipped` is a
    commit that changed rows and that the operator told to pass over; it has no files. `lost` are the places, among the
    files between start and end, of those that are gone and were told to be passed over.
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
        """Size of the files."""
        return sum(int(add["size"]) for _, add in self.files)

    def to_plan(self) -> dict[str, Any]:
        """What `runs` keeps of the slice, as JSON values."""
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
    """The position that a plan names as its `start` or `end`."""
    return Position(int(plan["version"]), int(plan["index"]), bool(plan["snapshot"]))
