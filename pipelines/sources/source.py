"""Finds new rows in a stream's source, as slices of added files that are bounded in bytes.

A slice can be repeated exactly from its plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Protocol

from pipelines.errors import SourceChangedError, SourceError
from pipelines.settings.configuration import is_catalog_name
from pipelines.settings.model import Start, Stream
from pipelines.settings.streams_over_streams import no_source
from pipelines.sources.later_columns import with_later_columns
from pipelines.sources.positions import Add, Position, Slice, fitting, position_from_plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


SAME_ROWS = "deltatag/same-rows"
"""The `appId` that marks a commit of a tagged table which changes only the columns that tagging adds."""


class Log(Protocol):
    """The methods of a Delta log that planning needs.

    Implemented by pipelines.spark.delta_internals.TableLog and pipelines.lake.delta_log.DeltaLog.
    """

    uri: str

    def latest(self) -> Any:
        """The newest snapshot."""

    def snapshot(self, version: int) -> Any:
        """The snapshot of a version."""

    def version(self, snapshot: Any) -> int:
        """The version of a snapshot; -1 if there is no table."""

    def table_id(self, snapshot: Any) -> str:
        """The table's id, which differs from that of a table created later at the same place."""

    def files(self, snapshot: Any) -> list[dict[str, Any]]:
        """The `add` actions of a snapshot's files."""

    def fields(self, snapshot: Any) -> list[dict[str, Any]]:
        """The columns of a snapshot, in the form of the log's `schemaString`."""

    def commit(self, version: int) -> list[dict[str, Any]] | None:
        """The actions of a commit; None if the log does not hold it."""

    def commits(self) -> range:
        """The versions whose commits the log holds."""

    def missing(self, paths: Sequence[str]) -> list[str]:
        """The paths, as in the log, at which there is no longer a file."""


