"""The limits of a search. A search that reaches one leaves its question open."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Budget:
    """The limits of the search for one subpredicate.

    splits: comparisons of a part with a box (runs of algorithm 9); slightly exceeded if the last step compares several
    parts. seconds: approximate time.
    """

    splits: int = 1_000_000
    seconds: float = 10.0
