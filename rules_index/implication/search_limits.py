"""The limits of a search, beyond which its answer is left open."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Budget:
    """The limits for one subpredicate, beyond which the answer is left open.

    splits: comparisons of a part with a box (runs of algorithm 9); the parts taken together with the last one may
    exceed it. seconds: approximate time.
    """

    splits: int = 1_000_000
    seconds: float = 10.0
