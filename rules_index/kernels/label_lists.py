"""The labels of each row's rules, each once."""

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
    """Writes the labels of each row's rules into `out`, ascending and each once, as many as fit; how many there are.

    offsets [rows + 1] and rules [hits] int32 are the rows' rules; starts [rules + 1] and labels [.] int32 each rule's
    labels; last_row [labels] int64 is scratch, all -1; ends [rows + 1] int64 becomes where each row's labels begin.
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
                    # few labels a row: each is put where it belongs
                    spot = at
                    while spot > first and out[spot - 1] > label:
                        out[spot] = out[spot - 1]
                        spot -= 1
                    out[spot] = label
                at += 1
        ends[row + 1] = at
    return at
