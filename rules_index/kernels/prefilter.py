"""The prefilter of the hash tables: it excludes rows whose codes no entry of a table has, before the table is read.

It has two stages, both over the coarse codes of a table's first three attributes. The *signatures* come first; they are
quicker and less exact. The entries of a table are divided into classes, eight to a plane. In a plane every code has a
byte: one bit for each class that names the code. A row whose bytes share no bit in any plane meets no entry. The
*filter* is a Bloom filter of one hash: a bit for every three codes, few enough for the nearest caches.

filter_at         [tables] int64, its first word in filter_words; -1 for none
filter_bits       [tables] int32: the filter has 2 ** filter_bits bits
filter_words      int32: bit b % 32 of word b // 32
signature_at      [tables] int64, its first byte in signatures
signature_planes  [tables] int32, 0 where a table has no signatures
signatures        uint8: of each plane of a table 256 bytes for each of its first three attributes
"""

from __future__ import annotations

import numpy as np

from rules_index.kernels.jit import bare
from rules_index.kernels.llvm import LOOKED_UP
from rules_index.kernels.vectors import (
    SIGNATURE_BYTES,
    compressed,
    looked_up,
    signature_one,
    signature_three,
    signature_two,
)

PREFILTERED = 3
"""The number of attributes, the first ones of a table, that filter and signatures read. With two attributes the second
one is read twice."""
PLANE_CLASSES = 8
MOST_PLANES = 4
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
    """Writes the rows that signatures and filter of a table let pass to `candidates` uint16, all rows where it has
    neither. Returns their number."""
    has_filter = index.filter_at[table] >= 0
    words = index.filter_words[max(0, index.filter_at[table]) :]
    shift = np.uint32(32 - index.filter_bits[table])
    if index.signature_planes[table] > 0:
        count = _match_signatures(
            coarse, chunk_rows, attributes, index.signatures, index.signature_at[table], index.signature_planes[table],
            rows, candidates,
        )  # fmt: skip
        # reading the slots of a direct table is as fast as reading its filter
        if has_filter and index.key_bits[table] > 0:
            count = _filter(coarse, chunk_rows, attributes, words, shift, count, candidates)
        return count
    if has_filter:
        return _look_up(coarse, chunk_rows, attributes, words, shift, rows, candidates)
    for row in range(rows):
        candidates[row] = row
    return rows


@bare
def _match_signatures(coarse, chunk_rows, attributes, signatures, signature_at, planes, rows, candidates):
    """Writes the rows that the signatures of a table let pass; returns their number."""
    begin = np.uint64(signature_at)
    plane = np.uint64(SIGNATURE_BYTES * min(PREFILTERED, len(attributes)))
    end = begin + np.uint64(planes) * plane
    left, middle, right = _columns(attributes, chunk_rows)
    count = np.uint64(0)
    for row in range(np.uint64(0), np.uint64(rows), np.uint64(WORD_ROWS)):
        bits = np.uint64(0)
        for at in range(begin, end, plane):
            if len(attributes) == 2:
                bits |= signature_two(signatures, coarse, at, (left + row, middle + row))
            elif len(attributes) == 1:
                bits |= signature_one(signatures, coarse, at, (left + row,))
            else:
                bits |= signature_three(signatures, coarse, at, (left + row, middle + row, right + row))
        count = compressed(candidates, count, row, bits)
    return _within(rows, count, candidates)


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
def _filter(coarse, chunk_rows, attributes, words, shift, count, candidates):
    """Keeps the candidates whose bit of the filter is set; returns their number."""
    left, middle, right = _columns(attributes, chunk_rows)
    factor = _PAIR if len(attributes) == 2 else _TRIPLE
    kept = np.uint64(0)
    for i in range(count):
        row = np.uint64(candidates[i])
        number = np.uint64(coarse[left + row]) << np.uint64(16) | np.uint64(coarse[middle + row]) << np.uint64(8)
        number |= np.uint64(coarse[right + row])
        bit = ((number * np.uint64(factor)) & np.uint64(0xFFFFFFFF)) >> np.uint64(shift)
        candidates[kept] = candidates[i]
        kept += np.uint64(words[bit >> np.uint64(5)]) >> (bit & np.uint64(31)) & np.uint64(1)
    return np.int64(kept)


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
