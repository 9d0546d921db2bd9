"""Builds the joined rows of entries, except those that fail a part (local conjunct) without a list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rules_index.arrays import offsets_of
from rules_index.join.entries import Entries
from rules_index.join.lists import Lists
from rules_index.join.local_conjuncts import Split
from rules_index.join.window_partners import OrderedRows
from rules_index.kernels.bisection import in_intervals
from rules_index.kernels.jit import inner, jit


class Checks(NamedTuple):
    """The parts (local conjuncts) of all streams, and the codes of the rows to check them on.

    part_base  [streams] int64, number of the first part of each stream
    start      [parts + 1] int64, offsets into terms
    terms      [., 2] int32 (attribute, set); attributes are numbered stream by stream
    set_start  [sets + 1] int64, offsets into intervals
    intervals  [., 2] int32, closed, ascending, disjoint ranges of codes
    code_at    [attributes] int64; the code of an attribute at a position is codes[code_at + position]
    codes      [.] int32
    """

    part_base: np.ndarray
    start: np.ndarray
    terms: np.ndarray
    set_start: np.ndarray
    intervals: np.ndarray
    code_at: np.ndarray
    codes: np.ndarray


def part_checks(split: Split) -> Checks:
    """Returns the parts of all streams, still without codes."""
    rules = [parts.rules for parts in split.parts]
    starts = [c.start[int(c.disjunction_start[-1]) :] for c in rules]
    attributes, sets = 0, 0
    terms = []
    for c, start in zip(rules, starts, strict=True):
        terms.append(c.terms[start[0] :] + np.array([attributes, sets], np.int32))
        attributes += len(c.sizes)
        sets += len(c.set_start) - 1
    return Checks(
        part_base=offsets_of(np.array([len(start) - 1 for start in starts]))[:-1],
        start=offsets_of(np.concatenate([np.diff(start) for start in starts])),
        terms=np.concatenate(terms),
        set_start=offsets_of(np.concatenate([np.diff(c.set_start) for c in rules])),
        intervals=np.concatenate([c.intervals for c in rules]),
        code_at=np.empty(0, np.int64),
        codes=np.empty(0, np.int32),
    )


def with_codes(checks: Checks, rows: OrderedRows, codes: Sequence[np.ndarray]) -> Checks:
    """Returns the same parts with the codes of rows to check them on; codes: for each stream [attributes, rows]
    int32."""
    at, code_at = 0, []
    for each, begin in zip(codes, rows.begin.tolist(), strict=False):
        code_at.append(at + np.arange(len(each)) * each.shape[1] - begin)
        at += each.size
    flat = np.concatenate([each.reshape(-1) for each in codes])
    return checks._replace(code_at=np.concatenate(code_at).astype(np.int64), codes=flat)


@inner
def part_holds(part: int, position: int, checks: Checks) -> bool:
    """Whether a part without shared disjunctions, numbered over all streams, holds on the row at a position."""
    for term in range(checks.start[part], checks.start[part + 1]):
        code = checks.codes[checks.code_at[checks.terms[term, 0]] + position]
        set_index = checks.terms[term, 1]
        if not in_intervals(code, checks.set_start[set_index], checks.set_start[set_index + 1], checks.intervals):
            return False
    return True


@jit
def expand(
    entries: Entries, lists: Lists, checked: np.ndarray, checks: Checks, size: int
) -> tuple[np.ndarray, np.ndarray]:
    """Builds the `size` joined rows of the entries, except those that fail a part of `checked` [conjunctions, streams]
    int32.

    Returns the entry [.] int32 of each joined row, and the positions [streams, .] int32 of its rows.
    """
    streams = entries.ranges.shape[1]
    entry_of = np.empty(size, np.int32)
    positions = np.empty((streams, size), np.int32)
    place = np.empty(streams, np.int64)
    filled = 0
    for entry in range(len(entries.anchor)):
        conjunction = entries.conjunction[entry]
        stream = 0
        place[0] = entries.ranges[entry, 0, 0]
        while stream >= 0:
            if place[stream] == entries.ranges[entry, stream, 1]:
                stream -= 1
                if stream >= 0:
                    place[stream] += 1
                continue
            part = checked[conjunction, stream]
            position = lists.position[place[stream]]
            if part >= 0 and not part_holds(checks.part_base[stream] + part, position, checks):
                place[stream] += 1
                continue
            # a later choice for a stream overwrites this one, until all streams have a row
            positions[stream, filled] = position
            if stream + 1 < streams:
                stream += 1
                place[stream] = entries.ranges[entry, stream, 0]
                continue
            entry_of[filled] = entry
            place[stream] += 1
            filled += 1
            if filled < size:
                for before in range(stream):
                    positions[before, filled] = positions[before, filled - 1]
    return entry_of[:filled].copy(), positions[:, :filled].copy()


@jit
def sort_candidates(entries: Entries, entry_of: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Returns the stable order [candidates] int32 that makes equal joined rows adjacent, anchor after anchor.

    Entries are ordered by anchor, and the candidates of each entry ascend. So the candidates of an anchor are sorted
    runs, one for each entry, which are merged.
    """
    size = len(entry_of)
    order = np.arange(size).astype(np.int32)
    merged = np.empty(size, np.int32)
    bounds = np.empty(size + 2, np.int64)
    begin = 0
    while begin < size:
        end, runs = begin, 0
        bounds[0] = begin
        while end < size and entries.anchor[entry_of[end]] == entries.anchor[entry_of[begin]]:
            entry = entry_of[end]
            while end < size and entry_of[end] == entry:
                end += 1
            runs += 1
            bounds[runs] = end
        while runs > 1:
            pairs = (runs + 1) // 2
            bounds[runs + runs % 2] = end
            for pair in range(pairs):
                _merge(order, bounds[2 * pair], bounds[2 * pair + 1], bounds[2 * pair + 2], positions, merged)
                bounds[pair + 1] = bounds[2 * pair + 2]
            order[begin:end] = merged[begin:end]
            runs = pairs
        begin = end
    return order


