"""Maintains the four tables that every lake has and that delta-rs writes; without a JVM if the lake has a path.

`rules` keeps its history, since tagged rows name its versions: its log gets checkpoints, and small files are compacted
only if there are very many.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import polars as pl

from pipelines.error_texts import first_line, why_denied, why_full
from pipelines.errors import not_written
from pipelines.lake.folder_log import FolderLog
from pipelines.lake.index_histories import current_histories, index_of_step
from pipelines.lake.index_store import shared_files
from pipelines.lake.merging import NotMergeableError
from pipelines.lake.reading import literal
from pipelines.lake.runs import COMPACTED_BYTES, PLANNED, batches, compact, last_batch, newest_first
from pipelines.lake.table_log import table_log
from pipelines.maintaining.folding import fold
from pipelines.maintaining.outcome import TableMaintenance
from pipelines.maintaining.retention import readers_of
from pipelines.maintaining.scope_tables import optimize, writer_of
from pipelines.maintaining.small_files import LEAST_IN_RUN, files_of
from pipelines.maintaining.vacuum import COMMITS, END, hours_to_keep, removed_by_vacuum, shorten_log
from pipelines.writing.files import folder_of

if TYPE_CHECKING:
    from pipelines.lake.lake import Lake
    from pipelines.workspace import Workspace

_RULES_BYTES, _RULES_FILES = 32 << 20, 100
"""Size in bytes from which a file of `rules` is not compacted, and the number of smaller files that triggers it.