class Source:
    """The source table of one stream, at the version that is newest when this object is created."""

    def __init__(
        self,
        name: str,
        log: Log,
        command: str | None = None,
        origin: str | None = None,
        left_out: Sequence[str] = (),
        start: Start | None = None,
    ) -> None:
        """name: the stream's; command: the command that takes new rows, for messages, by default that of tag; origin:
        the stream that tagged the rows, if any, whose added columns are `left_out`; start: where the stream begins, for
        messages. SourceError if there is no table.
        """
        self.name = name
        self._has_start = start is not None and start.kind != "earliest"
        self.origin = origin
        self.left_out = tuple(left_out)
        self.command = command or f"deltatag tag {name}"
        self.log = log
        self._newest = log.latest()
        self.version = log.version(self._newest)
        if self.version < 0:
            raise SourceError(no_source(name, log.uri, origin))
        self.table_id = log.table_id(self._newest)
        self._commit = lru_cache(maxsize=1)(log.commit)
        self._files_of = lru_cache(maxsize=1)(self._snapshot_files)
        self._paths_added_by = lru_cache(maxsize=None)(self._paths_added)
        self._added_by = lru_cache(maxsize=None)(self._added_or_skipped)

    def snapshot(self, version: int) -> Any:
        """The log's snapshot of a version."""
        return self._newest if version == self.version else self.log.snapshot(version)

    def first_position(self, start: Start) -> Position:
        """The position at which the first run begins; SourceError if the log no longer reaches back to it."""
        if start.kind == "version":
            held = self.log.commits()
            if held and start.value < held.start:
                raise SourceError(
                    f"The stream {self.name} starts at version {start.value} of its source at {self.log.uri}, and the "
                    f"log holds no version before {held.start} any more. Give it a later start, or none to begin with "
                    "the rows that are there."
                )
            return Position(start.value)
        if start.kind == "timestamp":
            return self._position_at(start.value)
        return Position(self.version, 0, snapshot=True)

    def take(
        self,
        position: Position,
        table_id: str | None,
        max_bytes: int,
        skip_changes: bool = False,
        reached: bool = True,
    ) -> Slice | None:
        """The next slice after `position`: at least one file, and as many as fit; None if nothing is new.

        table_id: the table to which the position belongs, if known; reached: False for a start, which may be in the
        future. A slice without files moves the position past commits that added no rows. SourceChangedError if the next
        commit does more than append rows, unless `skip_changes`; or if the source is now another table, or an older
        copy of this one.
        """
        if table_id is not None and table_id != self.table_id:
            raise SourceChangedError(
                f"The source of the stream {self.name} at {self.log.uri} is not the table that was tagged until now: "
                f"it was dropped and made again. {self._retagged()}{self._advice(skip=False)}"
            )
        if reached and position.is_beyond(self.version):
            raise SourceChangedError(f"{older_copy(self.name, self.version)} {self._advice(skip=False)}")
        if position.snapshot:
            taken = self._take_from_snapshot(position, max_bytes)
        elif position.version > self.version:
            return None
        else:
            taken = self._take_from_commits(position, max_bytes, skip_changes)
        return with_later_columns(self.log, taken, self.snapshot, self.version, self._appended)

    def retake(self, plan: Mapping[str, Any]) -> Slice:
        """The slice of a plan, with exactly the same files; SourceError if they are no longer known, SourceChangedError
        if the source was replaced."""
        start, end = position_from_plan(plan["start"]), position_from_plan(plan["end"])
        if plan["table_id"] != self.table_id:
            raise SourceChangedError(
                f"The source of the stream {self.name} at {self.log.uri} was dropped and made again while a "
                f"micro-batch was unfinished. {self._advice(skip=False)}"
            )
        if end.is_beyond(self.version):
            raise SourceChangedError(f"{older_copy(self.name, self.version)} {self._advice(skip=False)}")
        files: list[Add] = []
        later = start
        if start.snapshot:
            files += self._files_of(start.version)[start.index : end.index if end.snapshot else None]
            later = Position(start.version + 1)  # folded micro-batches go on with commits (maintaining.folding)
        if not end.snapshot and not plan["skipped"]:
            files += [
                file
                for version in range(later.version, end.version + (1 if end.index else 0))
                for i, file in enumerate(self._added(version))
                if (later.version, later.index) <= (version, i) < (end.version, end.index)
            ]
        lost = tuple(plan.get("lost", ()))
        files = [file for place, file in enumerate(files) if place not in set(lost)]
        if len(files) != plan["files"]:
            raise SourceError(
                f"The source of the stream {self.name} no longer shows the {plan['files']} files of its unfinished "
                f"micro-batch, but {len(files)}. {self._advice(skip=False)}"
            )
        return Slice(self.table_id, start, end, plan["schema_version"], tuple(files), plan["skipped"], lost)

    def files_before(self, position: Position, first: Position) -> list[Add]:
        """The files of the rows that were taken from `first`, where the first run began, up to `position`.

        If the first run began with a snapshot, these are the files of the version before `position`, in which OPTIMIZE
        may have rewritten files that were taken. Otherwise these are the files that the commits have added, without
        commits that changed rows and were skipped.
        """
        if position.snapshot:
            return self._files_of(position.version)[: position.index]
        if first.snapshot:
            files: list[Add] = [(0, add) for add in self._files_at(position.version - 1)]
            return files + (self._added(position.version)[: position.index] if position.index else [])
        return [
            file
            for version in range(first.version, position.version + (1 if position.index else 0))
            for i, file in enumerate(self._added_by(version))
            if (first.version, first.index) <= (version, i) < (position.version, position.index)
        ]

    @cached_property
    def current_files(self) -> dict[str, dict[str, Any]]:
        """The `add` actions of the newest version's files, by path."""
        return {add["path"]: add for add in self.log.files(self._newest)}

    def _files_at(self, version: int) -> list[dict[str, Any]]:
        """The `add` actions of a version's files; without loading the version if no file was removed since."""
        later: set[str] = set()
        for commit in range(version + 1, self.version + 1):
            added = self._paths_added_by(commit)
            if added is None:
                return self.log.files(self.log.snapshot(version))
            later |= added
        return [add for path, add in self.current_files.items() if path not in later]

    def _paths_added(self, version: int) -> frozenset[str] | None:
        """The paths of the files that a commit added.

        None if the log does not hold it, or if it removed files or added known files again, as enabling row tracking
        does.
        """
        actions = self.log.commit(version)
        if actions is None or any("remove" in action for action in actions):
            return None
        adds = [action["add"] for action in actions if "add" in action]
        return frozenset(add["path"] for add in adds) if all(add.get("dataChange", True) for add in adds) else None

    def _take_from_snapshot(self, position: Position, max_bytes: int) -> Slice:
        files = self._files_of(position.version)
        taken = fitting(files[position.index :], max_bytes, 0, 0)
        index = position.index + len(taken)
        end = Position(position.version + 1) if index >= len(files) else Position(position.version, index, True)
        return Slice(self.table_id, position, end, position.version, tuple(taken))

    def _take_from_commits(self, position: Position, max_bytes: int, skip_changes: bool) -> Slice:
        files: list[Add] = []
        size, end, schema_version = 0, position, position.version
        for version in range(position.version, self.version + 1):
            try:
                added = self._added(version)[end.index :]
            except SourceChangedError:
                if end != position:
                    break
                if not skip_changes:
                    raise
                return Slice(self.table_id, position, Position(version + 1), version, (), skipped=True)
            taken = fitting(added, max_bytes, size, len(files))
            files += taken
            size += sum(int(add["size"]) for _, add in taken)
            # a commit without files, such as ALTER TABLE, may add a column that rules already name
            schema_version = version if taken or not added else schema_version
            if len(taken) < len(added):
                end = Position(version, end.index + len(taken))
                break
            end = Position(version + 1)
        return Slice(self.table_id, position, end, schema_version, tuple(files))

    def _appended(self, version: int) -> list[dict[str, Any]]:
        """The actions of a commit; SourceError if it did more than append rows and columns."""
        self._added(version)
        return self._commit(version) or []

    def _added(self, version: int) -> list[Add]:
        """The files that a commit added with new rows, in the log's order."""
        actions = self._commit(version)
        if actions is None:
            raise SourceError(
                f"The log of the source of the stream {self.name} at {self.log.uri} no longer holds version {version}, "
                f"which is still needed: it was removed by the table's log retention. {self._advice(skip=False)}"
            )
        if self.origin is not None and any(a.get("txn", {}).get("appId") == SAME_ROWS for a in actions):
            return []
        adds: list[Add] = []
        restored = any(action.get("commitInfo", {}).get("operation") == "RESTORE" for action in actions)
        for action in actions:
            removed, metadata = action.get("remove"), action.get("metaData")
            if removed is not None and removed.get("dataChange", True):
                raise self._changed(version, actions)
            if metadata is not None and metadata["id"] != self.table_id:
                raise self._changed(version, actions)
            if "add" in action and action["add"].get("dataChange", True):
                if restored:  # these rows existed before, and may have been taken
                    raise self._changed(version, actions)
                adds.append((version, action["add"]))
        return adds

    def _added_or_skipped(self, version: int) -> list[Add]:
        """The files that a commit added with new rows; empty for a commit that changed rows and was skipped."""
        try:
            return self._added(version)
        except SourceChangedError:
            return []

    def _changed(self, version: int, actions: list[dict[str, Any]]) -> SourceChangedError:
        operation = next((a["commitInfo"].get("operation") for a in actions if "commitInfo" in a), None)
        return SourceChangedError(
            f"Version {version} of the source of the stream {self.name} at {self.log.uri} is not a plain append: "
            f"{operation or 'a commit'} changed or removed rows that are already there. {self._retagged()}"
            f"{self._advice_with_start() if self._has_start else self._advice()}"
        )

    def _retagged(self) -> str:
        """A sentence for messages on how the origin, if any, may have changed the rows; else empty."""
        if self.origin is None:
            return ""
        return (
            f"It is the tagged table of {self.origin}: deltatag tag {self.origin} --restart writes it again, and "
            f"deltatag retag {self.origin} adds and removes rows if it holds only matched ones. "
        )

    def _advice(self, skip: bool = True) -> str:
        go_on = f", or continue after the change with: {self.command} --skip-changes" if skip else ""
        return f"Process everything again with: {self.command} --restart{go_on}"

    def _advice_with_start(self) -> str:
        return (
            f"Continue after the change with: {self.command} --skip-changes, or give the stream a start after the "
            f"change, without which a restart stops there again, and process everything with: {self.command} --restart"
        )

    def _snapshot_files(self, version: int) -> list[Add]:
        """The files of a version, oldest first, in an order that depends only on the files."""
        files = sorted(self._files_at(version), key=lambda add: (add["modificationTime"], add["path"]))
        versions = self._versions_of({add["path"] for add in files}, version)
        return [(versions[add["path"]], add) for add in files]

    def _versions_of(self, paths: set[str], version: int) -> dict[str, int]:
        """The version that added each file of a snapshot; for files older than the log, the one before its first."""
        held = self.log.commits()
        versions: dict[str, int] = {}
        for commit in range(min(version, held.stop - 1), held.start - 1, -1):
            for action in self.log.commit(commit) or ():
                add = action.get("add")
                if add is not None and add["path"] in paths:
                    versions.setdefault(add["path"], commit)
            if len(versions) == len(paths):
                break
        before = max(held.start - 1, 0)
        return {path: versions.get(path, before) for path in paths}

    def _position_at(self, microseconds: int) -> Position:
        """The position before the first commit at or after a time, or after the newest version if there is none.

        If the time may be before the oldest commit that the log still holds, the newest snapshot.
        """
        held = self.log.commits()
        for version in held:
            committed = _committed_at(self.log.commit(version) or [])
            if committed is not None and committed * 1000 >= microseconds:
                if version == held.start and version > 0:
                    return Position(self.version, 0, snapshot=True)
                return Position(version)
        return Position(self.version + 1)


