"""Finds tagged rows that are gone, and those that a RESTORE has undone: no run would write them again."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice, takewhile
from typing import TYPE_CHECKING

from pipelines.lake.lake import Lake, rows_in
from pipelines.lake.runs import RESET, MicroBatch, newest_first
from pipelines.lake.table_log import table_log
from pipelines.lake.transaction_ids import Undone, app_of, retags_of, undone
from pipelines.settings.model import Join, Stream
from pipelines.sources.only_joined import command_of
from pipelines.table_definitions import is_matches, matches_table, quarantine_table, scope_tables, tagged_table

if TYPE_CHECKING:
    from pipelines.workspace import Workspace


def lost_rows(lake: Lake, tagged: str, last: MicroBatch | None, command: str, matches: str | None) -> str | None:
    """A message if the table of tagged rows, or that of their matches, is gone after the micro-batch `last`, or if
    there are tagged rows although `runs` has no micro-batch of the scope; else None.

    matches: the name of the table of matches, if the configuration keeps it.
    """
    if last is None:
        if not lake.exists(tagged) or rows_in(lake.delta(tagged)) == 0:
            return None
        return (
            f"The table {tagged} holds rows, and the table runs has no record of the micro-batches that wrote them, so "
            "every row would be tagged once more. Restore the folder of runs from a copy, or process everything again "
            f"with: {command} --restart"
        )
    kept = [tagged, *([matches] if matches is not None and last.plan.get("matches") else [])]
    gone = next((name for name in kept if not lake.exists(name)), None)
    if last.plan.get("reset") or last.state == RESET or gone is None:
        return None
    return (
        f"The table {gone} is gone, and with it the {'rows' if gone == tagged else 'matches of the rows'} that earlier "
        "runs have tagged. Restore its folder from a copy, or process everything again with: "
        f"{command} --restart"
    )


def restored_rows(lake: Lake, scope: str, tables: Iterable[str], command: str, matches: str | None) -> str | None:
    """A message if a RESTORE of one of a scope's tables has undone its last micro-batch, whose rows would never be
    written again, or only in the table of matches its last re-tag; else None.

    matches: the name of the table of matches, if the configuration keeps it; otherwise its rows do not count.
    """
    newest = takewhile(lambda each: not each.plan.get("reset"), islice(newest_first(lake, scope), 2))
    plans = [each.plan for each in newest if "series" in each.plan]
    for name in filter(lake.exists, tables if plans else ()):
        apps, table = {app_of(plan, name) for plan in plans}, lake.delta(name)
        if is_matches(name) and name != matches:
            continue
        if all(table.transaction_version(app) is None for app in apps):
            continue
        found = undone(table_log(lake.uri(name)), apps)
        if found is None and name == matches:
            found = _undone_matches(lake, scope, name, apps)
        if found is not None:
            return (
                f"RESTORE has put the table {name} in a state from before the last rows that were written to it, and "
                f'no run would write these again. Undo it with: deltatag sql "RESTORE TABLE {name} TO VERSION AS OF '
                f'{found.version}", or process everything again with: {command} --restart. To remove rows, DELETE them.'
            )
    return None


def _undone_matches(lake: Lake, scope: str, name: str, apps: set[str]) -> Undone | None:
    """The RESTORE of the table of matches that has undone its last re-tag; None if there is none, or if that of the
    tagged table is undone, too: the next re-tag then writes both again."""
    found = undone(table_log(lake.uri(name)), apps, suffix=retags_of(name))
    tagged = tagged_table(scope)
    if found is None or undone(table_log(lake.uri(tagged)), (), suffix=retags_of(tagged)) is not None:
        return None
    return found


def lost_or_restored_rows(workspace: Workspace, scope: Stream | Join, last: MicroBatch | None) -> str | None:
    """What `lost_rows` or `restored_rows` says of a stream or join after its last micro-batch; None if neither does."""
    lake, is_join = workspace.lake, isinstance(scope, Join)
    command = f"deltatag join {scope.name}" if is_join else command_of(workspace, scope.name)
    matches = kept_matches(scope)
    loss = lost_rows(lake, tagged_table(scope), last, command, matches)
    return loss or restored_rows(lake, scope.name, scope_tables(scope.name, is_join), command, matches)


def lost_quarantine(lake: Lake, scope: Stream | Join, command: str) -> str | None:
    """A sentence if a stream's or join's quarantine is gone although earlier runs have written rows to it; None if not.

    Nothing that is tagged depends on it, so the next run makes it again.
    """
    name = quarantine_table(scope)
    if not scope.can_quarantine or lake.exists(name):
        return None
    done = takewhile(lambda each: not each.plan.get("reset"), newest_first(lake, scope.name))
    rows = sum(each.quarantined or 0 for each in done)
    if not rows:
        return None
    return (
        f"{scope.name}: the table {name} is gone, and with it the {rows:,} rows that earlier runs have written to it. "
        f"It is made again without them; to process everything again: {command} --restart"
    )


def kept_matches(scope: Stream | Join) -> str | None:
    """The name of a scope's table of matches; None if the configuration keeps none."""
    return matches_table(scope) if isinstance(scope, Stream) and scope.keeps_matches else None
