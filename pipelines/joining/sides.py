"""The sides of a join's micro-batch: for each stream the new rows, and the earlier rows that may join them.

A join has no state but its tables and the position up to which it has taken each source. Earlier rows are read again
from the source as it was at that position, which distinguishes them from new rows even if files were rewritten since.
Files are skipped if their statistics show that none of their rows can join a new row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, cast

import pyarrow as pa

from pipelines.errors import SourceError
from pipelines.joining.statistics import FileRanges, RangesOfNewFiles, file_ranges, is_comparable
from pipelines.lake.column_types import arrow_schema_of, stored_names
from pipelines.settings.model import Join, Stream
from pipelines.sources.lost_files import without_start
from pipelines.sources.positions import Add, Position, Slice
from pipelines.sources.slices import rows_of
from pipelines.sources.source import Log, Source

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

ROW_TRACKING = "delta.enableRowTracking"


FEW_NEW, MANY_EARLIER = 100_000, 10
"""Earlier rows are first reduced to the keys of new rows if there are at most FEW_NEW new rows, and at least
MANY_EARLIER times as many earlier ones."""


class JoinedLog(Log, Protocol):
    """The methods of a Delta log that a join needs beyond those for planning a slice."""

    def setting(self, snapshot: Any, name: str) -> str | None:
        """A table property in a snapshot; None if it is not set."""

    def missing(self, paths: Sequence[str]) -> list[str]:
        """Returns the paths, as in the log, at which there is no longer a file."""


def source_fields(source: Source, version: int) -> list[dict[str, Any]]:
    """The columns of a source at a version, in the form of its log's `schemaString`."""
    found = source.log.fields(source.snapshot(version))
    return [field for field in found if field["name"] not in source.left_out]


def _log(source: Source) -> JoinedLog:
    return cast("JoinedLog", source.log)


@dataclass(frozen=True)
class SideFiles:
    """The files that a micro-batch reads of one stream.

    new      the slice of new rows, None if there are none
    earlier  the files of earlier rows that may join a new row of another stream
    tracked  the last version of the earlier rows, if their files also hold rows of later versions; else None
    known    the files of all earlier rows, to compute the share that is read
    """

    stream: Stream
    source: Source
    new: Slice | None
    earlier: tuple[Add, ...]
    tracked: int | None
    known: tuple[Add, ...]
    schema_version: int

    @cached_property
    def fields(self) -> list[dict[str, Any]]:
        """The source's columns at the micro-batch's schema version, in the log's form."""
        return source_fields(self.source, self.schema_version)

    @cached_property
    def schema(self) -> StructType:
        """The same columns as Spark's type."""
        from pyspark.sql.types import StructType

        return StructType.fromJson({"type": "struct", "fields": self.fields})

    @property
    def files(self) -> tuple[Add, ...]:
        """All files that are read."""
        return (*(self.new.files if self.new else ()), *self.earlier)

    @property
    def earlier_bytes(self) -> int:
        """The bytes of the earlier rows' files that are read."""
        return sum(int(add["size"]) for _, add in self.earlier)

    @property
    def read_share(self) -> float:
        """The share, by bytes, of the earlier rows' files that is read."""
        known = sum(int(add["size"]) for _, add in self.known)
        return self.earlier_bytes / known if known else 0.0

    @property
    def rows(self) -> int | None:
        """How many rows are read, new and earlier ones; None if statistics do not say."""
        parts = [rows_of(files) for files in (self.new.files if self.new else (), self.earlier)]
        return None if None in parts else sum(part or 0 for part in parts)


def has_few_new(side: SideFiles, sides: Sequence[SideFiles]) -> bool:
    """True if it pays to reduce a side's earlier rows to the keys of the other sides' new rows, since these are few."""
    new_counts = [rows_of(other.new.files) for other in sides if other is not side and other.new is not None]
    earlier = rows_of(side.earlier)
    if earlier is None or None in new_counts:
        return False
    total = sum(count or 0 for count in new_counts)
    return total <= FEW_NEW and total * MANY_EARLIER <= earlier


