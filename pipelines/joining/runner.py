"""What a join's micro-batches ask of a runner. A plan in `runs` is the same whoever made it, and any runner ends it."""

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
class Planned:
    """A micro-batch that `runs` has, the files that it reads, and the rules that it matches them with.

    path     the local file of the index
    resumed  some of it may be written already
    without  names of inputs of the index that are left out, since they have ended Spark
    """

    join: Join
    batch: MicroBatch
    sides: list[SideFiles]
    stored: StoredIndex
    index: JoinIndex
    path: Path
    resumed: bool = False
    without: frozenset[str] = frozenset()


class Placed(Protocol):
    """Rows that several joins read, brought to where they can be joined when they are first asked for."""

    def release(self) -> None:
        """Give up what is kept of the rows."""


class JoinRunner(Protocol):
    """The work on the rows of joins over the same streams and keys."""

    name: str

    def session(self) -> AbstractContextManager[Any]:
        """What holds while rows are joined."""

    def open_source(self, stream: Stream, command: str) -> Source:
        """The source of a stream as it is now; SourceError says what is missing."""

    def followed(
        self, source: Source, version: int, before: Mapping[str, Any] | None, join: Join, name: str
    ) -> dict[str, Any]:
        """What the side of a plan has to keep of the names of a stream's columns (`sources.source_names`)."""

    def prepare(self, join: Join, sides: Sequence[SideFiles], id_type: str, anew: bool = False) -> None:
        """Make the join's tables that are missing; `anew` empties those that are there. SourceChangedError if a
        source's columns no longer fit them."""

    def place(self, widest: Join, together: Sequence[Planned]) -> Placed:
        """The rows of micro-batches that read the same ones. widest: the streams, the keys and the longest windows."""

    def match(self, widest: Join, planned: Planned) -> None:
        """Join the rows, and write nothing."""

    def write(self, planned: Planned, placed: Placed) -> dict[str, Any]:
        """Write the micro-batch's tables, the late rows first and the joined ones last, each once.

        Gives `rows`, `joined`, `matches`, `quarantined`, and `latest`, the latest event time that was ever taken.
        """

    def give_up(self, series: str, names: Sequence[str], number: int) -> list[str]:
        """Have no run write a micro-batch of a series to these tables any more; gives those that hold it."""
