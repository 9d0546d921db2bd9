"""The micro-batches of each stream and join: planned before the first write, done after the last."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from pipelines.errors import RestartedError, TableError
from pipelines.lake import Lake, arrow_schema, first_line
from pipelines.tables import RUNS

PLANNED = "planned"
DONE = "done"
RESET = "reset"

_ATTEMPTS = 20
_COMPACT_EVERY = 100


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """One row of `runs`. `plan` is what the source gave for it; the figures are None until it is done."""

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
    """The scope's micro-batch of the highest number, whatever its state; None before the first."""
    numbers = lake.arrow("runs", ["batch"], [("scope", "=", scope)])["batch"].to_pylist()
    if not numbers:
        return None
    rows = lake.arrow("runs", None, [("scope", "=", scope), ("batch", "=", max(numbers))])
    return _from_row(rows.to_pylist()[0])


def batches(lake: Lake, scope: str | None = None) -> list[MicroBatch]:
    """All micro-batches (of one scope), ascending by scope and number."""
    rows = lake.arrow("runs", None, [("scope", "=", scope)] if scope is not None else None)
    return [_from_row(row) for row in rows.sort_by([("scope", "ascending"), ("batch", "ascending")]).to_pylist()]


def record_plan(lake: Lake, batch: MicroBatch) -> MicroBatch:
    """Write a plan. Where another process has planned the same number first, its plan is returned instead.

    RestartedError if that process empties the tables.
    """
    recorded = _record(lake, batch)
    if recorded.plan.get("reset"):
        raise RestartedError(
            f"Another run has restarted {batch.scope} meanwhile, and takes everything anew; this one ends here."
        )
    return recorded


def _record(lake: Lake, batch: MicroBatch) -> MicroBatch:
    _merge(lake, batch, update=False)
    rows = lake.arrow("runs", None, [("scope", "=", batch.scope), ("batch", "=", batch.batch)])
    return _from_row(rows.to_pylist()[0])


def record_done(lake: Lake, batch: MicroBatch) -> None:
    """Write the state and figures of a micro-batch that has ended; one that `runs` has as ended stays as it is."""
    _merge(lake, replace(batch, state=DONE), update=True)
    if batch.batch % _COMPACT_EVERY == _COMPACT_EVERY - 1:
        _compact(lake)


def plan_reset(lake: Lake, last: MicroBatch) -> MicroBatch:
    """Plan to empty the tables of the scope whose last micro-batch this is; an unfinished one is thereby given up.

    The plan names as `given_up` the series of the micro-batches until now: another run may be writing one of them.
    """
    while last.state != RESET:
        if last.state == PLANNED:
            record_done(lake, replace(last, rows=0, matches=0, quarantined=0, seconds=0.0))
        plan = {"reset": True, "series": uuid.uuid4().hex, "given_up": last.plan["series"]}
        reset = MicroBatch(last.scope, last.batch + 1, RESET, plan, None, None, None, datetime.now(UTC))
        last = _record(lake, reset)
    return last


def record_reset(lake: Lake, batch: MicroBatch) -> MicroBatch:
    """Write that the tables have been emptied; gives the micro-batch as it is now."""
    done = replace(batch, state=DONE, rows=0, matches=0, quarantined=0, seconds=0.0)
    record_done(lake, done)
    return done


def _merge(lake: Lake, batch: MicroBatch, update: bool) -> None:
    """One atomic step: insert the row if its number is free, or (`update`) replace the unfinished row of its number."""
    from deltalake import exceptions

    scope = batch.scope.replace("'", "''")
    predicate = f"t.scope = s.scope AND t.batch = s.batch AND t.scope = '{scope}' AND t.batch = {batch.batch}"
    for attempt in range(_ATTEMPTS):
        merger = lake.delta("runs").merge(_to_rows(batch), predicate, source_alias="s", target_alias="t")
        if update:
            merger = merger.when_matched_update_all(predicate=f"t.state <> '{DONE}'")
        else:
            merger = merger.when_not_matched_insert_all()
        try:
            merger.execute()
            return
        except exceptions.CommitFailedError as error:
            # Another process committed to `runs` meanwhile: look again, then decide anew.
            if attempt == _ATTEMPTS - 1:
                raise TableError(f"The table runs is being written too often by others: {first_line(error)}") from error
            time.sleep(0.05 * (attempt + 1))
        except (exceptions.DeltaError, OSError) as error:
            raise TableError(f"The table runs at {lake.uri('runs')} cannot be written: {first_line(error)}") from error


def _compact(lake: Lake) -> None:
    """Merge the small files that single rows leave behind; a conflict only puts it off."""
    from deltalake import exceptions

    try:
        lake.delta("runs").optimize.compact()
    except exceptions.DeltaError:
        return


def _to_rows(batch: MicroBatch) -> pa.Table:
    row = {name: getattr(batch, name) for name in MicroBatch.__slots__}
    row["plan"] = json.dumps(dict(batch.plan))
    row["errors"] = sorted(batch.errors.items())
    return pa.Table.from_pylist([row], schema=arrow_schema(RUNS))


def _from_row(row: Mapping[str, Any]) -> MicroBatch:
    values = {name: row[name] for name in MicroBatch.__slots__}
    values["plan"] = json.loads(row["plan"])
    values["errors"] = dict(row["errors"] or ())
    return MicroBatch(**values)
