"""Finds the micro-batches that a gate judges, and the files that they wrote.

This process (`local_written`, `local_joined`) or Spark (`spark_written`, `spark_joined`) then reads the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from typing import TYPE_CHECKING

import polars as pl

from pipelines.errors import PipelineError
from pipelines.lake.runs import DONE, FOLDED, MicroBatch, newest_first
from pipelines.lake.table_log import table_log
from pipelines.lake.transaction_ids import app_of
from quality.findings import MatchesByRule
from quality.rules import enabled_rules

if TYPE_CHECKING:
    from pipelines.lake.lake import Lake
    from pipelines.sources.positions import Add
    from pipelines.sources.source import Log
    from pipelines.workspace import Workspace


_JUDGED = "deltatag/judged/"
"""Prefix of the transactions in the log of `runs` that say which micro-batch of a scope was the last to be judged."""
_WEEK = timedelta(days=7)
"""For how long a micro-batch waits to be judged. The logs of the tables and files that were replaced go back so far."""


class GoneError(Exception):
    """The log of a table no longer has the commits of the micro-batches that a gate judges."""


def unjudged(lake: Lake, scope: str) -> int:
    """How many micro-batches a scope has finished within a week, and since the last one that a gate has judged.

    Those of a run that was killed before its gate are among them. Those before a restart, or before a change of the
    stream's `output` or `matches`, are not.
    """
    judged, oldest = _last_judged(lake, scope), datetime.now(UTC) - _WEEK
    found: list[MicroBatch] = []
    for batch in newest_first(lake, scope):
        if batch.batch <= judged or batch.started_at < oldest or {"reset", FOLDED} & batch.plan.keys():
            break
        if found and any(batch.plan.get(name) != found[0].plan.get(name) for name in ("output", "matches")):
            break
        found.append(batch)
    return sum(batch.state == DONE for batch in found)


def _last_judged(lake: Lake, scope: str) -> int:
    judged = lake.delta("runs").transaction_version(_JUDGED + scope)
    return -1 if judged is None else int(judged)


@dataclass(frozen=True, slots=True)
class NewestBatch:
    """Consecutive micro-batches of one scope, without a restart in between."""

    workspace: Workspace
    scope: str
    batches: Sequence[MicroBatch]

    @classmethod
    def newest(cls, workspace: Workspace, scope: str, most: int) -> NewestBatch:
        """At most `most` of the last finished micro-batches since the last restart."""
        # a restart has emptied the tables
        since = takewhile(lambda b: not b.plan.get("reset"), newest_first(workspace.lake, scope))
        done = list(islice((b for b in since if b.state == DONE), most))
        return cls(workspace, scope, done[::-1])

    def note_judged(self) -> None:
        """Record in the log of `runs` that these are judged; if that fails, the next gate judges them again."""
        from deltalake import exceptions

        lake = self.workspace.lake
        if not self.batches or self.batches[-1].batch <= _last_judged(lake, self.scope):
            return
        with suppress(PipelineError, exceptions.DeltaError, OSError):
            table_log(lake.uri("runs")).append([], _JUDGED + self.scope, self.batches[-1].batch)

    def adds(self, log: Log, table: str) -> list[Add]:
        """The files that the micro-batches added to a table, found by the transactions in its log; GoneError if the log
        does not go back so far."""
        wanted = {(app_of(batch.plan, table), batch.batch) for batch in self.batches}
        apps, first = {app for app, _ in wanted}, self.batches[0].batch
        adds: list[Add] = []
        held = log.commits()
        for version in reversed(held):
            actions = log.commit(version) or []
            marks = {(a["txn"]["appId"], a["txn"]["version"]) for a in actions if "txn" in a}
            if any(app in apps and number < first for app, number in marks):
                break
            if marks & wanted:
                wanted -= marks
                adds += [(version, action["add"]) for action in actions if "add" in action]
        else:
            if wanted and held.start:
                raise GoneError
        return adds

    @contextmanager
    def passing_over_what_is_gone(self, tables: Sequence[str]) -> Iterator[None]:
        """Ends the block without an error if it fails since rows of the micro-batches are only in files that the table
        has replaced, as by OPTIMIZE, and VACUUM has removed, or in commits that its log no longer has."""
        try:
            yield
        except GoneError:
            pass
        except Exception:
            if not any(map(self._is_vacuumed, filter(self.workspace.lake.exists, tables))):
                raise

    def _is_vacuumed(self, table: str) -> bool:
        if self.workspace.configuration.lake.root is None:
            return False
        log = table_log(self.workspace.lake.uri(table))
        gone = set(log.missing([add["path"] for _, add in self.adds(log, table)]))
        return bool(gone) and gone.isdisjoint(add["path"] for add in log.files(log.latest()))

    def total(self, figure: str) -> int:
        """The sum of a figure of `runs` (rows, matches, quarantined) over the micro-batches."""
        return sum(getattr(batch, figure) or 0 for batch in self.batches)

    def unknown_ids(self, pairs: pl.DataFrame) -> list[str]:
        """The ids in tagged rows that are in none of the indexes that tagged with the rows' version of the rules."""
        unknown: list[str] = []
        for (version,), found in pairs.group_by("rules_version"):
            known = self._ids(int(str(version)))
            unknown += [str(i) for i in found.filter(~pl.col("rule_id").is_in(known.implode()))["rule_id"].sort()]
        return unknown

    def _ids(self, version: int) -> pl.Series:
        """The ids in the indexes that tagged the micro-batches with a version of the rules.

        If one of these indexes cannot be read any more, also the ids of the scope's enabled rules in that version.
        """
        from pipelines.lake.index_store import load_former

        lake = self.workspace.lake
        fingerprints = {batch.fingerprint for batch in self.batches if batch.rules_version == version}
        indexes = [load_former(lake, self.scope, each) if each else None for each in fingerprints]
        found = [pl.Series(pl.from_arrow(each.ids)) for each in indexes if each is not None]
        if len(found) < len(fingerprints) or not found:
            found.append(enabled_rules(self.workspace, self.scope, version)["rule_id"])
        return pl.concat(found)


def totals(pairs: pl.DataFrame) -> MatchesByRule:
    """Matches of each rule over all versions of the rules, most first."""
    summed = pairs.group_by("rule_id").agg(pl.col("matches").sum())
    return tuple(summed.sort("matches", "rule_id", descending=[True, False]).iter_rows())
