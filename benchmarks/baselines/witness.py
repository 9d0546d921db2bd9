"""An inverted index that matches row by row: what a careful programmer writes for the task without reading the papers.

Every conjunction is filed under its most selective term, as estimated on a sample of rows, once for every code that
the term accepts; a row looks up its own codes, and the other terms of what stands there are verified. Where terms
accept very many codes, codes share a bucket. This is the idea of `witness.c`, for any number of codes, several
intervals a set, several conjunctions a rule, and shared disjunctions.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from rules_index.arrays import gather_indices, offsets_of, segment_ids
from rules_index.index.conjunction_arrays import DISJUNCTION, Conjunctions

_jit = numba.njit(nogil=True, cache=True, boundscheck=False)

EXACT_CODES = 256
"""An attribute of no more codes has a bucket for each, as in `witness.c`, however many of them the terms accept."""
POSTINGS = 8
"""Most buckets that the conjunctions filed under another attribute stand in, on average: the fastest of 4, 8, 16, 32.
With fewer, buckets hold many conjunctions whose term a row does not pass; with more, they outgrow the caches."""
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


class Witness:
    """The index of one rule set."""

    name = "witness"

    def __init__(self, postings: Postings, rules: np.ndarray) -> None:
        """`rules` [.] int32 are the rules of the conjunctions that are filed."""
        self.postings = postings
        self._conjunctions = len(rules)
        # a rule of several conjunctions may be found more than once in a row
        several = len(rules) > 0 and bool(np.bincount(rules).max() > 1)
        self._found_in = np.empty(rules.max() + 1 if several else 0, np.int64)

    @property
    def nbytes(self) -> int:
        """Bytes of its arrays."""
        return sum(array.nbytes for array in self.postings)

    @classmethod
    def build(cls, conjunctions: Conjunctions, sample: np.ndarray) -> Witness:
        """Files conjunctions by how many rows of a `sample` [attributes, rows] int32 of codes their terms hold."""
        terms = _terms(conjunctions)
        below, below_at = _frequencies(terms.sizes, sample, conjunctions.disjunctions)
        share = np.empty(len(terms.position))
        _measure(terms, below, below_at, share)
        access = _access(terms, share, conjunctions)
        shift, spans = _shifts(terms, access)
        position = terms.position[access[spans.conjunction]]
        edges = (np.minimum(terms.sizes[position], at << shift[position]) for at in (spans.first, spans.last + 1))
        begin, end = (below[below_at[position] + edge] for edge in edges)
        filed = np.flatnonzero(access >= 0)
        # what the access term leaves of the rows that come to its buckets
        share[access[filed]] /= np.bincount(spans.conjunction, end - begin, len(access))[filed].clip(1e-300)
        inline, rest_start, rest = _checks(terms, share, access, shift)
        bucket_at = offsets_of(((terms.sizes - 1) >> shift) + 1)
        bucket_start, owner = _file(spans, bucket_at[position], int(bucket_at[-1]))
        postings = Postings(
            read=np.unique(terms.position[terms.position < len(conjunctions.sizes)]),
            filed=np.unique(position).astype(np.int32),
            shift=shift,
            bucket_at=bucket_at[:-1].astype(np.int32),
            bucket_start=bucket_start,
            inline=inline[owner],
            rule=conjunctions.target[owner],
            owner=owner if len(rest) else owner[:0],
            rest_start=rest_start,
            rest=rest,
            set_start=terms.set_start,
            intervals=terms.intervals,
            disjunction_start=conjunctions.disjunction_start,
        )
        return cls(postings, conjunctions.target[conjunctions.disjunction_start[-1] :])

    def match(self, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """`codes` [attributes, rows] int32 -> (offsets [rows + 1] int64, rule ordinals [hits] int32).

        The ordinals of a row come in no order: it is spared what the engines pay for theirs.
        """
        self._found_in[:] = -1
        result: tuple[np.ndarray, np.ndarray] = _match(codes, self.postings, self._conjunctions, self._found_in)
        return result


class Terms(NamedTuple):
    """The terms of all conjunctions, over positions.

    sizes     [positions] int32, number of codes of each
    start     [conjunctions + 1] int64 into position and which
    position  [terms] int32
    which     [terms] int32, the set
    set_start, intervals  as in `Postings`
    """

    sizes: np.ndarray
    start: np.ndarray
    position: np.ndarray
    which: np.ndarray
    set_start: np.ndarray
    intervals: np.ndarray


def _terms(c: Conjunctions) -> Terms:
    """Shared disjunctions become positions of two codes, and every conjunction of a rule gets a term that it can be
    filed under."""
    attributes, sets = len(c.sizes), len(c.set_start) - 1
    named = c.terms[:, 0] != DISJUNCTION
    homeless = np.bincount(segment_ids(c.start)[named], minlength=len(c.target)) == 0
    homeless[: c.disjunction_start[-1]] = False
    position = np.where(named, c.terms[:, 0], attributes + c.terms[:, 1])
    which = np.where(named, c.terms[:, 1], sets)
    at = c.start[:-1][homeless]
    return Terms(
        sizes=np.concatenate([c.sizes, np.full(c.disjunctions, 2), [1]]).astype(np.int32),
        start=c.start + offsets_of(homeless),
        position=np.insert(position, at, attributes + c.disjunctions).astype(np.int32),
        which=np.insert(which, at, sets + 1).astype(np.int32),
        set_start=np.append(c.set_start, len(c.intervals) + np.array([1, 2])),
        intervals=np.concatenate([c.intervals, [[1, 1], [0, 0]]]).astype(np.int32),
    )


def _frequencies(sizes: np.ndarray, sample: np.ndarray, disjunctions: int) -> tuple[np.ndarray, np.ndarray]:
    """The share of rows whose code is below 0, below 1, ... below the size, position by position [.] float64, and where
    each position's begin. A code that no sampled row has counts as a part of one; of a shared disjunction half the rows
    are taken to pass."""
    parts = []
    for column, size in zip(sample, sizes.tolist(), strict=False):
        counts = np.bincount(column, minlength=size) + 1 / size
        parts.append(np.concatenate([[0.0], np.cumsum(counts) / (len(column) + 1)]))
    parts += [np.array([0.0, 0.5, 1.0])] * disjunctions + [np.array([0.0, 1.0])]
    return np.concatenate(parts), offsets_of(sizes + 1)[:-1]


class Spans(NamedTuple):
    """Where conjunctions are filed [spans] int64: in the buckets first to last of their position, if first <= last."""

    conjunction: np.ndarray
    first: np.ndarray
    last: np.ndarray


def _access(terms: Terms, share: np.ndarray, c: Conjunctions) -> np.ndarray:
    """The term [conjunctions] int64 under which each is filed, that of the least share; -1 for those of shared
    disjunctions."""
    owner = segment_ids(terms.start)
    of_disjunction = (terms.position >= len(c.sizes)) & (terms.position < len(terms.sizes) - 1)
    able = np.flatnonzero((owner >= c.disjunction_start[-1]) & ~of_disjunction)
    order = able[np.lexsort((share[able], owner[able]))]
    owner = owner[order]
    first = np.ones(len(order), bool)
    first[1:] = owner[1:] != owner[:-1]
    access = np.full(len(c.target), -1, np.int64)
    access[owner[first]] = order[first]
    return access


def _spans(terms: Terms, access: np.ndarray, shift: np.ndarray) -> Spans:
    filed = np.flatnonzero(access >= 0)
    which, by = terms.which[access[filed]], shift[terms.position[access[filed]]]
    interval, start = gather_indices(terms.set_start, which)
    span = segment_ids(start)
    first, last = (terms.intervals[interval].astype(np.int64) >> by[span, None]).T
    # intervals of one set may meet in a bucket
    follows = span[1:] == span[:-1]
    first[1:][follows] = np.maximum(first[1:], last[:-1] + 1)[follows]
    return Spans(filed[span], first, last)


def _shifts(terms: Terms, access: np.ndarray) -> tuple[np.ndarray, Spans]:
    """For every position the least shift [positions] int32 with few enough postings, and where that files them."""
    shift = np.zeros(len(terms.sizes), np.int32)
    filed = np.bincount(terms.position[access[access >= 0]], minlength=len(shift))
    while True:
        spans = _spans(terms, access, shift)
        buckets = np.bincount(terms.position[access[spans.conjunction]], spans.last + 1 - spans.first, len(shift))
        many = (buckets > POSTINGS * filed) & (terms.sizes > EXACT_CODES)
        if not many.any():
            return shift, spans
        shift[many] += 1


def _checks(
    terms: Terms, share: np.ndarray, access: np.ndarray, shift: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`inline` by conjunction, `rest_start` and `rest` of `Postings`."""
    conjunctions = len(access)
    owner = segment_ids(terms.start)
    checked = np.ones(len(owner), bool)
    filed = access[access >= 0]
    # a bucket of one code says all
    checked[filed[shift[terms.position[filed]] == 0]] = False
    left = np.flatnonzero(checked)
    order = left[np.lexsort((share[left], owner[left]))]
    owner = owner[order]
    per_conjunction = np.bincount(owner, minlength=conjunctions)
    rank = np.arange(len(order)) - offsets_of(per_conjunction)[owner]
    position, which = terms.position[order], terms.which[order]
    begin, end = terms.set_start[which], terms.set_start[which + 1]
    inlined = MORE if len(filed) and per_conjunction[access >= 0].max() > FEW else FEW
    here = (rank < inlined) & (access[owner] >= 0)
    kind = _code_type(terms.sizes)
    inline = np.zeros((conjunctions, 3 * inlined), kind)
    inline[:, 2::3] = np.iinfo(kind).max
    low, high = terms.intervals[begin[here], 0], terms.intervals[end[here] - 1, 1]
    for number, values in enumerate((position[here], low, high - low)):
        inline[owner[here], 3 * rank[here] + number] = values
    more = ~here | (end - begin > 1)
    rest_start = offsets_of(np.bincount(owner[more], minlength=conjunctions))
    return inline, rest_start, np.stack([position[more], which[more]], axis=1)


