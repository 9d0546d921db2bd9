"""What a re-tag asks of whoever works on a scope's tables; what it plans and records is the same for all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    import polars as pl

    from pipelines.lake.runs import MicroBatch
    from pipelines.retagging.index_histories import History, IndexHistories, Snapshots
    from pipelines.sources.positions import Add

Stamps: TypeAlias = Mapping[str, Any]
"""Values of columns of the rows that are matched, by the columns' names."""


@dataclass(frozen=True, slots=True)
class Found:
    """Files of a version of the tagged table whose rows change.

    changed: in how many rows ids change; emptied: how many of these have none any more; read: files that were looked
    at.
    """

    version: int
    files: Sequence[Add]
    changed: int = 0
    emptied: int = 0
    read: int = 0


class Tables(Protocol):
    """The tables of one scope, for one set of rules that differ."""

    def session(self) -> AbstractContextManager[Any]:
        """What holds while they are worked on."""

    def find(self, version: int) -> Found:
        """The files of a version of the tagged table in which rows change; nothing is written."""

    def find_newly_matched(
        self,
        batches: Iterable[MicroBatch],
        histories: IndexHistories,
        bases: Mapping[History, pl.DataFrame],
        stamps: Stamps,
    ) -> int:
        """Look for rows of micro-batches that only match now, which `write` then commits: how many. bases: the rules by
        which these were tagged."""

    def write(self, found: Found, stamps: Stamps, app: str, number: int, marks: Sequence[str]) -> int | None:
        """Write the files that were found anew, in one commit as transaction `number` of `app` and of `marks`: how many
        files it has; None where the table holds the transaction already."""

    def follow(self, at: Snapshots, rules_version: int, app: str, number: int) -> None:
        """Make the pairs of the rules that differ those of the tagged table, in one commit. at: versions of both tables
        that hold the same micro-batches."""
