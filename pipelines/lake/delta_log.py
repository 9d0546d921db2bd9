"""The log of a Delta table, read and appended to without a JVM: what logs in folders and in object stores share.

delta-rs reads a table's state, but refuses to write to a clustered table, such as `_matches`. A commit that only
appends files needs little: a log file with the next free number that appears atomically, and a check of the commits
before it. Delta protocol, "Delta Log Entries", "Transaction Identifiers".
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipelines.error_texts import first_line
from pipelines.errors import MissingTableError, NeedsSparkError, TableError
from pipelines.lake.added_files import action_rows, files_in
from pipelines.lake.column_types import with_later_fields
from pipelines.lake.deletion_vectors import deletions_in
from pipelines.lake.delta_rs_statistics import statistics_of
from pipelines.lake.folder_snapshot import Definition, FolderSnapshot
from pipelines.lake.lake import open_delta
from pipelines.lake.log_actions import append_metrics, commit_info, removals, transaction
from pipelines.lake.transaction_ids import GIVEN_UP
from rules_index.workers.delta_file_writer import partition_text
from rules_index.workers.source_file_reader import SourceFile, UnreadableFileError, source_files

_ATTEMPTS = 100
"""Maximum number of attempts of a commit if others commit first."""
_CHECKPOINT_INTERVAL = "delta.checkpointInterval"
ADD_COLUMNS = "ADD COLUMNS"
"""The operation of a commit that appends columns."""
_APPEND = {"mode": "Append", "partitionBy": "[]"}
_SAFE_BETWEEN = ("commitInfo", "add", "remove", "txn", "cdc", "domainMetadata")
"""Actions of concurrent commits that do not conflict with an append: none changes the table's schema or protocol."""


class ChangedTableError(TableError):
    """A concurrent commit has changed the table's columns or protocol, or removed a file that was to be replaced."""


class BusyTableError(TableError):
    """Other programs commit to the table again and again."""


