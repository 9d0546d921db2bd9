"""Kernels that compare boxes dimension by dimension: quick check, comparison with cuts, relaxation.

Kuntschke and Kemper, algorithms 6, 8 and 9. A box is [d, 2] int32, a closed range of codes in each of d dimensions;
`rank` [d] int32 are the dimensions in the order in which they are looked at: short ones first (6.1).
"""

from __future__ import annotations

import numpy as np

from rules_index.kernels.jit import jit

IMPLIED, OVERLAPS, APART = 1, 0, -1
"""What algorithm 6 returns."""


@jit
def relation(part: np.ndarray, box: np.ndarray, rank: np.ndarray) -> int:
    """`IMPLIED` where a part lies within a box, `OVERLAPS` where they share a row, else `APART`."""
    within = True
    for i in range(len(rank)):
        d = rank[i]
        if part[d, 0] > box[d, 1] or part[d, 1] < box[d, 0]:
            return APART
        within &= part[d, 0] >= box[d, 0] and part[d, 1] <= box[d, 1]
    return IMPLIED if within else OVERLAPS


@jit
def check_quickly(part: np.ndarray, boxes: np.ndarray, rank: np.ndarray, order: np.ndarray) -> int:
    """Algorithm 6 (QC) of a part against the boxes [n, d, 2] named in `order` [.] int64, one by one."""
    found = APART
    for i in range(len(order)):
        box = order[i]
        how = relation(part, boxes[box], rank[box])
        if how == IMPLIED:
            return IMPLIED
        if how == OVERLAPS:
            found = OVERLAPS
    return found


@jit
def compare_dimensions(box: np.ndarray, rank: np.ndarray, part: np.ndarray, out: np.ndarray, at: int) -> int:
    """Algorithm 9 (CD): writes what of a part no row of which lies in a box to `out`[at:] [., d, 2]; how many parts.

    Whole where the two are apart; else up to two parts for each dimension in which the part stands out, cut off one
    dimension after the other. `part` is cut down to what lies in the box.
    """
    if relation(part, box, rank) == APART:
        out[at] = part
        return 1
    made = 0
    for i in range(len(rank)):
        d = rank[i]
        if part[d, 0] < box[d, 0]:
            out[at + made] = part
            out[at + made, d, 1] = box[d, 0] - 1
            part[d, 0] = box[d, 0]
            made += 1
        if part[d, 1] > box[d, 1]:
            out[at + made] = part
            out[at + made, d, 0] = box[d, 1] + 1
            part[d, 1] = box[d, 1]
            made += 1
    return made


@jit
def _length(low: int, high: int, null: int, lower: np.ndarray, upper: np.ndarray) -> float:
    """Of a range of codes on the number line; NULL alone has none."""
    return 0.0 if low == null else upper[high] - lower[low]


@jit
def relax(
    query: np.ndarray,
    boxes: np.ndarray,
    rank: np.ndarray,
    order: np.ndarray,
    sizes: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    relaxed: np.ndarray,
) -> int:
    """Algorithm 8 (HCR), lines 6 to 31: the box that is widened to hold `query`, or -1 where one holds it as it is.

    `relaxed` [d, 2] is what it becomes: with fewest infinite ends i, then least increase of volume e; the first in
    `order` on ties. lower, upper: as in `Space`. An infinite extension counts in i alone.
    """
    best, best_i, best_e = -1, np.inf, np.inf
    wide = np.empty_like(query)
    for place in range(len(order)):
        box = order[place]
        if relation(query, boxes[box], rank[box]) == IMPLIED:
            return -1
        wide[:] = boxes[box]
        e = 0.0
        for k in range(len(sizes)):
            d = rank[box, k]
            if query[d, 0] >= wide[d, 0] and query[d, 1] <= wide[d, 1]:
                continue
            low, high = min(wide[d, 0], query[d, 0]), max(wide[d, 1], query[d, 1])
            extension = 0.0
            for more in (lower[d, wide[d, 0]] - lower[d, low], upper[d, high] - upper[d, wide[d, 1]]):
                if 0 < more < np.inf:
                    extension += more
            e += extension * _volume_of_others(wide, d, sizes, lower, upper)
            wide[d, 0], wide[d, 1] = low, high
        i = _infinite_ends(wide, sizes, lower, upper)
        if i < best_i or (i == best_i and e < best_e):
            best, best_i, best_e = box, i, e
            relaxed[:] = wide
    return best


@jit
def _volume_of_others(box: np.ndarray, but: int, sizes: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> float:
    """Product of the lengths, neither zero nor infinite, of the other dimensions of a box as widened so far."""
    volume = 1.0
    for d in range(len(sizes)):
        length = _length(box[d, 0], box[d, 1], sizes[d] - 1, lower[d], upper[d])
        if d != but and 0 < length < np.inf:
            volume *= length
    return volume


@jit
def _infinite_ends(box: np.ndarray, sizes: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> int:
    """2 (|D| - |D_c|) for the dimensions not referenced, and the infinite ends of the others."""
    ends = 0
    for d in range(len(sizes)):
        ends += lower[d, box[d, 0]] == -np.inf
        ends += upper[d, box[d, 1]] == np.inf and box[d, 0] < sizes[d] - 1
    return ends
