"""Lays out conjunctions, given their access plan, as the arrays that the batch kernel reads."""

from __future__ import annotations

from rules_index.index.layout.arrays import depth_of, lay_out
from rules_index.index.layout.bitmaps import coarse_shift
from rules_index.index.layout.block_size import BLOCK_ROWS, SCRATCH_BYTES, rows_of_block
from rules_index.index.layout.hash_tables import DIRECT_SLOTS, FILTERED, multipliers, strides
from rules_index.index.layout.term_columns import AccessPlan, TermColumns, scan_all, set_widths, terms_of

__all__ = [
    "BLOCK_ROWS",
    "DIRECT_SLOTS",
    "FILTERED",
    "SCRATCH_BYTES",
    "AccessPlan",
    "TermColumns",
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
