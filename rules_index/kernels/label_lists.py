"""Collects the distinct labels of each row's rules."""

from __future__ import annotations

import numpy as np

from rules_index.kernels.jit import jit


@jit
def label_lists(
    offsets: np.ndarray,
    rules: np.ndarray,
    starts: np.ndarray,
    labels: np.ndarray,
    last_row: np.ndarray,
    ends: np.ndarray,
    out: np.ndarray,
) -> int:
    """Writes the labels of each row's rules to `out`, ascending and without repeats, as many as fit. Returns how many
    there are.

    offsets [rows + 1] and rules [hits] int32 are the rules of each row; starts [rules + 1] and labels [.] int32 are the
    labels of each rule. last_row [distinct labels] int64 is scratch, all -1. ends [rows + 1] int64 receives the offsets
    of the rows' labels.
    """
    at = 0
    ends[0] = 0
    for row in range(len(offsets) - 1):
        first = at
        for hit in range(offsets[row], offsets[row + 1]):
            rule = rules[hit]
            for place in range(starts[rule], starts[rule + 1]):
                label = labels[place]
                if last_row[label] == row:
                    continue
                last_row[label] = row
                if at < len(out):
                    # insertion sort: a row has few labels
                    spot = at
                    while spot > first and out[spot - 1] > label:
                        out[spot] = out[spot - 1]
                        spot -= 1
                    out[spot] = label
                at += 1
        ends[row + 1] = at
    return at
