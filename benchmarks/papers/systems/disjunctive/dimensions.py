"""Kernels that compare boxes dimension by dimension: relation, comparison with cuts, order of work, relaxation.

Kuntschke and Kemper, algorithms 6, 8 and 9, section 6.1. Boxes are [., d, 2] int32, closed ranges of codes in each of d
dimensions. `rank` [., d] int32 are a box's dimensions in the order in which they are compared, short ones first.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from benchmarks.jit import bare, inlined, jit

IMPLIED, OVERLAPS, APART = 1, 0, -1
"""The results of algorithm 6."""


class Lines(NamedTuple):
    """The position of codes on the number line, from `intervals.Space`.

    sizes         [d] int32, number of codes, including NULL's, the last one
    lower, upper  [d, most codes] float64
    """

    sizes: np.ndarray
    lower: np.ndarray
    upper: np.ndarray


class SortedBoxes(NamedTuple):
    """Boxes with the measures on which the order of work depends (section 6.1).

    boxes      [boxes, d, 2] int32
    unbounded  [boxes] int64, number of infinite ends
    volume     [boxes] float64, product of the finite lengths
    rank       [boxes, d] int32, the dimensions by increasing length
    """

    boxes: np.ndarray
    unbounded: np.ndarray
    volume: np.ndarray
    rank: np.ndarray


@bare
def relation(parts: np.ndarray, part: int, boxes: np.ndarray, box: int, rank: np.ndarray) -> int:
    """`IMPLIED` if a part is inside a box, else `OVERLAPS` if they share a row, else `APART`."""
    within = True
    for i in range(rank.shape[1]):
        d = rank[box, i]
        low, high = parts[part, d, 0], parts[part, d, 1]
        if low > boxes[box, d, 1] or high < boxes[box, d, 0]:
            return APART
        within &= low >= boxes[box, d, 0] and high <= boxes[box, d, 1]
    return IMPLIED if within else OVERLAPS


@bare
def copy_box(source: np.ndarray, place: int, out: np.ndarray, at: int) -> None:
    """Copies a box to another index."""
    for d in range(source.shape[1]):
        out[at, d, 0] = source[place, d, 0]
        out[at, d, 1] = source[place, d, 1]


@bare
def cut(boxes: np.ndarray, box: int, rank: np.ndarray, parts: np.ndarray, part: int, out: np.ndarray, at: int) -> int:
    """Algorithm 9 (CD) for a part that shares a row with a box: writes its parts outside of the box to `out[at:]`;
    returns their number.

    There are up to two for each dimension in which the part extends beyond the box, cut off one dimension after the
    other. The part itself is reduced to what is inside the box.
    """
    made = at
    for i in range(rank.shape[1]):
        d = rank[box, i]
        made += cut_off(boxes, box, d, 0, parts, part, out, made)
        made += cut_off(boxes, box, d, 1, parts, part, out, made)
    return made - at


@inlined
def cut_off(
    boxes: np.ndarray, box: int, d: int, end: int, parts: np.ndarray, part: int, out: np.ndarray, at: int
) -> int:
    """Cuts off the piece of a part that is below (`end` 0) or above (1) a box in dimension d: writes it to `out[at]`,
    and reduces the part. Returns the number of pieces, 0 or 1."""
    bound = boxes[box, d, end]
    if not (parts[part, d, 0] < bound if end == 0 else parts[part, d, 1] > bound):
        return 0
    copy_box(parts, part, out, at)
    out[at, d, 1 - end] = bound - 1 if end == 0 else bound + 1
    parts[part, d, end] = bound
    return 1


@jit
def compare_dimensions(boxes: np.ndarray, box: int, rank: np.ndarray, part: np.ndarray) -> np.ndarray:
    """Algorithm 9 (CD): the parts [parts, d, 2] of a part [1, d, 2] that are outside of a box; the whole part if the
    two do not overlap."""
    out = np.empty((2 * part.shape[1], part.shape[1], 2), np.int32)
    if relation(part, 0, boxes, box, rank) == APART:
        return part.copy()
    return out[: cut(boxes, box, rank, part.copy(), 0, out, 0)]


# Order of work


@bare
def _length(low: int, high: int, d: int, lines: Lines) -> float:
    """The length of a range of codes on the number line; 0 for NULL alone."""
    return 0.0 if low == lines.sizes[d] - 1 else lines.upper[d, high] - lines.lower[d, low]


@bare
def measure(given: SortedBoxes, box: int, lines: Lines) -> None:
    """Writes the measures of a box: all fields but the box itself."""
    boxes, unbounded, volume = given.boxes, 0, 1.0
    for d in range(len(lines.sizes)):
        low, high = boxes[box, d, 0], boxes[box, d, 1]
        length = _length(low, high, d, lines)
        if low < lines.sizes[d] - 1:
            unbounded += (lines.lower[d, low] == -np.inf) + (lines.upper[d, high] == np.inf)
        volume *= length if length < np.inf else 1.0
        i = d
        while i > 0:
            before = given.rank[box, i - 1]
            if _length(boxes[box, before, 0], boxes[box, before, 1], before, lines) <= length:
                break
            given.rank[box, i] = before
            i -= 1
        given.rank[box, i] = d
    given.unbounded[box], given.volume[box] = unbounded, volume


@jit
def measured(boxes: np.ndarray, lines: Lines) -> SortedBoxes:
    """The measures of all boxes, on which the order of work depends."""
    count, d = boxes.shape[:2]
    found = SortedBoxes(boxes, np.empty(count, np.int64), np.empty(count), np.empty((count, d), np.int32))
    for box in range(count):
        measure(found, box, lines)
    return found


# Relaxation


@bare
def relax(queries: np.ndarray, query: int, given: SortedBoxes, order: np.ndarray, count: int, lines: Lines,
          wide: np.ndarray) -> int:  # fmt: skip
    """Algorithm 8 (HCR), lines 6 to 31: returns which of the first `count` boxes in `order` to widen, so that it
    contains a query's box; -1 if one of them contains it already.

    It is the box that has the fewest infinite ends i once it is widened, then the one with the least increase of volume
    e, then the first. An infinite extension counts in i alone. wide: [2, d, 2] int32, wide[0] receives the widened box,
    wide[1] is scratch space.
    """
    best, best_i, best_e = -1, np.inf, np.inf
    for place in range(count):
        box = order[place]
        if relation(queries, query, given.boxes, box, given.rank) == IMPLIED:
            return -1
        copy_box(given.boxes, box, wide, 1)
        e = 0.0
        for k in range(len(lines.sizes)):
            d = given.rank[box, k]
            old_low, old_high = wide[1, d, 0], wide[1, d, 1]
            low, high = min(old_low, queries[query, d, 0]), max(old_high, queries[query, d, 1])
            if low == old_low and high == old_high:
                continue
            below = lines.lower[d, old_low] - lines.lower[d, low]
            above = lines.upper[d, high] - lines.upper[d, old_high]
            extension = (below if 0 < below < np.inf else 0.0) + (above if 0 < above < np.inf else 0.0)
            e += extension * _volume_of_others(wide, d, lines)
            wide[1, d, 0], wide[1, d, 1] = low, high
        i = _infinite_ends(wide, lines)
        if i < best_i or (i == best_i and e < best_e):
            best, best_i, best_e = box, i, e
            copy_box(wide, 1, wide, 0)
    return best


@bare
def _volume_of_others(wide: np.ndarray, but: int, lines: Lines) -> float:
    """The product of the lengths of the box wide[1] in all dimensions but one, without zero and infinite lengths."""
    volume = 1.0
    for d in range(len(lines.sizes)):
        length = _length(wide[1, d, 0], wide[1, d, 1], d, lines)
        if d != but and 0 < length < np.inf:
            volume *= length
    return volume


@bare
def _infinite_ends(wide: np.ndarray, lines: Lines) -> int:
    """The number of infinite ends of the box wide[1]: two for each dimension that it does not reference, 2 (|D| -
    |D_c|), and those of the others."""
    ends = 0
    for d in range(len(lines.sizes)):
        ends += lines.lower[d, wide[1, d, 0]] == -np.inf
        ends += lines.upper[d, wide[1, d, 1]] == np.inf and wide[1, d, 0] < lines.sizes[d] - 1
    return ends
