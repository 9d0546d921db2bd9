"""The table `runs`: the micro-batches of each stream and join, planned before the first write, done after the last."""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pyarrow as pa

from pipelines.error_texts import first_line, is_refused
from pipelines.errors import RestartedError, TableError, not_written
from pipelines.lake.lake import Lake, arrow_schema
from pipelines.lake.merging import FileWriter, NotMergeableError
from pipelines.lake.plain_tables import is_plain
from pipelines.lake.reading import literal
from pipelines.lake.run_files import Row, files_of, rows_in, write_row
from pipelines.lake.table_log import table_log
from pipelines.table_definitions import RUNS
from rules_index.workers.delta_file_writer import PLAIN

PLANNED = "planned"
DONE = "done"
RESET = "reset"

_ATTEMPTS = 20
"""Maximum number of attempts of a commit to `runs` if others commit first."""
_COMPACT_EVERY = 100
COMPACTED_BYTES = 1 << 18
"""Size in bytes from which a file of `runs` is not compacted; it bounds what a run reads and rewrites."""
FOLDED = "folded"
"""Key in the plan of a row that stands for several micro-batches; its value is the number of the first one."""
OF_ATTEMPTS = ("attempts", "search")
"""Keys of a plan about attempts; they are dropped once the micro-batch is done."""


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """One row of `runs`. `plan` says which part of the source it takes; the figures are None until it is done."""

    scope: str
    batch: int
    state: str
    plan: Mapping[str, Any]
    rules_version: int | None
    fingerprint: str | None
    source_version: int | None
    started_at: datetime
    rows: int | None = None
    matches: int | None = None
    quarantined: int | None = None
    errors: Mapping[str, int] = field(default_factory=dict)
    seconds: float | None = None


def last_batch(lake: Lake, scope: str) -> MicroBatch | None:
    """The scope's micro-batch with the highest number, in any state; None if there is none."""
    return next(newest_first(lake, scope), None)


def newest_first(lake: Lake, scope: str) -> Iterator[MicroBatch]:
    """The scope's micro-batches by descending number.

    Files of `runs` are read lazily, newest first by the log's statistics: only those that the caller's requests need.
    """
    table = lake.delta("runs")
    waiting: list[dict[str, Any]] = []
    files = sorted(files_of(table, scope), key=lambda file: file[0])
    while files or waiting:
        # the last of `files` has the highest number that is still unread
        if not files or (waiting and waiting[-1]["batch"] >= files[-1][0]):
            yield _from_row(waiting.pop())
            continue
        waiting += _reading(lake, partial(rows_in, lake, table, files.pop()[1], scope))
        waiting.sort(key=lambda row: row["batch"])


def _reading(lake: Lake, read: Callable[[], Any]) -> Any:
    """The result of `read`; TableError if `runs` cannot be read."""
    from deltalake import exceptions

    try:
        return read()
    except (exceptions.DeltaError, OSError, pa.ArrowException) as error:
        raise TableError(f"The table runs at {lake.uri('runs')} cannot be read: {first_line(error)}") from error


def batches(lake: Lake, scope: str | None = None) -> list[MicroBatch]:
    """All micro-batches, or those of one scope, ascending by scope and number."""
    rows = lake.arrow("runs", None, [("scope", scope)] if scope is not None else ())
    return [_from_row(row) for row in rows.sort_by([("scope", "ascending"), ("batch", "ascending")]).to_pylist()]


def record_plan(lake: Lake, batch: MicroBatch) -> MicroBatch:
    """Write a plan. If another process has planned the same number first, its plan is returned instead.

    RestartedError if that plan is to empty the tables.
    """
    recorded = _record(lake, batch)
    if recorded.plan.get("reset"):
        raise RestartedError(
            f"Another run has restarted {batch.scope} meanwhile, and processes everything again; this one ends here."
        )
    return recorded


def _record(lake: Lake, batch: MicroBatch) -> MicroBatch:
    """The micro-batch of this number as it is in `runs`, into which this one was written if the number was free."""
    if _merge(lake, batch):
        (row,) = to_rows(batch).to_pylist()
        return _from_row(row)
    return _recorded(lake, batch)


def _recorded(lake: Lake, batch: MicroBatch) -> MicroBatch:
    """The micro-batch of this number as it is in `runs`."""
    return next(each for each in newest_first(lake, batch.scope) if each.batch == batch.batch)


