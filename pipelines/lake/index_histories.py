"""The indexes that tagged the rows of a table, by what `runs` says of its micro-batches and of later re-tags.

A row names the index that wrote it. Only `runs` tells whether a later re-tag has found nothing to change in the row.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, TypeAlias

from pipelines.errors import RestartedError, TableError
from pipelines.lake.delta_log import DeltaLog
from pipelines.lake.lake import Lake
from pipelines.lake.runs import DONE, FOLDED, RESET, MicroBatch, newest_first
from pipelines.lake.table_log import table_log
from pipelines.lake.transaction_ids import GIVEN_UP, Undone, app_of, files_added_by, holds, retags_of, undone
from pipelines.settings.model import Stream
from pipelines.table_definitions import matches_table, tagged_table

History: TypeAlias = tuple[str, ...]
"""The indexes that tagged a row, each as a step: the first one with all its rules, each further one with added rules.
A step is an index's fingerprint, followed by the ids of rules whose earlier texts it replaced, if there are any."""

ALL, NEW_RULES = "all", "new_rules"
"""What a re-tag brings up to date: every edit of the rules, or only added rules."""
AFTER = "after"
"""Key in the plan of a re-tag of all rows by only added rules: the histories of all rows after it, as `Span`s."""
_WAIT = 60.0
"""Seconds to wait for another run that has written a micro-batch's matches, but not yet its tagged rows."""


Span: TypeAlias = tuple[int, frozenset[History]]
"""Consecutive micro-batches: the number of the last one, and the histories of their rows."""


def step(fingerprint: str, replaced: Iterable[Any] = ()) -> str:
    """A step of a history: an index, and the ids of the rules whose earlier texts it replaced."""
    return f"{fingerprint} {json.dumps(sorted(replaced))}" if replaced else fingerprint


def index_of_step(step: str) -> str:
    """The fingerprint of a step's index."""
    return step.partition(" ")[0]


def replaced_in_step(step: str) -> list[Any]:
    """The ids of the rules whose earlier texts a step replaced."""
    ids = step.partition(" ")[2]
    return json.loads(ids) if ids else []


def retag_scope(name: str) -> str:
    """The scope of a stream's or join's re-tags in `runs`; no stream or join can have this name."""
    return f"{name}/retag"


def policy_mode(stream: Stream) -> str:
    """The mode in which a run re-tags a stream."""
    return NEW_RULES if stream.retag == NEW_RULES else ALL


@dataclass(frozen=True, slots=True)
class Retag:
    """A finished re-tag.

    It covered the rows of the micro-batches up to `through`: all of them or, if `all_rows` is False, those in a range
    of event times. after: the histories of all these rows after it, so that nothing earlier need be read; None if they
    follow from what was before. replaced: the ids of added rules of which some rows had an earlier text.
    """

    through: int
    fingerprint: str
    mode: str = ALL
    all_rows: bool = True
    after: tuple[Span, ...] | None = None
    replaced: tuple[Any, ...] = ()

    def applied_to(self, histories: frozenset[History]) -> frozenset[History]:
        """The histories, after this re-tag, of rows whose histories were among these before it."""
        added = frozenset(
            history
            if index_of_step(history[-1]) == self.fingerprint and not self.replaced
            else (*history, step(self.fingerprint, self.replaced))
            for history in histories
        )
        after = frozenset({(self.fingerprint,)}) if self.mode == ALL else added
        return after if self.all_rows else histories | after


@dataclass(frozen=True, slots=True)
class IndexHistories:
    """The index histories of the rows of the micro-batches up to number `through`.

    by_batch: the histories of each micro-batch, by number, that has rows and comes after the last re-tag that says what
    the histories are after it (`Retag.after`); earlier: those of the micro-batches before, ascending.
    """

    through: int
    by_batch: Mapping[int, frozenset[History]] = field(default_factory=dict)
    earlier: tuple[Span, ...] = ()

    @property
    def distinct(self) -> frozenset[History]:
        """The histories of all rows."""
        return frozenset().union(*(found for _, found in self.spans))

    @property
    def spans(self) -> list[Span]:
        """The histories of all rows, ascending by micro-batch."""
        return [*self.earlier, *sorted(self.by_batch.items())]

    def of_batch(self, batch: MicroBatch) -> frozenset[History]:
        """The histories of the rows of a micro-batch, or of those that were folded into it."""
        if batch.batch in self.by_batch:
            return self.by_batch[batch.batch]
        return _of_batches(self.earlier, _first(batch), batch.batch)


