"""Builds and searches the lists of conjunctions by access predicate, for one event at a time.
`single_events.access_lists` describes the arrays."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from rules_index.arrays import gather_indices, offsets_of, segment_ids
from rules_index.index.conjunction_arrays import DISJUNCTION, Conjunctions
from rules_index.index.events import Event, Offered, met, offered_event, offered_row, terms_of
from rules_index.single_events.access_lists import (
    HEADER,
    NEXT,
    TOO_SMALL,
    WIDTH,
    search_event,
    search_row,
)

MOST_PIECES = 64
"""A set of at most so many intervals has an entry for each of them. A larger set has a single entry, from its lowest to
its highest code."""


class _Scratch(threading.local):
    def __init__(self) -> None:
        self.found = np.empty(1024, np.int32)
        self.bounds = np.empty((0, 2), np.int64)


class AccessLists:
    """The access lists of a rule set. Thread-safe."""

    def __init__(self, conjunctions: Conjunctions, code_shares: np.ndarray) -> None:
        """code_shares [codes]: the expected share of rows with each code, one attribute after the other."""
        c = conjunctions
        self._conjunctions, self._terms = c, terms_of(c)
        self._levels, self._starts, self._heads, self._tails, self._words = _lists(c, code_shares)
        self._scratch = _Scratch()

    def search(self, codes: np.ndarray) -> np.ndarray:
        """The rules [.] int32, ascending, that a row of codes [attributes] int32 satisfies."""
        codes = np.ascontiguousarray(codes, np.int32)
        found, bounds = self._scratch.found, self._scratch.bounds
        if len(bounds) != len(self._levels):
            bounds = self._scratch.bounds = np.empty((len(self._levels), 2), np.int64)
        outcome = search_row(self._levels, self._starts, self._heads, self._tails, self._words, codes, bounds, found)
        while outcome == TOO_SMALL:
            found = self._scratch.found = np.empty(4 * len(found), np.int32)
            outcome = search_row(
                self._levels, self._starts, self._heads, self._tails, self._words, codes, bounds, found
            )
        return self._rules(found, outcome, codes)

    def search_event(self, event: Event) -> np.ndarray:
        """The rules [.] int32, ascending, with a conjunction that an event given as an expression matches."""
        offered = offered_event(event, len(self._conjunctions.sizes))
        found = self._scratch.found
        outcome = search_event(self._levels, self._starts, self._heads, self._tails, self._words, *offered, found)
        while outcome == TOO_SMALL:
            found = self._scratch.found = np.empty(4 * len(found), np.int32)
            outcome = search_event(self._levels, self._starts, self._heads, self._tails, self._words, *offered, found)
        return self._rules(found, outcome, offered)

    def _rules(self, found: np.ndarray, outcome: int, event: Any) -> np.ndarray:
        """The rules [.] int32, ascending, of a search. found, outcome: what `search_row` wrote and returned; the
        conjunctions whose bounds are not exact are tested here. event: the row's codes [attributes], or `Offered`."""
        doubtful, count = outcome >> 32, outcome & 0xFFFFFFFF
        if not doubtful:
            return found[:count].copy()
        numbers = found[len(found) - doubtful :].astype(np.int64)
        offered = event if isinstance(event, Offered) else offered_row(event)
        matched = numbers[met(self._terms, numbers, offered)]
        return np.unique(np.concatenate([found[:count], self._conjunctions.target[matched].astype(np.int32)]))


def _lists(c: Conjunctions, code_shares: np.ndarray) -> tuple[np.ndarray, ...]:
    """The arrays levels, starts, heads, tails and words of the rules' conjunctions."""
    first = int(c.disjunction_start[-1])
    conjunctions = len(c.target) - first
    pairs = c.terms[c.start[first] :]
    owner = segment_ids(c.start[first:])
    named = np.flatnonzero(pairs[:, 0] != DISJUNCTION)
    attribute, set_number, conjunction = pairs[named, 0].astype(np.int64), pairs[named, 1], owner[named]
    piece_start, pieces, shares = _pieces(c, attribute, set_number, code_shares)
    lengths = np.diff(c.set_start)[set_number]
    with_disjunction = np.bincount(owner, weights=pairs[:, 0] == DISJUNCTION, minlength=conjunctions) > 0
    # a conjunction's terms ascend by their share of rows: the first is its access predicate, and the others are
    # compared in this order
    order = np.lexsort((shares[set_number], conjunction))
    attribute, set_number = attribute[order], set_number[order]
    conjunction, lengths = conjunction[order], lengths[order]
    lowest = c.intervals[c.set_start[set_number], 0]
    highest = c.intervals[c.set_start[set_number + 1] - 1, 1]
    terms = np.column_stack([attribute, lowest, highest])
    term_start = offsets_of(np.bincount(conjunction, minlength=conjunctions))
    with_terms = np.flatnonzero(np.diff(term_start))
    access = term_start[with_terms]
    # if the access predicate has an entry for each interval, the entry's bounds are exact
    is_exact = np.diff(piece_start)[set_number] == lengths
    uncertain = np.bincount(conjunction, weights=lengths > 1, minlength=conjunctions)
    uncertain[with_terms] -= is_exact[access] & (lengths[access] > 1)
    doubtful = with_disjunction | (uncertain > 0)
    gather, entry_start = gather_indices(piece_start, set_number[access])
    entry, place = (each[segment_ids(entry_start)] for each in (with_terms, access))
    low, high, shift, block = pieces[gather].T
    without_terms = np.flatnonzero(np.diff(term_start) == 0)
    levels, lists, count = _levels(c.sizes, attribute[place], shift, block, bool(len(without_terms)))
    heads: np.ndarray = np.zeros((len(entry) + len(without_terms), WIDTH), _narrow(c.sizes))
    if len(entry):
        heads[: len(entry), 0], heads[: len(entry), 1] = low, high
        access_term = np.column_stack([attribute[place], low, high])
        number_of_terms = np.diff(term_start)[entry]
        for next_one in range(1, NEXT + 1):
            has_next = (number_of_terms > next_one)[:, None]
            columns = terms[np.where(has_next[:, 0], place + next_one, place)]
            heads[: len(entry), 3 * next_one - 1 : 3 * next_one + 2] = np.where(has_next, columns, access_term)
    # conjunctions without terms come last, in the last list
    entry = np.concatenate([entry, without_terms])
    lists = np.concatenate([lists, np.full(len(without_terms), count - 1)])
    words, at = _words(terms, term_start, np.where(doubtful, first + np.arange(conjunctions), -1))
    tails = np.column_stack([c.target[first + entry], at[entry]]).astype(np.int32)
    starts = offsets_of(np.bincount(lists, minlength=count))
    order = np.argsort(lists, kind="stable")
    return levels, starts, heads[order], tails[order], words


