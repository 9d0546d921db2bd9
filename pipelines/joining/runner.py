"""The interface of a runner of joins. Plans in `runs` do not depend on the runner: any runner can finish them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pipelines.joining.sides import SideFiles
    from pipelines.lake.index_store import StoredIndex
    from pipelines.lake.runs import MicroBatch
    from pipelines.settings.model import Join, Stream
    from pipelines.sources.source import Source
    from rules_index.join.index import JoinIndex


@dataclass(frozen=True, slots=True)
class PlannedJoin:
    """A planned micro-batch, the files that it reads, and the index that it matches them with.

    path     the local file of the index
    resumed  some of the micro-batch may already be written
    without  names of inputs of the index that are left out, since they ended Spark
    """

    join: Join
    batch: MicroBatch
    sides: list[SideFiles]
    stored: StoredIndex
    index: JoinIndex
    path: Path
    resumed: bool = False
    without: frozenset[str] = frozenset()


class PartitionedRows(Protocol):
    """Rows that several joins read; they are read and partitioned on first use."""

    def release(self) -> None:
        """Free the rows."""


class JoinRunner(Protocol):
    """Reads, joins and writes the rows of joins over the same streams and keys."""

    name: str

    def session(self) -> AbstractContextManager[Any]:
        """The context in which rows are joined."""

    def open_source(self, stream: Stream, command: str) -> Source:
        """The source of a stream at its newest version; SourceError if it cannot be opened."""

    def followed(
        self, source: Source, version: int, before: Mapping[str, Any] | None, join: Join, name: str
    ) -> dict[str, Any]:
        """What a plan's side must record about the names of a stream's columns (`sources.source_names`)."""

    def prepare(self, join: Join, sides: Sequence[SideFiles], id_type: str, from_scratch: bool = False) -> None:
        """Create the join's missing tables; `from_scratch` also empties existing ones. SourceChangedError if a source's
        columns no longer fit them."""

    def partitioned_rows(self, widest_join: Join, together: Sequence[PlannedJoin]) -> PartitionedRows:
        """The rows of micro-batches that all read the same rows. widest_join: streams, keys and longest windows."""

    def match(self, widest_join: Join, planned: PlannedJoin) -> None:
        """Join the rows and write nothing."""

    def write(self, planned: PlannedJoin, partitioned: PartitionedRows) -> dict[str, Any]:
        """Write the micro-batch's tables idempotently: the late rows first, the joined rows last.

        Returns `rows`, `joined`, `matches`, `quarantined`, and `latest`, the latest event time ever taken, in
        microseconds.
        """

    def fence(self, series: str, names: Sequence[str], number: int) -> list[str]:
        """Fence off a series in these tables; returns the tables that already hold its micro-batch `number`."""