def _code_type(sizes: np.ndarray) -> type[np.unsignedinteger]:
    """The narrowest type of all codes and positions."""
    largest = max(len(sizes), int(sizes.max())) - 1
    return next(kind for kind in (np.uint8, np.uint16, np.uint32) if largest <= np.iinfo(kind).max)


def _file(spans: Spans, bucket_at: np.ndarray, buckets: int) -> tuple[np.ndarray, np.ndarray]:
    """`bucket_start` and `owner` of `Postings`; `bucket_at` [spans] is the first bucket of the span's position."""
    first, end = bucket_at + spans.first, bucket_at + spans.last + 1
    change = np.bincount(first, minlength=buckets + 1) - np.bincount(end, minlength=buckets + 1)
    bucket_start = offsets_of(np.cumsum(change[:-1]))
    if bucket_start[-1] > np.iinfo(np.int32).max:
        raise ValueError(f"{bucket_start[-1]} postings are more than fit.")
    owner = np.empty(bucket_start[-1], np.int32)
    _put(spans.conjunction, first, end, bucket_start[:-1].copy(), owner)
    return bucket_start.astype(np.int32), owner


@_jit
def _put(
    conjunction: np.ndarray, first: np.ndarray, end: np.ndarray, next_place: np.ndarray, owner: np.ndarray
) -> None:
    """Writes each conjunction to its buckets [first, end)."""
    for span in range(len(conjunction)):
        for bucket in range(first[span], end[span]):
            owner[next_place[bucket]] = conjunction[span]
            next_place[bucket] += 1


@_jit
def _measure(terms: Terms, below: np.ndarray, below_at: np.ndarray, share: np.ndarray) -> None:
    """The share of rows that each term holds."""
    for term in range(len(terms.position)):
        at = below_at[terms.position[term]]
        held = 0.0
        for i in range(terms.set_start[terms.which[term]], terms.set_start[terms.which[term] + 1]):
            held += below[at + terms.intervals[i, 1] + 1] - below[at + terms.intervals[i, 0]]
        share[term] = held


@_jit
def _match(codes: np.ndarray, index: Postings, most: int, found_in: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
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
