"""Turns the rules of each row into the rows of each rule."""

from __future__ import annotations

import numpy as np

from rules_index.kernels.jit import jit


@jit
def rows_by_rule(ordinals: np.ndarray, lengths: np.ndarray, starts: np.ndarray, out: np.ndarray) -> None:
    """Sorts pairs of a row and a rule by rule, then by row: a counting sort.

    ordinals [pairs] int32 are the rules of row 0, then those of row 1 and so on; lengths [rows] int32 says how many
    each row has. out [pairs] int32 receives the rows of each rule. starts [rules + 2] int64, all 0, receives where each
    rule's rows begin in `out`; its last two elements are the number of pairs.
    """
    for pair in range(len(ordinals)):
        starts[ordinals[pair] + 2] += 1
    for rule in range(2, len(starts)):
        starts[rule] += starts[rule - 1]
    pair = 0
    for row in range(len(lengths)):
        for _ in range(lengths[row]):
            # starts[rule + 1] is where the rule's next row goes; in the end, where the rows of the next rule begin
            place = ordinals[pair] + 1
            out[starts[place]] = row
            starts[place] += 1
            pair += 1
