"""Encodes values as region codes: one pass over a column, without Python code per row.

The functions `encode_...` write `out` [rows] int32. `codes` [cuts + 1] int32 has the code of a value at the number of
cuts that are less than or equal to it.
"""

from __future__ import annotations

import numpy as np

from rules_index.kernels.jit import jit


@jit
def encode_table(values, low, codes, out):
    """Encodes integers by a lookup table, for cuts that span a narrow range. `codes[i]` is the code of the integer
    `low - 1 + i`; integers below or above have the first or last code."""
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
    """Encodes integers by binary search among the cuts in the bucket of their upper bits.

    `buckets[b]` is the number of cuts below `low + (b << shift)`. Values outside of the buckets are below or above
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
    """Turns the bits of doubles [rows] int64 into order-preserving `keys` [rows] int64 (see `values.float_key`)."""
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
def hash_of(data, start, end):
    """FNV-1a of `data[start:end]`, with its upper bits mixed into the lower ones."""
    state = np.uint64(0xCBF29CE484222325)
    for i in range(start, end):
        state = (state ^ np.uint64(data[i])) * np.uint64(0x100000001B3)
    return state ^ (state >> np.uint64(29))


@jit
def build_table(offsets, data, table):
    """Fills a hash table (open addressing) of distinct byte strings, `data[offsets[i]:offsets[i + 1]]`. `table`
    [a power of two] int32 receives their numbers i; -1 marks an empty slot."""
    mask = np.uint64(len(table) - 1)
    for index in range(len(offsets) - 1):
        slot = hash_of(data, offsets[index], offsets[index + 1]) & mask
        while table[slot] >= 0:
            slot = (slot + np.uint64(1)) & mask
        table[slot] = index


@jit
def _compare(a, a_start, a_end, b, b_start, b_end):
    """Compares the bytes `a[a_start:a_end]` with those of b: less than 0, 0 or greater than 0, as they are less, equal
    or greater."""
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
    """Encodes byte strings `data[offsets[row]:offsets[row + 1]]`: points (single values that rules name) by the hash
    table of `build_table`, all others by binary search of the cuts. Without points, `table` is not read."""
    mask = np.uint64(len(table) - 1)
    cuts = len(cut_offsets) - 1
    for row in range(len(offsets) - 1):
        start = offsets[row]
        end = offsets[row + 1]
        found = -1
        if len(point_codes) > 0:
            slot = hash_of(data, start, end) & mask
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
