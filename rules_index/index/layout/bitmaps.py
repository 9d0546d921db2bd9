"""Lays out the row bitmaps that conjunctions need: of edges of intervals, of single codes and of sets."""

from __future__ import annotations

import numpy as np

from rules_index.arrays import gather_indices
from rules_index.index.conjunction_arrays import DISJUNCTION, Conjunctions
from rules_index.index.layout.term_columns import TermColumns, within
from rules_index.kernels.bitmaps import ALL, COARSE_CODES, EMPTY

SET_BITMAPS = 1 << 15
"""At most so many sets of several intervals have a bitmap, those that most terms name; the others are checked row by
row."""
USES_OF_A_BITMAP = 8
"""An equality that so many terms share has its own bitmap, even if the bitmaps of its two edges exist."""


def coarse_shift(sizes: np.ndarray) -> np.ndarray:
    """The number of bits [attributes] int32 that coarse codes drop: the fewest with which an attribute has at most
    `COARSE_CODES` coarse codes."""
    shift = np.zeros(len(sizes), np.int32)
    while (too_many := (sizes.astype(np.int64) - 1) >> shift >= COARSE_CODES).any():
        shift[too_many] += 1
    return shift


def bitmaps(
    c: Conjunctions, terms: TermColumns, is_keyed: np.ndarray, in_runs: slice, shift: np.ndarray
) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray, np.ndarray]:
    """Lays out the bitmaps for terms. is_keyed [terms] bool: those of conjunctions in hash tables, which need no
    bitmaps. in_runs: the range of the conjunctions in sorted runs. shift: as `coarse_shift` returns it.

    Returns the bitmaps' arrays; each term's pair of bitmaps [terms, 2] (`kernels.match.KernelArrays.terms`); which
    terms [terms] bool have one; and for which terms [terms] bool the pair, or the lack of one, is exact.
    """
    disjunction = terms.attribute == DISJUNCTION
    attribute = np.where(disjunction, 0, terms.attribute)
    dropped = shift[attribute]
    # the attribute's last coarse code, and the bounds of each term in coarse codes
    last = (c.sizes[attribute] - 1) >> dropped
    low, high = terms.low >> dropped, terms.high >> dropped
    single = ~disjunction & (terms.pieces == 1)
    # an interval of all coarse codes needs none
    has_bitmap = single & ~is_keyed & ((low > 0) | (high < last))
    several = ~disjunction & ~single & ~is_keyed
    equal = has_bitmap & (low == high)
    # edges that other intervals need first, since an equality can use them in place of a bitmap of its own
    edges = _edges(attribute, low, high, last, has_bitmap & ~equal)
    own = _own_bitmaps(attribute, low, last, equal, edges)
    edges = np.union1d(edges, _edges(attribute, low, high, last, equal & ~own))
    singles = _distinct(_keys(attribute, low, own))
    sets, set_of, chosen = _set_bitmaps(terms, several)
    number_of_edge, number_of_single, number_of_set, bitmaps = _number(c, edges, singles, sets, shift)
    pairs = np.empty((len(attribute), 2), np.int32)
    pairs[:, 0], pairs[:, 1] = EMPTY, ALL
    # the rows of an interval are below its upper edge and not below its lower one
    interval = has_bitmap & ~own
    lower, upper = interval & (low > 0), interval & (high < last)
    pairs[lower, 0] = _by_key(edges, number_of_edge)[_keys(attribute, low, lower)]
    pairs[upper, 1] = _by_key(edges, number_of_edge)[_keys(attribute, high, upper) + 1]
    pairs[own, 1] = _by_key(singles, number_of_single)[_keys(attribute, low, own)]
    pairs[chosen, 1] = number_of_set[set_of]
    # the bitmaps of shared disjunctions are in the order of rows, not in that of a sorted run: there they are checked
    # row by row
    scanned_disjunction = disjunction & ~is_keyed & ((terms.owner < in_runs.start) | (terms.owner >= in_runs.stop))
    pairs[scanned_disjunction, 1] = len(bitmaps["bitmap_attribute"]) + terms.which[scanned_disjunction]
    exact = scanned_disjunction | (single & ~is_keyed & _aligned(terms, c.sizes[attribute], dropped))
    exact[chosen] = (shift[attribute] == 0)[chosen]
    return bitmaps, pairs, has_bitmap | chosen | scanned_disjunction, exact


