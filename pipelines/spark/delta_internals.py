"""Internals of Delta Lake without a public API in Python: snapshots, DataFrames over chosen files, transactions.

Delta's own streaming source reads such a DataFrame, too: it respects partition values, column mapping and deletion
vectors. Only this module calls these internals; `delta_entry_points` checks that they exist.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.types import StructType

from pipelines.error_texts import first_line
from pipelines.errors import SourceError
from pipelines.lake.transaction_ids import GIVEN_UP
from pipelines.spark.active_session import active
from pipelines.spark.delta_entry_points import know_delta
from pipelines.spark.java_names import java

_COMMIT = re.compile(r"/(\d{20})\.json[,)]")
"""Matches a commit's file in a list of paths that the JVM prints."""

_READER = "org.apache.spark.sql.delta.commands.cdc.CDCReader"

_TURN = 10_000
"""Maximum number of `add` actions that are fetched from the JVM in one text."""

COMMIT_VERSION = "_commit_version"
"""The column in a DataFrame over chosen files with the version that the caller gave for the row's file."""


class TableLog:
    """The log of one Delta table, read and written by the session's Delta library with its credentials."""

    def __init__(self, spark: SparkSession, uri: str) -> None:
        """SourceError if there is no Delta table at `uri`, SessionError if Delta is unknown or missing."""
        self.uri = uri
        self._spark = spark
        self._session: Any = spark._jsparkSession
        self._jvm: Any = spark._jvm
        self._java: Callable[[str], Any] = partial(java, self._jvm)
        know_delta(spark)
        try:
            self._log = self._java("org.apache.spark.sql.delta.DeltaLog.forTable")(self._session, uri)
        except Py4JJavaError as error:
            raise SourceError(f"The Delta table at {uri} cannot be opened: {java_message(error)}") from None
        self._none: Any = self._java("scala.Option.empty")()

    def latest(self) -> Any:
        """The newest snapshot; its `version()` is -1 if there is no table."""
        return self._log.update(False, self._none, self._none)

    def version(self, snapshot: Any) -> int:
        """The version of a snapshot; -1 if there is no table."""
        return int(snapshot.version())

    def table_id(self, snapshot: Any) -> str:
        """The table's id, which differs from that of a table created later at the same place."""
        return str(snapshot.metadata().id())

    def snapshot(self, version: int) -> Any:
        """The snapshot of one version; SourceError if the log no longer holds it."""
        try:
            return self._log.getSnapshotAt(version, self._none, self._none, False)
        except Py4JJavaError as error:
            raise SourceError(
                f"Version {version} of the Delta table at {self.uri} cannot be read: {java_message(error)}"
            ) from None

    def fields(self, snapshot: Any) -> list[dict[str, Any]]:
        """The columns of a snapshot, in the form of the log's `schemaString`."""
        found: list[dict[str, Any]] = json.loads(snapshot.metadata().schemaString())["fields"]
        return found

    def setting(self, snapshot: Any, name: str) -> str | None:
        """A table property in a snapshot; None if it is not set."""
        return table_property(snapshot, name)

    def files(self, snapshot: Any) -> list[dict[str, Any]]:
        """The `add` actions of a snapshot's files."""
        known = _in_checksum(self._jvm, snapshot, "allFiles")
        if known is not None:
            return known
        rows = snapshot.allFiles().toJSON().collectAsList()
        return [add for start in range(0, rows.size(), _TURN) for add in self._parsed(rows, start)]

    def _parsed(self, rows: Any, start: int) -> list[dict[str, Any]]:
        """Up to `_TURN` objects of a Java list of JSON texts, from `start`, in one round trip to the JVM."""
        texts = self._java("java.lang.String.join")(",", rows.subList(start, min(start + _TURN, rows.size())))
        found: list[dict[str, Any]] = json.loads(f"[{texts}]")
        return found

    def commit(self, version: int) -> list[dict[str, Any]] | None:
        """The actions of one commit; None if the log does not hold it (any more). SourceError if it is unreadable."""
        path = self._java("org.apache.hadoop.fs.Path")(self._log.logPath(), f"{version:020d}.json")
        try:
            stream = path.getFileSystem(self._session.sessionState().newHadoopConf()).open(path)
        except Py4JJavaError as error:
            if error.java_exception.getClass().getSimpleName() == "FileNotFoundException":
                return None
            raise SourceError(
                f"The log of the Delta table at {self.uri} cannot be read: {java_message(error)}"
            ) from None
        try:
            text = self._java("org.apache.commons.io.IOUtils.toString")(stream, "UTF-8")
        finally:
            stream.close()
        # not splitlines(): it also splits at characters that JSON strings may contain
        return [json.loads(line) for line in text.split("\n") if line.strip()]

    def commits(self) -> range:
        """The versions from the oldest commit that the log still holds to the newest one."""
        path = self._log.logPath()
        system = path.getFileSystem(self._session.sessionState().newHadoopConf())
        paths = self._java("org.apache.hadoop.fs.FileUtil.stat2Paths")(system.listStatus(path))
        # one text for all paths, since each call is a round trip to the JVM
        text = str(self._java("scala.runtime.ScalaRunTime.stringOf")(paths))
        versions = sorted(map(int, _COMMIT.findall(text)))
        return range(versions[0], versions[-1] + 1) if versions else range(0)

    def missing(self, paths: Sequence[str]) -> list[str]:
        """The paths of files that no longer exist, among those given as the log has them."""
        if not paths:
            return []
        as_path, as_uri = self._java("org.apache.hadoop.fs.Path"), self._java("java.net.URI")
        system = self._log.dataPath().getFileSystem(self._session.sessionState().newHadoopConf())
        found = []
        for path in paths:
            named = as_path(as_uri(path))
            if not system.exists(named if named.isAbsolute() else as_path(self._log.dataPath(), named)):
                found.append(path)
        return found

    def frame(self, snapshot: Any, adds: Sequence[tuple[int, Mapping[str, Any]]]) -> DataFrame:
        """The rows of the files `adds` (version, `add` action) with the snapshot's schema and `_commit_version`.

        If all files have the same version it is a constant, which is cheaper than a column that is read.
        """
        from_json = self._java("org.apache.spark.sql.delta.actions.Action$.MODULE$").fromJson
        by_version: dict[int, list[Any]] = {}
        for version, add in adds:
            by_version.setdefault(version, []).append(from_json(json.dumps({"add": add})))
        if len(by_version) > 1:
            return self._frame_of_versions(snapshot, by_version)
        version, files = next(iter(by_version.items()), (0, []))
        with active(self._spark):
            rows = self._log.createDataFrame(snapshot, self._sequence(files), False, self._none)
        return DataFrame(rows, self._spark).withColumn(COMMIT_VERSION, functions.lit(version).cast("bigint"))

    def _frame_of_versions(self, snapshot: Any, by_version: Mapping[int, list[Any]]) -> DataFrame:
        """Like `frame`, for files of several versions: the reader of change data gives each row its file's version."""
        chosen_files = self._java(f"{_READER}$CDCDataSpec")
        epoch = self._java("java.sql.Timestamp")(0)
        specs = [
            chosen_files(version, epoch, self._sequence(files), self._none)
            for version, files in sorted(by_version.items())
        ]
        index = self._java("org.apache.spark.sql.delta.files.CdcAddFileIndex")(
            self._session, self._sequence(specs), self._log, self._log.dataPath(), snapshot, self._none
        )
        reader = self._java(f"{_READER}$.MODULE$")
        rows = DataFrame(reader.scanIndex(self._session, index, False), self._spark)
        return rows.drop("_change_type", "_commit_timestamp")

    def append(self, entries: Sequence[str], app: str, version: int) -> bool:
        """Add written files (`add` entries as JSON) in one commit, as transaction `version` of `app`.

        False if the table already holds this or a later transaction of `app`. Py4JJavaError, or the Spark error that
        wraps it, on a conflict with another writer.
        """
        from_json = self._java("org.apache.spark.sql.delta.actions.Action$.MODULE$").fromJson
        return self._commit(app, version, lambda _: self._list(map(from_json, entries)))

    def append_rows(self, frame: DataFrame, app: str, version: int) -> bool:
        """Write rows that have exactly the table's columns, in one commit like `append`.

        Spark's own writer with `txnAppId` would replay the table's log to find earlier transactions.
        """
        as_list = self._java("scala.jdk.javaapi.CollectionConverters.asJava")
        return self._commit(app, version, lambda transaction: as_list(transaction.writeFiles(frame._jdf)))

    def _commit(self, app: str, version: int, actions: Callable[[Any], Any]) -> bool:
        with active(self._spark):
            transaction = self._log.startTransaction(self._none, self._none)
            if _last_of(self._jvm, transaction, app) >= version:
                return False
            self._put(transaction, app, version, actions(transaction))
        return True

    def _put(self, transaction: Any, app: str, version: int, actions: Any) -> None:
        """Commit actions, a list of the JVM, as transaction `version` of `app`."""
        from_json = self._java("org.apache.spark.sql.delta.actions.Action$.MODULE$").fromJson
        mark = {"txn": {"appId": app, "version": version, "lastUpdated": int(time.time() * 1000)}}
        done = self._list([from_json(json.dumps(mark))])
        done.addAll(actions)
        mode = self._java("org.apache.spark.sql.SaveMode.Append")
        transaction.commit(
            self._java("PythonUtils.toSeq")(done),
            self._java("org.apache.spark.sql.delta.DeltaOperations.Write")(mode, *([self._none] * 8)),
        )

    def rewrite(
        self,
        snapshot: Any,
        removed: Sequence[Mapping[str, Any]],
        entries: Sequence[str],
        frames: Sequence[DataFrame],
        app: str,
        version: int,
        marks: Sequence[str] = (),
    ) -> int | None:
        """Replace files of a snapshot in one commit, as transaction `version` of `app` and of each of `marks`.

        removed: the `add` actions of the old files; entries: the `add` actions of new files that are already written,
        as JSON; frames: rows to write into new files, with exactly the table's columns. Returns how many files were
        added, or None if the table already holds the transaction. Py4JJavaError, or the Spark error that wraps it, if
        another writer has removed one of the files or changed the table.
        """
        from_json = self._java("org.apache.spark.sql.delta.actions.Action$.MODULE$").fromJson
        as_list = self._java("scala.jdk.javaapi.CollectionConverters.asJava")
        now = int(time.time() * 1000)
        with active(self._spark):
            transaction = self._log.startTransaction(self._none, self._java("scala.Option.apply")(snapshot))
            if _last_of(self._jvm, transaction, app) >= version:
                return None
            done = self._list(
                from_json(json.dumps({"txn": {"appId": each, "version": version, "lastUpdated": now}}))
                for each in (app, *marks)
            )
            written = self._list(map(from_json, entries))
            for frame in frames:
                written.addAll(as_list(transaction.writeFiles(frame._jdf)))
            done.addAll(written)
            done.addAll(self._list(from_json(json.dumps({"remove": _removal(add, now)})) for add in removed))
            transaction.commit(
                self._java("PythonUtils.toSeq")(done),
                self._java("org.apache.spark.sql.delta.DeltaOperations.Update")(self._none),
            )
            return len(written)

    def fence(self, app: str, number: int) -> bool:
        """Fence off `app`: from now on, each of its transactions counts as written.

        True if the table already held transaction `number` of `app`. Py4JJavaError, or the Spark error that wraps it,
        on a conflict with another writer.
        """
        with active(self._spark):
            transaction = self._log.startTransaction(self._none, self._none)
            last = _last_of(self._jvm, transaction, app)
            if last >= GIVEN_UP:
                return last > GIVEN_UP
            held = last >= number
            self._put(transaction, app, GIVEN_UP + held, self._list([]))
        return held

    def _sequence(self, items: Iterable[Any]) -> Any:
        return self._java("PythonUtils.toSeq")(self._list(items))

    def _list(self, items: Iterable[Any]) -> Any:
        java_list = self._java("java.util.ArrayList")()
        for item in items:
            java_list.add(item)
        return java_list


