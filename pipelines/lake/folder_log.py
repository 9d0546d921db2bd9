"""The log of a Delta table in a folder, read and appended to without a JVM.

delta-rs reads a table's state, but refuses to write to a clustered table, such as `_matches`. A commit that only
appends files needs little: a log file with the next free number that appears atomically, and a check of the commits
before it. Delta protocol, "Delta Log Entries", "Transaction Identifiers".
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from pipelines.errors import MissingTableError, TableError
from pipelines.lake.delta_rs_statistics import statistics_of
from pipelines.lake.folder_snapshot import Definition, FolderSnapshot
from pipelines.lake.lake import first_line, open_delta
from pipelines.lake.opened import local_folder
from pipelines.lake.reading import files_in
from pipelines.lake.transactions import GIVEN_UP
from rules_index.workers.delta_files import partition_text

_ATTEMPTS = 100
_CHECKPOINT_INTERVAL = "delta.checkpointInterval"
_SAFE_BETWEEN = ("commitInfo", "add", "remove", "txn", "cdc", "domainMetadata")
"""Actions of concurrent commits that do not conflict with an append: none changes the table's schema or protocol."""


class ChangedTableError(TableError):
    """A concurrent commit has changed the table's columns or protocol, or removed a file that was to be replaced."""


class FolderLog:
    """The log of the table in one folder."""

    def __init__(self, uri: str, bounds: bool = False) -> None:
        """uri: a path, or a `file:` URI; bounds: `files` also gives the minimum and maximum values of columns."""
        self.uri, self._bounds = uri, bounds
        self.folder = Path(local_folder(uri) or uri)
        self._log = self.folder / "_delta_log"
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

        Their statistics hold only `numRecords`, unless the log was opened with `bounds`.
        """
        actions = files_in(snapshot.table).to_pylist()
        return [
            {
                "path": each["path"],
                "partitionValues": {k: partition_text(v) for k, v in (each.get("partition") or {}).items()},
                "size": each["size_bytes"],
                "modificationTime": each["modification_time"],
                "dataChange": True,
                "stats": json.dumps(statistics_of(each, self._bounds)),
            }
            for each in actions
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
            text = (self._log / f"{version:020d}.json").read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise TableError(f"The log of the Delta table at {self.uri} cannot be read: {first_line(error)}") from error
        # not splitlines(): it also splits at characters that JSON strings may contain
        return [json.loads(line) for line in text.split("\n") if line.strip()]

    def commits(self) -> range:
        """The versions from the oldest commit that the log still holds to the newest one."""
        names = os.listdir(self._log) if self._log.is_dir() else []
        versions = sorted(int(name[:20]) for name in names if len(name) == 25 and name.endswith(".json"))
        return range(versions[0], versions[-1] + 1) if versions else range(0)

    def missing(self, paths: Sequence[str]) -> list[str]:
        """Those of some files, given by their paths in the log, that no longer exist."""
        return [path for path in paths if not self.file(path).exists()]

    def file(self, path: str) -> Path:
        """The location of a file that is given by its path in the log."""
        parsed = urlparse(path)
        return Path(unquote(parsed.path)) if parsed.scheme == "file" else self.folder / unquote(path)

    def append(self, entries: Sequence[str], app: str, version: int) -> bool:
        """Add written files (`add` entries as JSON) in one commit, as transaction `version` of `app`.

        False if the table already holds this or a later transaction of `app`. ChangedTableError if a concurrent commit
        has changed the table's columns or protocol. TableError if the log cannot be written.
        """

        def actions(last: int) -> tuple[bool, list[str]]:
            """Whether to commit after the transaction `last`, and the actions."""
            mark = {"txn": {"appId": app, "version": version, "lastUpdated": _now()}}
            return last < version, [json.dumps(mark), *entries] if last < version else []

        return self._commit(app, actions, _metrics(entries))

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
        snapshot, now = self.snapshot(base), _now()
        last = snapshot.table.transaction_version(app)
        last, number = -1 if last is None else int(last), base
        gone = {str(add["path"]) for add in removed}
        info = {**_commit_info("UPDATE", {}, {}), "isBlindAppend": False}
        lines = [{"commitInfo": info}]
        lines += [{"txn": {"appId": each, "version": version, "lastUpdated": now}} for each in (app, *marks)]
        texts = [
            *map(json.dumps, lines),
            *entries,
            *(json.dumps({"remove": {**_removal(add, now), "dataChange": True}}) for add in removed),
        ]
        for _ in range(_ATTEMPTS):
            if last >= version:
                return None
            if self._put(number + 1, texts):
                self._checkpoint(number + 1, snapshot.properties)
                return len(entries)
            number += 1
            last = self._passed(number, app, last)
            if any("remove" in each and each["remove"]["path"] in gone for each in self.commit(number) or ()):
                raise ChangedTableError(
                    f"Another program has removed files of the table at {self.uri} meanwhile (ConcurrentChange). Run "
                    "the same command again."
                )
        raise TableError(f"The table at {self.uri} is being written too often by others; try again.")

    def fence(self, app: str, number: int) -> bool:
        """Fence off `app`: from now on, every transaction of it counts as written.

        True if the table already held transaction `number` of `app` when the fence was committed.
        """

        def actions(last: int) -> tuple[bool, list[str]]:
            """Whether the transaction `last` is at least `number`, and the actions of the fence."""
            if last >= GIVEN_UP:
                return last > GIVEN_UP, []
            mark = {"txn": {"appId": app, "version": GIVEN_UP + (last >= number), "lastUpdated": _now()}}
            return last >= number, [json.dumps(mark)]

        return self._commit(app, actions, {})

    def replace_files(
        self, snapshot: FolderSnapshot, gone: Sequence[Mapping[str, Any]], entries: Sequence[str]
    ) -> bool:
        """Replace files of a snapshot by files with the same rows, in one commit.

        gone: the `add` actions of the old files; entries: those of the new files, as JSON. The commit changes no data,
        so readers of changes skip it. False, with nothing committed, if a concurrent commit has removed one of the
        files, or has changed the table's columns or protocol.
        """
        now, paths = _now(), {add["path"] for add in gone}
        removed = [json.dumps({"remove": _removal(add, now)}) for add in gone]
        metrics = {"numRemovedFiles": str(len(gone)), "numAddedFiles": str(len(entries))}
        info = _commit_info("OPTIMIZE", {"predicate": "[]"}, metrics) | {"isBlindAppend": False}
        lines = [json.dumps({"commitInfo": info}), *removed, *entries]
        version = snapshot.number
        for _ in range(_ATTEMPTS):
            if self._put(version + 1, lines):
                self._checkpoint(version + 1, snapshot.properties)
                return True
            version += 1
            for action in self.commit(version) or ():
                kind = next(iter(action))
                if kind not in _SAFE_BETWEEN or (kind == "remove" and action["remove"]["path"] in paths):
                    return False
        return False

    def note(self, operation: str, metrics: Mapping[str, str]) -> None:
        """Commit a `commitInfo` alone, so that the table's history shows an operation."""
        info = json.dumps({"commitInfo": _commit_info(operation, {}, metrics) | {"isBlindAppend": False}})
        version = self.latest().number
        for _ in range(_ATTEMPTS):
            if self._put(version + 1, [info]):
                return
            version += 1

    def create(self, definition: Definition) -> bool:
        """Create the table as version 0; False if another process has created it first."""
        self._log.mkdir(parents=True, exist_ok=True)
        info = _commit_info("CREATE TABLE", definition.told(), {})
        return self._put(
            0, map(json.dumps, [{"commitInfo": info}, *definition.actions(str(uuid.uuid4()), frozenset())])
        )

    def add_columns(self, fields: Sequence[Mapping[str, Any]]) -> None:
        """Append those of the columns that the table lacks, in one commit; files without them have NULL there."""
        for _ in range(_ATTEMPTS):
            snapshot = self.latest()
            held = {field["name"] for field in snapshot.fields}
            missing = [dict(field) for field in fields if field["name"] not in held]
            info = _commit_info("ADD COLUMNS", {"columns": json.dumps(missing)}, {}) | {"isBlindAppend": False}
            actions = [{"commitInfo": info}, snapshot.with_columns(missing)]
            if not missing or self._put(snapshot.number + 1, map(json.dumps, actions)):
                return
        raise TableError(f"The table at {self.uri} is being written too often by others; try again.")

    def replace(self, definition: Definition) -> None:
        """Remove all files and set these columns, in one commit; older versions stay readable."""
        for _ in range(_ATTEMPTS):
            snapshot = self.latest()
            now = _now()
            removed = [
                {"remove": {"path": add["path"], "deletionTimestamp": now, "dataChange": True}}
                for add in self.files(snapshot)
            ]
            info = _commit_info("CREATE OR REPLACE TABLE", definition.told(), {})
            info["isBlindAppend"] = False
            actions = [{"commitInfo": info}, *definition.actions(snapshot.table_id, snapshot.features), *removed]
            if self._put(snapshot.number + 1, map(json.dumps, actions)):
                return
        raise TableError(f"The table at {self.uri} is being written too often by others; try again.")

    def _commit(self, app: str, actions: Callable[[int], tuple[bool, list[str]]], metrics: Mapping[str, str]) -> bool:
        """Commit what `actions` gives for the last transaction of `app`; again after each concurrent commit.

        `actions` maps that transaction to a result and to the actions; without actions nothing is committed. Returns
        the result.
        """
        snapshot = self.latest()
        last, version = snapshot.table.transaction_version(app), snapshot.number
        last = -1 if last is None else int(last)
        for _ in range(_ATTEMPTS):
            result, wanted = actions(last)
            if not wanted:
                return result
            parameters = {"mode": "Append", "partitionBy": "[]"}
            info = json.dumps({"commitInfo": _commit_info("WRITE", parameters, metrics)})
            if self._put(version + 1, [info, *wanted]):
                self._checkpoint(version + 1, snapshot.properties)
                return result
            version += 1
            last = self._passed(version, app, last)
        raise TableError(f"The table at {self.uri} is being written too often by others; try again.")

    def _passed(self, version: int, app: str, last: int) -> int:
        """The last transaction of `app` after a concurrent commit; ChangedTableError if that commit conflicts."""
        for action in self.commit(version) or ():
            name = next(iter(action))
            if name not in _SAFE_BETWEEN:
                raise ChangedTableError(
                    f"Another program has changed the columns or the protocol of the table at {self.uri} meanwhile "
                    "(ConcurrentChange). Run the same command again."
                )
            if name == "txn" and action["txn"]["appId"] == app:
                last = max(last, int(action["txn"]["version"]))
        return last

    def _put(self, version: int, lines: Iterable[str]) -> bool:
        """Write a commit atomically; False if its version is taken. TableError if the log cannot be written."""
        path = self._log / f"{version:020d}.json"
        temporary = self._log / f".{path.name}.{uuid.uuid4().hex}.tmp"
        try:
            with temporary.open("w", encoding="utf-8") as file:
                file.writelines(f"{line}\n" for line in lines)
                file.flush()
                os.fsync(file.fileno())
            os.link(temporary, path)
        except FileExistsError:
            return False
        except OSError as error:
            raise TableError(f"The log of the table at {self.uri} cannot be written: {first_line(error)}") from error
        finally:
            temporary.unlink(missing_ok=True)
        return True

    def _checkpoint(self, version: int, properties: Mapping[str, str]) -> None:
        """Write a checkpoint if one is due. A failure is ignored: the next due commit tries again."""
        interval = int(properties.get(_CHECKPOINT_INTERVAL, "10"))
        if version and version % interval == 0:
            from deltalake import exceptions

            try:
                self.snapshot(version).table.create_checkpoint()
            except (TableError, exceptions.DeltaError, OSError):
                return


def _removal(add: Mapping[str, Any], now: int) -> dict[str, Any]:
    """The `remove` action of a file whose rows another file now holds."""
    return {
        "path": add["path"],
        "deletionTimestamp": now,
        "dataChange": False,
        "extendedFileMetadata": True,
        "partitionValues": add["partitionValues"],
        "size": add["size"],
    }


def _metrics(entries: Sequence[str]) -> dict[str, str]:
    """The operation metrics of an append, named as Spark's writer names them."""
    adds = [json.loads(entry)["add"] for entry in entries]
    rows = sum(json.loads(add["stats"])["numRecords"] for add in adds)
    size = sum(add["size"] for add in adds)
    return {"numFiles": str(len(adds)), "numOutputRows": str(rows), "numOutputBytes": str(size)}


def _commit_info(operation: str, parameters: Mapping[str, str], metrics: Mapping[str, str]) -> dict[str, Any]:
    return {
        "timestamp": _now(),
        "operation": operation,
        "operationParameters": dict(parameters),
        "isBlindAppend": True,
        "operationMetrics": dict(metrics),
        "engineInfo": "deltatag",
        "txnId": str(uuid.uuid4()),
    }


def _now() -> int:
    return int(time.time() * 1000)