@inner
def _merge(order: np.ndarray, begin: int, middle: int, end: int, positions: np.ndarray, merged: np.ndarray) -> None:
    """Merges the runs [begin, middle) and [middle, end) of an order of candidates."""
    left, right = begin, middle
    for to in range(begin, end):
        if right == end or (left < middle and not _comes_before(order[right], order[left], positions)):
            merged[to] = order[left]
            left += 1
        else:
            merged[to] = order[right]
            right += 1


@inner
def _comes_before(one: int, other: int, positions: np.ndarray) -> bool:
    """Whether one candidate precedes another by their positions [streams, candidates], the first stream first."""
    for stream in range(len(positions)):
        if positions[stream, one] != positions[stream, other]:
            return positions[stream, one] < positions[stream, other]
    return False


@jit
def gather(
    entries: Entries, entry_of: np.ndarray, positions: np.ndarray, order: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Numbers the distinct joined rows, given candidates in an order that makes equal joined rows adjacent.

    Returns the conjunction [candidates] int32 and the number of the joined row [candidates] int32, ascending, of each
    candidate, and the positions [streams, joined rows] int32.
    """
    streams = len(positions)
    conjunction = np.empty(len(order), np.int32)
    number = np.empty(len(order), np.int32)
    joined = np.empty((streams, len(order)), np.int32)
    count = 0
    for i in range(len(order)):
        at = order[i]
        same = i > 0
        for stream in range(streams):
            same = same and positions[stream, at] == joined[stream, count - 1]
        if not same:
            for stream in range(streams):
                joined[stream, count] = positions[stream, at]
            count += 1
        number[i] = count - 1
        conjunction[i] = entries.conjunction[entry_of[at]]
    return conjunction, number, joined[:, :count].copy()


@jit
def list_rules(
    conjunction: np.ndarray, number: np.ndarray, joined: np.ndarray, target: np.ndarray, row: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Lists the rules of each joined row, given candidates that are ordered by joined row and then by conjunction.

    target: [conjunctions] int32, ascending, the rule of each conjunction; row: [positions] int64, the number of each
    row within its side. Returns (rows [streams, joined rows] int64, offsets [joined rows + 1] int64, rules [.] int32).
    """
    streams = len(joined)
    rows = np.empty((streams, joined.shape[1]), np.int64)
    offsets = np.zeros(joined.shape[1] + 1, np.int64)
    rules = np.empty(len(conjunction), np.int32)
    filled, count = 0, 0
    for i in range(len(conjunction)):
        rule = target[conjunction[i]]
        if i == 0 or number[i] != number[i - 1]:
            for stream in range(streams):
                rows[stream, count] = row[joined[stream, number[i]]]
            count += 1
        elif rule == rules[filled - 1]:
            continue
        rules[filled] = rule
        filled += 1
        offsets[count] = filled
    return rows[:, :count].copy(), offsets[: count + 1].copy(), rules[:filled].copy()
