"""Area, margin and overlap of rectangles over codes.

A rectangle [2 d] int32 is low, high, low, high, ...; closed, so that a single code has the length 1. Lengths are shares
of their attribute's codes (*ours*), so that an attribute does not weigh more because more constants divide it.
"""

from __future__ import annotations

import numpy as np

from rules_index.kernels.jit import jit


@jit
def area(a: np.ndarray, share: np.ndarray) -> float:
    """The product of the lengths; share: [d] float64, the length of one code."""
    product = 1.0
    for i in range(len(share)):
        product *= (np.float64(a[2 * i + 1]) - a[2 * i] + 1) * share[i]
    return product


@jit
def margin(a: np.ndarray, share: np.ndarray) -> float:
    """The sum of the lengths."""
    total = 0.0
    for i in range(len(share)):
        total += (np.float64(a[2 * i + 1]) - a[2 * i] + 1) * share[i]
    return total


@jit
def union_area(a: np.ndarray, b: np.ndarray, share: np.ndarray) -> float:
    """The area of the bounding rectangle of both."""
    product = 1.0
    for i in range(len(share)):
        low = min(a[2 * i], b[2 * i])
        high = max(a[2 * i + 1], b[2 * i + 1])
        product *= (np.float64(high) - low + 1) * share[i]
    return product


@jit
def overlap_area(a: np.ndarray, b: np.ndarray, share: np.ndarray) -> float:
    """The area of the intersection."""
    product = 1.0
    for i in range(len(share)):
        low = max(a[2 * i], b[2 * i])
        high = min(a[2 * i + 1], b[2 * i + 1])
        if low > high:
            return 0.0
        product *= (np.float64(high) - low + 1) * share[i]
    return product


@jit
def enlarge(a: np.ndarray, b: np.ndarray) -> None:
    """Enlarges `a` to the bounding rectangle of both."""
    for i in range(0, len(a), 2):
        a[i] = min(a[i], b[i])
        a[i + 1] = max(a[i + 1], b[i + 1])


@jit
def distance(a: np.ndarray, b: np.ndarray, share: np.ndarray) -> float:
    """The square of the distance between the centres, lengths being shares."""
    total = 0.0
    for i in range(len(share)):
        apart = 0.5 * share[i] * (np.float64(a[2 * i]) + a[2 * i + 1] - b[2 * i] - b[2 * i + 1])
        total += apart * apart
    return total
