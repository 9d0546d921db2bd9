"""The prefilter of hash tables: before a table is read, it excludes most rows whose codes no entry has.

It is a Bloom filter with a single hash over the coarse codes of a table's first three attributes: one bit for each
combination, in so few bytes that they stay in the nearest caches.

filter_at         [tables] int64, the filter's first word in filter_words; -1 for a table without one
filter_bits       [tables] int32: the filter has 2 ** filter_bits bits
filter_words      int32: bit b of a filter is bit b % 32 of its word b // 32
"""

from __future__ import annotations

import numpy as np

from rules_index.kernels.jit import bare
from rules_index.kernels.llvm import LOOKED_UP
from rules_index.kernels.vectors import compressed, looked_up

PREFILTERED = 3
"""The number of a table's attributes, its first ones, that the filter reads. If there are only two, the second one is
read twice."""
PAIR_BITS = 16
"""The filter of a table with two attributes has one bit for each combination of codes."""
WORD_ROWS = 64
"""Rows that are prefiltered at once."""
MOST_CHUNK_ROWS = 1 << 16
"""The most rows of a chunk: they are numbered in 16 bits."""
_PAIR = np.uint32(1 << 8)
_TRIPLE = np.uint32(0x9E3779B1)


def filter_places(codes: np.ndarray, bits: int) -> np.ndarray:
    """The number [.] uint32 of the bit for each combination of codes [., attributes] in a filter of 2 ** bits bits."""
    first, second, third = (codes[:, min(i, codes.shape[1] - 1)].astype(np.uint32) for i in range(PREFILTERED))
    number = first << np.uint32(16) | second << np.uint32(8) | third
    return (number * (_PAIR if codes.shape[1] == 2 else _TRIPLE)) >> np.uint32(32 - bits)


@bare
def candidate_rows(coarse, chunk_rows, attributes, index, table, rows, candidates):
    """Writes the rows that pass a table's filter to `candidates` uint16; all rows if it has none. Returns their
    number."""
    if index.filter_at[table] >= 0:
        words = index.filter_words[index.filter_at[table] :]
        shift = np.uint32(32 - index.filter_bits[table])
        return _look_up(coarse, chunk_rows, attributes, words, shift, rows, candidates)
    for row in range(rows):
        candidates[row] = row
    return rows


@bare
def _look_up(coarse, chunk_rows, attributes, words, shift, rows, candidates):
    """Writes the rows whose bit in the filter is set to `candidates`; returns their number."""
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
    """The offsets in `coarse` of a table's first three attributes; if it has only two, the second one is returned
    twice."""
    stride = np.uint64(chunk_rows)
    last = len(attributes) - 1
    return (
        np.uint64(attributes[0]) * stride,
        np.uint64(attributes[min(1, last)]) * stride,
        np.uint64(attributes[min(2, last)]) * stride,
    )


@bare
def _within(rows, count, candidates):
    """The number of ascending candidates that are below `rows`; the padding behind the last row may pass the filter,
    too."""
    found = np.int64(count)
    while found > 0 and candidates[found - 1] >= rows:
        found -= 1
    return found
