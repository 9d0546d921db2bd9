"""Row bitmaps of a block of rows: which rows have a coarse code in an interval, are in a set, pass a shared
disjunction.

A code matrix comes as int32 or, where all codes of all attributes are below `COARSE_CODES`, as bytes; kernels are given
both `codes` and `byte_codes` [attributes, rows], and that which is not used has no rows.

A block has 64 * words rows at most; bit r of word w stands for row 64 w + r. An attribute's *coarse codes* are its
region codes without their lowest `shift` bits, so many that at most 255 are left: they fit a byte, and 64 of them are
compared at once. All bitmaps of a block stand in one array `bits` [bitmaps * words]:

| bitmaps | rows |
|---|---|
| `EMPTY` | none |
| `ALL` | all rows of the block |
| 2, 3, ... | whose coarse code is in one of the bitmap's intervals |
| after these | that pass a shared disjunction |

Two bitmaps of codes below v and below w give the interval [v, w) as `bits[w] & ~bits[v]`.
"""

from __future__ import annotations

import numpy as np

from rules_index.kernels.code_vectors import copy_codes, narrow
from rules_index.kernels.jit import bare
from rules_index.kernels.llvm import GROUP
from rules_index.kernels.vectors import count_bits

ONE = np.uint64(1)
STEP = 64 * GROUP
"""Rows of a group of words; a block and a chunk have a multiple of so many."""
EMPTY, ALL = 0, 1
COARSE_CODES = 255
"""Most coarse codes of an attribute; the byte 255 stands for no row."""
NO_ROW = np.uint8(COARSE_CODES)


@bare
def coarsen(codes, byte_codes, first, rows, shift, stride, coarse):
    """Writes the coarse codes of rows [first, first + rows) to `coarse` [attributes * stride] uint8, and `NO_ROW`
    behind them up to a whole group of words of rows. Attributes of a negative shift are left out, but for bytes.

    While the codes of an attribute are read those of the next one are brought near: a column is too short for the
    machine to notice in time that it is read in order, which halves the speed.
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
    """`coarsen`, of codes that are bytes."""
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
    """Writes `NO_ROW` behind the codes of an attribute, which begin at `begin`, up to a whole group of words."""
    coarse[begin + rows : begin + ((rows + STEP - 1) & -STEP)] = NO_ROW


@bare
def code_of(attribute, row, codes, first, coarse, stride):
    """The code of a row of the chunk."""
    if codes.shape[1] == 0:
        return np.int32(coarse[attribute * stride + row])
    return codes[attribute, first + row]


@bare
def count_rows(bitmaps, words, bits, size_of):
    """The number of rows in each bitmap."""
    for bitmap in range(bitmaps):
        total = np.uint64(0)
        for word in range(bitmap * words, (bitmap + 1) * words):
            total += count_bits(bits[word])
        size_of[bitmap] = total


@bare
def count_all(words, count):
    """How many bits of the first words are set."""
    total = np.uint64(0)
    for i in range(np.uint64(count)):
        total += count_bits(words[i])
    return np.int64(total)


@bare
def fill_all(rows, words, out):
    """The bitmap of all `rows` rows of a block."""
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
    """Sets the bits of `rows[:count]` in a bitmap [words]."""
    for i in range(count):
        bitmap[rows[i] >> 6] |= ONE << np.uint64(rows[i] & 63)


@bare
def in_intervals(code, begin, end, intervals):
    """True where `code` is in one of the closed, ascending intervals [begin, end)."""
    left = begin
    right = end
    while left < right:
        middle = (left + right) >> 1
        if intervals[middle, 1] < code:
            left = middle + 1
        else:
            right = middle
    return left < end and intervals[left, 0] <= code