def record_done(lake: Lake, batch: MicroBatch) -> None:
    """Write the state and figures of a finished micro-batch; one that is already done in `runs` is left as it is.

    RestartedError if another process has planned it again in the meantime.
    """
    plan = {key: value for key, value in batch.plan.items() if key not in OF_ATTEMPTS}
    done = replace(batch, state=DONE, plan=plan)
    if not _merge(lake, done, batch.started_at):
        found = _recorded(lake, batch)
        if found.state != DONE or found.started_at != batch.started_at:
            raise taken_over(batch)
    if batch.batch % _COMPACT_EVERY == _COMPACT_EVERY - 1:
        compact(lake)


def check_id_type(last: MicroBatch | None, id_type: str, again: str) -> None:
    """Raise TableError if the scope's rows were tagged with ids of another type than rules have now.

    again: the command that takes everything again.
    """
    former = id_type if last is None else last.plan.get("id_type", id_type)
    if former != id_type:
        raise TableError(
            f"The column rule_id of the table rules was {former.upper()} when {last.scope if last else again} was "
            f"tagged, and is {id_type.upper()} now. Give it its former type, or process everything again with: {again}"
        )


def taken_over(batch: MicroBatch) -> RestartedError:
    """The error of a run whose micro-batch another run has planned again."""
    return RestartedError(
        f"Another run has planned micro-batch {batch.batch} of {batch.scope} again, and is processing it; this one "
        "ends here, and has written nothing of it."
    )


def revise(lake: Lake, planned: MicroBatch, plan: Mapping[str, Any], **changes: Any) -> MicroBatch:
    """Replace the plan of an unfinished micro-batch, in one atomic step; returns it as it is now in `runs`.

    `changes` are other columns. `started_at` identifies a plan of the micro-batch, so a change that only concerns
    attempts leaves it as it is. RestartedError if `runs` has another plan than `planned`, or the micro-batch is done.
    """
    revised = replace(planned, plan=plan, **changes)
    if not _merge(lake, revised, planned.started_at, planned.plan):
        raise taken_over(planned)
    return revised


def plan_reset(lake: Lake, scope: str, last: MicroBatch | None) -> MicroBatch:
    """Plan to empty the tables of a scope. last: its last micro-batch, None if `runs` has none.

    `given_up` in the plan names the series of the micro-batches until now. An unfinished micro-batch is only abandoned
    after that (`abandon`): if it were abandoned first, a run that is killed before it plans the reset would lose its
    rows for good.
    """
    while last is None or last.state != RESET:
        last = last and _recorded(lake, last)
        former = [last.plan["series"], *given_up(last.plan)] if last is not None else []
        plan = {"reset": True, "series": uuid.uuid4().hex, "given_up": former}
        number = last.batch + 1 if last is not None else 0
        last = _record(lake, MicroBatch(scope, number, RESET, plan, None, None, None, datetime.now(UTC)))
    return last


def given_up(plan: Mapping[str, Any]) -> list[str]:
    """The abandoned series that a plan names: none, one, or several after repeated restarts."""
    found = plan.get("given_up", [])
    return [found] if isinstance(found, str) else list(found)


def record_reset(lake: Lake, batch: MicroBatch) -> MicroBatch:
    """Record that the tables have been emptied; returns the micro-batch as done."""
    done = replace(batch, state=DONE, rows=0, matches=0, quarantined=0, seconds=0.0)
    record_done(lake, done)
    return done


def abandon(lake: Lake, reset: MicroBatch) -> list[str]:
    """Record the micro-batch before a reset, if it is unfinished, as done with no rows.

    Returns the series that must be fenced off before the tables are emptied: another run may still be writing one of
    them. It may have planned that micro-batch again after the reset was planned, but it can no longer do so now.
    """
    series = given_up(reset.plan)
    while True:
        before = next((each for each in newest_first(lake, reset.scope) if each.batch < reset.batch), None)
        if before is None or before.state != PLANNED:
            return series
        series += [each for each in (before.plan["series"], *given_up(before.plan)) if each not in series]
        with contextlib.suppress(RestartedError):  # another run has planned it again in the meantime
            record_done(lake, replace(before, rows=0, matches=0, quarantined=0, seconds=0.0))


