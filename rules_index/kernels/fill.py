"""Fills all bitmaps of a block of rows from its coarse codes.

If an attribute has few intervals, its codes are compared with each of them. If it has many, each code is split into its
high and its low digit (nibbles). Bitmaps of the rows with each digit, or with a lower one, are made from the bit planes
of the codes. An interval's bitmap then takes three of these for each of its ends, 512 rows at a time.
"""

from __future__ import annotations

import numpy as np

from rules_index.kernels.bitmaps import ONE, STEP, fill_all
from rules_index.kernels.code_vectors import (
    BITS,
    DIGITS,
    code_planes,
    codes_between,
    codes_within,
    digits_below,
    digits_between,
    digits_equal,
    digits_up_to,
)
from rules_index.kernels.jit import bare, inner
from rules_index.kernels.llvm import GROUP
from rules_index.kernels.vectors import both

MANY_INTERVALS = 24
"""If an attribute has at least so many intervals, its bitmaps are combined from those of its codes' digits."""
_GROUP = np.uint64(GROUP)


@bare
def _end_of_attribute(bitmap, bitmap_attribute):
    """The bitmap behind those that belong to the same attribute as `bitmap`."""
    end = bitmap + 1
    while end < len(bitmap_attribute) and bitmap_attribute[end] == bitmap_attribute[bitmap]:
        end += 1
    return end


