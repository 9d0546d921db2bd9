"""The log of a Delta table in a folder, read and appended to without a JVM.

delta-rs tells the state of a table, and refuses to write to one that is clustered, as `_matches` is. A commit that only
appends files asks for little: a file of a free number that appears whole, and a look at the commits before it. Delta
protocol, "Delta Log Entries", "Transaction Identifiers".
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

from pipelines.errors import MissingTableError, TableError
from pipelines.lake.file_statistics import statistics_of
from pipelines.lake.folder_snapshot import Definition, FolderSnapshot
from pipelines.lake.lake import first_line, open_delta
from pipelines.lake.reading import as_dicts, files_in
from pipelines.lake.transactions import GIVEN_UP
from rules_index.workers.delta_files import partition_text

if TYPE_CHECKING:
    pass

_ATTEMPTS = 100
_CHECKPOINT_INTERVAL = "delta.checkpointInterval"
_SAFE_BETWEEN = ("commitInfo", "add", "remove", "txn", "cdc", "domainMetadata")
"""Actions of other commits beside which an append stands: none of them changes what its files must look like."""


class ChangedTableError(TableError):
    """Another writer has changed the table's columns or protocol meanwhile."""


class FolderLog:
    """The log of the table in one folder."""

    def __init__(self, uri: str, bounds: bool = False) -> None:
        """uri: a path, or a `file:` URI; bounds: `files` tells the least and greatest values of columns, too."""
        self.uri, self._bounds = uri, bounds
        self.folder = Path(local_folder(uri) or uri)
        self._log = self.folder / "_delta_log"
        self._snapshots: dict[int, FolderSnapshot] = {}

    def latest(self) -> FolderSnapshot:
        """The newest snapshot; its number is -1 where there is no table."""
        try:
            return self._kept(FolderSnapshot(self.uri, open_delta(self.uri, None, "a table", "")))
        except MissingTableError:
            return FolderSnapshot(self.uri, None)

    def snapshot(self, version: int) -> FolderSnapshot:
        """The snapshot of one version; TableError where the log no longer holds it."""
        kept = self._snapshots.get(version)
        return kept or self._kept(FolderSnapshot(self.uri, open_delta(self.uri, version, "a table", "")))

    def _kept(self, snapshot: FolderSnapshot) -> FolderSnapshot:
        """A snapshot, which is kept for whoever asks for its version next: all steps of a micro-batch do."""
        self._snapshots = {snapshot.number: snapshot}
        return snapshot

    def version(self, snapshot: FolderSnapshot) -> int:
        """The number of a snapshot's version; -1 where there is no table."""
        return snapshot.number

    def table_id(self, snapshot: FolderSnapshot) -> str:
        """What tells a snapshot's table from one made later at the same place."""
        return snapshot.table_id

    def files(self, snapshot: FolderSnapshot) -> list[dict[str, Any]]:
        """The `add` actions of a snapshot's files; of their statistics only how many rows they have, unless bounds were
        asked for."""
        actions = as_dicts(files_in(snapshot.table))
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
        """The columns of a snapshot, as the log writes them."""
        return snapshot.fields

    def setting(self, snapshot: FolderSnapshot, name: str) -> str | None:
        """A property of the table as a snapshot has it."""
        return snapshot.properties.get(name)

    def commit(self, version: int) -> list[dict[str, Any]] | None:
        """The actions of one commit; None where the log holds (or no longer holds) no such commit."""
        try:
            text = (self._log / f"{version:020d}.json").read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise TableError(f"The log of the Delta table at {self.uri} cannot be read: {first_line(error)}") from error
        # not splitlines(), which also cuts at characters that JSON may have inside of its strings
        return [json.loads(line) for line in text.split("\n") if line.strip()]

    def commits(self) -> range:
        """The versions whose commits the log still holds, up to the newest one."""
        names = os.listdir(self._log) if self._log.is_dir() else []
        versions = sorted(int(name[:20]) for name in names if len(name) == 25 and name.endswith(".json"))
        return range(versions[0], versions[-1] + 1) if versions else range(0)

    def missing(self, paths: Sequence[str]) -> list[str]:
        """Those of the table's files, by their names in the log, that are not there any more."""
        return [path for path in paths if not self.file(path).exists()]

    def file(self, path: str) -> Path:
        """Where a file is, by its name in the log."""
        parsed = urlparse(path)
        return Path(unquote(parsed.path)) if parsed.scheme == "file" else self.folder / unquote(path)

    def append(self, entries: Sequence[str], app: str, version: int) -> bool:
        """Put written files (`add` entries as JSON) into the log in one commit, as transaction `version` of `app`.

        False if the table holds this or a later one of `app` already. ChangedTableError where another writer has
        changed what its files must look like.
        """

        def actions(last: int) -> tuple[bool, list[str]]:
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
        """Replace files of the version `base` (their `add` actions) by written ones (`add` entries as JSON), in one
        commit, as transaction `version` of `app` and of each of `marks`.

        The number of files that came; None if the table holds the transaction already. ChangedTableError where another
        writer has removed one of the files since, or changed what files must look like.
        """
        snapshot, now = self.snapshot(base), _now()
        last = snapshot.table.transaction_version(app)
        last, number = -1 if last is None else int(last), base
        gone = {str(add["path"]) for add in removed}
        told = {**_commit_info("UPDATE", {}, {}), "isBlindAppend": False}
        lines = [{"commitInfo": told}]
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
        """Have every later transaction of `app` taken for written; True if the table held that of this number by
        then."""

        def actions(last: int) -> tuple[bool, list[str]]:
            if last >= GIVEN_UP:
                return last > GIVEN_UP, []
            mark = {"txn": {"appId": app, "version": GIVEN_UP + (last >= number), "lastUpdated": _now()}}
            return last >= number, [json.dumps(mark)]

        return self._commit(app, actions, {})

    def replace_files(
        self, snapshot: FolderSnapshot, gone: Sequence[Mapping[str, Any]], entries: Sequence[str]
    ) -> bool:
        """Put files (entries as JSON) in the place of others of a snapshot that hold the same rows, in one commit that
        changes no row: readers of changes pass over it.

        False, and nothing is done, where another writer has removed one of them meanwhile, or has changed what the
        table's files must look like.
        """
        now, paths = _now(), {add["path"] for add in gone}
        removed = [json.dumps({"remove": _removal(add, now)}) for add in gone]
        metrics = {"numRemovedFiles": str(len(gone)), "numAddedFiles": str(len(entries))}
        told = _commit_info("OPTIMIZE", {"predicate": "[]"}, metrics) | {"isBlindAppend": False}
        lines = [json.dumps({"commitInfo": told}), *removed, *entries]
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
        """Enter a commit that only tells of an operation."""
        told = json.dumps({"commitInfo": _commit_info(operation, {}, metrics) | {"isBlindAppend": False}})
        version = self.latest().number
        for _ in range(_ATTEMPTS):
            if self._put(version + 1, [told]):
                return
            version += 1

    def create(self, definition: Definition) -> bool:
        """Make the table, as its version 0; False where somebody else has made it first."""
        self._log.mkdir(parents=True, exist_ok=True)
        told = _commit_info("CREATE TABLE", definition.told(), {})
        return self._put(
            0, map(json.dumps, [{"commitInfo": told}, *definition.actions(str(uuid.uuid4()), frozenset())])
        )

    def replace(self, definition: Definition) -> None:
        """Empty the table and give it these columns; its history keeps what it held."""
        for _ in range(_ATTEMPTS):
            snapshot = self.latest()
            now = _now()
            removed = [
                {"remove": {"path": add["path"], "deletionTimestamp": now, "dataChange": True}}
                for add in self.files(snapshot)
            ]
            told = _commit_info("CREATE OR REPLACE TABLE", definition.told(), {})
            told["isBlindAppend"] = False
            actions = [{"commitInfo": told}, *definition.actions(snapshot.table_id, snapshot.features), *removed]
            if self._put(snapshot.number + 1, map(json.dumps, actions)):
                return
        raise TableError(f"The table at {self.uri} is being written too often by others; try again.")

    def _commit(self, app: str, actions: Callable[[int], tuple[bool, list[str]]], metrics: Mapping[str, str]) -> bool:
        """Commit the actions that are right behind the last transaction of `app`; gives what `actions` says of them."""
        snapshot = self.latest()
        last, version = snapshot.table.transaction_version(app), snapshot.number
        last = -1 if last is None else int(last)
        for _ in range(_ATTEMPTS):
            result, wanted = actions(last)
            if not wanted:
                return result
            told = {"mode": "Append", "partitionBy": "[]"}
            info = json.dumps({"commitInfo": _commit_info("WRITE", told, metrics)})
            if self._put(version + 1, [info, *wanted]):
                self._checkpoint(version + 1, snapshot.properties)
                return result
            version += 1
            last = self._passed(version, app, last)
        raise TableError(f"The table at {self.uri} is being written too often by others; try again.")

    def _passed(self, version: int, app: str, last: int) -> int:
        """The last transaction of `app` behind a commit of another writer; ChangedTableError if we must not go on."""
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
        """Write a commit that appears whole or not at all; False where its number is taken."""
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
        """Write a checkpoint where one is due; a failure only puts it off."""
        interval = int(properties.get(_CHECKPOINT_INTERVAL, "10"))
        if version and version % interval == 0:
            from deltalake import exceptions

            try:
                self.snapshot(version).table.create_checkpoint()
            except (TableError, exceptions.DeltaError, OSError):
                return


