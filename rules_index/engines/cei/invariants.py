"""Checks that id lists have exactly the pieces of a set of intervals, and that decompositions are minimal."""

from __future__ import annotations

import numpy as np

from rules_index.engines.cei.constructs import CEI, LCI, ConstructLayout, bounds, first_piece, is_piece
from rules_index.kernels.jit import jit

_WRONG = (
    "",
    "an id in a list has no interval",
    "an id stands in the list of a construct that is no piece of its interval",
    "an id stands twice in a list",
    "an id is missing from the list of a piece of its interval",
)


def check_lists(
    layout: ConstructLayout, at: np.ndarray, count: np.ndarray, terms: np.ndarray, offsets: np.ndarray, ids: np.ndarray
) -> str:
    """Returns what is wrong with the lists `ids[offsets[p] : offsets[p + 1]]`, or "".

    Owner o has the filed terms `terms[at[o] : at[o] + count[o]]` (attribute, low, high; closed), all within their
    bounds, each attribute at most once. The ids may be arbitrary.
    """
    return _WRONG[_check_lists(layout, at, count, terms, offsets, ids)]


def check_decomposition(layout: ConstructLayout, terms: np.ndarray) -> None:
    """Raises `AssertionError` unless the pieces of every term are disjoint, cover it, and are as few as possible."""
    wrong = _first_wrong_term(layout, terms)
    assert wrong < 0, f"the pieces of term {wrong}, {terms[wrong].tolist()}, are no minimal partition of it"


@jit
def _check_lists(
    layout: ConstructLayout, at: np.ndarray, count: np.ndarray, terms: np.ndarray, offsets: np.ndarray, ids: np.ndarray
) -> int:
    """The index in `_WRONG` of what is wrong, 0 for nothing; the arguments are those of `check_lists`."""
    owners = len(count)
    last_seen = np.full(owners, -1, np.int64)
    for attribute in range(len(layout.kind)):
        kind, k, first = layout.kind[attribute], layout.k[attribute], layout.at[attribute]
        for place in range(first, layout.at[attribute + 1]):
            for entry in range(offsets[place], offsets[place + 1]):
                owner = ids[entry]
                if owner < 0 or owner >= owners:
                    return 1
                named = False
                for term in range(at[owner], at[owner] + count[owner]):
                    if terms[term, 0] == attribute:
                        low, high = np.int64(terms[term, 1]), np.int64(terms[term, 2])
                        named = is_piece(kind, k, place - first, low, high + 1)
                        break
                if not named:
                    return 2
                if last_seen[owner] == place:
                    return 3
                last_seen[owner] = place
    # every entry is right and none occurs twice, so none is missing if their number is right
    pieces = 0
    for owner in range(owners):
        for term in range(at[owner], at[owner] + count[owner]):
            kind, k = layout.kind[terms[term, 0]], layout.k[terms[term, 0]]
            begin, end = np.int64(terms[term, 1]), np.int64(terms[term, 2]) + 1
            while begin < end and pieces <= len(ids):
                _, begin = first_piece(kind, k, begin, end)
                pieces += 1
    return 0 if pieces == len(ids) else 4


@jit
def _first_wrong_term(layout: ConstructLayout, terms: np.ndarray) -> int:
    """The first term with a wrong decomposition, or -1.

    A partition of an interval of width w into constructs is minimal for CEI if no piece's parent is inside the interval
    (lemma 1), and for LCI if it has w div L + ones(w mod L) pieces, ones being the number of 1 bits.
    """
    for term in range(len(terms)):
        kind, k = layout.kind[terms[term, 0]], layout.k[terms[term, 0]]
        low, end = np.int64(terms[term, 1]), np.int64(terms[term, 2]) + 1
        upto = low
        pieces = 0
        while upto < end:
            piece, following = first_piece(kind, k, upto, end)
            start, stop = bounds(kind, k, piece)
            if start != upto or stop != following or not is_piece(kind, k, piece, low, end):
                return term
            length = stop - start
            parent = start & ~(2 * length - 1)
            if kind == CEI and length < 1 << k and parent >= low and parent + 2 * length <= end:
                return term
            upto = stop
            pieces += 1
        if kind == LCI:
            least = (end - low) >> k
            for bit in range(k):
                least += ((end - low) >> bit) & 1
            if pieces != least:
                return term
        if upto != end:
            return term
    return -1
