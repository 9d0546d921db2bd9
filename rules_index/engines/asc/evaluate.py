"""Evaluates rows along a macro- or hybrid-sequence and counts the cost (ASC paper, sections 3.2 and 5.1)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rules_index.kernels.jit import jit
from rules_index.kernels.lists import grown
from rules_index.kernels.vectors import trailing_zeros

COSTS = ("constructs_evaluated", "arrows", "micro_arrows", "dropped", "matches")
CONSTRUCTS_EVALUATED, ARROWS, MICRO_ARROWS, DROPPED, MATCHES = range(5)
"""What an evaluation counts. The paper's cost is the number of constructs evaluated, each at 1. Arrows are the steps
from one construct to the next, micro-arrows those given by a region. A row is dropped when GRB is all zeros."""


class Bitmaps(NamedTuple):
    """The constructs as kernels read them; bitmaps have `words` words of uint64.

    region_at [attributes] int64, the region of code 0, -1 where the attribute has no construct; qub [attributes, .];
    qrb [regions, .]; live [.], the bits that belong to a conjunction.
    """

    region_at: np.ndarray
    qub: np.ndarray
    qrb: np.ndarray
    live: np.ndarray
    words: int


class Order(NamedTuple):
    """An evaluation sequence.

    macro   [p-attributes] int32, the macro-sequence
    arrows  [regions] int32, the target attribute of a region's micro-arrow, -1 where it has none; [0] if there are no
            micro-arrows at all
    """

    macro: np.ndarray
    arrows: np.ndarray


@jit
def evaluate(grb: np.ndarray, qrb: np.ndarray, region: int, words: int) -> bool:
    """`GRB &= qrb` of one region; returns whether a bit is left."""
    left = np.uint64(0)
    for word in range(words):
        grb[word] &= qrb[region, word]
        left |= grb[word]
    return left != 0


@jit
def next_attribute(order: Order, region: int, geb: np.ndarray, position: int) -> tuple[int, int, bool]:
    """(attribute, position, whether by a micro-arrow): where the evaluation continues after a region.

    It continues with the target of the region's micro-arrow, unless there is none or GEB shows it as evaluated
    (possible on a path other than those on which the arrow was found). Otherwise it continues with the earliest
    attribute of the macro-sequence that GEB does not show as evaluated. All attributes before `position` of the
    macro-sequence are evaluated; at least one attribute must be left.
    """
    if len(order.arrows) > 0:
        target = order.arrows[region]
        if target >= 0 and geb[target] == 0:
            return target, position, True
    while geb[order.macro[position]] != 0:
        position += 1
    return order.macro[position], position, False


@jit
def evaluate_rows(
    codes: np.ndarray,
    bitmaps: Bitmaps,
    order: Order,
    key_of: np.ndarray,
    unbounded: np.ndarray,
    collect: bool,
    costs: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """(offsets [rows + 1] int64, keys [.] int32, ascending within a row) of the conjunctions that each row satisfies.

    codes [attributes, rows] int32. key_of [slots] int32; unbounded [.] int32, the keys that match every row. If
    `collect` is False, it only counts. Adds to costs [5] int64.
    """
    rows = codes.shape[1]
    number = len(order.macro)
    offsets = np.zeros(rows + 1, np.int64)
    keys = np.empty(rows if collect else 0, np.int32)
    grb = np.empty(bitmaps.words, np.uint64)
    geb = np.empty(codes.shape[0], np.uint8)
    found = evaluated = micro = dropped = first_arrows = 0
    for row in range(rows):
        for word in range(bitmaps.words):
            grb[word] = bitmaps.live[word]
        geb[:] = 0
        left = number > 0
        done = position = 0
        attribute = order.macro[0] if left else 0
        by_micro = False
        while left and done < number:
            region = bitmaps.region_at[attribute] + codes[attribute, row]
            left = evaluate(grb, bitmaps.qrb, region, bitmaps.words)
            geb[attribute] = 1
            done += 1
            if left and done < number:
                attribute, position, by_micro = next_attribute(order, region, geb, position)
                micro += by_micro
        evaluated += done
        first_arrows += done > 0
        dropped += not left
        if collect:
            keys, found = _collect(grb, bitmaps.words if left else 0, key_of, unbounded, keys, offsets[row])
            offsets[row + 1] = found
    costs[CONSTRUCTS_EVALUATED] += evaluated
    costs[ARROWS] += evaluated - first_arrows
    costs[MICRO_ARROWS] += micro
    costs[DROPPED] += dropped
    costs[MATCHES] += found
    return offsets, keys[:found]


@jit
def _collect(
    grb: np.ndarray, words: int, key_of: np.ndarray, unbounded: np.ndarray, keys: np.ndarray, begin: int
) -> tuple[np.ndarray, int]:
    """Appends the conjunctions whose bits are left. Returns the keys, reallocated if they had to grow, and their new
    end."""
    found = begin
    needed = begin + len(unbounded) + 64 * words
    if needed > len(keys):
        keys = grown(keys, needed)
    for key in unbounded:
        keys[found] = key
        found += 1
    for word in range(words):
        left = grb[word]
        while left != 0:
            keys[found] = key_of[(word << 6) + np.int64(trailing_zeros(left))]
            found += 1
            left &= left - np.uint64(1)
    keys[begin:found].sort()
    return keys, found