def _removal(add: Mapping[str, Any], now: int) -> dict[str, Any]:
    """The `remove` action of a file whose rows are in another one."""
    return {
        "path": add["path"],
        "deletionTimestamp": now,
        "dataChange": False,
        "extendedFileMetadata": True,
        "partitionValues": add["partitionValues"],
        "size": add["size"],
    }


def local_folder(uri: str) -> str | None:
    """The folder that a path or a `file:` URI names; None for a place in a store."""
    parsed = urlparse(uri)
    if parsed.scheme not in ("", "file"):
        return None
    return unquote(parsed.path) if parsed.scheme else uri


def _metrics(entries: Sequence[str]) -> dict[str, str]:
    """What the history of a table tells of a commit, as Spark's writer does."""
    adds = [json.loads(entry)["add"] for entry in entries]
    rows = sum(json.loads(add["stats"])["numRecords"] for add in adds)
    size = sum(add["size"] for add in adds)
    return {"numFiles": str(len(adds)), "numOutputRows": str(rows), "numOutputBytes": str(size)}


def _commit_info(operation: str, told: Mapping[str, str], metrics: Mapping[str, str]) -> dict[str, Any]:
    return {
        "timestamp": _now(),
        "operation": operation,
        "operationParameters": dict(told),
        "isBlindAppend": True,
        "operationMetrics": dict(metrics),
        "engineInfo": "deltatag",
        "txnId": str(uuid.uuid4()),
    }


def _now() -> int:
    return int(time.time() * 1000)
