"""Divides many boxes into few groups, so that the box around each group contains little more than its boxes do.

Kuntschke and Kemper relax a predicate box by box (HCR, algorithm 8); the result depends on which boxes come first. Here
a sample is divided first: until the boxes of each group have a dimension in common, and then like a node of an R*-tree,
each time the group that gains most. Finally algorithm 8 puts each box into a group. A box's extent is the product of
its shares of the codes of each dimension, so that no extent is infinite and all types are measured alike.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rules_index.kernels.jit import inner, jit

SAMPLE = 1 << 12
"""At most so many boxes are divided; of more a sample is."""
_MOST_KEYS = 1 << 5
"""Dimensions along which to divide: those that most boxes name."""
_LEAST_GAIN = 1e-9
_MOST_SHARES = 1 << 22
"""The most shares that are computed at a time, for a division along one dimension."""


class Shares(NamedTuple):
    """Boxes as closed ranges of codes in a few dimensions each; they contain all codes of the other dimensions.

    sizes       [dimensions] int32, number of codes
    start       [boxes + 1] int64 into the others
    dimensions  [.] int32, ascending within a box
    low, high   [.] int32
    """

    sizes: np.ndarray
    start: np.ndarray
    dimensions: np.ndarray
    low: np.ndarray
    high: np.ndarray


def grouped(boxes: Shares, groups: int) -> np.ndarray:
    """The group [boxes] int64, below `groups`, of each box."""
    count = len(boxes.start) - 1
    if count <= groups:
        return np.arange(count)
    room = max(groups, min(SAMPLE, _MOST_SHARES // max(len(boxes.sizes), 1)))
    chosen = np.arange(count)
    if count > room:
        chosen = np.sort(np.random.default_rng(0).permutation(count)[:room])
    dense = _dense(boxes, chosen)
    parts = _divided(dense, boxes.sizes, groups)
    if len(chosen) == count:
        found = np.empty(count, np.int64)
        for number, part in enumerate(parts):
            found[part] = number
        return found
    around = np.stack([_around(dense[part]) for part in parts])
    return np.asarray(put(boxes, around))


def _dense(boxes: Shares, chosen: np.ndarray) -> np.ndarray:
    """The chosen boxes [chosen, dimensions, 2] int32."""
    dense = np.empty((len(chosen), len(boxes.sizes), 2), np.int32)
    dense[:, :, 0], dense[:, :, 1] = 0, boxes.sizes - 1
    for place, box in enumerate(chosen.tolist()):
        terms = slice(boxes.start[box], boxes.start[box + 1])
        dense[place, boxes.dimensions[terms], 0] = boxes.low[terms]
        dense[place, boxes.dimensions[terms], 1] = boxes.high[terms]
    return dense


def _around(dense: np.ndarray) -> np.ndarray:
    """The bounding box [dimensions, 2] of some boxes."""
    return np.stack([dense[:, :, 0].min(axis=0), dense[:, :, 1].max(axis=0)], axis=1)


def _divided(dense: np.ndarray, sizes: np.ndarray, groups: int) -> list[np.ndarray]:
    """The boxes of each group."""
    parts = [np.arange(len(dense))]
    divisions = [_division(dense, sizes)]
    while len(parts) < groups:
        best = max(range(len(parts)), key=lambda part: divisions[part].worth)
        if divisions[best].gain <= _LEAST_GAIN:
            break
        whole, first = parts[best], divisions[best].first
        halves = whole[first], whole[~first]
        parts[best : best + 1] = halves
        divisions[best : best + 1] = [_division(dense[half], sizes) for half in halves]
    return parts


class _Division(NamedTuple):
    """A group's best division.

    says_nothing: whether all boxes name no dimension in common, so that the group contains everything; saved: the part
    of its extent that is in neither half, 0 where these overlap by as much; gain: the decrease of the sum of the
    logarithms of the extents that the boxes are in; first: [boxes] bool, one half.
    """

    says_nothing: bool
    saved: float
    gain: float
    first: np.ndarray

    @property
    def worth(self) -> tuple[bool, float, float]:
        """The key by which groups are chosen: a group that contains everything first, because it makes all groups
        useless."""
        return self.says_nothing, self.saved, self.gain


def _division(dense: np.ndarray, sizes: np.ndarray) -> _Division:
    named = ((dense[:, :, 0] > 0) | (dense[:, :, 1] < sizes - 1)).sum(axis=0)
    along = np.argsort(-named, kind="stable")[:_MOST_KEYS]
    if named.max(initial=0) < len(dense):
        low, high = dense[:, along[0], 0], dense[:, along[0], 1]
        return _Division(True, 0.0, 1.0, (low > 0) | (high < sizes[along[0]] - 1))
    best = _Division(False, 0.0, 0.0, np.zeros(len(dense), bool))
    if len(dense) < 2:
        return best
    for dimension in along[named[along] > 0].tolist():
        low, high = dense[:, dimension, 0], dense[:, dimension, 1]
        for order in (np.lexsort((high, low)), np.lexsort((low, high)), np.argsort(high - low, kind="stable")):
            saved, gain, count = divide(dense, order, sizes)
            if (saved, gain) > (best.saved, best.gain):
                half = np.zeros(len(dense), bool)
                half[order[:count]] = True
                best = best._replace(saved=saved, gain=gain, first=half)
    return best


@inner
def _extent(box: np.ndarray, sizes: np.ndarray) -> float:
    """The product of a box's [dimensions, 2] shares of the codes of each dimension."""
    found = 1.0
    for d in range(len(sizes)):
        found *= (box[d, 1] - box[d, 0] + 1) / sizes[d]
    # many narrow dimensions could make it 0, which has no logarithm
    return max(found, 1e-300)


