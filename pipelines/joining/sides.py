"""The sides of a join's micro-batch: of each stream the rows that are new, and the earlier ones that can join them.

A join has no state but its tables and the positions up to which it has taken each source. Earlier rows are read again
from the source as it was at that position, so that they are told apart from new ones whatever has been rewritten since;
files whose statistics say that none of their rows can join a new one are passed over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions

from pipelines.errors import SourceError
from pipelines.joining.statistics import Reach, Reaches, is_comparable, reach_of
from pipelines.lake.schema import STORED_NAME, arrow_schema_of
from pipelines.settings.model import Join, Stream
from pipelines.sources.slices import rows_of, slice_schema
from pipelines.sources.source import Add, Position, Slice, Source
from pipelines.spark.delta_internals import COMMIT_VERSION, TableLog, table_property

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

ROW_TRACKING = "delta.enableRowTracking"


@dataclass(frozen=True)
class SideFiles:
    """What a micro-batch takes of one stream.

    new      the slice that was not taken before, None where nothing is new
    earlier  the files of earlier rows that can join a new row of another stream
    tracked  where the earlier rows are in files that have rows of later versions too: the last version of theirs
    known    files of all earlier rows, for telling how large a share is read
    """

    stream: Stream
    source: Source
    new: Slice | None
    earlier: tuple[Add, ...]
    tracked: int | None
    known: tuple[Add, ...]
    schema_version: int

    @cached_property
    def schema(self) -> StructType:
        """The source's columns as the micro-batch sees them."""
        return slice_schema(self.source, self.schema_version)

    @property
    def read_share(self) -> float:
        """The share of the earlier files' bytes that is read."""
        known = sum(int(add["size"]) for _, add in self.known)
        return sum(int(add["size"]) for _, add in self.earlier) / known if known else 0.0

    @property
    def rows(self) -> int | None:
        """New and earlier rows that are read, where statistics tell."""
        parts = [rows_of(files) for files in (self.new.files if self.new else (), self.earlier)]
        return None if None in parts else sum(part or 0 for part in parts)

    def new_rows(self) -> DataFrame:
        """The rows that were not taken before, with the source's columns."""
        return self._frame(self.new.files if self.new is not None else ())

    def earlier_rows(self) -> DataFrame:
        """The earlier rows of the chosen files."""
        return self._frame(self.earlier, self.tracked)

    def _frame(self, files: Sequence[Add], tracked: int | None = None) -> DataFrame:
        log = self.source.log
        assert isinstance(log, TableLog)
        # one version for all files: nobody asks when these were added
        rows = log.frame(log.snapshot(self.schema_version), [(0, add) for _, add in files]).drop(COMMIT_VERSION)
        if tracked is None:
            return rows
        return rows.filter(functions.col("_metadata.row_commit_version") <= tracked)


def side_files(
    join: Join,
    streams: Mapping[str, Stream],
    sources: Mapping[str, Source],
    plans: Mapping[str, Any],
    time_zone: str,
    least: int | None = None,
) -> list[SideFiles]:
    """The files of every stream by the sides' plans (`pipelines.joining.joiner`), the same rows whenever it is asked.

    least: new rows of an earlier event time, in microseconds, join nothing.
    """
    new = {name: _retaken(sources[name], plans[name]) for name in join.streams}
    schemas = {name: slice_schema(sources[name], plans[name]["schema_version"]) for name in join.streams}
    stored = {name: _stored_names(schema) for name, schema in schemas.items()}
    compared = {name: _compared_keys(join.on[name], schemas[name]) for name in join.streams}

    def reaches(name: str, files: Iterable[Add]) -> list[Reach]:
        time = stored[name][str(streams[name].event_time).lower()]
        keys = [None if key is None else (stored[name][key[0]], key[1]) for key in compared[name]]
        return [reach_of(add, time, keys, time_zone) for _, add in files]

    arriving = {name: Reaches(reaches(name, taken.files if taken else ()), least) for name, taken in new.items()}
    sides = []
    for name in join.streams:
        source, plan = sources[name], plans[name]
        current = source.current_files
        known, tracked = _earlier_files(source, plan, current)
        # with t the latest of the times, this row's is in [t - its window, t], and the arriving one's too
        earlier = tuple(
            file
            for file, reach in zip(known, reaches(name, known), strict=True)
            if any(
                others.meets(reach, join.window[name], join.window[other])
                for other, others in arriving.items()
                if other != name
            )
        )
        side = SideFiles(streams[name], source, new[name], earlier, tracked, tuple(known), plan["schema_version"])
        _check_files(side, current)
        sides.append(side)
    return sides


def _retaken(source: Source, plan: Mapping[str, Any]) -> Slice | None:
    return source.retake(plan["slice"]) if plan["slice"] is not None else None


def _stored_names(schema: StructType) -> dict[str, str]:
    """The names of a source's columns in files and statistics, which column mapping may have made others than users
    see, by the latter in lower case."""
    return {field.name.lower(): field.metadata.get(STORED_NAME, field.name) for field in schema.fields}


def _compared_keys(keys: Sequence[str], schema: StructType) -> list[tuple[str, pa.DataType] | None]:
    """The key columns, in lower case, with their types, where statistics tell files apart by them; None for others."""
    kinds = {field.name.lower(): field.type for field in arrow_schema_of(schema.json())}
    named = [(key.lower(), kinds[key.lower()]) for key in keys]
    return [each if is_comparable(each[1]) else None for each in named]


def _earlier_files(source: Source, plan: Mapping[str, Any], current: Mapping[str, Any]) -> tuple[list[Add], int | None]:
    """The files of the rows that were taken before, and, where these are found by row tracking, their last version.

    current: the files of the source's newest version by their paths.
    """
    first, position = Position(**plan["first"]), Position(**plan["position"])
    if first == position:
        return [], None
    files = source.files_before(position, first)
    if position.snapshot or not first.snapshot or position.index:
        return files, None
    if any(add["path"] not in current for _, add in files) and _tracks_rows(source, position.version - 1):
        # rewritten files may be removed any day; the rows in their successors know their version
        return [(0, add) for add in current.values()], position.version - 1
    return files, None


def _tracks_rows(source: Source, version: int) -> bool:
    """Whether the source knew each row's version then: rows that are older than row tracking have the version in which
    it was switched on."""
    return str(table_property(source.log.snapshot(version), ROW_TRACKING)).lower() == "true"


def _check_files(side: SideFiles, current: Mapping[str, Any]) -> None:
    """SourceError where earlier rows are in files that are not there any more."""
    log = side.source.log
    assert isinstance(log, TableLog)
    missing = log.missing([add["path"] for _, add in side.earlier if add["path"] not in current])
    if missing:
        raise SourceError(
            f"Earlier rows of {side.stream.name} that new rows may join were in files that have been rewritten and "
            f"removed since ({len(missing)} files, among them {missing[0]}), so that they cannot be told apart from "
            "new ones any more. Keep removed files until the join has run, or switch row tracking on for a source that "
            f"has no start of its own ({ROW_TRACKING} = true); now join everything anew with --restart."
        )
