"""Row bitmaps of a block of rows: which rows have a coarse code in an interval, are in a set, pass a gate.

A block has 64 * words rows at most; bit r of word w stands for row 64 w + r. An attribute's *coarse codes* are its
region codes without their lowest `shift` bits, so many that at most 255 are left: they fit a byte, and 64 of them are
compared at once. All bitmaps of a block stand in one array `bits` [bitmaps * words]:

| bitmaps | rows |
|---|---|
| `EMPTY` | none |
| `ALL` | all rows of the block |
| 2, 3, ... | whose coarse code is in one of the bitmap's intervals |
| after these | that pass a gate |

Two bitmaps of codes below v and below w give the interval [v, w) as `bits[w] & ~bits[v]`.
"""

from __future__ import annotations

import numpy as np

from rules_index.kernels.jit import bare
from rules_index.kernels.vectors import GROUP, codes_between, codes_up_to, codes_within, count_bits

ONE = np.uint64(1)
STEP = 64 * GROUP
"""Rows of a group of words; a block and a chunk have a multiple of so many."""
_GROUP = np.uint64(GROUP)
EMPTY, ALL = 0, 1
COARSE_CODES = 255
"""Most coarse codes of an attribute; the byte 255 stands for no row."""
NO_ROW = np.uint8(COARSE_CODES)


@bare
def coarsen(codes, first, rows, shift, stride, coarse):
    """Writes the coarse codes of rows [first, first + rows) to `coarse` [attributes * stride] uint8, and `NO_ROW`
    behind them up to a whole group of words of rows. Attributes of a negative shift are left out."""
    for attribute in range(len(shift)):
        by = shift[attribute]
        if by < 0:
            continue
        at = attribute * stride
        column = codes[attribute, first : first + rows]
        to = coarse[at : at + rows]
        for row in range(rows):
            to[row] = column[row] >> by
        coarse[at + rows : at + ((rows + STEP - 1) & -STEP)] = NO_ROW


@bare
def fill_bitmaps(coarse, stride, start, rows, words, bitmap_attribute, bitmap_start, bitmap_intervals, bits):
    """All bitmaps but those of gates, for `rows` rows from `start` on, behind which there are codes of `NO_ROW` up to a
    whole group of words."""
    used = np.uint64((rows + STEP - 1) // STEP * GROUP)
    count = np.uint64(words)
    bits[: 2 * words] = 0
    fill_all(rows, words, bits[words : 2 * words])
    for bitmap in range(2, len(bitmap_attribute)):
        to = np.uint64(bitmap) * count
        at = np.uint64(bitmap_attribute[bitmap] * stride + start)
        interval = bitmap_start[bitmap]
        low = np.uint8(bitmap_intervals[interval, 0])
        span = np.uint8(bitmap_intervals[interval, 1] - bitmap_intervals[interval, 0])
        if low == 0:
            for word in range(np.uint64(0), used, _GROUP):
                codes_up_to(coarse, at + (word << np.uint64(6)), span, bits, to + word)
        else:
            for word in range(np.uint64(0), used, _GROUP):
                codes_between(coarse, at + (word << np.uint64(6)), low, span, bits, to + word)
        for more in range(interval + 1, bitmap_start[bitmap + 1]):
            low = np.uint8(bitmap_intervals[more, 0])
            span = np.uint8(bitmap_intervals[more, 1] - bitmap_intervals[more, 0])
            for word in range(used):
                bits[to + word] |= codes_within(coarse, at + (word << np.uint64(6)), low, span)
        if used < count:
            bits[to + used : to + count] = 0


@bare
def count_rows(bitmaps, words, bits, size_of):
    """The number of rows in each bitmap."""
    for bitmap in range(bitmaps):
        total = np.uint64(0)
        for word in range(bitmap * words, (bitmap + 1) * words):
            total += count_bits(bits[word])
        size_of[bitmap] = total


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
