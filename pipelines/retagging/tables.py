"""The interface of a scope's tables for a re-tag. Its plan in `runs` does not depend on who works on the tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from pipelines.runners.choice import why_spark_works
from pipelines.writing.compression import why_spark_compresses

if TYPE_CHECKING:
    import polars as pl

    from pipelines.lake.index_histories import History, IndexHistories, Snapshots
    from pipelines.lake.runs import MicroBatch
    from pipelines.sources.positions import Add
    from pipelines.workspace import Workspace

Stamps: TypeAlias = Mapping[str, Any]
"""By column name, the new values of columns of the rows that are matched again."""


@dataclass(frozen=True, slots=True)
class ChangedFiles:
    """The files of a version of the tagged table in which rows change.

    rows_changed: the number of rows whose ids or annotations change; rows_emptied: the number of these that have no id
    left; files_read: the number of files that were read.
    """

    version: int
    files: Sequence[Add]
    rows_changed: int = 0
    rows_emptied: int = 0
    files_read: int = 0


class Tables(Protocol):
    """The tables of one scope, for one set of rules that differ."""

    def session(self) -> AbstractContextManager[Any]:
        """The context in which the tables are worked on."""

    def find(self, version: int) -> ChangedFiles:
        """Find the files of a version of the tagged table in which rows change; nothing is written."""

    def find_newly_matched(
        self,
        batches: Sequence[MicroBatch],
        histories: IndexHistories,
        bases: Mapping[History, pl.DataFrame],
        stamps: Stamps,
    ) -> int:
        """Find the rows of micro-batches that match only now, for `write` to add; returns how many. bases: the rules
        that tagged the rows of each history."""

    def write(self, found: ChangedFiles, stamps: Stamps, app: str, number: int, marks: Sequence[str]) -> int | None:
        """Rewrite the found files with the rows' new ids, and add the rows of `find_newly_matched`.

        All is one commit, with transaction `number` of `app` and of each of `marks`. Returns the number of files added;
        None if the table already holds the transaction.
        """

    def follow(self, at: Snapshots, rules_version: int, app: str, number: int, others_came: bool) -> None:
        """Replace the matches of the rules that differ by those that the tagged table has, in one commit.

        at: versions of both tables that hold the same micro-batches; others_came: some of these came after the re-tag
        and were tagged by another index, so that removed rules, and other texts of rules, may have matches, too.
        """


def why_spark_retags(workspace: Workspace) -> str | None:
    """Why Spark must do re-tags, by the configuration, as a clause; None if this process may."""
    return why_spark_works(workspace) or why_spark_compresses(workspace)
