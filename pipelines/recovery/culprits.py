"""Which of the predicates that only Spark evaluates end the process: found by leaving out halves of them.

The search asks one question at a time: does the micro-batch live with these predicates left out? What it knows is kept
as JSON values in the micro-batch's plan, so that it goes on where it was even if a question ended the whole process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

MOST_CULPRITS = 8
"""Predicates that are looked for one by one; where more of them end the process, all that are left are left out."""
MOST_ASKED = 2
"""Times that a question may end the process that asks it without a word, before that is taken for its answer."""


@dataclass(frozen=True, slots=True)
class Search:
    """What is known of the candidates, in their order, less those that are `left_out`.

    low: with so many of the first ones the micro-batch lives; high: with so many it does not, None where that is not
    known. asked: how often the question that comes now has been begun. state is "open", "done" (what is to be left out
    is in `left_out`; nothing, where the micro-batch lives with all) or "innocent" (it dies without any of them).
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
        """`seen`: it is certain that the micro-batch dies with all of them."""
        search = cls(tuple(candidates))
        return search._with(high=len(candidates)) if seen or not candidates else search

    @classmethod
    def of(cls, plan: Mapping[str, Any], candidates: Sequence[str]) -> Search:
        """As a plan has it, of the same candidates."""
        return cls(tuple(candidates), **{**plan, "left_out": tuple(plan["left_out"])})

    def to_plan(self) -> dict[str, Any]:
        """As JSON values, without the candidates, which may be many."""
        known = {**asdict(self), "left_out": list(self.left_out)}
        del known["candidates"]
        return known

    @property
    def remaining(self) -> tuple[str, ...]:
        """The candidates that are not found to end the process."""
        return tuple(each for each in self.candidates if each not in self.left_out)

    @property
    def evaluated(self) -> int:
        """The question: does it live with so many of the first remaining ones?"""
        if self.high is None:
            return len(self.remaining)
        return (self.low + self.high) // 2 if self.checked else 0

    @property
    def without(self) -> frozenset[str]:
        """What the question leaves out."""
        return frozenset((*self.left_out, *self.remaining[self.evaluated :]))

    def begun(self) -> Search:
        """The question is being asked."""
        return replace(self, asked=self.asked + 1)

    def answered(self, lives: bool) -> Search:
        """With the answer to the question."""
        if self.high is None:
            return self._with(state="done") if lives else self._all_die()
        if not self.checked:
            return self._with(checked=True) if lives else self._with(state="innocent")
        return self._with(low=self.evaluated) if lives else self._with(high=self.evaluated)

    def _all_die(self) -> Search:
        remaining = self.remaining
        if len(self.left_out) >= MOST_CULPRITS:
            return self._with(left_out=(*self.left_out, *remaining[self.low :]), state="done")
        return self._with(high=len(remaining))

    def _with(self, **changes: Any) -> Search:
        """With another question, or the end."""
        found = replace(self, asked=0, **changes)
        if found.state != "open" or found.high is None:
            return found
        if found.high == 0:
            # it dies with none of them, whichever was to be looked at
            return replace(found, state="innocent")
        if found.checked and found.high - found.low == 1:
            guilty = found.remaining[found.low]
            return replace(found, left_out=(*found.left_out, guilty), high=None)._unless_none_is_left()
        return found

    def _unless_none_is_left(self) -> Search:
        return self if self.remaining else replace(self, state="done")
