"""The budget of work for one rule: counted, not timed, so that every machine refuses the same rules."""

from __future__ import annotations

from rules_index.errors import RuleError

MOST_STEPS = 240_000
"""The steps that reading one rule may take; expanding it to conjunctions may take as many again. A step takes about
three microseconds."""


class Work:
    """The steps that are left for one rule."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = MOST_STEPS

    def spend(self, steps: int, position: int | None = None) -> None:
        """Counts steps. Raises `TOO_COMPLEX`, at a position in the rule's text, if too few are left."""
        self.left -= steps
        if self.left < 0:
            raise RuleError(
                "TOO_COMPLEX",
                f"Compiling this rule takes more than the {MOST_STEPS:,} steps that one rule may take. Shorten it, or "
                "split it into several rules.",
                position,
            )