def index_histories(batches: Iterable[MicroBatch], retags: Iterable[MicroBatch], through: int) -> IndexHistories:
    """Returns the histories after these micro-batches and re-tags of one stream, each given by descending number.

    Both are only read as far as needed: back to the last re-tag that says what the histories are after it, or to the
    last restart.
    """
    later: list[Retag] = []
    earlier: tuple[Span, ...] = ()
    for each in retags:
        if each.state == DONE and each.fingerprint is not None:
            found = _retag(each)
            if found.after is not None:
                earlier = found.after
                break
            later.append(found)
    later.reverse()
    earlier = tuple((last, _after(histories, later, last)) for last, histories in earlier)
    covered = earlier[-1][0] if earlier else -1
    by_batch: dict[int, frozenset[History]] = {}
    for batch in batches:
        if batch.plan.get("reset"):
            return IndexHistories(through, by_batch)
        if batch.batch <= covered:
            return IndexHistories(through, by_batch, earlier)
        if batch.batch <= through and batch.fingerprint is not None and batch.rows != 0:
            by_batch[batch.batch] = _histories(batch, earlier, later)
    return IndexHistories(through, by_batch)


def _histories(batch: MicroBatch, earlier: Sequence[Span], later: Sequence[Retag]) -> frozenset[History]:
    """The histories of a micro-batch's rows; if others were folded into it, one index tagged the rows of them all."""
    first, last = _first(batch), batch.batch
    covered = max(first, earlier[-1][0] + 1 if earlier else 0)
    cuts = {covered, last} | {
        cut for each in later for cut in (each.through, each.through + 1) if covered <= cut <= last
    }
    found = [_after(frozenset({(str(batch.fingerprint),)}), later, cut) for cut in cuts]
    return _of_batches(earlier, first, last).union(*found)


def _of_batches(spans: Iterable[Span], first: int, last: int) -> frozenset[History]:
    """The histories of the rows of micro-batches `first` to `last`, as far as spans have them."""
    found, before = frozenset[History](), -1
    for end, histories in spans:
        found |= histories if before < last and first <= end else frozenset()
        before = end
    return found


def _first(batch: MicroBatch) -> int:
    """The number of the first micro-batch that a row of `runs` stands for."""
    return int(batch.plan.get(FOLDED, batch.batch))


def _after(histories: frozenset[History], retags: Iterable[Retag], batch: int) -> frozenset[History]:
    """The histories of a micro-batch's rows after the re-tags that cover it, the earliest first."""
    for each in retags:
        if each.through >= batch:
            histories = each.applied_to(histories)
    return histories


def _retag(row: MicroBatch) -> Retag:
    plan, through, fingerprint = row.plan, int(row.plan["through"]), str(row.fingerprint)
    all_rows, mode = plan.get("since") is None and plan.get("until") is None, str(plan["mode"])
    after: tuple[Span, ...] | None = None
    if all_rows and mode == ALL:
        after = ((through, frozenset({(fingerprint,)})),)
    elif plan.get(AFTER):
        after = tuple((last, frozenset(map(tuple, histories))) for last, histories in plan[AFTER])
    return Retag(through, fingerprint, mode, all_rows, after)


def spans_after(
    before: IndexHistories, fingerprint: str, replaced: Iterable[Any], folded: Callable[[History], History]
) -> list[Span]:
    """The histories of all rows after a re-tag of them by only the rules that an index adds.

    replaced: the ids of those rules of which some rows had an earlier text; folded: returns a history that stands for
    another one. Neighbours with equal histories are one span.
    """
    retag, found = Retag(before.through, fingerprint, NEW_RULES, replaced=tuple(replaced)), list[Span]()
    for last, histories in before.spans:
        after = frozenset(map(folded, retag.applied_to(histories)))
        if found and found[-1][1] == after:
            found.pop()
        found.append((last, after))
    return found


def current_histories(lake: Lake, name: str, through: int) -> IndexHistories:
    """The histories of the rows of a scope's micro-batches up to number `through`, as `runs` has them now."""
    return index_histories(newest_first(lake, name), newest_first(lake, retag_scope(name)), through)


