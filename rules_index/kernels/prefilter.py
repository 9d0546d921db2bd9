"""The prefilter of the hash tables: it excludes rows whose codes no entry of a table has, before the table is read.

It is a Bloom filter of one hash over the coarse codes of a table's first three attributes: a bit for every three codes,
few enough for the nearest caches.

filter_at         [tables] int64, its first word in filter_words; -1 for none
filter_bits       [tables] int32: the filter has 2 ** filter_bits bits
filter_words      int32: bit b % 32 of word b // 32
"""

from __future__ import annotations

import numpy as np

from rules_index.kernels.jit import bare
from rules_index.kernels.llvm import LOOKED_UP
from rules_index.kernels.vectors import compressed, looked_up

PREFILTERED = 3
"""The number of attributes, the first ones of a table, that its filter reads. With two attributes the second one is
read twice."""
PAIR_BITS = 16
"""The filter of a table with two attributes has one bit for each combination of codes."""
WORD_ROWS = 64
"""Rows that are prefiltered at once."""
MOST_CHUNK_ROWS = 1 << 16
"""Rows of a chunk are numbered in 16 bits."""
_PAIR = np.uint32(1 << 8)
_TRIPLE = np.uint32(0x9E3779B1)


def filter_places(codes: np.ndarray, bits: int) -> np.ndarray:
    """The bit [.] uint32 that each combination of codes [., attributes] has in a filter of 2 ** bits bits."""
    first, second, third = (codes[:, min(i, codes.shape[1] - 1)].astype(np.uint32) for i in range(PREFILTERED))
    number = first << np.uint32(16) | second << np.uint32(8) | third
    return (number * (_PAIR if codes.shape[1] == 2 else _TRIPLE)) >> np.uint32(32 - bits)


@bare
def candidate_rows(coarse, chunk_rows, attributes, index, table, rows, candidates):
    """Writes the rows that the filter of a table lets pass to `candidates` uint16, all rows where it has none. Returns
    their number."""
    if index.filter_at[table] >= 0:
        words = index.filter_words[index.filter_at[table] :]
        shift = np.uint32(32 - index.filter_bits[table])
        return _look_up(coarse, chunk_rows, attributes, words, shift, rows, candidates)
    for row in range(rows):
        candidates[row] = row
    return rows


@bare
def _look_up(coarse, chunk_rows, attributes, words, shift, rows, candidates):
    """Writes the rows whose bit of the filter is set; returns their number."""
    left, middle, right = _columns(attributes, chunk_rows)
    factor = _PAIR if len(attributes) == 2 else _TRIPLE
    count = np.uint64(0)
    for row in range(np.uint64(0), np.uint64(rows), np.uint64(WORD_ROWS)):
        bits = np.uint64(0)
        for at in range(row, row + np.uint64(WORD_ROWS), np.uint64(LOOKED_UP)):
            some = looked_up(words, coarse, left + at, middle + at, right + at, factor, shift)
            bits |= some << (at - row)
        count = compressed(candidates, count, row, bits)
    return _within(rows, count, candidates)


@bare
def _columns(attributes, chunk_rows):
    """The offsets in `coarse` of a table's first three attributes; the last attribute stands in for those it lacks."""
    stride = np.uint64(chunk_rows)
    last = len(attributes) - 1
    return (
        np.uint64(attributes[0]) * stride,
        np.uint64(attributes[min(1, last)]) * stride,
        np.uint64(attributes[min(2, last)]) * stride,
    )


@bare
def _within(rows, count, candidates):
    """The number of ascending candidates that are below `rows`: padding behind the last row can pass too."""
    found = np.int64(count)
    while found > 0 and candidates[found - 1] >= rows:
        found -= 1
    return found
