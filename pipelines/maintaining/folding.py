"""Folds old micro-batches in `runs`: consecutive ones with equal plans become one row, with their sums.

Later runs only need to know by which rules, keys and checks an old micro-batch took its rows, and sums of its figures.
Both are preserved by the folded row. `plan.folded` has the number of the first micro-batch for which it stands.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

import polars as pl
import pyarrow as pa

from pipelines.lake.lake import Lake, arrow_schema
from pipelines.lake.reading import literal
from pipelines.lake.runs import DONE, FOLDED, MicroBatch, batches, to_rows
from pipelines.table_definitions import RUNS

KEPT_BATCHES = 100
"""Number of newest micro-batches per scope that are never folded, since reports and `lint` read them."""
_ALIKE = ("series", "id_type", "key", "checks", "output", "matches", "event_time", "implied_by", "definition", "reset",
          "skipped", "lateness")  # fmt: skip
"""Keys of a plan that must be equal, besides the rules, for micro-batches to be folded."""
_RANGE = ("start", "table_id")


def foldable(lake: Lake, before: datetime) -> dict[str, int]:
    """The scopes with micro-batches to fold, and the batch number below which to fold.

    These are micro-batches that were planned before a time, without the last `KEPT_BATCHES` of each scope.
    """
    rows = pl.DataFrame(pl.from_arrow(lake.arrow("runs", ["scope", "batch", "state", "started_at"])))
    found: dict[str, int] = {}
    for (scope,), of_scope in rows.sort("batch").group_by("scope"):
        old = of_scope.head(max(of_scope.height - KEPT_BATCHES, 0))
        young = (old["state"] != DONE) | (old["started_at"] >= before)
        count = young.arg_true()[0] if young.any() else old.height
        if count > 1:
            found[str(scope)] = int(old["batch"][count - 1]) + 1
    return found


def fold(lake: Lake, before: datetime) -> int:
    """Fold micro-batches that were planned before a time, in one commit; returns how many rows were removed.

    Raises deltalake's CommitFailedError if another process writes the same rows concurrently.
    """
    kept: list[MicroBatch] = []
    gone: list[str] = []
    count = 0
    for scope, below in foldable(lake, before).items():
        old = [batch for batch in batches(lake, scope) if batch.batch < below]
        for group in _alike(old):
            if len(group) > 1:
                kept.append(folded(group))
                first, last = group[0].batch, group[-1].batch
                gone.append(f"(t.scope = {literal(scope)} AND t.batch >= {first} AND t.batch < {last})")
                count += len(group) - 1
    if not kept:
        return 0
    rows = pa.concat_tables([to_rows(batch) for batch in kept]).cast(arrow_schema(RUNS))
    done = f"t.state = '{DONE}'"
    merger = lake.writable("runs").merge(
        rows, "t.scope = s.scope AND t.batch = s.batch", source_alias="s", target_alias="t"
    )
    merger = merger.when_matched_update_all(predicate=done)
    merger.when_not_matched_by_source_delete(predicate=f"{done} AND ({' OR '.join(gone)})").execute()
    return count


def _alike(old: Iterable[MicroBatch]) -> Iterator[list[MicroBatch]]:
    """Groups of consecutive micro-batches with equal plans."""
    group: list[MicroBatch] = []
    for batch in old:
        if group and _key(group[-1]) != _key(batch):
            yield group
            group = []
        group.append(batch)
    if group:
        yield group


def _key(batch: MicroBatch) -> str:
    plan = {name: batch.plan.get(name) for name in _ALIKE}
    return json.dumps([batch.rules_version, batch.fingerprint, plan], sort_keys=True)


def folded(group: list[MicroBatch]) -> MicroBatch:
    """The row that stands for a group: the last micro-batch, from the first one's start, with the group's sums."""
    first, last = group[0], group[-1]
    plan: dict[str, Any] = {**last.plan, FOLDED: first.plan.get(FOLDED, first.batch)}
    plan |= {name: first.plan[name] for name in _RANGE if name in first.plan}
    for name in ("files", "bytes", "rows", "quarantined", "joined"):
        known = [batch.plan[name] for batch in group if batch.plan.get(name) is not None]
        if known:
            plan[name] = sum(known)
    plan.pop("lost", None)
    if lost := _lost([batch.plan for batch in group]):
        plan["lost"] = lost
    left_out = [each for batch in group for each in batch.plan.get("left_out", [])]
    if left_out:
        plan["left_out"] = list({each["name"]: each for each in left_out}.values())
    return replace(
        last,
        plan=plan,
        rows=_sum(batch.rows for batch in group),
        matches=_sum(batch.matches for batch in group),
        quarantined=_sum(batch.quarantined for batch in group),
        seconds=_sum(batch.seconds for batch in group),
        errors=_errors(batch.errors for batch in group),
    )


def _lost(plans: Iterable[Mapping[str, Any]]) -> list[int]:
    """The places of lost files among all files of consecutive micro-batches, by their places in each of these."""
    found: list[int] = []
    before = 0
    for plan in plans:
        lost = plan.get("lost", ())
        found += [before + place for place in lost]
        before += plan.get("files", 0) + len(lost)
    return found


def _sum(figures: Iterable[Any]) -> Any:
    known = [figure for figure in figures if figure is not None]
    return sum(known) if known else None


def _errors(counted: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for each in counted:
        total.update(each)
    return dict(total)
