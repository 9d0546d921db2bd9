"""The search of the inverted index `witness`: rows look up their codes, and what stands there is verified."""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

_jit = numba.njit(nogil=True, cache=True, boundscheck=False)

FEW, MORE = 2, 4
"""Terms that stand where the conjunction is filed, the most selective first: few, unless some conjunction has more.
What is left of others is looked up, which few rows come to."""
ROWS_AT_ONCE = 64
"""Rows that are turned from columns to rows of codes at once."""


class Postings(NamedTuple):
    """The index; integers are int32 unless said.

    A *position* is an attribute, or a shared disjunction (its code is 1 where a row passes it, else 0), or, for
    conjunctions that name no attribute, one whose code is always 0.

    read          [.] attributes whose codes are verified
    filed         [.] positions under which conjunctions are filed
    shift         [positions] lowest bits of a code that tell no buckets apart
    bucket_at     [positions] the first bucket of each
    bucket_start  [buckets + 1] into inline, rule and owner
    inline        [postings, 3 * `FEW` or `MORE`] uint8, uint16 or uint32: (position, lowest code, highest - lowest) of
                  terms, filled up with what every row passes
    rule          [postings] the rule's ordinal
    owner         [postings] the conjunction; nothing where `inline` says all
    rest_start    [conjunctions + 1] int64 into rest
    rest          [., 2] (position, set) of what else is to be verified
    set_start     [sets + 1] int64 into intervals
    intervals     [., 2] closed, ascending, disjoint intervals of codes
    disjunction_start    [disjunctions + 1] the conjunctions of each shared disjunction, which come before those of
                         rules
    """

    read: np.ndarray
    filed: np.ndarray
    shift: np.ndarray
    bucket_at: np.ndarray
    bucket_start: np.ndarray
    inline: np.ndarray
    rule: np.ndarray
    owner: np.ndarray
    rest_start: np.ndarray
    rest: np.ndarray
    set_start: np.ndarray
    intervals: np.ndarray
    disjunction_start: np.ndarray


@_jit
def match(codes: np.ndarray, index: Postings, most: int, found_in: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`Witness.match`; `most` is how often rules may be found in a row; `found_in` [rules] int64 has the row in which
    each was last found, or nothing where every rule has one conjunction."""
    attributes, rows = codes.shape
    offsets = np.zeros(rows + 1, np.int64)
    ordinals = np.empty(rows + most, np.int32)
    turned = np.zeros((ROWS_AT_ONCE, len(index.shift)), index.inline.dtype)
    bucket = np.empty((len(index.filed), ROWS_AT_ONCE), np.int32)
    for begin in range(0, rows, ROWS_AT_ONCE):
        count = min(ROWS_AT_ONCE, rows - begin)
        for attribute in index.read:
            for i in range(count):
                turned[i, attribute] = codes[attribute, begin + i]
        for number, position in enumerate(index.filed):
            at, by = index.bucket_at[position], index.shift[position]
            if position < attributes:
                for i in range(count):
                    bucket[number, i] = at + (codes[position, begin + i] >> by)
            else:
                bucket[number] = at
        ordinals = _match_rows(
            turned, bucket, begin, index, most, found_in, offsets[begin : begin + count + 1], ordinals
        )
    return offsets, ordinals[: offsets[rows]]


@_jit
def _match_rows(
    turned: np.ndarray,
    bucket: np.ndarray,
    begin: int,
    index: Postings,
    most: int,
    found_in: np.ndarray,
    offsets: np.ndarray,
    ordinals: np.ndarray,
) -> np.ndarray:
    """Adds the rules of some rows to `ordinals`, which is returned, larger where it has to be; `turned`
    [rows, positions] are their codes, `bucket` [filed, rows] their buckets."""
    # unsigned places need no test for negative ones
    one = np.uint64(1)
    width = np.uint64(index.inline.shape[1])
    more = width > 3 * FEW
    inline = index.inline.reshape(-1)
    starts = index.bucket_start
    hits = offsets[0]
    for i in range(len(offsets) - 1):
        row = turned[i]
        if len(index.disjunction_start) > 1:
            _pass_disjunctions(row, index)
        if hits + most > len(ordinals):
            larger = np.empty(2 * len(ordinals) + most, np.int32)
            larger[:hits] = ordinals[:hits]
            ordinals = larger
        for filed in range(len(bucket)):
            at_bucket = np.uint64(bucket[filed, i])
            for posting in range(np.uint64(starts[at_bucket]), np.uint64(starts[at_bucket + one])):
                at = posting * width
                if not (_within(row, inline, at) & _within(row, inline, at + np.uint64(3))):
                    continue
                if more and not (_within(row, inline, at + np.uint64(6)) and _within(row, inline, at + np.uint64(9))):
                    continue
                if len(index.owner) and not _passes(index.owner[posting], row, index):
                    continue
                rule = index.rule[posting]
                if len(found_in):
                    if found_in[rule] == begin + i:
                        continue
                    found_in[rule] = begin + i
                ordinals[np.uint64(hits)] = rule
                hits += 1
        offsets[i + 1] = hits
    return ordinals


@_jit
def _pass_disjunctions(row: np.ndarray, index: Postings) -> None:
    """Writes to a row [positions] which shared disjunctions it passes."""
    disjunctions = len(index.disjunction_start) - 1
    for disjunction in range(disjunctions):
        at = len(row) - 1 - disjunctions + disjunction
        row[at] = 0
        for conjunction in range(index.disjunction_start[disjunction], index.disjunction_start[disjunction + 1]):
            if _passes(conjunction, row, index):
                row[at] = 1
                break


@_jit
def _within(row: np.ndarray, inline: np.ndarray, at: np.uint64) -> bool:
    """True where the row passes the term that stands at `at` in `inline` [.]."""
    one, two = np.uint64(1), np.uint64(2)
    # unsigned, the difference is large below the lowest code
    above = np.uint64(row[inline[at]]) - np.uint64(inline[at + one])
    return bool(above <= np.uint64(inline[at + two]))


@_jit
def _passes(conjunction: int, row: np.ndarray, index: Postings) -> bool:
    """True where the row is in all sets of `rest`."""
    for i in range(index.rest_start[conjunction], index.rest_start[conjunction + 1]):
        code = np.int64(row[index.rest[i, 0]])
        left = index.set_start[index.rest[i, 1]]
        end = index.set_start[index.rest[i, 1] + 1]
        right = end
        while left < right:
            middle = (left + right) >> 1
            if index.intervals[middle, 1] < code:
                left = middle + 1
            else:
                right = middle
        if left == end or index.intervals[left, 0] > code:
            return False
    return True