_KEPT_OF_ADD = ("path", "partitionValues", "size", "tags", "deletionVector", "baseRowId", "defaultRowCommitVersion")


def _removal(add: Mapping[str, Any], now: int) -> dict[str, Any]:
    """The `remove` action of a file."""
    kept = {key: add[key] for key in _KEPT_OF_ADD if add.get(key) is not None}
    return {**kept, "deletionTimestamp": now, "dataChange": True, "extendedFileMetadata": True}


def _last_of(jvm: Any, transaction: Any, app: str) -> int:
    """The newest transaction of `app` in the table, or -1.

    It counts as read, so that a concurrent transaction of `app` makes this one's commit fail.
    """
    known = _in_checksum(jvm, transaction.snapshot(), "setTransactions")
    if known is None:
        return int(transaction.txnVersion(app))
    transaction.readTxn().addOne(app)
    return next((int(done["version"]) for done in known if done["appId"] == app), -1)


def _in_checksum(jvm: Any, snapshot: Any, part: str) -> list[dict[str, Any]] | None:
    """Actions from the checksum file of a snapshot, without replaying the log; None if the file lacks them."""
    checksum = snapshot.checksumOpt()
    found = getattr(checksum.get(), part)() if checksum.isDefined() else checksum
    if not found.isDefined():
        return None
    mapper = java(jvm, "org.apache.spark.sql.delta.util.JsonUtils$.MODULE$").mapper()
    actions: list[dict[str, Any]] = json.loads(mapper.writeValueAsString(found.get()))
    return actions


def snapshot_schema(snapshot: Any) -> StructType:
    """The columns of a snapshot."""
    return StructType.fromJson(json.loads(snapshot.metadata().schemaString()))


def partition_columns(snapshot: Any) -> list[str]:
    """The columns by which a snapshot's table is partitioned."""
    found = snapshot.metadata().partitionColumns()
    return [str(found.apply(i)) for i in range(found.size())]


def table_property(snapshot: Any, name: str) -> str | None:
    """A property of a snapshot's table; None if it is not set."""
    found = snapshot.metadata().configuration().get(name)
    return str(found.get()) if found.isDefined() else None


def java_message(error: Py4JError) -> str:
    """The first line of a Java exception's own message."""
    exception = getattr(error, "java_exception", None)
    return first_line(exception.getMessage() or exception.toString()) if exception is not None else first_line(error)
