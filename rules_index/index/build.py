"""An engine over conjunctions: the one that is asked for, or the one that is expected to be fastest."""

from __future__ import annotations

from typing import Any

import numpy as np

from rules_index.index.conjunction_arrays import Conjunctions
from rules_index.index.engine import Engine
from rules_index.index.planner import plans
from rules_index.index.registry import engine_class

SAMPLE_ROWS = 4096
"""Rows of a sample that suffice."""


def build(conjunctions: Conjunctions, name: str = "auto", sample: np.ndarray | None = None) -> tuple[Engine, str]:
    """An engine over conjunctions, and why it is this one.

    name: of an engine, or "auto" for the one that is expected to be fastest. sample: codes [attributes, rows] of some
    rows, `SAMPLE_ROWS` suffice; without it the frequencies of codes are guessed from the rules.
    """
    if sample is not None:
        sample = sample.astype(np.int32, copy=False)
    if name != "auto":
        return engine_class(name).build(conjunctions, sample), "as asked for"
    scanning, best = plans(conjunctions, sample)
    if not best.keyed and not best.sliced:
        return engine_class("asc").build(conjunctions, sample), (
            f"scanning all conjunctions is expected to take {scanning.cost:.0f} ns a row, partitions no less"
        )
    parts = (
        (best.keyed, f"are found by {len(best.placement.tables)} tables of their codes"),
        (best.sliced, f"by sorting on {len(best.placement.slicings)} attributes"),
        (best.scanned, "are scanned"),
    )
    how = ", ".join(f"{count:,} {part}" for count, part in parts if count)
    reason = f"expected to take {best.cost:.0f} ns a row, scanning all {scanning.cost:.0f}; of the conjunctions {how}"
    partitioned: Any = engine_class("be_tree")
    return partitioned(conjunctions, sample=sample, placement=best.placement), reason
