"""Conjunctions as the arrays that the batch kernel reads, once it is known what becomes of each."""

from __future__ import annotations

from rules_index.engines.layout.arrays import depth_of, lay_out
from rules_index.engines.layout.bitmaps import coarse_shift
from rules_index.engines.layout.tables import DIRECT_SLOTS, FILTERED, PASSED
from rules_index.engines.layout.terms import BLOCK_ROWS, Placement, Terms, scan_all, set_widths, terms_of

__all__ = [
    "BLOCK_ROWS",
    "DIRECT_SLOTS",
    "FILTERED",
    "PASSED",
    "Placement",
    "Terms",
    "coarse_shift",
    "depth_of",
    "lay_out",
    "scan_all",
    "set_widths",
    "terms_of",
]
