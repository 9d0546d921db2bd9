"""Upkeep of the tables of streams and joins: small files are merged, and what no version names is removed."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pipelines.errors import PipelineError, TableError
from pipelines.lake.lake import first_line
from pipelines.lake.runs import PLANNED, newest_first
from pipelines.lake.schema import arrow_schema_of
from pipelines.upkeep.merging import FileWriter, NotMergeableError
from pipelines.upkeep.outcome import Upkept
from pipelines.upkeep.readers import Reader, readers_of
from pipelines.upkeep.small_files import LEAST, LEAST_IN_RUN, MOST_BYTES, file_of, files_of, groups_to_merge
from pipelines.upkeep.vacuuming import COMMITS, hours_to_keep, removed_by_vacuum

if TYPE_CHECKING:
    from pipelines.spark.delta_internals import TableLog
    from pipelines.workspace import Workspace

_SPARK_FILES = {"minFileSize": 128 << 20, "maxFileSize": 128 << 20}


def due(workspace: Workspace, name: str, in_run: bool) -> list[str]:
    """What is to be done for a table: "merge", "vacuum"; told without a JVM where the lake has a path."""
    table = workspace.lake.delta(name)
    found = []
    if groups_to_merge(files_of(table), LEAST_IN_RUN if in_run else LEAST) and not _fixed(readers_of(workspace, name)):
        found.append("merge")
    if hours_to_keep(workspace, name, COMMITS) is not None:
        found.append("vacuum")
    return found


def keep_up(workspace: Workspace, scope: str, name: str, in_run: bool) -> Upkept:
    """Do what is due for a table of a scope, a merge of bounded size at a time; in a run just one of them.

    What meets another writer's work is put off, and said in `notes`; so is what readers of the table stand against.
    """
    done = Upkept.of(name, files_of(workspace.lake.delta(name)))
    readers = readers_of(workspace, name)
    if name.startswith("quarantine_") and not in_run:
        _drop_quarantined(workspace, scope, name, done)
    if "merge" in due(workspace, name, in_run):
        _merge(workspace, name, in_run, done)
    elif _fixed(readers) and groups_to_merge(files_of(workspace.lake.delta(name)), LEAST_IN_RUN):
        done.notes.append(
            f"The small files of {name} are not merged: {_names(readers)} begins at a start of its own, and finds "
            "earlier rows in the files that each commit has added."
        )
    hours = hours_to_keep(workspace, name, COMMITS if in_run else 1)
    if hours is not None:
        _vacuum(workspace, name, hours, done)
    done.after(files_of(workspace.lake.delta(name)))
    return done


def _fixed(readers: list[Reader]) -> bool:
    return any(reader.for_good for reader in readers)


def _names(readers: list[Reader]) -> str:
    return ", ".join(sorted({reader.name for reader in readers if reader.for_good}))


def _merge(workspace: Workspace, name: str, in_run: bool, done: Upkept) -> None:
    from pipelines.spark.delta_internals import TableLog

    writer = _writer(workspace, name)
    clustered = name.endswith("_tagged") and "clustering" in (
        workspace.lake.delta(name).protocol().writer_features or ()
    )
    try:
        if writer is None or (clustered and not in_run):
            _optimize(workspace, name, clustered, in_run, done)
            return
        log = TableLog(workspace.spark, workspace.lake.uri(name))
        while _replace(log, writer, LEAST_IN_RUN if in_run else LEAST, done) and not in_run:
            workspace.progress(f"{name}: {done.merged} files merged")
    except NotMergeableError as error:
        workspace.progress(f"{name}: {error}; Spark merges its files")
        _optimize(workspace, name, clustered, in_run, done)


def _replace(log: TableLog, writer: FileWriter, least: int, done: Upkept) -> bool:
    """Merge groups of files up to a size, in one commit; False where there is none, or another writer was faster."""
    from pipelines.writing.tables import _is_conflict, run

    written: list[str] = []
    merged = 0

    def rewrite(adds: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[str]]:
        nonlocal merged
        known = {add["path"]: add for add in adds}
        # what Spark's OPTIMIZE has clustered stays where it is
        loose = [file_of(add) for add in adds if not add.get("clusteringProvider")]
        gone: list[dict[str, Any]] = []
        for group in groups_to_merge(loose, least):
            if gone and sum(int(add["size"]) for add in gone) + sum(file.size for file in group) > MOST_BYTES:
                break
            taken = [known[file.path] for file in group]
            written.extend(writer.merge(taken))
            gone += taken
        merged = len(gone)
        return gone, written

    try:
        if not run(lambda: log.replace_files(rewrite), f"merge the small files of {log.uri}"):
            return False
    except NotMergeableError:
        writer.discard(written)
        raise
    except TableError as error:
        if not _is_conflict(error.__cause__):
            raise
        # the log has none of them: a commit that conflicts is not made
        writer.discard(written)
        done.put_off(f"the small files of {done.table} are merged another time, for others wrote to the table")
        return False
    done.merged += merged
    done.into += len(written)
    return True


def _writer(workspace: Workspace, name: str) -> FileWriter | None:
    """What writes files of the table as its own writers do; None where only Spark can."""
    from pyspark.sql.types import StructType

    from pipelines.writing.direct import codec, folder_of, layout_of

    lake = workspace.lake
    table, folder = lake.delta(name), folder_of(lake, name)
    columns = table.schema().to_json()
    layout = None if folder is None else layout_of(lake, name, StructType.fromJson(json.loads(columns)))
    compression = codec(workspace.spark)
    if folder is None or layout is None or compression is None:
        return None
    schema = pa.schema([field for field in arrow_schema_of(columns) if field.name not in layout.partition_by])
    footer = {"org.apache.spark.version": str(workspace.spark.version)}
    return FileWriter(folder, schema, compression, footer, layout)


def _optimize(workspace: Workspace, name: str, clustered: bool, in_run: bool, done: Upkept) -> None:
    """Have Spark merge the files; of a clustered table, all of which it may rewrite, where maintenance is asked for."""
    from pipelines.writing.tables import _is_conflict, run

    if clustered and in_run:
        return
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
        if not _is_conflict(error.__cause__):
            raise
        done.put_off(f"the small files of {name} are merged another time, for others wrote to the table")
    finally:
        for key, former in before.items():
            if former is None:
                spark.conf.unset(f"spark.databricks.delta.optimize.{key}")
            else:
                spark.conf.set(f"spark.databricks.delta.optimize.{key}", former)


def _vacuum(workspace: Workspace, name: str, hours: int, done: Upkept) -> None:
    """Remove files that no version names which is kept, and no reader waits for."""
    from pipelines.writing.tables import run

    statement = f"VACUUM {workspace.lake.sql_name(name)} RETAIN {hours} HOURS"
    run(lambda: workspace.spark.sql(statement).collect(), f"remove what no version of {name} names")
    done.removed += removed_by_vacuum(workspace.lake.delta(name))


def _drop_quarantined(workspace: Workspace, scope: str, name: str, done: Upkept) -> None:
    """Delete rows that are in quarantine longer than the configuration says; none where somebody reads them."""
    from pipelines.writing.tables import _is_conflict, run

    kept = workspace.lake.settings.maintenance.quarantine
    if kept is None or readers_of(workspace, name):
        return
    since = datetime.now(UTC) - timedelta(microseconds=kept)
    before: int | None = None
    for batch in newest_first(workspace.lake, scope):
        if batch.started_at < since and batch.state != PLANNED:
            before = batch.batch + 1
            break
    if before is None:
        return
    rows = f"DELETE FROM {workspace.lake.sql_name(name)} WHERE batch < {before}"
    try:
        found = run(lambda: workspace.spark.sql(rows).collect(), f"delete old rows of {name}")
        done.rows += int(found[0][0]) if found else 0
    except PipelineError as error:
        if not _is_conflict(error.__cause__):
            raise
        done.put_off(f"old rows of {name} are deleted another time: {first_line(error)}")
