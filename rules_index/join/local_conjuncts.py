"""Divides conjunctions by stream: the distinct parts (local conjuncts) on the columns of one stream become its rules.

A part holds on the rows of every joined row that satisfies one of its conjunctions; the terms that it leaves out are
tested elsewhere. A shared disjunction with columns of several streams is weakened for each stream: its conjunctions
keep only their terms on that stream, and if one of them has none, the whole shared disjunction is dropped.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rules_index.arrays import gather_indices, offsets_of, segment_counts
from rules_index.index.conjunction_arrays import DISJUNCTION, Conjunctions
from rules_index.join.shared_disjunctions import always_open, named_owners, reached_disjunctions
from rules_index.join.streams import ACROSS, UNKNOWN
from rules_index.kernels.jit import jit

NOTHING = -1
"""The number in place of a part, for a conjunction that has no terms on a stream."""


@dataclass(frozen=True)
class Parts:
    """The distinct parts of all conjunctions of rules on some attributes.

    number      [conjunctions] int32, the part of each, or `NOTHING`
    attributes  [.] int64, the attributes, by their numbers in the rule set
    rules       the parts as rules of one conjunction each; a part is the rule's ordinal
    """

    number: np.ndarray
    attributes: np.ndarray
    rules: Conjunctions

    def __len__(self) -> int:
        """Number of parts."""
        return len(self.rules.target) - int(self.rules.disjunction_start[-1])


@dataclass(frozen=True)
class Split:
    """All conjunctions of rules, divided by stream.

    target        [conjunctions] int32, the ordinal of the rule, ascending
    parts         for each stream
    disjunctions  the parts that are shared disjunctions with columns of several streams, over all attributes but the
                  unknown ones
    across_start  [conjunctions + 1] int64, offsets into across_terms
    across_terms  [., 2] int32 (attribute, set), of attributes that are computed from several streams
    set_start     [sets + 1] int64, offsets into intervals
    intervals     [., 2] int32, closed, ascending, disjoint ranges of codes
    uncertain     [conjunctions] bool, whether a term was dropped because only Spark can evaluate it
    """

    target: np.ndarray
    parts: tuple[Parts, ...]
    disjunctions: Parts
    across_start: np.ndarray
    across_terms: np.ndarray
    set_start: np.ndarray
    intervals: np.ndarray
    uncertain: np.ndarray


def split(c: Conjunctions, owner: np.ndarray, streams: int) -> Split:
    """Divides conjunctions by stream. owner: [attributes] int32, the owner of each attribute
    (`streams.Owners.stream_of`)."""
    first = int(c.disjunction_start[-1])
    begin = int(c.start[first])
    is_disjunction = c.terms[:, 0] == DISJUNCTION
    # the owners that each term names, as bits like those of `named_owners`
    named = np.empty(len(c.terms), np.int64)
    term_owner = owner[c.terms[~is_disjunction, 0]]
    named[~is_disjunction] = 1 << np.where(
        term_owner >= 0, term_owner, np.where(term_owner == ACROSS, streams, streams + 1)
    )
    named[is_disjunction] = named_owners(c.start, c.terms, c.disjunction_start, owner, streams)[
        c.terms[is_disjunction, 1]
    ]
    known = named & (2 << streams) - 1
    several = (known & known - 1 != 0) | (known >> streams & 1 != 0)
    across = (several & ~is_disjunction)[begin:]
    unknown = (named >> streams + 1 & 1 != 0)[begin:]
    of_rules = c.start[first:] - begin
    return Split(
        target=c.target[first:],
        parts=tuple(
            parts_of(c, owner == stream, is_disjunction | (known >> stream & 1 != 0)) for stream in range(streams)
        ),
        disjunctions=parts_of(c, owner != UNKNOWN, is_disjunction & several),
        across_start=offsets_of(segment_counts(across, of_rules)),
        across_terms=c.terms[begin:][across],
        set_start=c.set_start,
        intervals=c.intervals,
        uncertain=segment_counts(unknown, of_rules) > 0,
    )


def parts_of(c: Conjunctions, attributes: np.ndarray, chosen: np.ndarray) -> Parts:
    """Returns the parts that consist of the chosen terms [terms] bool; shared disjunctions are weakened to `attributes`
    [attributes] bool."""
    first = int(c.disjunction_start[-1])
    begin = int(c.start[first])
    is_disjunction = c.terms[:, 0] == DISJUNCTION
    kept = chosen.copy()
    kept[:begin] = is_disjunction[:begin] | attributes[c.terms[:begin, 0]]
    kept[is_disjunction] &= ~always_open(c.start, c.terms, c.disjunction_start, attributes)[c.terms[is_disjunction, 1]]
    number, firsts = _number_parts(c.start, c.terms, kept, first)
    disjunctions = reached_disjunctions(c.start, c.terms, c.disjunction_start, kept, firsts)
    of_disjunctions = np.flatnonzero(np.repeat(disjunctions, np.diff(c.disjunction_start)))
    gather, start = gather_indices(c.start, np.concatenate([of_disjunctions, firsts]))
    start = offsets_of(segment_counts(kept[gather], start))
    return Parts(
        number,
        np.flatnonzero(attributes),
        _renumbered(c, c.terms[gather[kept[gather]]], start, attributes, disjunctions),
    )


def _renumbered(
    c: Conjunctions, terms: np.ndarray, start: np.ndarray, attributes: np.ndarray, disjunctions: np.ndarray
) -> Conjunctions:
    """Returns the conjunctions of some shared disjunctions [disjunctions] bool, then those of parts. Attributes, shared
    disjunctions and sets are renumbered, without those that are not named."""
    is_disjunction = terms[:, 0] == DISJUNCTION
    sets = np.zeros(len(c.set_start) - 1, bool)
    sets[terms[~is_disjunction, 1]] = True
    terms[~is_disjunction, 0] = (np.cumsum(attributes) - 1)[terms[~is_disjunction, 0]]
    terms[~is_disjunction, 1] = (np.cumsum(sets) - 1)[terms[~is_disjunction, 1]]
    terms[is_disjunction, 1] = (np.cumsum(disjunctions) - 1)[terms[is_disjunction, 1]]
    gather, set_start = gather_indices(c.set_start, np.flatnonzero(sets))
    disjunction_start = offsets_of(np.diff(c.disjunction_start)[disjunctions])
    of_disjunctions = np.repeat(np.arange(len(disjunction_start) - 1), np.diff(disjunction_start))
    parts = np.arange(len(start) - 1 - len(of_disjunctions))
    return Conjunctions(
        sizes=c.sizes[attributes],
        set_start=set_start,
        intervals=c.intervals[gather],
        start=start,
        terms=terms,
        target=np.concatenate([of_disjunctions, parts]).astype(np.int32),
        disjunction_start=disjunction_start.astype(np.int32),
    )


@jit
def _number_parts(start: np.ndarray, terms: np.ndarray, kept: np.ndarray, first: int) -> tuple[np.ndarray, np.ndarray]:
    """Numbers the conjunctions from `first` on by their kept terms. Returns the numbers [conjunctions] int32, the same
    for equal sets of kept terms and -1 for none, and the first conjunction [.] int64 of each number."""
    count = len(start) - 1 - first
    number = np.full(count, np.int32(-1))
    firsts = np.empty(count, np.int64)
    size = 2
    while size < 2 * count:
        size *= 2
    table = np.full(size, np.int32(-1))
    mask = size - 1
    keys = np.empty(start[-1] - start[first], np.int64)
    key_start = np.zeros(count + 1, np.int64)
    parts = 0
    for conjunction in range(count):
        begin = key_start[parts]
        end = begin
        for term in range(start[first + conjunction], start[first + conjunction + 1]):
            if kept[term]:
                key = np.int64(terms[term, 0]) << 32 | terms[term, 1]
                to = end
                while to > begin and keys[to - 1] > key:
                    keys[to] = keys[to - 1]
                    to -= 1
                keys[to] = key
                end += 1
        if end == begin:
            continue
        found, slot = _find_part(keys, key_start, begin, end, table, mask)
        if found < 0:
            found = parts
            table[slot] = parts
            firsts[parts] = first + conjunction
            parts += 1
            key_start[parts] = end
        number[conjunction] = found
    return number, firsts[:parts].copy()


@jit
def _find_part(
    keys: np.ndarray, key_start: np.ndarray, begin: int, end: int, table: np.ndarray, mask: int
) -> tuple[int, int]:
    """Returns the part whose keys equal `keys[begin:end]`, or -1; and its slot in the hash table, or the free slot for
    it."""
    state = np.uint64(0xCBF29CE484222325)
    for i in range(begin, end):
        state = (state ^ np.uint64(keys[i])) * np.uint64(0x9E3779B97F4A7C15)
        state ^= state >> np.uint64(32)
    slot = int(np.int64(state & np.uint64(mask)))
    while table[slot] >= 0:
        part = table[slot]
        at = key_start[part]
        same = key_start[part + 1] - at == end - begin
        i = 0
        while same and i < end - begin:
            same = keys[at + i] == keys[begin + i]
            i += 1
        if same:
            return part, slot
        slot = (slot + 1) & mask
    return -1, slot