def _merge(
    lake: Lake, batch: MicroBatch, before: datetime | None = None, plan: Mapping[str, Any] | None = None
) -> bool:
    """Insert or replace one row of `runs` in one atomic step; True if a row was written.

    Without `before` the row is inserted if its number is free. With `before` the unfinished row of its number is
    replaced, if it was planned at that time and, if `plan` is given, has that plan.
    """
    for attempt in range(_ATTEMPTS):
        merge = _write_row if is_plain(lake.delta("runs"), RUNS) else _merge_by_delta_rs
        written = merge(lake, batch, before, plan)
        if written is not None:
            return written
        # another process has committed to `runs`: try again on its newest version
        time.sleep(0.05 * (attempt + 1))
    raise TableError("The table runs is being written too often by others; try again.")


def _write_row(lake: Lake, batch: MicroBatch, before: datetime | None, plan: Mapping[str, Any] | None) -> bool | None:
    """Like `_merge`, but once: None if another process has committed to `runs` meanwhile."""

    def is_due(held: Row | None) -> bool:
        """Whether the row that `runs` has of this number is the one to replace."""
        if held is None or before is None:
            return held is None and before is None
        is_same = held["started_at"] == before and held["state"] not in (None, DONE)
        return is_same and (plan is None or held["plan"] == json.dumps(dict(plan)))

    return _reading(lake, partial(write_row, lake, to_rows(batch), is_due))


def _merge_by_delta_rs(
    lake: Lake, batch: MicroBatch, before: datetime | None, plan: Mapping[str, Any] | None
) -> bool | None:
    """Like `_write_row`, for a table in an object store, or one that asks more of a commit than its rows."""
    from deltalake import exceptions

    predicate = (
        f"t.scope = s.scope AND t.batch = s.batch AND t.scope = {literal(batch.scope)} AND t.batch = {batch.batch}"
    )
    merger = lake.writable("runs").merge(to_rows(batch), predicate, source_alias="s", target_alias="t")
    if before is not None:
        same = f"t.state <> '{DONE}' AND t.started_at = '{before.isoformat()}'"
        if plan is not None:
            same += f" AND t.plan = {literal(json.dumps(dict(plan)))}"
        merger = merger.when_matched_update_all(predicate=same)
    else:
        merger = merger.when_not_matched_insert_all()
    try:
        done = merger.execute()
    except (exceptions.DeltaError, OSError) as error:
        if isinstance(error, exceptions.CommitFailedError) and not is_refused(error):
            return None
        raise not_written(f"The table runs at {lake.uri('runs')} cannot be written", error) from error
    return bool(done["num_target_rows_inserted"] or done["num_target_rows_updated"])


def compact(lake: Lake) -> tuple[int, int]:
    """Compact the small files that single rows leave behind; returns how many files became how many.

    Nothing is done after a conflict with another writer, nor for a lake in a catalog, where compaction is left to
    Spark. deltalake's own compaction is not used: if two run at once both succeed, and the rows are there twice.
    """
    if lake.settings.root is None:
        return 0, 0
    log = table_log(lake.uri("runs"))
    snapshot = log.latest()
    small = [add for add in log.files(snapshot) if add["size"] < COMPACTED_BYTES]
    if len(small) < 2:
        return 0, 0
    writer = FileWriter(log, arrow_schema(RUNS), "zstd", PLAIN)
    try:
        entries = writer.merge(small)
    except (NotMergeableError, OSError):
        return 0, 0
    if not log.replace_files(snapshot, small, entries):
        writer.discard(entries)
        return 0, 0
    return len(small), len(entries)


def to_rows(batch: MicroBatch) -> pa.Table:
    """A micro-batch as a row of `runs`."""
    row = {name: getattr(batch, name) for name in MicroBatch.__slots__}
    row["plan"] = json.dumps(dict(batch.plan))
    row["errors"] = sorted(batch.errors.items())
    return pa.Table.from_pylist([row], schema=arrow_schema(RUNS))


def _from_row(row: Mapping[str, Any]) -> MicroBatch:
    values = {name: row[name] for name in MicroBatch.__slots__}
    values["plan"] = json.loads(row["plan"])
    values["errors"] = dict(row["errors"] or ())
    return MicroBatch(**values)
