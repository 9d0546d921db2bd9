"""Tests the alternatives of a rule together: which ones the others make superfluous, and whether they cover every
row."""

from __future__ import annotations

import numpy as np

from rules_index.arrays import gather_indices, offsets_of, segment_counts
from rules_index.implication.cover import COVERED, cover_boxes
from rules_index.implication.region_boxes import RegionBoxes

SPLITS = 1 << 14
"""The comparisons of a part with a box after which the box is left undecided."""
MOST_ALTERNATIVES = 200
"""Of a rule with more, none is said to be redundant: each is compared with all others. For so many over a hundred
columns and patterns this takes a second, and it grows with more than their square."""


def always_true(boxes: RegionBoxes) -> np.ndarray:
    """Which rules [rules] bool are TRUE on every row."""
    rules = np.arange(boxes.rules)
    every = np.full(boxes.rules, boxes.everything)
    return _covered(every, rules, boxes.rule_start, np.arange(len(boxes.rule)), boxes)


def redundant(boxes: RegionBoxes, box_start: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Which alternatives [alternatives] bool the other alternatives of their rule cover.

    Alternative i has the boxes box_start[i] to box_start[i + 1], rule j the alternatives start[j] to start[j + 1]. The
    last alternative of each rule is tried first, and one that is covered is removed from the others. One without boxes
    is not covered, and covers nothing. Rules with more than `MOST_ALTERNATIVES` are skipped.
    """
    needed = np.ones(len(box_start) - 1, bool)
    count = np.diff(start)
    count[count > MOST_ALTERNATIVES] = 0
    for turn in range(int(count.max(initial=0)) if (count > 1).any() else 0):
        rules = np.flatnonzero((count > turn) & (count > 1))
        tried = start[rules + 1] - 1 - turn
        needed[tried] = False
        gather, group = gather_indices(start, rules)
        others, other_start = gather_indices(box_start, gather[needed[gather]])
        other_start = other_start[offsets_of(segment_counts(needed[gather], group))]
        tried_boxes, tried_start = gather_indices(box_start, tried)
        owner = np.repeat(np.arange(len(tried)), np.diff(tried_start))
        covered = _covered(tried_boxes, owner, other_start, others, boxes)
        held = segment_counts(covered, tried_start)
        needed[tried] = (held < np.diff(tried_start)) | (held == 0)
    return ~needed


def _covered(
    tried: np.ndarray, group: np.ndarray, start: np.ndarray, others: np.ndarray, boxes: RegionBoxes
) -> np.ndarray:
    """Which boxes [n] bool `cover_boxes` finds to be covered."""
    rows = np.empty((len(tried), 0), np.int32)
    return np.asarray(cover_boxes(tried, group, start, others, SPLITS, boxes.arrays, rows) == COVERED)