def histories_to_retag(
    lake: Lake, name: str, through: int, is_range: bool = False, within: int | None = None
) -> tuple[IndexHistories, frozenset[History]]:
    """The current histories, without re-tags that a RESTORE of the tagged table has undone; and the histories with
    these, which rows of the table of matches may still have. The latter are empty if none was undone. within: the
    number of the table's newest versions in which a RESTORE is looked for; None for all since the last re-tag.

    TableError if one was undone and `is_range` is set: only a re-tag of all rows then records what the histories are.
    """
    log, table = table_log(lake.uri(tagged_table(name))), tagged_table(name)
    found, current = _undone_retag(lake, name, log, within), current_histories(lake, name, through)
    if found is None:
        return current, frozenset()
    if is_range:
        raise TableError(f"RESTORE has undone a re-tag of {name}. Bring all its rows up to date: deltatag retag {name}")

    def is_held(retag: MicroBatch) -> bool:
        """Whether the state that the table is like now has what a re-tag wrote. _UnknownStateError if the log no longer
        says so."""
        if int(retag.plan["tagged_version"]) >= found.state:
            return False
        written = files_added_by(log, retag_application(retag.plan["series"], table), retag.batch)
        is_in_state = True if written is None else holds(log, found.state, written[0])
        if is_in_state is None:
            raise _UnknownStateError
        return is_in_state

    held = (each for each in newest_first(lake, retag_scope(name)) if each.state == DONE and is_held(each))
    try:
        if found.state < 0:
            raise _UnknownStateError
        return index_histories(newest_first(lake, name), held, through), current.distinct
    except _UnknownStateError:
        return IndexHistories(through, earlier=((through, frozenset({("unknown",)})),)), current.distinct


class _UnknownStateError(Exception):
    """The log of a tagged table no longer says what a RESTORE has restored."""


def _undone_retag(lake: Lake, name: str, log: DeltaLog, within: int | None) -> Undone | None:
    """The RESTORE of a tagged table that has undone its last re-tag since the last restart; None if there is none."""
    last = next((each for each in newest_first(lake, retag_scope(name)) if each.state == DONE), None)
    if last is None:
        return None
    later = takewhile(lambda each: each.batch > last.plan["through"], newest_first(lake, name))
    if any(each.plan.get("reset") for each in later):
        return None
    oldest = int(last.plan["tagged_version"])
    if within is not None:
        oldest = max(oldest, lake.version(tagged_table(name)) - within)
    return undone(log, {retag_application(last.plan["series"], tagged_table(name))}, oldest)


def taken_batches(lake: Lake, name: str, through: int) -> Iterator[MicroBatch]:
    """The micro-batches up to number `through` since the last restart, newest first."""
    for batch in newest_first(lake, name):
        if batch.plan.get("reset"):
            return
        if batch.batch <= through:
            yield batch


@dataclass(frozen=True, slots=True)
class Snapshots:
    """Versions of a scope's tables that hold the rows of exactly the micro-batches up to number `through`, -1 for none.
    matches: None if the scope has no table of matches."""

    through: int
    tagged: int
    matches: int | None


def snapshots(lake: Lake, name: str, keeps_matches: bool) -> Snapshots:
    """Returns the current versions. Waits while a run has written a micro-batch's matches, but not yet its tagged rows.

    TableError if that lasts too long; RestartedError if the tables are being emptied.
    """
    until = time.monotonic() + _WAIT
    while True:
        found = _snapshots(lake, name, keeps_matches)
        if found is not None:
            return found
        if time.monotonic() > until:
            raise TableError(
                f"A micro-batch of {name} is only partly written. Let the run that writes it end, or, if it was "
                f"stopped, finish the micro-batch with: deltatag tag {name}"
            )
        time.sleep(0.2)


def _snapshots(lake: Lake, name: str, keeps_matches: bool) -> Snapshots | None:
    """The current versions; None if they do not fit together, or a run recorded a micro-batch while they were read."""
    last = next(newest_first(lake, name), None)
    tagged = lake.delta(tagged_table(name))
    has_matches = keeps_matches and lake.exists(matches_table(name))
    matches = lake.delta(matches_table(name)) if has_matches else None
    if last is None:
        return Snapshots(-1, int(tagged.version()), None if matches is None else int(matches.version()))
    if last.state == RESET:
        raise RestartedError(f"The tables of {name} are being emptied. Finish that first with: deltatag tag {name}")
    through = last.batch
    if last.state != DONE and not _holds(tagged, tagged_table(name), last):
        through -= 1
        if matches is not None and _holds(matches, matches_table(name), last):
            return None
    still_last = next(newest_first(lake, name), None)
    if still_last is None or (still_last.batch, still_last.state) != (last.batch, last.state):
        return None
    return Snapshots(through, int(tagged.version()), None if matches is None else int(matches.version()))


def _holds(table: Any, name: str, batch: MicroBatch) -> bool:
    version = table.transaction_version(app_of(batch.plan, name))
    return version is not None and version >= batch.batch


def retag_application(series: str, name: str) -> str:
    """The `appId` of a re-tag's transactions in the log of one table. The suffix distinguishes them from those of
    micro-batches."""
    return f"deltatag/{series}{retags_of(name)}"


def is_retagged(lake: Lake, plan: Mapping[str, Any], name: str, number: int) -> bool:
    """True if a table holds the transaction that a planned re-tag writes to it."""
    version = lake.delta(name).transaction_version(retag_application(plan["series"], name))
    return version in (number, GIVEN_UP + 1)
