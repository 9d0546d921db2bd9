"""Divides many boxes into few groups, so that the box around each group contains little more than its boxes do.

Kuntschke and Kemper relax a predicate box by box (HCR, algorithm 8); the result depends on which boxes come first. Here
a sample is divided first. While there is a group without a dimension that all its boxes name, it is divided; then the
group that gains most is divided, like a node of an R*-tree. Finally algorithm 8 puts each box into a group. A box's
extent is a product over the dimensions of the share of their codes that it contains, so that no extent is infinite and
all types are measured alike.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rules_index.kernels.jit import inner, jit

SAMPLE = 1 << 12
"""The most boxes that are divided; if there are more, a sample of them is."""
_MOST_KEYS = 1 << 5
"""The most dimensions along which a division is tried: those that most boxes name."""
_LEAST_GAIN = 1e-9
_MOST_SHARES = 1 << 22
"""The most ranges of the sample: its boxes times all dimensions."""


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
    """The lowest and the highest code of the chosen boxes in every dimension, [chosen, dimensions, 2] int32."""
    dense = np.empty((len(chosen), len(boxes.sizes), 2), np.int32)
    dense[:, :, 0], dense[:, :, 1] = 0, boxes.sizes - 1
    for place, box in enumerate(chosen.tolist()):
        terms = slice(boxes.start[box], boxes.start[box + 1])
        dense[place, boxes.dimensions[terms], 0] = boxes.low[terms]
        dense[place, boxes.dimensions[terms], 1] = boxes.high[terms]
    return dense


def _around(dense: np.ndarray) -> np.ndarray:
    """The bounding box [dimensions, 2] of boxes [n, dimensions, 2]."""
    return np.stack([dense[:, :, 0].min(axis=0), dense[:, :, 1].max(axis=0)], axis=1)


def _divided(dense: np.ndarray, sizes: np.ndarray, groups: int) -> list[np.ndarray]:
    """Divides boxes [n, dimensions, 2] into at most `groups` groups; returns the indices [.] int64 of each one's
    boxes."""
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

    says_nothing: whether no dimension is named by all boxes, so that the box around the group contains everything;
    saved: the group's extent less those of its halves, at least 0; gain: how much the logarithms of the extents around
    the boxes, summed over the boxes, decrease; first: [boxes] bool, one half.
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
    """The best division of a group of boxes [n, dimensions, 2].

    If no dimension is named by all boxes, it separates the boxes that name the most frequent one from the rest. Else
    boxes are sorted along each dimension by low end, by high end and by width, and each order is divided in two.
    """
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
    """The product over the dimensions of the share of their codes that a box [dimensions, 2] contains."""
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
    """The best division of boxes [n, d, 2] into the first few of an order [n] int64 and the rest: its `saved` and
    `gain` as in `_Division`, and how many boxes come first. Of divisions that save the same, the one that gains
    most."""
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
    """Algorithm 8: puts each box into the group that has to grow least to contain it, and widens the box `around`
    [groups, d, 2] of that group. Returns the group [boxes] int64 of each box."""
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
