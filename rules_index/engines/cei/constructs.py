"""The virtual constructs that intervals are cut into, and their ids: CEI, LCI and UI (CEI paper, sections 2.2 and 3).

An attribute has the domain [0, r) of integers, with r rounded up to a multiple of the segment length L = 2^k. The
kinds:

- CEI: for each segment a perfect binary tree of intervals of lengths L, L/2, .. 1. The local id l is 1 for the whole
  segment; the halves of l are 2l and 2l + 1. In segment i the id is l + 2iL, so that the id 2iL is unused.
- LCI: at every start an interval of each length 1, 2, 4, .. L; the one of length 2^j has the id start (1 + k) + j.
- UI: every unit interval; the id is its start.

The constructs of all attributes are numbered consecutively: construct `id` of attribute a has the place `at[a] + id`.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from rules_index.kernels.jit import jit

Kind = Literal["cei", "lci", "ui"]
CEI, LCI, UI = 0, 1, 2
KINDS: dict[Kind, int] = {"cei": CEI, "lci": LCI, "ui": UI}

MAX_CONSTRUCTS = 1 << 27
"""The most constructs of a layout; each takes 16 bytes, not counting its list."""
MAX_SEGMENTS_LOG = 6
"""Segments are long enough that a domain has at most 2^6 of them, which limits the pieces of an open-ended interval."""
USUAL_K = 4
"""log L of an attribute without intervals: L = 16, as in section 5."""


class ConstructLayout(NamedTuple):
    """The constructs of every attribute.

    kind  [attributes] int32: `CEI`, `LCI` or `UI`
    k     [attributes] int32, log L; 0 for UI
    at    [attributes + 1] int64, the place of the attribute's construct 0
    """

    kind: np.ndarray
    k: np.ndarray
    at: np.ndarray


def lay_out(kind: np.ndarray, sizes: np.ndarray, k: np.ndarray) -> ConstructLayout:
    """Lays out the constructs over domains [0, sizes[a]); kind, k: [attributes]. Raises `ValueError` if there are more
    than `MAX_CONSTRUCTS`."""
    k = np.where(kind == UI, 0, k).astype(np.int32)
    r = (sizes.astype(np.int64) + (np.int64(1) << k) - 1) >> k << k
    ids = np.select([kind == CEI, kind == LCI], [2 * r, r * (1 + k)], r)
    at = np.concatenate([[0], np.cumsum(ids)]).astype(np.int64)
    if at[-1] > MAX_CONSTRUCTS:
        raise ValueError(
            f"the attributes have {at[-1]:,} constructs, more than the {MAX_CONSTRUCTS:,} that are kept; "
            "kind 'ui' has fewest, 'lci' has fewer with a shorter segment length"
        )
    return ConstructLayout(kind.astype(np.int32), k, at)


def choose_k(sizes: np.ndarray, terms: np.ndarray, segment_length: int) -> np.ndarray:
    """Returns log L [attributes] int32 for intervals `terms` [., 3] (attribute, low, high), closed.

    `segment_length` is L for every attribute, a power of two; 0: L is chosen for each attribute. The choice is *ours*,
    since the paper gives none: the power of two nearest to the mean width of the attribute's intervals (beyond it
    storage no longer decreases, section 5.1), but large enough that the domain has at most 64 segments. L is at most r
    rounded up to a power of two.
    """
    attributes = len(sizes)
    whole = np.ceil(np.log2(np.maximum(sizes, 1))).astype(np.int32)
    if segment_length:
        if segment_length < 1 or segment_length & (segment_length - 1):
            raise ValueError(f"a segment length is a power of two, not {segment_length}")
        return np.minimum(segment_length.bit_length() - 1, whole).astype(np.int32)
    number = np.bincount(terms[:, 0], minlength=attributes)
    total = np.bincount(terms[:, 0], weights=terms[:, 2] - terms[:, 1] + 1.0, minlength=attributes)
    mean = np.where(number > 0, total / np.maximum(number, 1), float(1 << USUAL_K))
    nearest = np.rint(np.log2(mean)).astype(np.int32)
    return np.clip(nearest, whole - MAX_SEGMENTS_LOG, whole).astype(np.int32).clip(0)


@jit
def first_piece(kind: int, k: int, a: int, b: int) -> tuple[int, int]:
    """(id, end) of the leftmost piece of [a, b); the other pieces are those of [end, b).

    CEI: the longest construct that starts at `a` and does not exceed `b`; `BestPartition` finds it by climbing from the
    leaf (figure 6). No construct crosses a guiding post, so the segments that [a, b) covers and both remnants of
    `Decomposition` come out from left to right. LCI: likewise the longest at `a` (section 2.2).
    """
    if kind == UI:
        return a, a + 1
    level = k
    if kind == LCI:
        while (1 << level) > b - a:
            level -= 1
        return a * (k + 1) + level, a + (1 << level)
    while (1 << level) > b - a or (a & ((1 << level) - 1)) != 0:
        level -= 1
    segment = a >> k
    leaf = a - (segment << k) + (1 << k)
    return (leaf >> level) + (segment << (k + 1)), a + (1 << level)


@jit
def bounds(kind: int, k: int, construct: int) -> tuple[int, int]:
    """The interval [a, b) of a construct, given its id."""
    if kind == UI:
        return construct, construct + 1
    if kind == LCI:
        start = construct // (k + 1)
        return start, start + (1 << (construct - start * (k + 1)))
    segment = construct >> (k + 1)
    local = construct - (segment << (k + 1))
    level = k
    while local >> (k - level) > 1:
        level -= 1
    start = (segment << k) + (local << level) - (1 << k)
    return start, start + (1 << level)


@jit
def is_piece(kind: int, k: int, construct: int, a: int, b: int) -> bool:
    """Whether a construct is one of the pieces of [a, b)."""
    start, end = bounds(kind, k, construct)
    if start < a or end > b:
        return False
    if kind == UI:
        return True
    length = end - start
    if kind == LCI:
        # whole lengths L from the left, then the powers of two of the remainder, longest first
        whole = (b - a) >> k << k
        if length == 1 << k:
            return start - a < whole and (start - a) & (length - 1) == 0
        rest = b - a - whole
        return rest & length != 0 and start == a + whole + (rest & ~(2 * length - 1))
    if length == 1 << k:
        return True
    parent = start & ~(2 * length - 1)
    return parent < a or parent + 2 * length > b


@jit
def levels(kind: int, k: int) -> int:
    """The number of different lengths of constructs."""
    return 1 if kind == UI else k + 1


@jit
def covering(kind: int, k: int, x: int, level: int) -> tuple[int, int, int]:
    """(id, number, step): the constructs of length 2^level that contain x are id, id - step, id - 2 step, ..

    CEI: one per level, found by a shift (property 4 and figure 11), so k + 1 in all; LCI: 2L - 1 in all.
    """
    if kind == UI:
        return x, 1, 1
    if kind == LCI:
        return x * (k + 1) + level, min(x + 1, 1 << level), k + 1
    segment = x >> k
    leaf = x - (segment << k) + (1 << k)
    return (leaf >> level) + (segment << (k + 1)), 1, 1


@jit
def bounds_of_places(layout: ConstructLayout, places: np.ndarray) -> np.ndarray:
    """(attribute, low, high) [places, 3] int32, closed, of the constructs at ascending places."""
    tests = np.empty((len(places), 3), np.int32)
    attribute = 0
    for i in range(len(places)):
        while places[i] >= layout.at[attribute + 1]:
            attribute += 1
        start, end = bounds(layout.kind[attribute], layout.k[attribute], places[i] - layout.at[attribute])
        tests[i, 0], tests[i, 1], tests[i, 2] = attribute, start, end - 1
    return tests
