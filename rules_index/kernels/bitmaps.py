"""Row bitmaps of a block of rows: which rows have a code below v, are in a set, pass a gate.

A block has 64 * words rows at most; bit r of word w stands for row 64 w + r. All bitmaps of a block stand in
one array `bits` [bitmaps * words], and `size_of` [bitmaps] has the number of rows in each:

| bitmaps | of |
|---|---|
| 0 | nothing: the empty bitmap |
| `bitmap_at[a] + v`, v = 0 .. codes | a *dense* attribute (few codes): rows with code < v |
| `bitmap_at[a] + k`, k = 0 .. words | a *ranked* attribute (many codes): rows of rank < 64 k in the order of codes |
| `set_bitmap + s` | a set of several intervals of codes |
| `gate_bitmap + g` | a gate |

So an interval of a dense attribute, a set and a gate are all `bits[high] & ~bits[low]` of two bitmaps. The cost of
a ranked attribute does not depend on its number of codes: its intervals are rounded outwards to whole words of
ranks, and the rows that survive are compared by code.
"""

from __future__ import annotations

import numba
import numpy as np

_jit = numba.njit(nogil=True, cache=True, boundscheck=False)

UNUSED, DENSE, RANKED = 0, 1, 2
ONE = np.uint64(1)


@_jit
def fill_dense(codes, first, rows, words, size, at, bits, size_of):
    """Bitmaps `at` to `at + size`: rows with code < v."""
    bits[at * words : (at + size + 1) * words] = 0
    size_of[at : at + size + 1] = 0
    for row in range(rows):
        bitmap = at + codes[first + row] + 1
        size_of[bitmap] += 1
        bits[bitmap * words + (row >> 6)] |= ONE << np.uint64(row & 63)
    count = np.uint64(words)
    for bitmap in range(at + 1, at + size + 1):
        size_of[bitmap] += size_of[bitmap - 1]
        to = np.uint64(bitmap) * count
        before = to - count
        for word in range(count):
            bits[to + word] |= bits[before + word]


@_jit
def sort_by_code(codes, first, rows, order, sorted_codes):
    """Rows of the block by ascending code, stable: least significant byte first, constant bytes skipped."""
    spare_order = np.empty(rows, np.int32)
    spare_codes = np.empty(rows, np.int32)
    every = np.int32(0)
    anyone = np.int32(-1)
    for row in range(rows):
        order[row] = row
        code = codes[first + row]
        sorted_codes[row] = code
        every |= code
        anyone &= code
    start = np.empty(257, np.int32)
    for shift in range(0, 32, 8):
        if ((every ^ anyone) >> shift) & 255 == 0:
            continue
        start[:] = 0
        for row in range(rows):
            start[((sorted_codes[row] >> shift) & 255) + 1] += 1
        for value in range(256):
            start[value + 1] += start[value]
        for row in range(rows):
            value = (sorted_codes[row] >> shift) & 255
            spare_order[start[value]] = order[row]
            spare_codes[start[value]] = sorted_codes[row]
            start[value] += 1
        order[:rows] = spare_order
        sorted_codes[:rows] = spare_codes


@_jit
def fill_ranked(rows, words, order, at, bits):
    """Bitmaps `at` to `at + words`: rows of rank below 64 k; beyond the last rank, every row."""
    bits[at * words : (at + 1) * words] = 0
    for step in range(words):
        to = (at + step + 1) * words
        for word in range(words):
            bits[to + word] = bits[to - words + word]
        for rank in range(step << 6, min(rows, (step + 1) << 6)):
            row = order[rank]
            bits[to + (row >> 6)] |= ONE << np.uint64(row & 63)


@_jit
def count_codes(sorted_codes, rows, size, at, code_counts):
    """`code_counts[at + code]` = rows of the block with a smaller code, for codes 0 to `size`."""
    code = 0
    for rank in range(rows):
        while code <= sorted_codes[rank]:
            code_counts[at + code] = rank
            code += 1
    while code <= size:
        code_counts[at + code] = rows
        code += 1


@_jit
def rank_below(code, at, ordered, rows, code_counts, sorted_codes):
    """Rows of the block whose code is below `code`: from `code_counts[at + code]`, or, where at < 0, by
    bisecting row `ordered` of `sorted_codes`."""
    if at >= 0:
        return code_counts[at + code]
    left = np.int32(0)
    right = np.int32(rows)
    while left < right:
        middle = (left + right) >> 1
        if sorted_codes[ordered, middle] < code:
            left = np.int32(middle + 1)
        else:
            right = np.int32(middle)
    return left


@_jit
def set_ranks(begin, end, words, order, ordered, at, bits, to):
    """Sets, in the bitmap that begins at word `to`, the rows of ranks [begin, end): whole words of ranks by
    the bitmaps from `at` on, the rest one by one."""
    lower = (begin + 63) >> 6
    upper = end >> 6
    if lower < upper:
        for word in range(words):
            bits[to + word] |= bits[(at + upper) * words + word] & ~bits[(at + lower) * words + word]
        for rank in range(begin, lower << 6):
            row = order[ordered, rank]
            bits[to + (row >> 6)] |= ONE << np.uint64(row & 63)
        begin = upper << 6
    for rank in range(begin, end):
        row = order[ordered, rank]
        bits[to + (row >> 6)] |= ONE << np.uint64(row & 63)


@_jit
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


@numba.extending.intrinsic
def trailing_zeros(typing_context, bits):
    """Index of the lowest set bit of a uint64 (one machine instruction); undefined for 0."""

    def codegen(context, builder, signature, arguments):
        return builder.cttz(arguments[0], numba.core.cgutils.true_bit)

    return numba.types.uint64(numba.types.uint64), codegen


@_jit
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


@_jit
def narrow(bits, low, high, words, current):
    """`current &= bits[high] & ~bits[low]`; whether a row is left.

    Unsigned positions spare the kernels the test for negative indices, which would keep them from using
    vector instructions; so below.
    """
    count = np.uint64(words)
    below = np.uint64(low) * count
    upto = np.uint64(high) * count
    left = np.uint64(0)
    for word in range(count):
        both = current[word] & bits[upto + word] & ~bits[below + word]
        current[word] = both
        left |= both
    return left != 0


@_jit
def start_with_two(bits, low, high, low2, high2, words, current):
    """`current = bits[high] & ~bits[low] & bits[high2] & ~bits[low2]`; whether a row is left."""
    count = np.uint64(words)
    below = np.uint64(low) * count
    upto = np.uint64(high) * count
    below2 = np.uint64(low2) * count
    upto2 = np.uint64(high2) * count
    left = np.uint64(0)
    for word in range(count):
        both = bits[upto + word] & ~bits[below + word] & bits[upto2 + word] & ~bits[below2 + word]
        current[word] = both
        left |= both
    return left != 0


@_jit
def bitmap_rows(bitmap, words, out):
    """Writes the rows of a bitmap [words] in ascending order; returns their number."""
    found = 0
    for word in range(np.uint64(words)):
        left = bitmap[word]
        while left != 0:
            out[found] = np.int32((word << np.uint64(6)) + trailing_zeros(left))
            found += 1
            left &= left - ONE
    return found


@_jit
def add_rows(rows, count, bitmap):
    """Sets the bits of `rows[:count]` in a bitmap [words]."""
    for i in range(count):
        bitmap[rows[i] >> 6] |= ONE << np.uint64(rows[i] & 63)
