"""PDFA's searches as functions: FIRST, SECOND on the list of intermediate results (figure 6), a scan of all boxes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from benchmarks.jit import inner, jit
from rules_index.engines.box_store import BoxArrays
from rules_index.engines.r_tree.dimensions import Dimensions
from rules_index.engines.r_tree.nodes import Nodes
from rules_index.join.pdfa.filtering import ENTRIES, Marks, collect_first, inside, stack_size
from rules_index.kernels.lists import grown
from rules_index.kernels.vectors import trailing_zeros

BUCKETS = 64
"""An attribute's codes are divided into at most this many ranges. For each range a bitmap has the survivors that
overlap it, so that only those are compared with a row (*ours*)."""


class Survivors(NamedTuple):
    """The list of intermediate results (figure 6), with the bounds that SECOND still has to test in columns.

    key        [survivors] int32, ascending
    low, high  [attributes, survivors] int32, closed; the whole range of codes for an attribute that a box does not
               bound
    shift      [attributes] int64; the bucket of a code is `code >> shift`
    reaching   [attributes, BUCKETS + 1, words] uint64, bitmaps: the survivors that overlap the bucket
    """

    key: np.ndarray
    low: np.ndarray
    high: np.ndarray
    shift: np.ndarray
    reaching: np.ndarray


@jit
def search_first(
    row: np.ndarray, chosen: np.ndarray, nodes: Nodes, boxes: BoxArrays, dimensions: Dimensions, marks: Marks,
    stamp: int, totals: np.ndarray,
) -> np.ndarray:  # fmt: skip
    """FIRST: the slots [.] int32 of the boxes that a row is inside in the chosen attributes [attributes] bool.

    They and all nodes above them are marked on the way back; paths without a result stay unmarked.
    """
    found = np.empty(len(boxes.key), np.int32)
    stack = np.empty(stack_size(nodes), np.int32)
    count = collect_first(row, chosen, nodes, boxes, dimensions, marks, stamp, totals, stack, found)
    return found[:count].copy()


@jit
def list_survivors(slots: np.ndarray, attributes: np.ndarray, boxes: BoxArrays, sizes: np.ndarray) -> Survivors:
    """Returns the boxes in these slots as survivors, with their bounds on `attributes` [.] int64, in that order."""
    slots = slots[np.argsort(boxes.key[slots])]
    place = np.full(len(sizes), np.int64(-1))
    low = np.zeros((len(attributes), len(slots)), np.int32)
    high = np.empty((len(attributes), len(slots)), np.int32)
    for at in range(len(attributes)):
        place[attributes[at]] = at
        high[at] = sizes[attributes[at]] - 1
    for i in range(len(slots)):
        begin = boxes.start[slots[i]]
        for term in range(begin, begin + boxes.length[slots[i]]):
            at = place[boxes.terms[term, 0]]
            if at >= 0:
                low[at, i] = boxes.terms[term, 1]
                high[at, i] = boxes.terms[term, 2]
    shift = np.zeros(len(attributes), np.int64)
    reaching = np.zeros((len(attributes), BUCKETS + 1, (len(slots) + 63) // 64), np.uint64)
    for at in range(len(attributes)):
        while (sizes[attributes[at]] - 1) >> shift[at] >= BUCKETS:
            shift[at] += 1
        _set_reaching(low[at], high[at], shift[at], reaching[at])
    return Survivors(boxes.key[slots], low, high, shift, reaching)


@inner
def _set_reaching(low: np.ndarray, high: np.ndarray, shift: int, reaching: np.ndarray) -> None:
    """Writes the bitmaps [BUCKETS + 1, words] of one attribute, given the bounds low and high [survivors] int32."""
    for i in range(len(low)):
        bit = np.uint64(1) << np.uint64(i & 63)
        reaching[low[i] >> shift, i >> 6] ^= bit
        reaching[(high[i] >> shift) + 1, i >> 6] ^= bit
    # a running XOR: a survivor's bit is set from the bucket of its low bound to that of its high bound
    for bucket in range(1, len(reaching)):
        for word in range(reaching.shape[1]):
            reaching[bucket, word] ^= reaching[bucket - 1, word]


@jit
def search_list(rows: np.ndarray, survivors: Survivors, totals: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """SECOND on the list of survivors, for rows of codes [rows, attributes] int32 of the survivors' attributes.

    Returns offsets [rows + 1] int64 and the keys [.] int32 of the boxes, ascending for each row.
    """
    many = len(survivors.key)
    attributes = rows.shape[1]
    offsets = np.zeros(len(rows) + 1, np.int64)
    keys = np.empty(max(64, many), np.int32)
    left = np.empty((many + 63) // 64, np.uint64)
    count = 0
    for i in range(len(rows)):
        left[:] = ~np.uint64(0)
        if many & 63:
            left[-1] >>= np.uint64(64 - (many & 63))
        for attribute in range(attributes):
            left &= survivors.reaching[attribute, rows[i, attribute] >> survivors.shift[attribute]]
        if count + many > len(keys):
            keys = grown(keys, count + many)
        for word in range(len(left)):
            bits = left[word]
            while bits != 0:
                at = 64 * word + np.int64(trailing_zeros(bits))
                bits &= bits - np.uint64(1)
                keys[count] = survivors.key[at]
                count += _is_inside(rows[i], survivors, at)
        offsets[i + 1] = count
        totals[ENTRIES] += many
    return offsets, keys[:count].copy()


@inner
def _is_inside(row: np.ndarray, survivors: Survivors, at: int) -> bool:
    """Whether a row is inside a survivor."""
    for attribute in range(len(row)):
        code = row[attribute]
        if code < survivors.low[attribute, at] or survivors.high[attribute, at] < code:
            return False
    return True


@jit
def scan_boxes(rows: np.ndarray, boxes: BoxArrays, totals: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Compares every box with every row of codes [rows, attributes] int32. Returns the same as `search_list`."""
    offsets = np.zeros(len(rows) + 1, np.int64)
    keys = np.empty(max(64, len(boxes.key)), np.int32)
    every = np.ones(rows.shape[1], np.bool_)
    count = 0
    for i in range(len(rows)):
        if count + len(boxes.key) > len(keys):
            keys = grown(keys, count + len(boxes.key))
        for slot in range(len(boxes.key)):
            if boxes.key[slot] >= 0:
                totals[ENTRIES] += 1
                if inside(slot, rows[i], every, boxes):
                    keys[count] = boxes.key[slot]
                    count += 1
        offsets[i + 1] = count
        keys[offsets[i] : count].sort()
    return offsets, keys[:count].copy()
