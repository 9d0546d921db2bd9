"""Conjunctions as the arrays that the batch kernel reads, once it is known what becomes of each."""

from __future__ import annotations

from rules_index.engines.layout.arrays import SCRATCH_BYTES, depth_of, lay_out, rows_of_block
from rules_index.engines.layout.bitmaps import coarse_shift
from rules_index.engines.layout.tables import DIRECT_SLOTS, FILTERED, PASSED, multipliers, strides
from rules_index.engines.layout.terms import BLOCK_ROWS, Placement, Terms, scan_all, set_widths, terms_of

__all__ = [
    "BLOCK_ROWS",
    "DIRECT_SLOTS",
    "FILTERED",
    "PASSED",
    "SCRATCH_BYTES",
    "Placement",
    "Terms",
    "coarse_shift",
    "depth_of",
    "lay_out",
    "multipliers",
    "rows_of_block",
    "scan_all",
    "set_widths",
    "strides",
    "terms_of",
]