class DeltaLog(ABC):
    """The log of one table: `FolderLog` or `StoreLog`; `table_log.table_log` opens it."""

    checkpoint_every = 10
    """Number of commits between checkpoints, if the table's property does not give one."""

    def __init__(self, uri: str, folder: Path, bounds: bool = False) -> None:
        """folder: where this process writes the table's files; bounds: the statistics that `files` returns also have
        the minimum and maximum of each column."""
        self.uri, self.folder, self._bounds = uri, folder, bounds
        self._snapshots: dict[int, FolderSnapshot] = {}

    def latest(self) -> FolderSnapshot:
        """The newest snapshot; its number is -1 if there is no table."""
        try:
            return self._kept(FolderSnapshot(self.uri, open_delta(self.uri, None, "a table", "")))
        except MissingTableError:
            return FolderSnapshot(self.uri, None)

    def snapshot(self, version: int) -> FolderSnapshot:
        """The snapshot of one version; TableError if the log no longer holds it."""
        kept = self._snapshots.get(version)
        return kept or self._kept(FolderSnapshot(self.uri, open_delta(self.uri, version, "a table", "")))

    def _kept(self, snapshot: FolderSnapshot) -> FolderSnapshot:
        """Cache a snapshot and return it: all steps of a micro-batch ask for the same version."""
        self._snapshots = {snapshot.number: snapshot}
        return snapshot

    def version(self, snapshot: FolderSnapshot) -> int:
        """The version of a snapshot; -1 if there is no table."""
        return snapshot.number

    def table_id(self, snapshot: FolderSnapshot) -> str:
        """The table's id, which differs from that of a table created later at the same place."""
        return snapshot.table_id

    def files(self, snapshot: FolderSnapshot) -> list[dict[str, Any]]:
        """The `add` actions of a snapshot's files.

        Their statistics hold only `numRecords`, unless the log was opened with `bounds`. NeedsSparkError if delta-rs
        does not read their deletion vectors.
        """
        actions = files_in(snapshot.table)
        deletions = deletions_in(snapshot.table, actions)
        unread = () if self._bounds else ("min", "max", "null_count")
        rows = action_rows(actions.select([name for name in actions.column_names if name not in unread]))
        return [
            {
                "path": each["path"],
                "partitionValues": {k: partition_text(v) for k, v in (each.get("partition") or {}).items()},
                "size": each["size_bytes"],
                "modificationTime": each["modification_time"],
                "dataChange": True,
                "stats": json.dumps(statistics_of(each, self._bounds)),
                **({"deletionVector": deletions[each["path"]]} if each["path"] in deletions else {}),
            }
            for each in rows
        ]

    def fields(self, snapshot: FolderSnapshot) -> list[dict[str, Any]]:
        """The columns of a snapshot, in the form of the log's `schemaString`."""
        return snapshot.fields

    def setting(self, snapshot: FolderSnapshot, name: str) -> str | None:
        """A table property in a snapshot; None if it is not set."""
        return snapshot.properties.get(name)

    def commit(self, version: int) -> list[dict[str, Any]] | None:
        """The actions of one commit; None if the log does not hold it, or no longer. TableError if it is unreadable."""
        try:
            text = self._commit_text(version)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise TableError(f"The log of the Delta table at {self.uri} cannot be read: {first_line(error)}") from error
        # not splitlines(): it also splits at characters that JSON strings may contain
        return [json.loads(line) for line in text.split("\n") if line.strip()]

    @abstractmethod
    def commits(self) -> range:
        """The versions from the oldest commit that the log still holds to the newest one."""

    @abstractmethod
    def missing(self, paths: Sequence[str]) -> list[str]:
        """Returns the paths, as in the log, at which there is no longer a file."""

    @abstractmethod
    def file(self, path: str) -> Path:
        """Where this process reads a file, given by its path in the log. In an object store this is a local copy, and
        the file must have been fetched."""

    @abstractmethod
    def checkpoint(self, version: int) -> tuple[int, pa.Table | None]:
        """The version and the rows of a checkpoint of `version` or of an earlier one; -1 and None if none is in a
        single file."""

    @property
    @abstractmethod
    def source_folder(self) -> Path:
        """The folder in which this process reads the table's files."""

    def source_files(self, adds: Sequence[tuple[int, Mapping[str, Any]]]) -> list[SourceFile]:
        """Files to read from their `add` actions, each with the version that added it. NeedsSparkError if one has a
        deletion vector in a commit: which rows it has left is known here only of the files of a snapshot."""
        self.fetch(add for _, add in adds)
        try:
            return source_files(adds, self.file)
        except UnreadableFileError as error:
            raise NeedsSparkError(str(error)) from error

    @abstractmethod
    def fetch(self, adds: Iterable[Mapping[str, Any]]) -> None:
        """Make files, given by their `add` actions, readable at `file`."""

    @abstractmethod
    def keep_only(self, paths: Iterable[str]) -> None:
        """Delete the local copies of all files but these, given by their paths in the log."""

    def append(self, entries: Sequence[str], app: str, version: int) -> bool:
        """Add written files (`add` entries as JSON) in one commit, as transaction `version` of `app`.

        False if the table already holds this or a later transaction of `app`. ChangedTableError if a concurrent commit
        has changed the table's columns or protocol. TableError if the log cannot be written.
        """
        self._send(entries)
        info = commit_info("WRITE", _APPEND, append_metrics(entries), is_blind_append=True)
        return self._commit_once(self.latest(), app, version, [info, transaction(app, version), *entries])

    def rewrite(
        self,
        base: int,
        removed: Sequence[Mapping[str, Any]],
        entries: Sequence[str],
        app: str,
        version: int,
        marks: Sequence[str] = (),
    ) -> int | None:
        """Replace files of one version by written ones in one commit, as transaction `version` of `app` and `marks`.

        base: the version that has the files; removed: their `add` actions; entries: the new `add` entries as JSON.
        Returns how many files were added, or None if the table already holds the transaction. ChangedTableError if a
        concurrent commit has removed one of the files, or changed the table's columns or protocol.
        """
        self._send(entries)
        transactions = [transaction(each, version) for each in (app, *marks)]
        lines = [commit_info("UPDATE", {}, {}), *transactions, *entries, *removals(removed)]
        paths = {add["path"] for add in removed}
        return len(entries) if self._commit_once(self.snapshot(base), app, version, lines, paths) else None

    def fence(self, app: str, number: int) -> bool:
        """Fence off `app`: from now on, each of its transactions counts as written.

        True if the table already held transaction `number` of `app` when the fence was committed.
        """
        fence = GIVEN_UP

        def due(since: _Since) -> list[str]:
            """The lines of the fence's commit; none if the table already has a fence for `app`."""
            nonlocal fence
            last = since.transaction(app)
            fence = last if last >= GIVEN_UP else GIVEN_UP + (last >= number)
            info = commit_info("WRITE", _APPEND, {}, is_blind_append=True)
            return [info, transaction(app, fence)] if last < GIVEN_UP else []

        self._commit(self.latest(), due)
        return fence > GIVEN_UP

    def replace_files(
        self, snapshot: FolderSnapshot, gone: Sequence[Mapping[str, Any]], entries: Sequence[str]
    ) -> bool:
        """Replace files of a snapshot by files with the same rows, in one commit.

        gone: the `add` actions of the old files; entries: those of the new files, as JSON. The commit changes no data,
        so readers of changes skip it. False, with nothing committed, if a concurrent commit has removed one of the
        files, or has changed the table's columns or protocol.
        """
        self._send(entries)
        metrics = {"numRemovedFiles": str(len(gone)), "numAddedFiles": str(len(entries))}
        info = commit_info("OPTIMIZE", {"predicate": "[]"}, metrics)
        lines = [info, *removals(gone, data_change=False), *entries]
        try:
            return self._commit(snapshot, lambda _: lines, {add["path"] for add in gone})
        except (ChangedTableError, BusyTableError):
            return False

    def write_rows(
        self, snapshot: FolderSnapshot, version: int, gone: Sequence[Mapping[str, Any]], entries: Sequence[str]
    ) -> bool:
        """Add files, which are where the table is, and remove others in one commit that relies on all rows of a
        snapshot, whose version is given.

        gone: the `add` actions of the files to remove; entries: those of the new files, and other actions, as JSON.
        False, with nothing committed, if another program has committed since.
        """
        lines = [commit_info("UPDATE" if gone else "WRITE", {}, {}), *entries, *removals(gone)]
        return self._commit(snapshot, lambda since: lines if since.number == version else [], None)

    def note(self, operation: str, metrics: Mapping[str, str]) -> None:
        """Commit a `commitInfo` alone, so that the table's history shows an operation."""
        with suppress(BusyTableError):
            self._commit(self.latest(), lambda _: [commit_info(operation, {}, metrics)], None)

    @abstractmethod
    def create(self, definition: Definition) -> bool:
        """Create the table as version 0; False if another process has created it first."""

    def why_spark_commits(self, snapshot: FolderSnapshot) -> str | None:
        """Why only Spark can commit to the table, as a clause that follows the table's name; None if deltatag can."""
        timed = snapshot.properties.get("delta.enableInCommitTimestamps", "").lower() == "true"
        return "keeps the times of its commits" if timed else None

    def add_columns(self, fields: Sequence[Mapping[str, Any]]) -> None:
        """Append those of the given columns, and of the fields of structs in them, that the table lacks, in one commit;
        they are NULL in the rows of older files."""

        def due(since: _Since) -> list[str]:
            """The lines of a commit that adds the columns which the newest version lacks; none if it has all."""
            snapshot = self.snapshot(since.number)
            widened = with_later_fields(snapshot.fields, fields)
            changed = [field for field in widened if field not in snapshot.fields]
            info = commit_info(ADD_COLUMNS, {"columns": json.dumps(changed)}, {})
            return [info, json.dumps(snapshot.with_fields(widened))] if changed else []

        self._commit(self.latest(), due, None)

    def replace(self, definition: Definition, entries: Sequence[str] = ()) -> None:
        """Replace the table's definition, and all its files by these (`add` entries as JSON), in one commit; older
        versions stay readable."""
        self._send(entries)

        def due(since: _Since) -> list[str]:
            """The lines of a commit that removes the files of the newest version."""
            snapshot = self.snapshot(since.number)
            info = commit_info("CREATE OR REPLACE TABLE", definition.operation_parameters(), {})
            actions = self._actions_of(definition, snapshot)
            return [info, *map(json.dumps, actions), *removals(self.files(snapshot)), *entries]

        self._commit(self.latest(), due, None)

    @abstractmethod
    def _commit_text(self, version: int) -> str:
        """The text of one commit; FileNotFoundError if the log does not hold it."""

    @abstractmethod
    def _send(self, entries: Sequence[str]) -> None:
        """Move written files (`add` entries as JSON) to where the table is."""

    @abstractmethod
    def _actions_of(self, definition: Definition, held: FolderSnapshot) -> list[dict[str, Any]]:
        """The actions that give an existing table a new definition."""

    def _commit_once(
        self, base: FolderSnapshot, app: str, version: int, lines: Sequence[str], paths: Container[str] = frozenset()
    ) -> bool:
        """Commit lines that remove the files `paths`, unless the table holds transaction `version` of `app`."""
        return self._commit(base, lambda since: lines if since.transaction(app) < version else [], paths)

    def _commit(
        self,
        base: FolderSnapshot,
        due: Callable[[_Since], Sequence[str]],
        paths: Container[str] | None = frozenset(),
    ) -> bool:
        """Commit the lines that `due` returns; False, with nothing committed, if it returns none.

        `due` maps what was committed since `base` to the lines. It is called again after each concurrent commit.
        ChangedTableError if a concurrent commit removes one of the files `paths`, or changes columns or protocol; if
        `paths` is None, it may do both. BusyTableError if there are too many concurrent commits.
        """
        since = _Since(base, base.number)
        for _ in range(_ATTEMPTS):
            lines = due(since)
            if not lines:
                return False
            if self._put(since.number + 1, lines):
                self._checkpoint(since.number + 1, base.properties)
                return True
            since.number += 1
            since.actions += self.commit(since.number) or []
            if paths is not None:
                since.check(paths)
        raise BusyTableError(f"The table at {self.uri} is being written too often by others; try again.")

    @abstractmethod
    def _put(self, version: int, lines: Iterable[str]) -> bool:
        """Write a commit atomically; False if its version is taken. TableError if the log cannot be written."""

    def _checkpoint(self, version: int, properties: Mapping[str, str]) -> None:
        """Write a checkpoint if one is due. A failure is ignored: the next due commit tries again."""
        wanted = properties.get(_CHECKPOINT_INTERVAL, "")
        # others may set the property to anything
        interval = int(wanted) if re.fullmatch(r"0*[1-9][0-9]{0,8}", wanted) else self.checkpoint_every
        if version and version % interval == 0:
            from deltalake import exceptions

            try:
                self.snapshot(version).table.create_checkpoint()
            except (TableError, exceptions.DeltaError, OSError):
                return


@dataclass
class _Since:
    """What other programs have committed since a snapshot.

    number   the newest version
    actions  those of all commits after the snapshot
    """

    snapshot: FolderSnapshot
    number: int
    actions: list[dict[str, Any]] = field(default_factory=list)

    def transaction(self, app: str) -> int:
        """The last transaction of `app`; -1 if there is none."""
        last = self.snapshot.table.transaction_version(app)
        later = (int(each["txn"]["version"]) for each in self.actions if each.get("txn", {}).get("appId") == app)
        return max([-1 if last is None else int(last), *later])

    def check(self, paths: Container[str]) -> None:
        """Raise ChangedTableError if these commits prevent one that removes the files `paths` and keeps the columns."""
        if any(next(iter(each)) not in _SAFE_BETWEEN for each in self.actions):
            what = "changed the columns or the protocol"
        elif any("remove" in each and each["remove"]["path"] in paths for each in self.actions):
            what = "removed files"
        else:
            return
        raise ChangedTableError(
            f"Another program has {what} of the table at {self.snapshot.uri} meanwhile (ConcurrentChange). Run the "
            "same command again."
        )
