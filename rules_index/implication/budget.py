"""How much a search may take before its answer is left open."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Budget:
    """How much may be spent on a subpredicate before the answer is left open.

    splits: comparisons of a part with a box (runs of algorithm 9), but for the parts that were taken up together with
    the last one; seconds: about how long.
    """

    splits: int = 1_000_000
    seconds: float = 10.0