The number is high since an edit of the rules that is concurrent with a compaction must be repeated.
"""


def due(workspace: Workspace, name: str) -> list[str]:
    """What is due for one of these tables: "merge", "vacuum". A VACUUM of `rules` is never due."""
    found = ["merge"] if _too_many(workspace.lake, name) else []
    return found + (["vacuum"] if name != "rules" and hours_to_keep(workspace, name, COMMITS) is not None else [])


def _too_many(lake: Lake, name: str) -> bool:
    sizes = [file.size for file in files_of(lake.delta(name))]
    if name == "runs":
        return sum(size < COMPACTED_BYTES for size in sizes) >= LEAST_IN_RUN
    return name == "rules" and sum(size < _RULES_BYTES for size in sizes) >= _RULES_FILES


def keep_up(workspace: Workspace, name: str, in_run: bool) -> TableMaintenance:
    """Do what is due for one of these tables; work that conflicts with another process is put off (`notes`)."""
    lake = workspace.lake
    done = TableMaintenance.of(name, files_of(lake.delta(name)))
    steps: list[Callable[[], None]] = []
    if name == "runs" and (not in_run or _too_many(lake, name)):
        steps.append(lambda: _runs(workspace, done))
    elif name == "rules" and _too_many(lake, name) and not in_run:
        steps.append(lambda: _merge_rules(workspace, done))
    elif name == "rule_index":
        steps.append(lambda: _indexes(workspace, done))
    if name != "rules":
        steps.append(lambda: _vacuum(workspace, name, COMMITS if in_run else 1, done))
    if not in_run:
        steps.append(lambda: shorten_log(workspace, name))
    for step in steps:
        _unless_conflicting(lake, name, done, step)
    done.after(files_of(lake.delta(name)))
    return done


def _unless_conflicting(lake: Lake, name: str, done: TableMaintenance, step: Callable[[], None]) -> None:
    from deltalake import exceptions

    try:
        step()
    except NotMergeableError as error:
        done.put_off(f"the small files of {name} are not merged: {error}")
    except exceptions.CommitFailedError:
        done.put_off(f"part of the maintenance of {name} is postponed: others wrote to the table")
    except (exceptions.DeltaError, OSError) as error:
        if name == "rules":  # users may have enabled features that delta-rs cannot write
            reason = why_full(error) or why_denied(error) or first_line(error)
            done.put_off(f"the table rules is not maintained: {reason}")
            return
        raise not_written(f"The table {name} at {lake.uri(name)} cannot be maintained", error) from error


def _runs(workspace: Workspace, done: TableMaintenance) -> None:
    lake = workspace.lake
    if not readers_of(workspace, "runs"):
        before = datetime.now(UTC) - timedelta(microseconds=lake.settings.maintenance.runs)
        done.rows += fold(lake, before)
    if lake.settings.root is None:
        optimize(workspace, "runs", done)
    else:
        done.merged, done.into = compact(lake)


def _merge_rules(workspace: Workspace, done: TableMaintenance) -> None:
    lake = workspace.lake
    writer = writer_of(workspace, "rules")
    if writer is None:
        done.put_off("the small files of rules are not merged: the table has properties that deltatag does not give it")
        return
    log = table_log(lake.uri("rules"))
    snapshot = log.latest()
    small = [add for add in log.files(snapshot) if add["size"] < _RULES_BYTES]
    written = writer.merge(small)
    if log.replace_files(snapshot, small, written):
        done.merged, done.into = len(small), len(written)
        return
    writer.discard(written)
    done.put_off("the small files of rules are merged next time: others wrote to the table")


def _indexes(workspace: Workspace, done: TableMaintenance) -> None:
    """Delete indexes that no run or reader needs any more."""
    lake = workspace.lake
    columns = ["scope", "fingerprint", "created_at", "sha256", "statistics"]
    rows = lake.arrow("rule_index", columns, [("chunk", 0)])
    stored = pl.DataFrame(pl.from_arrow(rows)).sort("created_at")
    since = datetime.now(UTC) - timedelta(microseconds=lake.settings.maintenance.versions)
    for (scope,), of_scope in stored.group_by("scope"):
        needed = _needed(workspace, str(scope))
        # a run takes the newest index, so each index was in use until the next one was stored
        old = of_scope.with_columns(
            pl.col("created_at").shift(-1).alias("until"),
            pl.col("created_at").max().over("fingerprint").alias("again"),
        ).filter(
            (pl.col("until") < since)
            & (~pl.col("fingerprint").is_in(list(needed)) | (pl.col("created_at") < pl.col("again")))
        )
        shared = _shared(of_scope.join(old, on="created_at", how="anti"))
        old = old.join(shared, on="sha256", how="anti")
        if old.height:
            times = ", ".join(f"'{each.isoformat()}'" for each in old["created_at"])
            found = lake.writable("rule_index").delete(f"scope = {literal(str(scope))} AND created_at IN ({times})")
            done.rows += int(found["num_deleted_rows"])


def _shared(kept: pl.DataFrame) -> pl.DataFrame:
    """The indexes that hold parts of the `kept` ones, as a frame with the column `sha256`."""
    named = [name for each in kept["statistics"] for name in shared_files(json.loads(each))]
    return pl.DataFrame({"sha256": [name.removesuffix(".index") for name in named]}, {"sha256": pl.String})


def _needed(workspace: Workspace, scope: str) -> set[str | None]:
    """The fingerprints of indexes that the scope's last and unfinished micro-batches name.

    If another stream reads the scope's tagged rows, those of all its micro-batches: that stream must know their rules.
    Also those that tagged rows, if runs re-tag them or another stream reads them.
    """
    lake, stream = workspace.lake, workspace.configuration.streams.get(scope)
    is_read = any(each.source_stream == scope for each in workspace.configuration.streams.values())
    needed: set[str | None] = {batch.fingerprint for batch in batches(lake, scope)} if is_read else set()
    for place, batch in enumerate(newest_first(lake, scope)):
        if place and batch.state != PLANNED:
            break
        needed.add(batch.fingerprint)
    last = last_batch(lake, scope)
    if last is not None and (is_read or (stream is not None and stream.retag != "never")):
        histories = current_histories(lake, scope, last.batch).distinct
        needed.update(index_of_step(each) for history in histories for each in history)
    return needed


def _vacuum(workspace: Workspace, name: str, commits: int, done: TableMaintenance) -> None:
    hours = hours_to_keep(workspace, name, commits)
    if hours is not None:
        if workspace.lake.delta(name).vacuum(hours, dry_run=True, full=True):
            workspace.lake.writable(name).vacuum(hours, dry_run=False, full=True)
            done.removed += removed_by_vacuum(workspace.lake.delta(name))
        elif commits > 1 and (folder := folder_of(workspace.lake, name)) is not None:
            # the next check in a run is after `commits` more commits
            FolderLog(folder).note(END, {"numDeletedFiles": "0"})