@inner
def _widen(box: np.ndarray, other: np.ndarray) -> None:
    """Widens a box [dimensions, 2] to contain another."""
    for d in range(len(box)):
        box[d, 0] = min(box[d, 0], other[d, 0])
        box[d, 1] = max(box[d, 1], other[d, 1])


@jit
def divide(dense: np.ndarray, order: np.ndarray, sizes: np.ndarray) -> tuple[float, float, int]:
    """The best division of boxes [n, d, 2] into the first of an order [n] int64 and the rest: `saved` and `gain` as in
    `_Division`, and how many are the first. If none saves anything, it is the one with most gain."""
    count = len(order)
    behind = np.empty(count + 1)
    box = dense[order[count - 1]].copy()
    for i in range(count - 1, -1, -1):
        _widen(box, dense[order[i]])
        behind[i] = _extent(box, sizes)
    box = dense[order[0]].copy()
    best_saved, best_gain, first = 0.0, 0.0, 0
    for i in range(count - 1):
        _widen(box, dense[order[i]])
        before = _extent(box, sizes)
        saved = max(0.0, behind[0] - before - behind[i + 1])
        gain = -(i + 1) * np.log(before / behind[0]) - (count - i - 1) * np.log(behind[i + 1] / behind[0])
        if saved > best_saved or (saved == best_saved and gain > best_gain):
            best_saved, best_gain, first = saved, gain, i + 1
    return best_saved, best_gain, first


@jit
def put(boxes: Shares, around: np.ndarray) -> np.ndarray:
    """Algorithm 8: puts each box into the group whose box [groups, d, 2] grows least by it, and widens that box.
    Returns the group [boxes] int64 of each."""
    groups = len(around)
    found = np.empty(len(boxes.start) - 1, np.int64)
    extent = np.empty(groups)
    for group in range(groups):
        extent[group] = _extent(around[group], boxes.sizes)
    box = np.empty_like(around[0])
    wide = np.empty_like(around[0])
    for i in range(len(found)):
        for d in range(len(box)):
            box[d, 0], box[d, 1] = 0, boxes.sizes[d] - 1
        for term in range(boxes.start[i], boxes.start[i + 1]):
            box[boxes.dimensions[term], 0] = boxes.low[term]
            box[boxes.dimensions[term], 1] = boxes.high[term]
        best, least = 0, np.inf
        for group in range(groups):
            wide[:] = around[group]
            _widen(wide, box)
            grown = _extent(wide, boxes.sizes) - extent[group]
            if grown < least:
                best, least = group, grown
        found[i] = best
        _widen(around[best], box)
        extent[best] = _extent(around[best], boxes.sizes)
    return found
