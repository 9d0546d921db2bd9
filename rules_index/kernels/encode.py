"""Values to region codes: one pass over a column, no Python per row.

All functions write `out` [rows] int32 and release the GIL. A code is looked up by the number of cuts at or
below the value, so `codes` has one entry more than `cuts`.
"""

from __future__ import annotations

import numpy as np

from rules_index.kernels.jit import jit


@jit
def encode_table(values, low, codes, out):
    """Integers whose cuts span a narrow range: `codes[i]` is the code of `low - 1 + i`, clamped at both ends."""
    last = len(codes) - 1
    high = low + last
    for row in range(len(values)):
        value = np.int64(values[row])
        if value < low:
            out[row] = codes[0]
        elif value >= high:
            out[row] = codes[last]
        else:
            out[row] = codes[value - low + 1]


@jit
def encode_search(values, cuts, buckets, low, shift, codes, out):
    """Integers by bisection within the bucket of their upper bits.

    `buckets[b]` counts the cuts below `low + (b << shift)`; values outside the buckets are below or above
    every cut.
    """
    count = len(cuts)
    high = cuts[count - 1]
    for row in range(len(values)):
        value = np.int64(values[row])
        if value < low:
            out[row] = codes[0]
        elif value >= high:
            out[row] = codes[count]
        else:
            bucket = np.int64((np.uint64(value) - np.uint64(low)) >> np.uint64(shift))
            left = buckets[bucket]
            right = buckets[bucket + 1]
            while left < right:
                middle = (left + right) >> 1
                if cuts[middle] <= value:
                    left = middle + 1
                else:
                    right = middle
            out[row] = codes[left]


@jit
def float_keys(bits, keys):
    """Bits of doubles [rows] int64 -> order-preserving keys [rows] int64 (`values.float_key`)."""
    infinity = np.int64(0x7FF0000000000000)
    largest = np.int64(0x7FFFFFFFFFFFFFFF)
    for row in range(len(bits)):
        magnitude = bits[row] & largest
        if magnitude > infinity:
            keys[row] = largest
        elif bits[row] < 0:
            keys[row] = -magnitude
        else:
            keys[row] = bits[row]


@jit
def _hash(data, start, end):
    state = np.uint64(0xCBF29CE484222325)
    for i in range(start, end):
        state = (state ^ np.uint64(data[i])) * np.uint64(0x100000001B3)
    return state ^ (state >> np.uint64(29))


@jit
def build_table(offsets, data, table):
    """Open addressing over distinct byte strings: `table` [a power of two] int32, -1 where empty."""
    mask = np.uint64(len(table) - 1)
    for index in range(len(offsets) - 1):
        slot = _hash(data, offsets[index], offsets[index + 1]) & mask
        while table[slot] >= 0:
            slot = (slot + np.uint64(1)) & mask
        table[slot] = index


@jit
def _compare(a, a_start, a_end, b, b_start, b_end):
    length = min(a_end - a_start, b_end - b_start)
    for i in range(length):
        x = a[a_start + i]
        y = b[b_start + i]
        if x != y:
            return -1 if x < y else 1
    return (a_end - a_start) - (b_end - b_start)


@jit
def encode_bytes(
    offsets,
    data,
    table,
    point_offsets,
    point_data,
    point_codes,
    cut_offsets,
    cut_data,
    codes,
    out,
):
    """Byte strings: the points (single values that rules name) by hash, all else by bisection of the cuts."""
    mask = np.uint64(len(table) - 1)
    cuts = len(cut_offsets) - 1
    for row in range(len(offsets) - 1):
        start = offsets[row]
        end = offsets[row + 1]
        found = -1
        if len(point_codes) > 0:
            slot = _hash(data, start, end) & mask
            while table[slot] >= 0:
                point = table[slot]
                first = point_offsets[point]
                if end - start == point_offsets[point + 1] - first:
                    same = True
                    for i in range(end - start):
                        if data[start + i] != point_data[first + i]:
                            same = False
                            break
                    if same:
                        found = point
                        break
                slot = (slot + np.uint64(1)) & mask
        if found >= 0:
            out[row] = point_codes[found]
            continue
        left = 0
        right = cuts
        while left < right:
            middle = (left + right) >> 1
            if (
                _compare(
                    cut_data,
                    cut_offsets[middle],
                    cut_offsets[middle + 1],
                    data,
                    start,
                    end,
                )
                <= 0
            ):
                left = middle + 1
            else:
                right = middle
        out[row] = codes[left]
