"""Divides the entries of an overfull node in two.

Quadratic split: Guttman, R-trees, SIGMOD 1984, section 3.5.2 ([17] of Kuntschke and Kemper). R*-split: Beckmann,
Kriegel, Schneider and Seeger, The R*-tree, SIGMOD 1990, section 4.2 (their [3]).
"""

from __future__ import annotations

import numpy as np

from rules_index.engines.r_tree.rectangles import area, enlarge, margin, overlap_area, union_area
from rules_index.kernels.jit import jit


@jit
def quadratic_split(rectangles: np.ndarray, share: np.ndarray, min_entries: int) -> np.ndarray:
    """Returns the side, 0 or 1 ([n] uint8), of each of `rectangles` [n, 2 d]; both sides have at least `min_entries`.

    The two rectangles that waste most area together are the seeds. Then, one by one, the rectangle with the greatest
    preference joins the side that it enlarges less; ties by area, then by number of entries.
    """
    n = len(rectangles)
    side = np.full(n, 2, np.uint8)
    covers = np.empty((2, rectangles.shape[1]), np.int32)
    members = np.ones(2, np.int64)
    for i, seed in enumerate(_pick_seeds(rectangles, share)):
        side[seed] = i
        covers[i] = rectangles[seed]
    for left in range(n - 2, 0, -1):
        areas = area(covers[0], share), area(covers[1], share)
        chosen, preference = -1, 0.0
        for i in range(n):
            if side[i] == 2:
                grown_0 = union_area(covers[0], rectangles[i], share) - areas[0]
                grown_1 = union_area(covers[1], rectangles[i], share) - areas[1]
                if chosen < 0 or abs(grown_1 - grown_0) > abs(preference):
                    chosen, preference = i, grown_1 - grown_0
        if members[0] + left == min_entries or members[1] + left == min_entries:
            target = 0 if members[0] + left == min_entries else 1
        elif preference != 0:
            target = 0 if preference > 0 else 1
        elif areas[0] != areas[1]:
            target = 0 if areas[0] < areas[1] else 1
        else:
            target = 0 if members[0] <= members[1] else 1
        side[chosen] = target
        members[target] += 1
        enlarge(covers[target], rectangles[chosen])
    return side


@jit
def _pick_seeds(rectangles: np.ndarray, share: np.ndarray) -> tuple[int, int]:
    """The two rectangles that waste most area: that of their bounding rectangle less their own."""
    first, second, most = 0, 1, -np.inf
    for i in range(len(rectangles)):
        for j in range(i + 1, len(rectangles)):
            waste = union_area(rectangles[i], rectangles[j], share)
            waste -= area(rectangles[i], share) + area(rectangles[j], share)
            if waste > most:
                first, second, most = i, j, waste
    return first, second


@jit
def r_star_split(rectangles: np.ndarray, share: np.ndarray, min_entries: int) -> np.ndarray:
    """Returns the side, 0 or 1 ([n] uint8), of each of `rectangles` [n, 2 d]; both sides have at least `min_entries`.

    The axis is the one with the smallest sum of margins over all distributions of the rectangles, sorted by their low
    and by their high sides. Along it, the distribution with the least overlap is taken, ties by area.
    """
    n = len(rectangles)
    axis, least = 0, np.inf
    for dimension in range(len(share)):
        total = 0.0
        for upper in range(2):
            order = _sorted(rectangles, dimension, upper)
            left, right = _covers(rectangles, order)
            for k in range(min_entries, n - min_entries + 1):
                total += margin(left[k - 1], share) + margin(right[k], share)
        if total < least:
            axis, least = dimension, total
    side = np.ones(n, np.uint8)
    side[: n // 2] = 0
    best_overlap, best_area = np.inf, np.inf
    for upper in range(2 if len(share) else 0):
        order = _sorted(rectangles, axis, upper)
        left, right = _covers(rectangles, order)
        for k in range(min_entries, n - min_entries + 1):
            overlap = overlap_area(left[k - 1], right[k], share)
            total_area = area(left[k - 1], share) + area(right[k], share)
            if overlap < best_overlap or (overlap == best_overlap and total_area < best_area):
                best_overlap, best_area = overlap, total_area
                side[:] = 1
                side[order[:k]] = 0
    return side


@jit
def _sorted(rectangles: np.ndarray, dimension: int, upper: int) -> np.ndarray:
    """The order [n] of the rectangles by one side of a dimension, ties by the other; insertion sort, as there are
    few."""
    order = np.arange(len(rectangles))
    first, second = 2 * dimension + upper, 2 * dimension + 1 - upper
    for i in range(1, len(order)):
        moved = order[i]
        to = i
        while to > 0:
            a, b = rectangles[order[to - 1]], rectangles[moved]
            if a[first] < b[first] or (a[first] == b[first] and a[second] <= b[second]):
                break
            order[to] = order[to - 1]
            to -= 1
        order[to] = moved
    return order


@jit
def _covers(rectangles: np.ndarray, order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The bounding rectangles of the first i, and of the i-th to the last, in this order: two [n, 2 d] int32."""
    left = rectangles[order]
    right = rectangles[order]
    for i in range(1, len(order)):
        enlarge(left[i], left[i - 1])
        enlarge(right[len(order) - 1 - i], right[len(order) - i])
    return left, right
