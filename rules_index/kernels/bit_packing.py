"""Packs integers and the levels of lists into bits, as pages of Parquet files have them.

Apache Parquet format, "Encodings", Run Length Encoding / Bit-Packing Hybrid: the first value is in the lowest bits.
"""

from __future__ import annotations

import numpy as np

from rules_index.kernels.jit import jit


@jit
def pack(values: np.ndarray, width: int, out: np.ndarray) -> None:
    """Packs values [.] int32, each of 1 to 32 bits. out [.] uint32 needs room for all bits."""
    mask = (np.uint64(1) << np.uint64(width)) - np.uint64(1)
    waiting, bits, place = np.uint64(0), np.uint64(0), 0
    for i in range(len(values)):
        waiting |= (np.uint64(values[i]) & mask) << bits
        bits += np.uint64(width)
        if bits >= np.uint64(32):
            out[place] = np.uint32(waiting & np.uint64(0xFFFFFFFF))
            place += 1
            waiting >>= np.uint64(32)
            bits -= np.uint64(32)
    if bits:
        out[place] = np.uint32(waiting)


@jit
def pack_levels(offsets: np.ndarray, repetition: np.ndarray, definition: np.ndarray) -> None:
    """Packs the levels of lists of values that are never NULL; an empty list has an entry, too.

    offsets [lists + 1] int32. repetition and definition [.] uint8, all 0, have room for a bit and for two bits of each
    entry: a repetition level of 0 for the first entry of a list and 1 for others, and a definition level of 3 for a
    value and 1 for an empty list.
    """
    place = 0
    for row in range(len(offsets) - 1):
        length = offsets[row + 1] - offsets[row]
        definition[place >> 2] |= np.uint8((3 if length else 1) << ((place & 3) << 1))
        place += 1
        for _ in range(length - 1):
            repetition[place >> 3] |= np.uint8(1 << (place & 7))
            definition[place >> 2] |= np.uint8(3 << ((place & 3) << 1))
            place += 1
