"""How many rows the batch kernel takes at a time: those of a block, which share row bitmaps, and of a chunk, whose
blocks share a sort and hash tables."""

from __future__ import annotations

from rules_index.kernels.bitmaps import STEP

BLOCK_ROWS = 4096
"""The most rows of a block."""
SCRATCH_BYTES = 64 << 20
"""The most memory for the row bitmaps of a block, and for those of shared disjunctions in a chunk."""


def rows_of_block(bitmaps: int, disjunctions: int) -> int:
    """The rows of a block with so many bitmaps, not counting those of shared disjunctions."""
    return max(STEP, min(BLOCK_ROWS, SCRATCH_BYTES * 8 // max(1, bitmaps + disjunctions) // STEP * STEP))


def rows_of_chunk(wanted: int, block: int, disjunctions: int) -> int:
    """The rows of a chunk: whole blocks of at most `wanted` rows together, at least one, so few that the bitmaps of
    shared disjunctions fit the scratch memory."""
    return max(block, min(wanted, SCRATCH_BYTES * 8 // max(1, disjunctions)) // block * block)


def rows_between_loads(most: int, table_bytes: int) -> int:
    """Rows of a chunk that looks up hash tables: enough to amortise loading them into the caches, few enough to stay
    there beside them."""
    return min(most, max(2 * BLOCK_ROWS, 1 << (table_bytes // 64).bit_length()))
