"""Engines: how an index organises its conjunctions, and the choice between them."""

from __future__ import annotations

import numpy as np

from rules_index.engines.asc.engine import Asc
from rules_index.engines.scan import Scan
from rules_index.engines.trees import BETree, Cei, GridFile, RTree
from rules_index.index.conjunction_arrays import Conjunctions, InvalidArraysError
from rules_index.index.engine import Engine
from rules_index.index.planner import plans

ENGINES: dict[str, type[Engine] | type[Scan]] = {
    engine.name: engine for engine in (Asc, BETree, RTree, GridFile, Cei, Scan)
}
SAMPLE_ROWS = 4096
"""Rows of a sample that suffice."""


def build(
    conjunctions: Conjunctions, name: str = "auto", sample: np.ndarray | None = None
) -> tuple[Engine | Scan, str]:
    """An engine over conjunctions, and why it is this one.

    name: of an engine, or "auto" for the one that is expected to be fastest. sample: codes [attributes, rows] of some
    rows, `SAMPLE_ROWS` suffice; without it the frequencies of codes are guessed from the rules.
    """
    if sample is not None:
        sample = sample.astype(np.int32, copy=False)
    if name != "auto":
        return ENGINES[name].build(conjunctions, sample), "as asked for"
    scanning, best = plans(conjunctions, sample)
    if not best.keyed and not best.sliced:
        return Asc.build(conjunctions, sample), (
            f"scanning all conjunctions is expected to take {scanning.cost:.0f} ns a row, partitions no less"
        )
    parts = (
        (best.keyed, f"are found by {len(best.placement.tables)} tables of their codes"),
        (best.sliced, f"by sorting on {len(best.placement.slicings)} attributes"),
        (best.scanned, "are scanned"),
    )
    how = ", ".join(f"{count:,} {part}" for count, part in parts if count)
    reason = f"expected to take {best.cost:.0f} ns a row, scanning all {scanning.cost:.0f}; of the conjunctions {how}"
    return BETree(conjunctions, sample=sample, placement=best.placement), reason


__all__ = [
    "ENGINES",
    "SAMPLE_ROWS",
    "Asc",
    "BETree",
    "Cei",
    "Conjunctions",
    "Engine",
    "GridFile",
    "InvalidArraysError",
    "RTree",
    "Scan",
    "build",
]
