"""Maintains the tables of streams and joins: compacts small files, and removes files that no kept version names.

No JVM is needed for a table in a folder or an object store with the layout of deltatag's own workers, except to compact
a clustered tagged table outside of runs, and to delete old rows from quarantine. Other tables are left to Spark.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import exceptions

from pipelines.errors import TableError, not_written
from pipelines.lake.added_files import files_in
from pipelines.lake.column_types import arrow_schema_of
from pipelines.lake.delta_log import DeltaLog
from pipelines.lake.merging import FileWriter, NotMergeableError
from pipelines.lake.runs import PLANNED, newest_first
from pipelines.lake.table_log import table_log
from pipelines.maintaining.outcome import TableMaintenance
from pipelines.maintaining.retention import Reader, readers_of
from pipelines.maintaining.small_files import LEAST, LEAST_IN_RUN, MOST_BYTES, file_of, files_of, groups_to_merge
from pipelines.maintaining.vacuum import COMMITS, END, hours_to_keep, removed_by_vacuum, shorten_log
from pipelines.table_definitions import is_tagged, quarantine_table
from pipelines.writing.compression import configured_codec
from pipelines.writing.files import layout_of

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from pipelines.workspace import Workspace

_SPARK_FILES = {"minFileSize": 128 << 20, "maxFileSize": 128 << 20}
_DELETIONS, _CLOCK = "deletionVectors", "delta.enableInCommitTimestamps"
"""The feature for deletion vectors and the property for in-commit timestamps: tables with either are left to Spark."""


def due(workspace: Workspace, name: str, in_run: bool) -> list[str]:
    """What is due for a table: "merge", "vacuum"; decided without a JVM if the lake has a path."""
    table = workspace.lake.delta(name)
    found = []
    if groups_to_merge(files_of(table), LEAST_IN_RUN if in_run else LEAST) and not _fixed(readers_of(workspace, name)):
        found.append("merge")
    if hours_to_keep(workspace, name, COMMITS) is not None:
        found.append("vacuum")
    return found


def keep_up(workspace: Workspace, scope: str, name: str, in_run: bool) -> TableMaintenance:
    """Do what is due for a table of a scope, in compactions of bounded size; in a run only one of them.

    Work that conflicts with another writer, or that readers of the table forbid, is put off (`notes`).
    """
    done = TableMaintenance.of(name, files_of(workspace.lake.delta(name)))
    readers = readers_of(workspace, name)
    if name == quarantine_table(scope) and not in_run:
        _drop_quarantined(workspace, scope, name, readers, done)
    if "merge" in due(workspace, name, in_run):
        _merge(workspace, name, in_run, done)
    elif _fixed(readers) and groups_to_merge(files_of(workspace.lake.delta(name)), LEAST_IN_RUN):
        done.notes.append(
            f"The small files of {name} are not merged: {_names(readers)} has a start of its own, and finds "
            "earlier rows by the files that each commit added."
        )
    hours = hours_to_keep(workspace, name, COMMITS if in_run else 1)
    if hours is not None:
        _vacuum(workspace, name, hours, in_run, done)
    if not in_run:
        with _reported(f"The log of {name} cannot be shortened"):
            shorten_log(workspace, name)
    done.after(files_of(workspace.lake.delta(name)))
    return done


def _fixed(readers: list[Reader]) -> bool:
    """Whether a reader needs the table's files for ever, so that they must not be compacted."""
    return any(reader.for_good for reader in readers)


def _names(readers: list[Reader]) -> str:
    return ", ".join(sorted({reader.name for reader in readers if reader.for_good}))


def _merge(workspace: Workspace, name: str, in_run: bool, done: TableMaintenance) -> None:
    writer = writer_of(workspace, name)
    features = workspace.lake.delta(name).protocol().writer_features or ()
    clustered = is_tagged(name) and "clustering" in features
    if writer is not None and (in_run or not clustered):
        try:
            log = table_log(workspace.lake.uri(name))
            while _replace(log, writer, LEAST_IN_RUN if in_run else LEAST, done) and not in_run:
                workspace.progress(f"{name}: {done.merged} files merged")
            return
        except NotMergeableError as error:
            workspace.progress(f"{name}: {error}; Spark merges its files")
    # Spark may rewrite all files of a clustered table
    if not (clustered and in_run):
        optimize(workspace, name, done)


def _replace(log: DeltaLog, writer: FileWriter, least: int, done: TableMaintenance) -> bool:
    """Compact groups of files up to `MOST_BYTES` in one commit; False if there are none, or after a conflict."""
    snapshot = log.latest()
    adds = {add["path"]: add for add in log.files(snapshot)}
    gone: list[Mapping[str, Any]] = []
    written: list[str] = []
    try:
        for group in groups_to_merge(map(file_of, adds.values()), least):
            if gone and sum(int(add["size"]) for add in gone) + sum(file.size for file in group) > MOST_BYTES:
                break
            taken = [adds[file.path] for file in group]
            written += writer.merge(taken)
            gone += taken
    except (NotMergeableError, FileNotFoundError) as error:
        writer.discard(written)
        if isinstance(error, NotMergeableError):
            raise
        # another process has compacted these files, and removed them
        done.put_off(f"the small files of {done.table} are merged next time: others removed some")
        return False
    if not gone:
        return False
    if not log.replace_files(snapshot, gone, written):
        writer.discard(written)
        done.put_off(f"the small files of {done.table} are merged next time: others wrote to the table")
        return False
    done.merged += len(gone)
    done.into += len(written)
    return True


