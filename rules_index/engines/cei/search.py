"""Searches rows over all attributes: the lists of a row's codes are merged, or the boxes in them are compared with the
row."""

from __future__ import annotations

import numpy as np

from rules_index.engines.box_store import BoxArrays
from rules_index.engines.cei.constructs import ConstructLayout, covering, levels
from rules_index.index.term_sets import TermSets, has_sets, set_number, set_shares
from rules_index.kernels.jit import jit
from rules_index.kernels.lists import grown

LISTS_READ, IDS_READ, PREDICATES_EVALUATED, MATCHES = range(4)
TALLY_BITS = 20
"""A tally is (search << TALLY_BITS) + predicates satisfied in that search, so that tallies need no reset."""


@jit
def search_rows(
    codes: np.ndarray,
    merge: bool,
    layout: ConstructLayout,
    filed: np.ndarray,
    start: np.ndarray,
    length: np.ndarray,
    pool: np.ndarray,
    boxes: BoxArrays,
    sets: TermSets,
    everywhere: np.ndarray,
    tally: np.ndarray,
    first_search: int,
    costs: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """(offsets [rows + 1] int64, keys [.] int32, ascending within a row) of the boxes that each row is inside.

    codes [attributes, rows] int32. filed [attributes]: the number of terms filed under each attribute. merge: an id in
    a list is a satisfied predicate, and a box is found once all its predicates are satisfied (phase 2 of section 2.1).
    Otherwise an id is a candidate, whose terms after the first are compared. A set with gaps is filed like the interval
    from its lowest to its highest code, so the set itself is tested for each of its entries. tally [slots] int64: of
    searches with numbers below `first_search` only. everywhere [.] int32: the keys of the boxes without terms. Adds to
    costs [4] int64.
    """
    rows = codes.shape[1]
    offsets = np.zeros(rows + 1, np.int64)
    keys = np.empty(max(64, rows), np.int32)
    found = lists = ids = predicates = 0
    for row in range(rows):
        base = np.int64(first_search + row) << TALLY_BITS
        if found + len(everywhere) > len(keys):
            keys = grown(keys, found + len(everywhere))
        for key in everywhere:
            keys[found] = key
            found += 1
        for attribute in range(len(filed)):
            if filed[attribute] == 0:
                continue
            kind, k, at = layout.kind[attribute], layout.k[attribute], layout.at[attribute]
            for level in range(levels(kind, k)):
                construct, number, step = covering(kind, k, np.int64(codes[attribute, row]), level)
                lists += number
                for place in range(at + construct, at + construct - number * step, -step):
                    count = length[place]
                    if found + count > len(keys):
                        keys = grown(keys, found + count)
                    ids += count
                    entries = pool[start[place] : start[place] + count]
                    if merge:
                        found, evaluated = _count(
                            entries, attribute, codes[attribute, row], boxes, sets, tally, base, keys, found
                        )
                    else:
                        found, evaluated = _compare(entries, codes, row, boxes, sets, keys, found)
                    predicates += evaluated
        keys[offsets[row] : found].sort()
        offsets[row + 1] = found
    costs[LISTS_READ] += lists
    costs[IDS_READ] += ids
    costs[PREDICATES_EVALUATED] += predicates
    costs[MATCHES] += found
    return offsets, keys[:found]


@jit
def _count(
    entries: np.ndarray,
    attribute: int,
    code: int,
    boxes: BoxArrays,
    sets: TermSets,
    tally: np.ndarray,
    base: int,
    keys: np.ndarray,
    found: int,
) -> tuple[int, int]:
    """Increments the tally of every entry whose set contains the code, and finds the boxes that now have all their
    predicates satisfied. Returns (end of the keys found, sets compared)."""
    evaluated = 0
    for slot in entries:
        number = set_number(sets, boxes.key[slot], attribute)
        if number >= 0:
            evaluated += 1
            if not set_shares(sets, number, code, code):
                continue
        satisfied = max(tally[slot], base) + 1
        tally[slot] = satisfied
        if satisfied - base == boxes.length[slot]:
            keys[found] = boxes.key[slot]
            found += 1
    return found, evaluated


@jit
def _compare(
    entries: np.ndarray, codes: np.ndarray, row: int, boxes: BoxArrays, sets: TermSets, keys: np.ndarray, found: int
) -> tuple[int, int]:
    """Compares the terms of each entry with the row, up to the first that fails. The first term, under which the entry
    is filed, is known to hold unless it is a set with gaps. Returns (end of the keys found, predicates evaluated)."""
    evaluated = 0
    terms = boxes.terms
    for slot in entries:
        begin, key = boxes.start[slot], boxes.key[slot]
        with_sets = has_sets(sets, key)
        held = True
        for term in range(begin, begin + boxes.length[slot]):
            number = set_number(sets, key, terms[term, 0]) if with_sets else -1
            if term == begin and number < 0:
                continue
            evaluated += 1
            code = codes[terms[term, 0], row]
            held = terms[term, 1] <= code <= terms[term, 2] and (number < 0 or set_shares(sets, number, code, code))
            if not held:
                break
        if held:
            keys[found] = key
            found += 1
    return found, evaluated