def _narrow(sizes: np.ndarray) -> type:
    """The narrowest dtype that the codes and attributes in `heads` fit."""
    most = max(int(sizes.max(initial=0)), len(sizes))
    return np.uint8 if most <= 1 << 8 else np.uint16 if most <= 1 << 16 else np.int32


def _words(terms: np.ndarray, term_start: np.ndarray, doubtful: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`words`; and for each conjunction its offset in them, or -1 if it needs none. doubtful [conjunctions]: a
    conjunction's number if bounds do not decide it, else -1."""
    others = np.maximum(np.diff(term_start) - 1 - NEXT, 0)
    needed = (others > 0) | (doubtful >= 0)
    lengths = np.where(needed, HEADER + 3 * others, 0)
    at = np.where(needed, offsets_of(lengths)[:-1], -1)
    words = np.empty(int(lengths.sum()), np.int32)
    words[at[needed]], words[at[needed] + 1] = doubtful[needed], others[needed]
    start = offsets_of(others)
    owner = segment_ids(start)
    within = np.arange(len(owner)) - start[owner]
    from_terms = terms[term_start[owner] + 1 + NEXT + within]
    for column in range(3):
        words[at[owner] + HEADER + 3 * within + column] = from_terms[:, column]
    return words, at


def _pieces(
    c: Conjunctions, attribute: np.ndarray, set_number: np.ndarray, code_shares: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For every set: its pieces [., 4] int64 (low, high, shift, first block), each of which becomes an entry; their
    offsets [sets + 1]; and the share of rows [sets] float64 that meet one of these entries."""
    sets = len(c.set_start) - 1
    attribute_of_set = np.zeros(sets, np.int64)
    attribute_of_set[set_number] = attribute
    lengths = np.diff(c.set_start)
    whole = lengths > MOST_PIECES
    kept = np.where(whole, np.minimum(lengths, 1), lengths)
    start = offsets_of(kept)
    owner = segment_ids(start)
    at = np.arange(len(owner)) - start[owner] + c.set_start[owner]
    low, high = c.intervals[at, 0].astype(np.int64), c.intervals[at, 1].astype(np.int64)
    high[whole[owner]] = c.intervals[c.set_start[1:][owner[whole[owner]]] - 1, 1]
    shift = np.where(low == high, -1, 0)
    # the smallest shift at which low and high are in the same block of 2 ** shift codes or in neighbouring ones
    while True:
        wide = (shift >= 0) & ((high >> np.maximum(shift, 0)) - (low >> np.maximum(shift, 0)) > 1)
        if not wide.any():
            break
        shift += wide
    dropped = np.maximum(shift, 0)
    block = np.where(shift < 0, low, low >> dropped)
    sizes = c.sizes.astype(np.int64)
    begin = np.where(shift < 0, low, block << dropped)
    end = np.minimum(np.where(shift < 0, low + 1, (block + 2) << dropped), sizes[attribute_of_set[owner]])
    below = np.concatenate([[0.0], np.cumsum(code_shares)])
    base = (np.cumsum(sizes) - sizes)[attribute_of_set[owner]]
    examined = below[base + end] - below[base + begin]
    # a tiny cost for each entry: entries take memory and a little time even where no row meets them
    shares = np.bincount(owner, weights=examined + 1e-9, minlength=sets)
    return start, np.column_stack([low, high, shift, block]), shares


def _levels(
    sizes: np.ndarray, attribute: np.ndarray, shift: np.ndarray, block: np.ndarray, everywhere: bool
) -> tuple[np.ndarray, np.ndarray, int]:
    """The levels that have entries [., 3] int32, the list of each entry, and the number of lists. everywhere: whether
    there is one more list, of the conjunctions without terms."""
    kinds, kind = np.unique(attribute * 64 + (shift + 1), return_inverse=True)
    attributes, shifts = kinds // 64, kinds % 64 - 1
    widths = (sizes[attributes].astype(np.int64) >> np.maximum(shifts, 0)) + 1
    base = np.cumsum(widths) - widths
    count = int(widths.sum())
    levels = np.column_stack([attributes, shifts, base]).astype(np.int32).reshape(-1, 3)
    if everywhere:
        levels = np.concatenate([levels, np.array([[-1, 0, count]], np.int32)])
        count += 1
    return levels, base[kind] + block, count
