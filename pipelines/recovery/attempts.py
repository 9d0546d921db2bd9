"""Counts attempts at a planned micro-batch in its plan, and leaves out the predicates that end Spark.

If two attempts at a micro-batch have ended their process, the predicates at fault are searched for by bisection
(pipelines.recovery.failing_predicates): the rows are matched, and not written, with half of the derived predicates left
out. The predicates found are then left out of the micro-batch. They are NULL on all of its rows, as if they raised an
error, and counted as errors of their rules.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np

from pipelines.errors import PipelineError, SparkEndedError
from pipelines.lake.runs import OF_ATTEMPTS, MicroBatch, revise
from pipelines.lake.transaction_ids import app_of, is_done
from pipelines.recovery.failing_predicates import MOST_ASKED, Search
from rules_index.errors import RulesIndexError

if TYPE_CHECKING:
    import rules_index as ri
    from pipelines.lake.index_store import StoredIndex
    from pipelines.lake.lake import Lake

MOST_ATTEMPTS = 2
"""Attempts at a micro-batch before the search for the predicates that end its process."""
_NAMED_RULES, _TEXT = 20, 300
"""Maximum number of rules that a plan names for one predicate, and of characters of its text."""


class Attempts:
    """The attempts at one planned micro-batch."""

    def __init__(self, lake: Lake, batch: MicroBatch, compiled: ri.CompiledRules, spark_ended: bool) -> None:
        """compiled: the micro-batch's index; spark_ended: an attempt at it has just ended Spark in this process."""
        self.lake, self.batch, self.compiled = lake, batch, compiled
        names = sorted(leaf.name for leaf in compiled.derived)
        self._candidates = [name for name in names if name not in left_out(batch.plan)]
        self._spark_ended = spark_ended

    @property
    def _search(self) -> Search | None:
        known = self.batch.plan.get("search")
        return None if known is None else Search.of(known, self._candidates)

    def begin(self, match_without: Callable[[frozenset[str]], None]) -> list[str]:
        """Count one more attempt, after a search if one is due; returns the names of inputs that must be left out.

        match_without: matches the micro-batch without the given inputs, and writes nothing.
        """
        begun, before = int(self.batch.plan.get("attempts", 1)), self.batch.plan.get("suspects", [])
        if self._search is None:
            if begun < MOST_ATTEMPTS and not (before and self._spark_ended):
                self._note(attempts=begun + 1)
                return []
            known = tuple(name for name in before if name in self._candidates)
            search = Search.begin(self._candidates, seen=self._spark_ended and not known)
            self._note(search=replace(search, left_out=known))
        elif self._spark_ended and self._search.asked:
            self._answered(False)
        while (open_search := self._search) is not None and open_search.state == "open":
            if open_search.asked >= MOST_ASKED:
                self._answered(False)
                continue
            self._note(search=open_search.begun())
            with self._unless_it_fails_otherwise():
                match_without(open_search.without)
            self._answered(True)
        return list(open_search.left_out) if open_search is not None else []

    def explain_error(self, error: SparkEndedError) -> SparkEndedError:
        """The error of an attempt that ended Spark, completed with what a search has found."""
        if self._search is None or self._search.state == "open":
            return error
        cause = (
            "It does so even without the predicates that only Spark evaluates: no rule is at fault. Give Spark more "
            'memory ("spark.driver.memory" in [spark]), or make micro-batches smaller (max_bytes_per_batch).'
            if self._search.state == "innocent"
            else "Matched without being written, it did not: no rule was found to be at fault."
        )
        where = f"Micro-batch {self.batch.batch} of {self.batch.scope} ends Spark again and again."
        return SparkEndedError(f"{error} {where} {cause}", error.usable)

    def _answered(self, survived: bool) -> None:
        search = self._search
        assert search is not None
        self._note(search=search.answered(survived))

    @contextmanager
    def _unless_it_fails_otherwise(self) -> Iterator[None]:
        """End the search, without blaming a rule, if a trial fails for another reason; the error is raised."""
        try:
            yield
        except SparkEndedError:
            raise
        except (PipelineError, RulesIndexError):
            assert self._search is not None
            self._note(search=replace(self._search, left_out=(), state="done"))
            raise

    def _note(self, **changes: Any) -> None:
        noted = {key: value.to_plan() if isinstance(value, Search) else value for key, value in changes.items()}
        self.batch = revise(self.lake, self.batch, {**self.batch.plan, **noted})


def holds_nothing(lake: Lake, batch: MicroBatch, tables: Sequence[str]) -> bool:
    """True if none of the existing tables holds anything of a planned micro-batch."""
    return "written" not in batch.plan and not any(
        lake.exists(name) and is_done(lake, name, app_of(batch.plan, name), batch.batch) for name in tables
    )


