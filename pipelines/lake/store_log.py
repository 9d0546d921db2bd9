"""The log of a Delta table in an object store. delta-rs commits to it; a commit is atomic, since the store creates its
file only if there is none.

delta-rs refuses to write to a clustered table, so those are left to Spark.
"""

from __future__ import annotations

import json
import shutil
import weakref
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, Transaction, exceptions
from deltalake.transaction import AddAction, RemoveAction

from pipelines.errors import NeedsSparkError, not_written
from pipelines.lake.delta_log import ADD_COLUMNS, DeltaLog
from pipelines.lake.folder_snapshot import Definition, FolderSnapshot
from pipelines.lake.store import copies_folder, store_of
from pipelines.lake.table_cache import delta_rs_uri, own_table, share
from pipelines.table_definitions import CHECKPOINT_EVERY_IN_STORE

_WRITTEN = frozenset({"appendOnly", "changeDataFeed", "invariants", "timestampNtz"})
"""The table features with which delta-rs can commit files that it has not written itself."""
_CLUSTERED = "is clustered, and in an object store only Spark writes such a table"
_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)


class StoreLog(DeltaLog):
    """The log of one table in an object store.

    `folder` is a local folder of this process. Files are written there, and moved to the store before they are
    committed.
    """

    checkpoint_every = CHECKPOINT_EVERY_IN_STORE

    def __init__(self, uri: str, bounds: bool = False) -> None:
        self._store = store_of(delta_rs_uri(uri))
        super().__init__(uri, self._store.staging, bounds)

    def commits(self) -> range:
        """The versions from the oldest commit that the log still holds to the newest one."""
        newest, oldest = self.latest().number, self._store.oldest_commit
        is_oldest = oldest <= newest and self._holds(oldest) and not (oldest and self._holds(oldest - 1))
        if not is_oldest:
            # commits are removed in order, so bisection finds the oldest; to list the log delta-rs stops all threads
            oldest = self._store.oldest_commit = bisect_left(range(newest + 1), True, key=self._holds)
        return range(oldest, newest + 1)

    def _holds(self, version: int) -> bool:
        return self._store.holds(f"_delta_log/{version:020d}.json")

    def checkpoint(self, version: int) -> tuple[int, pa.Table | None]:
        """The version and the rows of the log's last checkpoint; -1 and None if it is newer than `version`, or in
        several files."""
        try:
            last = json.loads(self._store.read("_delta_log/_last_checkpoint"))
            if last["version"] > version or last.get("parts") or last.get("v2Checkpoint"):
                return -1, None
            content = self._store.read(f"_delta_log/{last['version']:020d}.checkpoint.parquet")
        except FileNotFoundError:
            return -1, None
        return int(last["version"]), pq.read_table(pa.BufferReader(content))

    def missing(self, paths: Sequence[str]) -> list[str]:
        """Returns the paths, as in the log, at which there is no longer a file."""
        gone = set(self._store.missing([_place(path) for path in paths]))
        return [path for path in paths if _place(path) in gone]

    def file(self, path: str) -> Path:
        """The local copy of a fetched file, given by its path in the log; it is kept as long as this object."""
        return self._copies / _place(path)

    @property
    def source_folder(self) -> Path:
        """The local folder with the copies of the table's fetched files."""
        return self._copies

    def fetch(self, adds: Iterable[Mapping[str, Any]]) -> None:
        """Copy files, given by their `add` actions, to this machine; several at a time."""
        self._store.fetch({_place(add["path"]): int(add["size"]) for add in adds}, self._copies)

    def keep_only(self, paths: Iterable[str]) -> None:
        """Delete the local copies of all files but these, given by their paths in the log."""
        kept = {self._copies / _place(path) for path in paths}
        for copy in [each for each in self._copies.rglob("*") if each.is_file()]:
            if copy not in kept:
                copy.unlink()

    def why_spark_commits(self, snapshot: FolderSnapshot) -> str | None:
        """Why only Spark can commit to the table, as a clause that follows the table's name; None if delta-rs can."""
        if foreign := sorted(snapshot.features - _WRITTEN):
            return _CLUSTERED if "clustering" in foreign else f"has the table feature {foreign[0]}"
        return super().why_spark_commits(snapshot)

    def create(self, definition: Definition) -> bool:
        """Create the table as version 0; False if another process has created it first."""
        if definition.cluster_by:
            raise NeedsSparkError(f"the table at {self.uri} {_CLUSTERED}")
        schema = Schema.from_json(json.dumps({"type": "struct", "fields": [dict(each) for each in definition.fields]}))
        try:
            DeltaTable.create(
                delta_rs_uri(self.uri),
                schema,
                partition_by=list(definition.partition_by),
                configuration=dict(definition.properties),
                raise_if_key_not_exists=False,  # a property may be deltatag's own
            )
        except (exceptions.DeltaError, OSError) as error:
            if DeltaTable.is_deltatable(delta_rs_uri(self.uri)):
                return False
            raise not_written(f"The table at {self.uri} cannot be created", error) from error
        return True

    @cached_property
    def _copies(self) -> Path:
        folder = copies_folder()
        weakref.finalize(self, shutil.rmtree, folder, True)
        return folder

    def _commit_text(self, version: int) -> str:
        return self._store.read(f"_delta_log/{version:020d}.json").decode()

    def _send(self, entries: Sequence[str]) -> None:
        """Move written files to the store, where they must be before they are committed."""
        try:
            self._store.send(self.folder, [_place(json.loads(entry)["add"]["path"]) for entry in entries])
        except OSError as error:
            raise not_written(f"Files of the table at {self.uri} cannot be written", error) from error

    def _actions_of(self, definition: Definition, held: FolderSnapshot) -> list[dict[str, Any]]:
        """The `metaData` action with the table's new columns. NeedsSparkError if its partitions, clustering or
        properties change, too: delta-rs cannot commit that."""
        made = definition.actions(held.table_id, held.features)[1]["metaData"]
        same = (made["partitionColumns"], made["configuration"]) == (held.partition_columns, held.properties)
        if not same or definition.cluster_by:
            raise NeedsSparkError(f"the table at {self.uri} gets other partitions or properties")
        return [{"metaData": made}]

    def _put(self, version: int, lines: Iterable[str]) -> bool:
        """Write a commit; False if its version is taken. TableError if the log cannot be written."""
        actions = [next(iter(json.loads(line).items())) for line in lines]
        info = next(action for kind, action in actions if kind == "commitInfo")
        made = next((action for kind, action in actions if kind == "metaData"), None)
        files = [_file_action(kind, action) for kind, action in actions if kind in ("add", "remove")]
        properties = CommitProperties(
            custom_metadata={
                "isBlindAppend": info["isBlindAppend"],
                # delta-rs names every operation WRITE; without this figure it is unknown that a commit adds no rows
                "operationMetrics": {"numOutputRows": "0", **info["operationMetrics"]},
                "txnId": info["txnId"],
            },
            max_commit_retries=0,
            app_transactions=[
                Transaction(action["appId"], action["version"], action["lastUpdated"])
                for kind, action in actions
                if kind == "txn"
            ],
        )
        try:
            table = own_table(self.uri, version - 1)
            schema = table.schema() if made is None else Schema.from_json(made["schemaString"])
            if info["operation"] == ADD_COLUMNS:
                held = {field.name: field for field in table.schema().fields}
                changed = [field for field in schema.fields if held.get(field.name) != field]
                table.alter.add_columns(changed, commit_properties=properties, post_commithook_properties=_HOOKS)
            else:
                replaces = made is not None  # delta-rs then removes all files itself
                table.create_write_transaction(
                    [each for each in files if isinstance(each, AddAction)] if replaces else files,
                    "overwrite" if replaces else "append",
                    schema,
                    list(table.metadata().partition_columns),
                    commit_properties=properties,
                    post_commithook_properties=_HOOKS,
                )
        except (exceptions.DeltaError, OSError) as error:
            # if an answer was lost, this process may have written the version: `due` then sees its own transaction
            if self.commit(version) is not None:
                return False
            raise not_written(f"The log of the table at {self.uri} cannot be written", error) from error
        share(self.uri, table)
        return True


def _place(path: str) -> str:
    """The path of a file below the table's folder, by its path in the log; NeedsSparkError if it is elsewhere."""
    place = unquote(path)
    if urlparse(path).scheme or place.startswith("/") or ".." in place.split("/"):
        raise NeedsSparkError(f"the table has a file that is not in its own folder: {path}")
    return place


def _file_action(kind: str, action: Mapping[str, Any]) -> AddAction | RemoveAction:
    # delta-rs escapes paths itself
    path, values = unquote(action["path"]), action.get("partitionValues") or {}
    if kind == "remove":
        return RemoveAction(path, action["dataChange"], action["deletionTimestamp"], action["size"], values)
    return AddAction(
        path, action["size"], values, action["modificationTime"], action["dataChange"], action.get("stats") or ""
    )
