"""How much a regular expression may make the compiler build, so that no text holds a compile."""

from __future__ import annotations

from rules_index.errors import RuleError

LIMIT = 1_000_000
"""Ends of intervals of code points, and nodes visited: a second's work at most."""


class Budget:
    """What one pass over a pattern may still do."""

    def __init__(self) -> None:
        self._left = LIMIT

    def spend(self, amount: int) -> None:
        """Takes so many units; `RuleError` (`PATTERN`) where none is left."""
        self._left -= amount
        if self._left < 0:
            raise RuleError(
                "PATTERN",
                "The regular expression cannot be used: it is too large, or has too many or too large character "
                "classes. Write fewer of them, or split it into several.",
                0,
            )