def _aligned(terms: TermColumns, size: np.ndarray, by: np.ndarray) -> np.ndarray:
    """Which terms [terms] bool have an interval of codes that a coarse interval covers exactly."""
    mask = (np.int32(1) << by) - 1
    return (terms.low & mask == 0) & (((terms.high + 1) & mask == 0) | (terms.high == size - 1))


def _keys(attribute: np.ndarray, code: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """The keys attribute * 512 + code, int64, of the chosen elements."""
    return attribute[chosen].astype(np.int64) * 512 + code[chosen]


def _edges(at: np.ndarray, low: np.ndarray, high: np.ndarray, last: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """The edges of the coarse intervals of the terms `chosen` [terms] bool, ascending, as keys: the edge v stands for
    the codes below v."""
    lower, upper = _distinct(_keys(at, low, chosen & (low > 0))), _distinct(_keys(at, high, chosen & (high < last)) + 1)
    return np.union1d(lower, upper)


def _distinct(keys: np.ndarray) -> np.ndarray:
    """The distinct keys, ascending. Counts instead of sorting: there are many elements with few values."""
    found = np.zeros(int(keys.max(initial=-1)) + 1, bool)
    found[keys] = True
    return np.flatnonzero(found)


def _by_key(keys: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """A lookup table, int32: the number of each key."""
    found = np.zeros(int(keys.max(initial=-1)) + 1, np.int32)
    found[keys] = numbers
    return found


def _own_bitmaps(at: np.ndarray, low: np.ndarray, last: np.ndarray, equal: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Which equalities [terms] bool have their own bitmap: those that many terms share, or whose edges have no
    bitmaps."""
    own = np.zeros(len(at), bool)
    keys = _keys(at, low, equal)
    uses = np.bincount(keys)
    values = np.flatnonzero(uses)
    code, most = values % 512, np.zeros(len(uses), np.int32)
    most[keys] = last[equal]
    known = (np.isin(values, edges) | (code == 0)) & (np.isin(values + 1, edges) | (code == most[values]))
    wanted = np.zeros(len(uses), bool)
    wanted[values] = ~known | (uses[values] >= USES_OF_A_BITMAP)
    own[equal] = wanted[keys]
    return own


def _set_bitmaps(terms: TermColumns, several: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The sets with a bitmap, ascending; for each term that has one the index of its set among them; and which terms
    [terms] bool these are."""
    sets, uses = np.unique(terms.which[several], return_counts=True)
    sets = np.sort(sets[np.argsort(-uses, kind="stable")[:SET_BITMAPS]])
    chosen = several & np.isin(terms.which, sets)
    return sets, np.searchsorted(sets, terms.which[chosen]), chosen


def _number(
    c: Conjunctions, edges: np.ndarray, singles: np.ndarray, sets: np.ndarray, shift: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """Numbers the bitmaps by attribute, so that the codes of an attribute are read while they are cached. Returns the
    numbers of edges, singles and sets, and the bitmaps' arrays."""
    owner_of_set = np.zeros(len(c.set_start) - 1, np.int64)
    named = c.terms[:, 0] != DISJUNCTION
    owner_of_set[c.terms[named, 1]] = c.terms[named, 0]
    pieces = np.diff(c.set_start)[sets]
    attribute = np.concatenate([edges // 512, singles // 512, owner_of_set[sets]])
    lengths = np.concatenate([np.ones(len(edges) + len(singles), np.int64), pieces])
    gather, _ = gather_indices(c.set_start, sets)
    of_sets = c.intervals[gather].astype(np.int64) >> np.repeat(shift[owner_of_set[sets]], pieces)[:, None]
    low = np.concatenate([np.zeros(len(edges), np.int64), singles % 512, of_sets[:, 0]])
    high = np.concatenate([edges % 512 - 1, singles % 512, of_sets[:, 1]])
    order = np.argsort(attribute, kind="stable")
    number = np.empty(len(order), np.int64)
    number[order] = 2 + np.arange(len(order))
    starts = np.cumsum(lengths) - lengths
    gather = np.repeat(starts[order], lengths[order]) + within(lengths[order])
    split = len(edges), len(edges) + len(singles)
    return number[: split[0]], number[split[0] : split[1]], number[split[1] :], {
        "bitmap_attribute": np.concatenate([[-1, -1], attribute[order]]).astype(np.int32),
        "bitmap_start": np.concatenate([[0, 0, 0], np.cumsum(lengths[order])]).astype(np.int64),
        "bitmap_intervals": np.stack([low[gather], high[gather]], 1).astype(np.int32),
    }  # fmt: skip
