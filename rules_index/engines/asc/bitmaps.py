"""Bitmaps over conjunctions: bit j of word w stands for slot 64 w + j."""

from __future__ import annotations

import numpy as np

from rules_index.kernels.jit import jit


@jit
def set_codes(
    qrb: np.ndarray, region: np.ndarray, term_slot: np.ndarray, term_set: np.ndarray,
    set_start: np.ndarray, intervals: np.ndarray,
) -> None:  # fmt: skip
    """Sets the bit of every term's slot in the query-result bitmaps of the codes in its set.

    region [terms] int64: the index in `qrb` [regions, words] uint64 of code 0 of the term's attribute.
    """
    for term in range(len(term_slot)):
        slot = term_slot[term]
        bit = np.uint64(1) << np.uint64(slot & 63)
        for interval in range(set_start[term_set[term]], set_start[term_set[term] + 1]):
            for code in range(intervals[interval, 0], intervals[interval, 1] + 1):
                qrb[region[term] + code, slot >> 6] |= bit


def words_of(bits: np.ndarray) -> np.ndarray:
    """Packs Booleans [.., bits], bits being a multiple of 64, into words [.., bits / 64] uint64."""
    return np.packbits(bits, axis=-1, bitorder="little").view(np.uint64)


def bits_of(words: np.ndarray) -> np.ndarray:
    """Unpacks words [.., words] uint64 into Booleans [.., 64 words]: the inverse of `words_of`."""
    return np.unpackbits(np.ascontiguousarray(words).view(np.uint8), axis=-1, bitorder="little").astype(bool)