def older_copy(stream: str, newest: int) -> str:
    """Two sentences on a source that ends before the position up to which it was taken."""
    return (
        f"The source of the stream {stream} ends at version {newest}, and later versions of it were already processed: "
        "an older copy of the table was put in its place. New commits get the numbers of versions that were processed, "
        "and would be skipped."
    )


def _committed_at(actions: list[dict[str, Any]]) -> int | None:
    """The time of a commit in milliseconds; if it is not recorded, that of its newest file; None without files."""
    info: dict[str, Any] = next((a["commitInfo"] for a in actions if "commitInfo" in a), {})
    recorded = info.get("inCommitTimestamp", info.get("timestamp"))
    if recorded is not None:
        return int(recorded)
    return max((int(a["add"]["modificationTime"]) for a in actions if "add" in a), default=None)


def source_uri(spark: SparkSession, stream: Stream) -> str:
    """The folder of the stream's source; SourceError if a catalog has no Delta table of that name."""
    if not is_catalog_name(stream.source):
        return stream.source
    from pipelines.errors import MissingTableError
    from pipelines.lake.lake import catalog_location

    try:
        return catalog_location(spark, stream.source)
    except MissingTableError as error:
        raise SourceError(f"The stream {stream.name} has no source: {error}") from None


def open_source(spark: SparkSession, stream: Stream, command: str | None = None) -> Source:
    """The stream's source, read by Spark; SourceError if it cannot be opened. command: as for `Source`."""
    from pipelines.spark.delta_internals import TableLog

    return Source(
        stream.name,
        TableLog(spark, source_uri(spark, stream)),
        command,
        stream.source_stream,
        stream.left_out,
        stream.start,
    )