@inner
def fill_bitmaps(coarse, stride, start, rows, words, bitmap_attribute, bitmap_start, bitmap_intervals, bits):
    """Writes all bitmaps, except those of shared disjunctions, to `bits`, for `rows` rows from `start` on. `coarse`
    [attributes * stride] has `NO_ROW` behind these rows, up to the end of the group of words."""
    used = np.uint64((rows + STEP - 1) // STEP * GROUP)
    count = np.uint64(words)
    bits[: 2 * words] = 0
    fill_all(rows, words, bits[words : 2 * words])
    planes = np.empty(BITS * words, np.uint64)
    digits = np.empty(2 * (DIGITS + 1) * words, np.uint64)
    bitmap = 2
    while bitmap < len(bitmap_attribute):
        at = bitmap_attribute[bitmap] * stride + start
        end = _end_of_attribute(bitmap, bitmap_attribute)
        if bitmap_start[end] - bitmap_start[bitmap] >= MANY_INTERVALS:
            _fill_planes(coarse, np.uint64(at), used, count, planes)
            if _are_codes(bitmap, end, bitmap_start, bitmap_intervals):
                _fill_codes(bitmap, end, used, count, bitmap_start, bitmap_intervals, planes, digits, bits)
            else:
                _fill_intervals(bitmap, end, used, count, bitmap_start, bitmap_intervals, planes, digits, bits)
        else:
            _fill_by_codes(bitmap, end, coarse, np.uint64(at), used, count, bitmap_start, bitmap_intervals, bits)
        bitmap = end
    if used < count:
        for bitmap in range(2, len(bitmap_attribute)):
            bits[np.uint64(bitmap) * count + used : np.uint64(bitmap + 1) * count] = 0


@bare
def _fill_by_codes(bitmap, end, coarse, at, used, count, bitmap_start, bitmap_intervals, bits):
    """Fills the bitmaps [bitmap, end) of the attribute whose codes begin at `at` by comparing the codes with each
    interval."""
    for each in range(bitmap, end):
        to = np.uint64(each) * count
        first = bitmap_start[each]
        low = np.uint8(bitmap_intervals[first, 0])
        span = np.uint8(bitmap_intervals[first, 1] - bitmap_intervals[first, 0])
        for word in range(np.uint64(0), used, _GROUP):
            codes_between(coarse, at + (word << np.uint64(6)), low, span, bits, to + word)
        for more in range(first + 1, bitmap_start[each + 1]):
            low = np.uint8(bitmap_intervals[more, 0])
            span = np.uint8(bitmap_intervals[more, 1] - bitmap_intervals[more, 0])
            for word in range(used):
                bits[to + word] |= codes_within(coarse, at + (word << np.uint64(6)), low, span)


@bare
def _are_codes(bitmap, end, bitmap_start, bitmap_intervals):
    """Whether each of the bitmaps [bitmap, end) has the rows of a single code."""
    if bitmap_start[end] - bitmap_start[bitmap] > end - bitmap:
        return False
    for which in range(bitmap_start[bitmap], bitmap_start[end]):
        if bitmap_intervals[which, 0] != bitmap_intervals[which, 1]:
            return False
    return True


@bare
def _fill_planes(coarse, at, used, stride, planes):
    """Writes the bit planes of the codes of a block, from `coarse[at]` on, to `planes` [BITS * stride] uint64."""
    for word in range(used):
        code_planes(coarse, at + (word << np.uint64(6)), planes, word, stride)


@bare
def _fill_digits(planes, used, stride, digits, to):
    """Writes the bitmaps of the rows with each high digit, 0 to 15, to `digits` from `to` on, and behind them those of
    each low digit."""
    for word in range(np.uint64(0), used, _GROUP):
        digits_equal(planes, np.uint64(4) * stride + word, digits, to + word, stride)
        digits_equal(planes, word, digits, to + np.uint64(DIGITS) * stride + word, stride)


@bare
def _fill_codes(bitmap, end, used, stride, bitmap_start, bitmap_intervals, planes, digits, bits):
    """Fills the bitmaps [bitmap, end) of an attribute, each of a single code: the AND of the bitmaps of its high and
    its low digit."""
    _fill_digits(planes, used, stride, digits, np.uint64(0))
    for each in range(bitmap, end):
        code = np.uint64(bitmap_intervals[bitmap_start[each], 0])
        high = (code >> np.uint64(4)) * stride
        low = (np.uint64(DIGITS) + (code & np.uint64(15))) * stride
        to = np.uint64(each) * stride
        stop = to + used
        if used == _GROUP:
            # takes half the time of a loop with one step; the same holds below
            both(digits, high, low, bits, to)
            continue
        # advancing offsets with the words takes two thirds of the time of adding `word` to each, which the compiler
        # unrolls; the same holds below
        while to < stop:
            both(digits, high, low, bits, to)
            high += _GROUP
            low += _GROUP
            to += _GROUP


@bare
def _fill_intervals(bitmap, end, used, stride, bitmap_start, bitmap_intervals, planes, below, bits):
    """Fills the bitmaps [bitmap, end) of an attribute from the bitmaps `below`, which it makes first: the rows whose
    high digit is below 0, ..., 16, and those whose low digit is."""
    for word in range(np.uint64(0), used, _GROUP):
        digits_below(planes, np.uint64(4) * stride + word, below, word, stride)
        digits_below(planes, word, below, np.uint64(DIGITS + 1) * stride + word, stride)
    for each in range(bitmap, end):
        to = np.uint64(each) * stride
        first = bitmap_start[each]
        low, high = np.uint64(bitmap_intervals[first, 0]), np.uint64(bitmap_intervals[first, 1])
        if low == 0 and used == _GROUP:
            place, next_, rest = _places(high + ONE, stride)
            digits_up_to(below, place, next_, rest, bits, to)
        elif low == 0:
            _fill_up_to(high, used, stride, below, bits, to)
        else:
            _fill_between(low, high, used, stride, below, bits, to)
    # further intervals of a bitmap have a loop of their own: a call in the loop above would double its time
    if bitmap_start[end] - bitmap_start[bitmap] > end - bitmap:
        for each in range(bitmap, end):
            for more in range(bitmap_start[each] + 1, bitmap_start[each + 1]):
                low, high = np.uint64(bitmap_intervals[more, 0]), np.uint64(bitmap_intervals[more, 1])
                _add_between(low, high, used, stride, below, bits, np.uint64(each) * stride)


@bare
def _places(code, stride):
    """Offsets into `below` (see `_fill_intervals`) for the codes below `code`: of its high digit, of that digit plus
    one, and of its low digit."""
    high = (code >> np.uint64(4)) * stride
    return high, high + stride, (np.uint64(DIGITS + 1) + (code & np.uint64(15))) * stride


@bare
def _fill_up_to(code, used, stride, below, bits, to):
    """Writes the bitmap of the codes [0, code]."""
    high, next_, low = _places(code + ONE, stride)
    end = to + used
    while to < end:
        digits_up_to(below, high, next_, low, bits, to)
        high += _GROUP
        next_ += _GROUP
        low += _GROUP
        to += _GROUP


@bare
def _fill_between(first, last, used, stride, below, bits, to):
    """Writes the bitmap of the codes [first, last]."""
    high, next_, low = _places(last + ONE, stride)
    high2, next2, low2 = _places(first, stride)
    end = to + used
    while to < end:
        digits_between(below, high, next_, low, high2, next2, low2, bits, to)
        high += _GROUP
        next_ += _GROUP
        low += _GROUP
        high2 += _GROUP
        next2 += _GROUP
        low2 += _GROUP
        to += _GROUP


@bare
def _add_between(first, last, used, stride, below, bits, to):
    """Adds the rows with codes [first, last] to a bitmap."""
    high, next_, low = _places(last + ONE, stride)
    high2, next2, low2 = _places(first, stride)
    for word in range(used):
        upper = below[high + word] | (below[next_ + word] & below[low + word])
        lower = below[high2 + word] | (below[next2 + word] & below[low2 + word])
        bits[to + word] |= upper & ~lower
