"""Builds an engine over conjunctions: the one that was asked for, or the one that is expected to be fastest."""

from __future__ import annotations

import numpy as np

from rules_index.index.conjunction_arrays import Conjunctions
from rules_index.index.engine import Engine
from rules_index.index.hybrid import Hybrid
from rules_index.index.planner import plans
from rules_index.index.registry import engine_class

SAMPLE_ROWS = 4096
"""The number of rows that suffice as a sample."""


def build(conjunctions: Conjunctions, name: str = "auto", sample: np.ndarray | None = None) -> tuple[Engine, str]:
    """Returns an engine over conjunctions, and the reason for this choice as a text.

    name: an engine's name, or "auto" for `hybrid`, which plans the access path of each conjunction. sample: codes
    [attributes, rows] of some rows, of which `SAMPLE_ROWS` suffice; without it the frequencies of codes are guessed.
    """
    if sample is not None:
        sample = sample.astype(np.int32, copy=False)
    if name not in ("auto", Hybrid.name):
        return engine_class(name).build(conjunctions, sample), "as asked for"
    scanning, best = plans(conjunctions, sample)
    engine = Hybrid(conjunctions, sample=sample, access_plan=best.access_plan)
    if not best.keyed and not best.in_runs:
        reason = f"scanning all conjunctions is expected to take {scanning.cost:.0f} ns a row, other paths no less"
        return engine, reason
    parts = (
        (best.keyed, f"are found in {len(best.access_plan.tables)} hash tables of their codes"),
        (best.in_runs, f"in runs sorted by {len(best.access_plan.sort_attributes)} attributes"),
        (best.scanned, "are scanned"),
    )
    how = ", ".join(f"{count:,} {part}" for count, part in parts if count)
    reason = f"expected to take {best.cost:.0f} ns a row, scanning all {scanning.cost:.0f}; of the conjunctions {how}"
    return engine, reason
