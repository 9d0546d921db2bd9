"""Row bitmaps of a block: which of its rows have a coarse code in an interval, or satisfy a shared disjunction.

A code matrix is uint8 if all codes are below `COARSE_CODES`, else int32. Kernels take both `codes` (int32) and
`byte_codes` (uint8), each [attributes, rows]; the one that is not used has no rows.

A block has at most 64 * words rows. Bit r of word w stands for row 64 w + r. The *coarse codes* of an attribute are its
region codes shifted right by `shift` bits, so that at most 255 different ones are left. A coarse code fits a byte, so
that 64 of them are compared in one step. All bitmaps of a block are in one array `bits` [bitmaps * words] uint64:

| bitmap | its rows |
|---|---|
| `EMPTY` | none |
| `ALL` | all rows of the block |
| 2, 3, ... | those whose coarse code is in one of the bitmap's intervals |
| the last ones | those that satisfy a shared disjunction, one bitmap each |

If bitmap a has the rows with codes below v, and bitmap b those with codes below w, the rows with codes in [v, w) are
`bits[b] & ~bits[a]`.
"""

from __future__ import annotations

import numpy as np

from rules_index.kernels.code_vectors import copy_codes, narrow
from rules_index.kernels.jit import bare
from rules_index.kernels.llvm import GROUP
from rules_index.kernels.vectors import count_bits

ONE = np.uint64(1)
STEP = 64 * GROUP
"""Rows of a group of words: the rows of a block and of a chunk are a multiple of it."""
EMPTY, ALL = 0, 1
COARSE_CODES = 255
"""The most coarse codes of an attribute. The byte 255 is not among them: it marks places behind the last row."""
NO_ROW = np.uint8(COARSE_CODES)


@bare
def coarsen(codes, byte_codes, first, rows, shift, stride, coarse):
    """Writes the coarse codes of rows [first, first + rows) to `coarse` [attributes * stride] uint8. Behind them it
    writes `NO_ROW` up to the end of the group of words. Attributes with a negative shift are left out, unless codes are
    bytes.

    While one attribute is read the next one is prefetched: columns are too short for the hardware prefetcher, and
    without it the loop has half the speed.
    """
    if codes.shape[1] == 0:
        _copy_bytes(byte_codes, first, rows, stride, coarse)
        return
    width = np.uint64(codes.shape[1])
    for attribute in range(len(shift)):
        by = shift[attribute]
        if by < 0:
            continue
        following = attribute + 1
        while following < len(shift) and shift[following] < 0:
            following += 1
        at = np.uint64(attribute) * width + np.uint64(first)
        ahead = np.uint64(following) * width + np.uint64(first)
        to = np.uint64(attribute * stride)
        for row in range(np.uint64(0), np.uint64(rows & -64), np.uint64(64)):
            narrow(codes, at + row, by, ahead + row, coarse, to + row)
        for row in range(rows & -64, rows):
            coarse[attribute * stride + row] = codes[attribute, first + row] >> by
        _end(attribute * stride, rows, coarse)


@bare
def _copy_bytes(byte_codes, first, rows, stride, coarse):
    """`coarsen` for codes that are bytes: they are copied without a shift."""
    width = np.uint64(byte_codes.shape[1])
    for attribute in range(byte_codes.shape[0]):
        at = np.uint64(attribute) * width + np.uint64(first)
        to = np.uint64(attribute * stride)
        for row in range(np.uint64(0), np.uint64(rows & -64), np.uint64(64)):
            copy_codes(byte_codes, at + row, at + row + width, coarse, to + row)
        for row in range(rows & -64, rows):
            coarse[attribute * stride + row] = byte_codes[attribute, first + row]
        _end(attribute * stride, rows, coarse)


@bare
def _end(begin, rows, coarse):
    """Writes `NO_ROW` from `coarse[begin + rows]` on up to the end of the group of words."""
    coarse[begin + rows : begin + ((rows + STEP - 1) & -STEP)] = NO_ROW


@bare
def code_of(attribute, row, codes, first, coarse, stride):
    """The region code, int32, of a row of the chunk that begins at row `first`. Byte codes are read from `coarse`,
    which has copies of them."""
    if codes.shape[1] == 0:
        return np.int32(coarse[attribute * stride + row])
    return codes[attribute, first + row]


@bare
def count_rows(bitmaps, words, bits, size_of):
    """Writes the number of rows in each bitmap to `size_of` [bitmaps]."""
    for bitmap in range(bitmaps):
        total = np.uint64(0)
        for word in range(bitmap * words, (bitmap + 1) * words):
            total += count_bits(bits[word])
        size_of[bitmap] = total


@bare
def count_all(words, count):
    """The number of bits set in `words[:count]` (uint64)."""
    total = np.uint64(0)
    for i in range(np.uint64(count)):
        total += count_bits(words[i])
    return np.int64(total)


@bare
def fill_all(rows, words, out):
    """Writes the bitmap with the first `rows` rows to `out` [words] uint64."""
    for word in range(words):
        remaining = rows - (word << 6)
        if remaining >= 64:
            out[word] = ~np.uint64(0)
        elif remaining > 0:
            out[word] = (ONE << np.uint64(remaining)) - ONE
        else:
            out[word] = 0


@bare
def add_rows(rows, count, bitmap):
    """Sets the bits of the rows `rows[:count]` in `bitmap` [words] uint64."""
    for i in range(count):
        bitmap[rows[i] >> 6] |= ONE << np.uint64(rows[i] & 63)