def side_files(
    join: Join,
    streams: Mapping[str, Stream],
    sources: Mapping[str, Source],
    plans: Mapping[str, Any],
    time_zone: str,
    least: int | None = None,
) -> list[SideFiles]:
    """The files of every stream by the sides' plans (`pipelines.joining.joiner`); deterministic for a plan.

    least: new rows with an earlier event time (microseconds) join nothing. SourceError if earlier rows are no longer
    readable, or a source has no event time or key at its schema version.
    """
    new = {name: _retaken(sources[name], plans[name]) for name in join.streams}
    fields = {name: source_fields(sources[name], plans[name]["schema_version"]) for name in join.streams}
    stored = {name: stored_names(columns) for name, columns in fields.items()}
    for name in join.streams:
        _check_columns(name, (str(streams[name].event_time), *join.on[name]), stored[name], plans[name])
    compared = {name: _compared_keys(join.on[name], fields[name]) for name in join.streams}

    def ranges_of(name: str, files: Iterable[Add]) -> list[FileRanges]:
        """The ranges of time and key of a stream's files."""
        time = stored[name][str(streams[name].event_time).lower()]
        keys = [None if key is None else (stored[name][key[0]], key[1]) for key in compared[name]]
        return [file_ranges(add, time, keys, time_zone) for _, add in files]

    arriving = {
        name: RangesOfNewFiles(ranges_of(name, taken.files if taken else ()), least) for name, taken in new.items()
    }
    sides = []
    for name in join.streams:
        source, plan = sources[name], plans[name]
        current = source.current_files
        known, tracked = _earlier_files(source, plan, current)
        # with t the latest of both times, each row's time is in [t - the window of its stream, t]
        earlier = tuple(
            file
            for file, ranges in zip(known, ranges_of(name, known), strict=True)
            if any(
                others.may_join(ranges, join.window[name], join.window[other])
                for other, others in arriving.items()
                if other != name
            )
        )
        side = SideFiles(streams[name], source, new[name], earlier, tracked, tuple(known), plan["schema_version"])
        _check_files(side, current)
        sides.append(side)
    return sides


def _check_columns(name: str, columns: Iterable[str], stored: Mapping[str, str], plan: Mapping[str, Any]) -> None:
    """SourceError if a source lacks one of the columns by which a stream's rows are joined."""
    for column in columns:
        if column.lower() not in stored:
            raise SourceError(
                f"Version {plan['schema_version']} of the source of {name} has no column {column}, by which its rows "
                "are joined. Give the source this column, or, if later versions have it, the stream a start from there "
                "on."
            )


def _retaken(source: Source, plan: Mapping[str, Any]) -> Slice | None:
    return source.retake(plan["slice"]) if plan["slice"] is not None else None


def _compared_keys(keys: Sequence[str], fields: Sequence[Mapping[str, Any]]) -> list[tuple[str, pa.DataType] | None]:
    """The key columns, in lower case, with their types; None for a type whose statistics are not compared."""
    kinds = {field.name.lower(): field.type for field in arrow_schema_of(fields)}
    named = [(key.lower(), kinds[key.lower()]) for key in keys]
    return [each if is_comparable(each[1]) else None for each in named]


def _earlier_files(source: Source, plan: Mapping[str, Any], current: Mapping[str, Any]) -> tuple[list[Add], int | None]:
    """The files of the rows that were taken before; and the last version of these rows if only row tracking
    distinguishes them from newer rows in the same files, else None.

    current: the files of the source's newest version, by path.
    """
    first, position = Position(**plan["first"]), Position(**plan["position"])
    if first == position:
        return [], None
    files = source.files_before(position, first)
    if position.snapshot or not first.snapshot or position.index:
        return files, None
    if any(add["path"] not in current for _, add in files) and _tracks_rows(source, position.version - 1):
        # VACUUM may remove the rewritten files; in their successors row tracking still knows each row's version
        return [(0, add) for add in current.values()], position.version - 1
    return files, None


def _tracks_rows(source: Source, version: int) -> bool:
    """Whether row tracking was enabled at a version; if only later, older rows have the version of that change."""
    return str(_log(source).setting(source.snapshot(version), ROW_TRACKING)).lower() == "true"


def _check_files(side: SideFiles, current: Mapping[str, Any]) -> None:
    """Raise SourceError if earlier rows are in files that no longer exist."""
    missing = _log(side.source).missing([add["path"] for _, add in side.earlier if add["path"] not in current])
    if missing:
        raise SourceError(
            f"Earlier rows of {side.stream.name} that new rows may join were in files that have been rewritten and "
            f"removed since ({len(missing):,} files, among them {missing[0]}), so they can no longer be distinguished "
            f"from new ones. Join everything again with --restart{without_start(side.stream)}. To avoid this, keep "
            "removed files until the join has run, or switch row tracking on for a source that has no start of its own "
            f"({ROW_TRACKING} = true)."
        )
