"""How many rows the batch kernel takes at a time: the rows of a block share row bitmaps, and the blocks of a chunk
share a sort and hash tables."""

from __future__ import annotations

from rules_index.kernels.bitmaps import STEP

BLOCK_ROWS = 4096
"""The most rows of a block."""
SCRATCH_BYTES = 64 << 20
"""The most memory for the row bitmaps of a block, and for those of shared disjunctions in a chunk."""


def rows_of_block(bitmaps: int, disjunctions: int) -> int:
    """The rows of a block, a multiple of `STEP`: at most `BLOCK_ROWS`, and so few that the block's bitmaps and those of
    its shared disjunctions fit the scratch memory. bitmaps: how many there are, without shared disjunctions."""
    return max(STEP, min(BLOCK_ROWS, SCRATCH_BYTES * 8 // max(1, bitmaps + disjunctions) // STEP * STEP))


def rows_of_chunk(wanted: int, block: int, disjunctions: int) -> int:
    """The rows of a chunk: as many whole blocks, at least one, as fit into `wanted` rows, and whose bitmaps of shared
    disjunctions fit the scratch memory."""
    return max(block, min(wanted, SCRATCH_BYTES * 8 // max(1, disjunctions)) // block * block)


def rows_between_loads(most: int, table_bytes: int) -> int:
    """The rows of a chunk that looks up hash tables of so many bytes, at most `most`. They are enough to amortise
    loading the tables into the caches, and few enough to stay there with them."""
    return min(most, max(2 * BLOCK_ROWS, 1 << (table_bytes // 64).bit_length()))
