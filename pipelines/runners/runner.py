"""What a stream's micro-batches ask of a runner. A plan in `runs` is the same whoever made it, and any runner ends
it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

    import rules_index as ri
    from pipelines.lake.index_store import StoredIndex
    from pipelines.lake.runs import MicroBatch
    from pipelines.sources.positions import Slice
    from pipelines.sources.source import Source
    from pipelines.writing.refused_rows import RefusedRows


@dataclass(frozen=True, slots=True)
class Job:
    """A planned micro-batch: its rows, and the index that its plan names, which stands in the local file `path`."""

    source: Source
    taken: Slice
    batch: MicroBatch
    stored: StoredIndex
    compiled: ri.CompiledRules
    path: Path


class Runner(Protocol):
    """The work on the rows of one stream."""

    name: str

    def session(self) -> AbstractContextManager[Any]:
        """What holds while a stream is tagged."""

    def in_zone(self, time_zone: str) -> AbstractContextManager[None]:
        """While inside, texts are read in a time zone."""

    def open_source(self) -> Source:
        """The source as it is now; SourceError says what is missing."""

    def columns(self, source: Source, version: int) -> pa.Schema:
        """The source's columns at a version."""

    def followed(
        self, source: Source, version: int, before: Mapping[str, Any] | None, tables: Sequence[str], command: str
    ) -> dict[str, Any]:
        """What a plan has to keep of the names of columns (`sources.source_names.followed_columns`)."""

    def prepare(self, source: Source, version: int, id_type: str, anew: bool = False) -> None:
        """Make the stream's tables that are missing, for the source's columns at a version; `anew` empties those that
        are there. SourceChangedError if the columns no longer fit them."""

    def refused(self, source: Source, taken: Slice, checks: Mapping[str, Any]) -> RefusedRows:
        """The rows of the slice, and those of them for quarantine: `checks` has the `key` and the `checks` of a plan.
        CheckError for a check that cannot be used."""

    def match(self, job: Job, without: frozenset[str]) -> None:
        """Match the rows, without some of the columns that only Spark evaluates, and write nothing."""

    def write(self, job: Job, resumed: bool) -> dict[str, Any]:
        """Write the micro-batch's tables, each once; gives rows, matches and errors. `resumed`: some may hold it."""

    def give_up(self, series: str, names: Sequence[str], number: int) -> list[str]:
        """Have no run write a micro-batch of a series to these tables any more; gives those that hold it."""
