"""The interface of a runner of streams. Plans in `runs` do not depend on the runner: any runner can finish them."""

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
    """A planned micro-batch: its slice of the source, and the index of its plan, whose local file is `path`."""

    source: Source
    taken: Slice
    batch: MicroBatch
    stored: StoredIndex
    compiled: ri.CompiledRules
    path: Path


class Runner(Protocol):
    """Reads, matches and writes the rows of one stream."""

    name: str

    def session(self) -> AbstractContextManager[Any]:
        """The context in which a stream is tagged."""

    def in_zone(self, time_zone: str) -> AbstractContextManager[None]:
        """Evaluate expressions in a time zone."""

    def open_source(self, command: str | None = None) -> Source:
        """The source at its newest version; SourceError if it cannot be opened.

        command: the command that takes its new rows, for messages, by default that of tag.
        """

    def columns(self, source: Source, version: int) -> pa.Schema:
        """The source's columns at a version."""

    def followed(
        self, source: Source, version: int, before: Mapping[str, Any] | None, tables: Sequence[str], command: str
    ) -> dict[str, Any]:
        """What a plan must record about the names of columns (`sources.source_names.followed_columns`)."""

    def prepare(self, source: Source, version: int, id_type: str, from_scratch: bool = False) -> None:
        """Create the stream's missing tables, for the source's columns at a version; `from_scratch` also empties
        existing ones.

        SourceChangedError if the columns no longer fit the tables.
        """

    def refused(self, source: Source, taken: Slice, checks: Mapping[str, Any]) -> RefusedRows:
        """How many rows the slice has, and how many of them go to quarantine, by reason.

        checks: the `key` and the `checks` of a plan. CheckError for an invalid check.
        """

    def match(self, job: Job, without: frozenset[str]) -> None:
        """Match the rows and write nothing; the derived columns in `without` are left out."""

    def write(self, job: Job, resumed: bool) -> dict[str, Any]:
        """Write the micro-batch's tables idempotently; returns rows, matches and errors. resumed: some may hold it."""

    def fence(self, series: str, names: Sequence[str], number: int) -> list[str]:
        """Fence off a series in these tables; returns the tables that already hold its micro-batch `number`."""
