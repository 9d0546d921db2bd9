"""Finds the derived predicates that end the process, by bisection.

The search makes one trial at a time: does the micro-batch survive with these predicates left out? Its state is kept as
JSON values in the micro-batch's plan, so that it can go on even after a trial has ended the whole process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

MOST_FAILING = 8
"""Maximum number of predicates that are searched one by one; beyond it, all remaining candidates are left out."""
MOST_ASKED = 2
"""How many times a trial may end its own process before that counts as its answer."""


@dataclass(frozen=True, slots=True)
class Search:
    """The state of a bisection over the candidates that are not `left_out`.

    low: the micro-batch survives with the first `low` remaining candidates; high: it does not with the first `high`,
    None if that is unknown; checked: it survives without any; asked: how often the current trial has been begun.
    state: "open", "done" (the failing predicates are in `left_out`, which may be empty) or "innocent" (the micro-batch
    ends its process even without any candidate).
    """

    candidates: tuple[str, ...]
    left_out: tuple[str, ...] = ()
    low: int = 0
    high: int | None = None
    checked: bool = False
    asked: int = 0
    state: str = "open"

    @classmethod
    def begin(cls, candidates: Sequence[str], seen: bool) -> Search:
        """A new search; `seen`: the micro-batch is known to end its process with all candidates."""
        search = cls(tuple(candidates))
        return search._with(high=len(candidates)) if seen or not candidates else search

    @classmethod
    def of(cls, plan: Mapping[str, Any], candidates: Sequence[str]) -> Search:
        """The search that a plan holds, for the same candidates."""
        return cls(tuple(candidates), **{**plan, "left_out": tuple(plan["left_out"])})

    def to_plan(self) -> dict[str, Any]:
        """The state as JSON values; without the candidates, which may be many."""
        known = {**asdict(self), "left_out": list(self.left_out)}
        del known["candidates"]
        return known

    @property
    def remaining(self) -> tuple[str, ...]:
        """The candidates that are not yet found to fail."""
        return tuple(each for each in self.candidates if each not in self.left_out)

    @property
    def evaluated(self) -> int:
        """How many of the first remaining candidates the current trial evaluates."""
        if self.high is None:
            return len(self.remaining)
        return (self.low + self.high) // 2 if self.checked else 0

    @property
    def without(self) -> frozenset[str]:
        """The candidates that the current trial leaves out."""
        return frozenset((*self.left_out, *self.remaining[self.evaluated :]))

    def begun(self) -> Search:
        """The state with one more beginning of the current trial."""
        return replace(self, asked=self.asked + 1)

    def answered(self, survived: bool) -> Search:
        """The state after the current trial; `survived`: the micro-batch did not end its process."""
        if self.high is None:
            return self._with(state="done") if survived else self._all_die()
        if not self.checked:
            return self._with(checked=True) if survived else self._with(state="innocent")
        return self._with(low=self.evaluated) if survived else self._with(high=self.evaluated)

    def _all_die(self) -> Search:
        remaining = self.remaining
        if len(self.left_out) >= MOST_FAILING:
            return self._with(left_out=(*self.left_out, *remaining[self.low :]), state="done")
        return self._with(high=len(remaining))

    def _with(self, **changes: Any) -> Search:
        """The state for the next trial, or the end of the search."""
        found = replace(self, asked=0, **changes)
        if found.state != "open" or found.high is None:
            return found
        if found.high == 0:
            # it ends its process without any candidate
            return replace(found, state="innocent")
        if found.checked and found.high - found.low == 1:
            failing = found.remaining[found.low]
            return replace(found, left_out=(*found.left_out, failing), high=None)._unless_none_is_left()
        return found

    def _unless_none_is_left(self) -> Search:
        return self if self.remaining else replace(self, state="done")