def writer_of(workspace: Workspace, name: str) -> FileWriter | None:
    """A writer of files with the table's own layout; None if only Spark can write them."""
    lake = workspace.lake
    if lake.settings.root is None:
        return None
    table, log = lake.delta(name), table_log(lake.uri(name))
    fields = json.loads(table.schema().to_json())["fields"]
    layout = layout_of(lake, name, fields)
    codec = configured_codec(workspace)
    if layout is None or codec is None or _is_sparks(table) or log.why_spark_commits(log.latest()):
        return None
    schema = pa.schema([field for field in arrow_schema_of(fields) if field.name not in layout.partition_by])
    return FileWriter(log, schema, codec, layout)


def _is_sparks(table: DeltaTable) -> bool:
    has_clock = str(table.metadata().configuration.get(_CLOCK)).lower() == "true"
    return has_clock or _DELETIONS in (table.protocol().reader_features or ())


def optimize(workspace: Workspace, name: str, done: TableMaintenance) -> None:
    """Compact a table by Spark's OPTIMIZE; a conflict with another writer is put off."""
    from pipelines.spark.failures import is_conflict, run

    spark = workspace.spark
    before = {key: spark.conf.get(f"spark.databricks.delta.optimize.{key}", None) for key in _SPARK_FILES}
    for key, value in _SPARK_FILES.items():
        spark.conf.set(f"spark.databricks.delta.optimize.{key}", str(value))
    try:
        statement = f"OPTIMIZE {workspace.lake.sql_name(name)}"
        rows = run(lambda: spark.sql(statement).collect(), f"merge the small files of {name}")
        for row in rows:
            done.merged += int(row["metrics"]["numFilesRemoved"])
            done.into += int(row["metrics"]["numFilesAdded"])
    except TableError as error:
        if not is_conflict(error.__cause__):
            raise
        done.put_off(f"the small files of {name} are merged next time: others wrote to the table")
    finally:
        for key, former in before.items():
            if former is None:
                spark.conf.unset(f"spark.databricks.delta.optimize.{key}")
            else:
                spark.conf.set(f"spark.databricks.delta.optimize.{key}", former)


def _vacuum(workspace: Workspace, name: str, hours: int, in_run: bool, done: TableMaintenance) -> None:
    """Delete files that no kept version names and no reader needs."""
    lake = workspace.lake
    log = None if lake.settings.root is None else table_log(lake.uri(name))
    if log is None or _is_sparks(lake.delta(name)) or log.why_spark_commits(log.latest()):
        from pipelines.spark.failures import run

        statement = f"VACUUM {lake.sql_name(name)} RETAIN {hours} HOURS"
        run(lambda: workspace.spark.sql(statement).collect(), f"remove files that no version of {name} refers to")
        done.removed += removed_by_vacuum(lake.delta(name))
        return
    removed = 0
    with _reported(f"Old files of {name} cannot be removed"):
        if lake.is_in_store:
            removed = len(lake.writable(name).vacuum(hours, dry_run=False, full=True))
            done.removed += removed
            return
        # in a folder delta-rs only lists the files, by their names there: it cannot commit to a clustered table
        for path in lake.delta(name).vacuum(hours, dry_run=True, full=True):
            with contextlib.suppress(FileNotFoundError):
                (log.folder / path).unlink()
                removed += 1
    if removed or in_run:  # the next check in a run is after COMMITS more commits
        log.note(END, {"numDeletedFiles": str(removed)})
    done.removed += removed


@contextlib.contextmanager
def _reported(what: str) -> Iterator[None]:
    """Turn an error of deltalake or of the file system into TableError."""
    try:
        yield
    except (exceptions.DeltaError, OSError) as error:
        raise not_written(what, error) from error


def _drop_quarantined(
    workspace: Workspace, scope: str, name: str, readers: list[Reader], done: TableMaintenance
) -> None:
    """Delete rows that are in quarantine longer than configured; nothing is deleted if the table has readers."""
    from pipelines.spark.failures import is_conflict, run

    kept = workspace.lake.settings.maintenance.quarantine
    if kept is None or readers:
        return
    since = datetime.now(UTC) - timedelta(microseconds=kept)
    old = (batch for batch in newest_first(workspace.lake, scope) if batch.started_at < since)
    before = next((batch.batch + 1 for batch in old if batch.state != PLANNED), 0)
    if not _holds(workspace, name, before):
        return
    statement = f"DELETE FROM {workspace.lake.sql_name(name)} WHERE batch < {before}"
    try:
        found = run(lambda: workspace.spark.sql(statement).collect(), f"delete old rows of {name}")
        done.rows += int(found[0][0]) if found else 0
    except TableError as error:
        if not is_conflict(error.__cause__):
            raise
        done.put_off(f"old rows of {name} are deleted next time: others wrote to the table")


def _holds(workspace: Workspace, name: str, before: int) -> bool:
    """Whether a quarantine may have rows of micro-batches below a number, by the statistics in its log."""
    actions = files_in(workspace.lake.delta(name), flatten=True)
    if "min.batch" not in actions.column_names:
        return before > 0 and actions.num_rows > 0
    return any(low is None or low < before for low in actions["min.batch"].to_pylist())
