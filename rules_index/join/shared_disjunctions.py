"""What the gates of a rule set name, and which of them say anything of some attributes."""

from __future__ import annotations

import numpy as np

from rules_index.join.streams import ACROSS
from rules_index.kernels.jit import jit


@jit
def named_owners(
    start: np.ndarray, terms: np.ndarray, gate_start: np.ndarray, owner: np.ndarray, streams: int
) -> np.ndarray:
    """What each gate names, the gates within it included: bits [gates] int64, one for each stream, then one for
    `ACROSS` and one for `UNKNOWN`."""
    named = np.zeros(len(gate_start) - 1, np.int64)
    for gate in range(len(named)):
        for term in range(start[gate_start[gate]], start[gate_start[gate + 1]]):
            attribute, which = terms[term]
            if attribute < 0:
                named[gate] |= named[which]
            elif owner[attribute] >= 0:
                named[gate] |= 1 << owner[attribute]
            else:
                named[gate] |= 1 << (streams if owner[attribute] == ACROSS else streams + 1)
    return named


@jit
def always_open(start: np.ndarray, terms: np.ndarray, gate_start: np.ndarray, attributes: np.ndarray) -> np.ndarray:
    """Which gates [gates] bool all rows pass as far as some attributes [attributes] bool tell."""
    found = np.zeros(len(gate_start) - 1, np.bool_)
    for gate in range(len(found)):
        for conjunction in range(gate_start[gate], gate_start[gate + 1]):
            empty = True
            for term in range(start[conjunction], start[conjunction + 1]):
                attribute, which = terms[term]
                if attribute < 0:
                    empty &= found[which]
                else:
                    empty &= not attributes[attribute]
            found[gate] |= empty
    return found


@jit
def reached_gates(
    start: np.ndarray, terms: np.ndarray, gate_start: np.ndarray, kept: np.ndarray, conjunctions: np.ndarray
) -> np.ndarray:
    """Which gates [gates] bool some conjunctions name by terms that are kept [terms] bool, directly or in gates."""
    found = np.zeros(len(gate_start) - 1, np.bool_)
    for conjunction in conjunctions:
        for term in range(start[conjunction], start[conjunction + 1]):
            if kept[term] and terms[term, 0] < 0:
                found[terms[term, 1]] = True
    for gate in range(len(found) - 1, -1, -1):
        if found[gate]:
            for term in range(start[gate_start[gate]], start[gate_start[gate + 1]]):
                if kept[term] and terms[term, 0] < 0:
                    found[terms[term, 1]] = True
    return found
