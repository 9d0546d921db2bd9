"""The attributes that a multidimensional index bounds; a box's bounds on others are checked at the box."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rules_index.engines.box_store import BoxArrays
from rules_index.index.boxes import Boxes
from rules_index.kernels.jit import jit

MOST_DIMENSIONS = 8
"""The number of attributes that are indexed by default; *ours*, the paper only says "the most selective"."""


class Dimensions(NamedTuple):
    """The d indexed attributes.

    attributes  [d] int32, the most selective first, so that tests fail early
    place       [attributes] int32, the dimension of an attribute, or -1
    last        [d] int32, the last code of each
    """

    attributes: np.ndarray
    place: np.ndarray
    last: np.ndarray


def most_selective(boxes: Boxes) -> np.ndarray:
    """Returns the attributes [at most `MOST_DIMENSIONS`] int32 in which a box spans the smallest share of the codes on
    average, the most selective one first (Kuntschke and Kemper, section 3.6).

    A box that does not bound an attribute spans all of its codes.
    """
    width = boxes.high.astype(np.int64) - boxes.low + 1
    spared = np.bincount(
        boxes.attributes, weights=1 - width / boxes.sizes[boxes.attributes], minlength=len(boxes.sizes)
    )
    return np.argsort(-spared, kind="stable")[:MOST_DIMENSIONS].astype(np.int32)


def make_dimensions(sizes: np.ndarray, attributes: Sequence[int] | np.ndarray) -> Dimensions:
    """The dimensions for these attributes. Raises `ValueError` if one is unknown or given twice."""
    chosen = np.array(attributes, np.int32).reshape(-1)
    if len(np.unique(chosen)) < len(chosen) or ((chosen < 0) | (chosen >= len(sizes))).any():
        raise ValueError(f"dimensions are distinct attributes below {len(sizes)}, not {chosen.tolist()}")
    place = np.full(len(sizes), -1, np.int32)
    place[chosen] = np.arange(len(chosen))
    return Dimensions(chosen, place, (sizes[chosen] - 1).astype(np.int32))


@jit
def box_bounds(slot: int, boxes: BoxArrays, dimensions: Dimensions, bounds: np.ndarray) -> None:
    """Writes a box's sides in every dimension to `bounds` [2 d]: low, high, low, high, ...

    In a dimension that it does not bound, a box spans the attribute's whole range of codes.
    """
    for dimension in range(len(dimensions.last)):
        bounds[2 * dimension] = 0
        bounds[2 * dimension + 1] = dimensions.last[dimension]
    begin = boxes.start[slot]
    for term in range(begin, begin + boxes.length[slot]):
        dimension = dimensions.place[boxes.terms[term, 0]]
        if dimension >= 0:
            bounds[2 * dimension] = boxes.terms[term, 1]
            bounds[2 * dimension + 1] = boxes.terms[term, 2]


@jit
def all_bounds(slots: np.ndarray, boxes: BoxArrays, dimensions: Dimensions) -> np.ndarray:
    """The sides [slots, 2 d] int32 of several boxes."""
    bounds = np.empty((len(slots), 2 * len(dimensions.last)), np.int32)
    for i in range(len(slots)):
        box_bounds(slots[i], boxes, dimensions, bounds[i])
    return bounds
