"""By which indexes the rows of a tagged table were tagged: `runs` says it of its micro-batches and the re-tags since.

A row names the index that wrote it. That a later re-tag found nothing to change in it is told by `runs` alone.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from pipelines.errors import RestartedError, TableError
from pipelines.lake.lake import Lake
from pipelines.lake.runs import DONE, FOLDED, RESET, MicroBatch, newest_first
from pipelines.lake.transaction_ids import GIVEN_UP, app_of
from pipelines.settings.model import Stream
from pipelines.table_definitions import matches_table, tagged_table

History: TypeAlias = tuple[str, ...]
"""The indexes of a row, by fingerprint: the first one tagged it, and each further one added the rules that were new."""

ALL, NEW_RULES = "all", "new_rules"
"""What a re-tag brings up to date: every edit of the rules, or only rules that were added."""
_WAIT = 60.0
"""Seconds to wait for a micro-batch that is between two of its writes."""


def retag_scope(name: str) -> str:
    """The scope by which `runs` has a stream's re-tags: no stream and no join can be named so."""
    return f"{name}/retag"


def policy_mode(stream: Stream) -> str:
    """What a run re-tags of a stream."""
    return NEW_RULES if stream.retag == NEW_RULES else ALL


@dataclass(frozen=True, slots=True)
class Retag:
    """One re-tag that is done, as far as what comes later must know: it took the rows of the micro-batches up to
    `through`, all of them or, where `whole` is False, those of a range of event times."""

    through: int
    fingerprint: str
    mode: str = ALL
    whole: bool = True

    def then(self, histories: frozenset[History]) -> frozenset[History]:
        """The histories after it of rows that had one of these before."""
        added = frozenset(
            history if history[-1] == self.fingerprint else (*history, self.fingerprint) for history in histories
        )
        after = frozenset({(self.fingerprint,)}) if self.mode == ALL else added
        return after if self.whole else histories | after


@dataclass(frozen=True, slots=True)
class IndexHistories:
    """The index histories of rows of the micro-batches up to `through`.

    by_batch: of each micro-batch that no later re-tag made like the others; earlier: of all those before them.
    """

    through: int
    by_batch: Mapping[int, frozenset[History]] = field(default_factory=dict)
    earlier: frozenset[History] = frozenset()

    @property
    def distinct(self) -> frozenset[History]:
        """All of them."""
        return self.earlier.union(*self.by_batch.values())

    def of(self, batch: int) -> frozenset[History]:
        """Those of one micro-batch."""
        return self.by_batch.get(batch, self.earlier)


def index_histories(batches: Iterable[MicroBatch], retags: Iterable[MicroBatch], through: int) -> IndexHistories:
    """The histories after these micro-batches and these re-tags of one stream, each given by descending number.

    No more of both is read than decides it: down to the last whole re-tag for all edits, or the last restart.
    """
    later: list[Retag] = []
    for each in retags:
        if each.state == DONE and each.fingerprint is not None:
            later.append(_retag(each))
            if later[-1].mode == ALL and later[-1].whole:
                break
    later.reverse()
    full = later[0].through if later and later[0].mode == ALL and later[0].whole else -1
    found: dict[int, frozenset[History]] = {}
    for batch in batches:
        if batch.plan.get("reset"):
            return IndexHistories(through, found)
        if batch.batch <= full:
            return IndexHistories(through, found, _after(frozenset(), later, batch.batch))
        if batch.batch <= through and batch.fingerprint is not None and batch.rows != 0:
            first = int(batch.plan.get(FOLDED, batch.batch))
            found[batch.batch] = _histories(batch.fingerprint, later, first, batch.batch)
    return IndexHistories(through, found)


def _histories(fingerprint: str, retags: Iterable[Retag], first: int, last: int) -> frozenset[History]:
    """Those of the micro-batches from one to another, which one index tagged and one row of `runs` describes."""
    retags = list(retags)
    cuts = {first, last} | {cut for each in retags for cut in (each.through, each.through + 1) if first <= cut <= last}
    return frozenset().union(*(_after(frozenset({(fingerprint,)}), retags, cut) for cut in cuts))


def _after(histories: frozenset[History], retags: Iterable[Retag], batch: int) -> frozenset[History]:
    for each in retags:
        if each.through >= batch:
            histories = each.then(histories)
    return histories


def _retag(row: MicroBatch) -> Retag:
    plan = row.plan
    whole = plan.get("since") is None and plan.get("until") is None
    return Retag(int(plan["through"]), str(row.fingerprint), str(plan["mode"]), whole)


def current_histories(lake: Lake, name: str, through: int) -> IndexHistories:
    """The histories of rows of a stream's or join's micro-batches up to one of them, as they are now."""
    return index_histories(newest_first(lake, name), newest_first(lake, retag_scope(name)), through)


def taken_batches(lake: Lake, name: str, through: int) -> Iterator[MicroBatch]:
    """The micro-batches since the last restart up to one of them, the newest first."""
    for batch in newest_first(lake, name):
        if batch.plan.get("reset"):
            return
        if batch.batch <= through:
            yield batch


@dataclass(frozen=True, slots=True)
class Snapshots:
    """Versions of a scope's tables (matches: None where it keeps none) that hold the rows of just the micro-batches up
    to `through`; -1: of none."""

    through: int
    tagged: int
    matches: int | None


def snapshots(lake: Lake, name: str, keeps_matches: bool) -> Snapshots:
    """The tables as they are now, between two writes of whoever tags; TableError where one stopped between them."""
    until = time.monotonic() + _WAIT
    while True:
        found = _snapshots(lake, name, keeps_matches)
        if found is not None:
            return found
        if time.monotonic() > until:
            raise TableError(
                f"A micro-batch of {name} stands between two of its writes. Let the run that writes it end, or, where "
                f"it was stopped, end the micro-batch with: deltatag tag {name}"
            )
        time.sleep(0.2)


def _snapshots(lake: Lake, name: str, keeps_matches: bool) -> Snapshots | None:
    last = next(newest_first(lake, name), None)
    tagged = lake.delta(tagged_table(name))
    has_matches = keeps_matches and lake.exists(matches_table(name))
    matches = lake.delta(matches_table(name)) if has_matches else None
    if last is None:
        return Snapshots(-1, int(tagged.version()), None if matches is None else int(matches.version()))
    if last.state == RESET:
        raise RestartedError(f"The tables of {name} are being emptied. End that first with: deltatag tag {name}")
    through = last.batch
    if last.state != DONE and not _holds(tagged, tagged_table(name), last):
        through -= 1
        if matches is not None and _holds(matches, matches_table(name), last):
            return None
    again = next(newest_first(lake, name), None)
    if again is None or (again.batch, again.state) != (last.batch, last.state):
        return None
    return Snapshots(through, int(tagged.version()), None if matches is None else int(matches.version()))


def _holds(table: Any, name: str, batch: MicroBatch) -> bool:
    version = table.transaction_version(app_of(batch.plan, name))
    return version is not None and version >= batch.batch


def retag_application(series: str, name: str) -> str:
    """Whose transactions a re-tag's are in the log of one table; by its end nobody takes it for a micro-batch's."""
    return f"deltatag/{series}/{name}/retag"


def is_retagged(lake: Lake, plan: Mapping[str, Any], name: str, number: int) -> bool:
    """True if a table holds what a planned re-tag writes to it."""
    version = lake.delta(name).transaction_version(retag_application(plan["series"], name))
    return version in (number, GIVEN_UP + 1)
