"""Reads UTF-8 code point by code point, as Java decodes it."""

from __future__ import annotations

import numpy as np

from rules_index.kernels.jit import inlined

_REPLACEMENT = 0xFFFD


@inlined
def decode(data, position, end):  # type: ignore[no-untyped-def]
    """The code point at a position, and the position behind it. A malformed run of bytes is U+FFFD, as in Java."""
    lead = data[position]
    if lead < 0x80:
        return np.int32(lead), position + 1
    if 0xC2 <= lead <= 0xDF:
        length, value = 2, lead & 0x1F
    elif 0xE0 <= lead <= 0xEF:
        length, value = 3, lead & 0x0F
    elif 0xF0 <= lead <= 0xF4:
        length, value = 4, lead & 0x07
    else:
        return np.int32(_REPLACEMENT), position + 1
    code = np.int32(value)
    for step in range(1, length):
        if position + step >= end:
            return np.int32(_REPLACEMENT), position + step
        byte = data[position + step]
        low, high = 0x80, 0xBF
        if step == 1:
            if lead == 0xE0:
                low = 0xA0
            elif lead == 0xED:
                high = 0x9F
            elif lead == 0xF0:
                low = 0x90
            elif lead == 0xF4:
                high = 0x8F
        if byte < low or byte > high:
            return np.int32(_REPLACEMENT), position + step
        code = (code << 6) | np.int32(byte & 0x3F)
    return code, position + length