def plan_anew(
    lake: Lake,
    batch: MicroBatch,
    tables: Sequence[str],
    rule_tables: Sequence[str],
    stored: StoredIndex,
    changes: Mapping[str, Any],
    fence: Callable[[str, Sequence[str], int], list[str]],
) -> MicroBatch:
    """Plan an unfinished micro-batch again, for the same rows, with another index; returns it with its new plan.

    tables: its tables; rule_tables: those of them whose rows depend on the rules. If one of these is already written,
    index and `changes` are not applied. changes: entries of the new plan; fence: fences off a series in all tables, and
    returns those that hold its micro-batch (writing.spark_tables.fence).

    A concurrent run that still writes by the old plan is fenced off in three steps: `runs` gets a new series for the
    micro-batch; every table is closed to transactions of the old series; `runs` gets the new plan, which records what
    the old series has written. A run that finds only the first step done takes the other two.
    """
    if "given_up" not in batch.plan:
        plan = {**batch.plan, "series": uuid.uuid4().hex, "given_up": batch.plan["series"]}
        batch = revise(lake, batch, plan, started_at=now_after(batch.started_at))
    former = batch.plan["given_up"]
    held = dict.fromkeys(fence(former, tables, batch.batch), former)
    written = {**batch.plan.get("written", {}), **held}
    plan = {key: value for key, value in batch.plan.items() if key not in ("given_up", *OF_ATTEMPTS)}
    plan |= {"written": written} if written else {}
    now = now_after(batch.started_at)
    if any(name in written for name in rule_tables):
        # these rows stay, so the others are written as planned, without a further search
        done = Search((), state="done").to_plan()
        return revise(lake, batch, {**plan, "attempts": MOST_ATTEMPTS, "search": done}, started_at=now)
    index = {"rules_version": stored.rules_version, "fingerprint": stored.fingerprint}
    return revise(lake, batch, {**plan, **changes}, started_at=now, **index)


def now_after(before: datetime) -> datetime:
    """Now, but always after `before`, whatever the clock says: this time identifies a plan."""
    return max(datetime.now(UTC), before + timedelta(microseconds=1))


def left_out(plan: Mapping[str, Any]) -> frozenset[str]:
    """The names of the inputs that a plan leaves out."""
    return frozenset(each["name"] for each in plan.get("left_out", []))


def suspects_after(last: MicroBatch | None, stored: StoredIndex) -> dict[str, Any]:
    """The next plan's entry `suspects`: the inputs that `last` left out with the same index; empty if none were."""
    if last is None or last.fingerprint != stored.fingerprint or not left_out(last.plan):
        return {}
    return {"suspects": sorted(left_out(last.plan))}


def described_inputs(compiled: ri.CompiledRules, names: Sequence[str]) -> list[dict[str, Any]]:
    """The entries of a plan for left-out inputs: `name`, `text`, the `rules` that read it (ids as text), `count`."""
    texts = {leaf.name: leaf.text or "" for leaf in compiled.derived}
    found = []
    for name in names:
        rules = rules_that_read(compiled, name)
        found.append({"name": name, "text": texts[name][:_TEXT], "rules": rules[:_NAMED_RULES], "count": len(rules)})
    return found


def rules_that_read(compiled: ri.CompiledRules, name: str) -> list[str]:
    """The ids, as text, of the rules that read a derived input."""
    from rules_index.language.typed import leaves_of

    attributes = [n for n, each in enumerate(compiled.attributes) if name in {leaf.name for leaf in leaves_of(each)}]
    starts, used = compiled.raising
    places = np.flatnonzero(np.isin(used, np.array(attributes, used.dtype)))
    rules = np.unique(np.searchsorted(starts, places, side="right") - 1)
    return [str(compiled.ids[int(rule)].as_py()) for rule in rules]


def errors_of(compiled: ri.CompiledRules, plan: Mapping[str, Any], rows: int) -> dict[str, int]:
    """The errors of rules that read left-out inputs: one on each of `rows` rows, by rule id."""
    names = left_out(plan)
    return {rule: rows for name in sorted(names) for rule in rules_that_read(compiled, name)} if rows else {}


def notices(scope: str, batch: MicroBatch) -> list[str]:
    """A sentence for people on each predicate that a micro-batch left out."""
    found = []
    for each in batch.plan.get("left_out", []):
        others = f" and {each['count'] - len(each['rules'])} more" if each["count"] > len(each["rules"]) else ""
        rules = f"rule{'s' if each['count'] > 1 else ''} {', '.join(each['rules'])}{others}"
        found.append(
            f"{scope}: micro-batch {batch.batch} ended Spark with a predicate of the {rules}, which is left out: it is "
            f"unknown on all rows of the micro-batch, and counted as errors of the rule. Correct or disable it: "
            f"{each['text']}"
        )
    return found
