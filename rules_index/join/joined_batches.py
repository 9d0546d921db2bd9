"""Makes pieces of joined rows with their rules from the sides' rows, one slice of time after the other."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from rules_index.join.candidates import Checks, expand, gather, list_rules, sort_candidates, with_codes
from rules_index.join.entries import Entries, cut_ranges, find_entries
from rules_index.join.lists import Lists, fill_lists, radix_order
from rules_index.join.local_conjuncts import NOTHING, Split
from rules_index.join.plan import Plan
from rules_index.join.residual_predicates import AcrossTests, AcrossValues
from rules_index.join.window_partners import OrderedRows

ENTRIES = 1 << 22
"""The most entries in memory at a time, unless one anchor has more."""
MAX_GROUPS = 64
"""If anchors have too many entries, they are divided into this many groups at most, and these again if necessary."""
HITS = 1 << 25
"""If rows are in more lists than this, time is divided into slices, so that memory does not grow with the sides."""


@dataclass(frozen=True)
class Piece:
    """Joined rows, each with the rules that it satisfies, at least one.

    rows      for each stream, the numbers [joined rows] int64 of the rows within its side
    offsets   [joined rows + 1] int64 into ordinals
    ordinals  [.] int32, rules by their index in `CompiledRules.ids`, ascending for each joined row
    """

    rows: tuple[np.ndarray, ...]
    offsets: np.ndarray
    ordinals: np.ndarray

    def __len__(self) -> int:
        """Number of joined rows."""
        return len(self.offsets) - 1


@dataclass(frozen=True)
class Matcher:
    """Matches a batch of sides; the fields are the same for all its slices of time.

    most: the most pairs of a joined row and a conjunction that a piece is made from, unless a single joined row has
    more.
    """

    split: Split
    plan: Plan
    checks: Checks
    tests: AcrossTests
    values: AcrossValues
    most: int

    def pieces(self, rows: OrderedRows, codes: Sequence[np.ndarray]) -> Iterator[Piece]:
        """Yields the pieces of rows with these codes: for each stream [attributes, rows] int32."""
        cuts = _cuts(rows, int(np.diff(rows.begin) @ (1 + self.plan.hits)) // HITS)
        if not len(cuts):
            yield from self._slice(rows, codes)
            return
        for low, high in zip([-np.inf, *cuts], [*cuts, np.inf], strict=True):
            part, chosen = rows.between(low, high)
            sides = zip(codes, rows.begin[:-1], rows.begin[1:], strict=True)
            yield from self._slice(part, [each[:, chosen[begin:end]] for each, begin, end in sides])

    def _slice(self, rows: OrderedRows, codes: Sequence[np.ndarray]) -> Iterator[Piece]:
        """Yields the pieces of one slice of time; anchors are divided by time until there are few enough entries."""
        matched = [
            (np.zeros(each.shape[1] + 1, np.int64), np.empty(0, np.int32)) if engine is None else engine.match(each)
            for engine, each in zip(self.plan.engines, codes, strict=True)
        ]
        lists = fill_lists(rows, matched, self.plan.listed)
        del matched
        checks = self.checks
        if (self.plan.checked != NOTHING).any():
            checks = with_codes(checks, rows, codes)
        rank = np.empty(len(rows), np.int32)
        rank[np.argsort(rows.time, kind="stable")] = np.arange(len(rows))
        waiting = [(0, len(rows))]
        while waiting:
            low, high = waiting.pop()
            owned = rows.owned & (rank >= low) & (rank < high)
            most = ENTRIES if high - low > 1 else np.iinfo(np.int64).max
            entries, share = find_entries(lists, self.plan.pairs, rows.reach, owned, _combinations(rows), most)
            if entries is None:
                parts = min(high - low, MAX_GROUPS, 1 + math.ceil(1 / max(share, 1 / MAX_GROUPS)))
                bounds = [low + (high - low) * part // parts for part in range(parts + 1)]
                waiting += list(pairwise(bounds))[::-1]
                continue
            entries = entries.chosen(radix_order(rank[entries.anchor]))
            for group in _cut(entries, lists, self.most):
                piece = self._piece(group, lists, checks, rows, codes)
                if len(piece):
                    yield piece

    def _piece(
        self, entries: Entries, lists: Lists, checks: Checks, rows: OrderedRows, codes: Sequence[np.ndarray]
    ) -> Piece:
        """The joined rows of entries, which are ordered by the time of their anchors, and the rules of each."""
        entry_of, positions = expand(entries, lists, self.plan.checked, checks, int(entries.sizes.sum()))
        order = sort_candidates(entries, entry_of, positions)
        conjunction, number, joined = gather(entries, entry_of, positions, order)
        if self.tests.needed:
            held = self.tests.hold(conjunction, number, joined, rows, codes, self.values)
            conjunction, number = conjunction[held], number[held]
        found, offsets, ordinals = list_rules(conjunction, number, joined, self.split.target, rows.row)
        return Piece(tuple(found), offsets, ordinals)


def _combinations(rows: OrderedRows) -> list[int]:
    """Lists the combinations of old and new rows that can occur, bit i of each being set if the row of stream i is new;
    the combination of old rows only is left out."""
    streams = len(rows.windows)
    sides = [rows.new[rows.begin[stream] : rows.begin[stream + 1]] for stream in range(streams)]
    never_new = sum(1 << stream for stream, new in enumerate(sides) if not new.any())
    always_new = sum(1 << stream for stream, new in enumerate(sides) if new.all())
    return [bits for bits in range(1, 1 << streams) if not bits & never_new and bits & always_new == always_new]


def _cuts(rows: OrderedRows, most: int) -> np.ndarray:
    """Returns at most `most` times at which to divide the rows. They are farther apart than the longest window, so that
    a row is in at most two slices."""
    times = np.sort(rows.time[rows.owned])
    cuts: list[int] = []
    for cut in times[np.arange(1, most + 1) * len(times) // (most + 1)].tolist() if len(times) else ():
        if cut - (cuts[-1] if cuts else int(times[0])) > int(rows.windows.max()):
            cuts.append(cut)
    return np.array(cuts, np.int64)


def _cut(entries: Entries, lists: Lists, most: int) -> Iterator[Entries]:
    """Divides entries, which are ordered by anchor, into groups with at most `most` joined rows each. An anchor's
    entries are only divided if they alone have more."""
    ends = np.flatnonzero(np.diff(entries.anchor, append=-1)) + 1
    total = np.cumsum(entries.sizes)[ends - 1]
    group = begin = 0
    while group < len(ends):
        done = total[group - 1] if group else 0
        group = max(group + 1, int(np.searchsorted(total, done + most, side="right")))
        yield from _divided(entries.chosen(slice(begin, int(ends[group - 1]))), lists, most)
        begin = int(ends[group - 1])


def _divided(entries: Entries, lists: Lists, most: int) -> Iterator[Entries]:
    """Yields the same joined rows in groups of at most `most`: the longest range of rows is halved until they are few
    enough, or a single joined row is left."""
    waiting = [entries]
    while waiting:
        entries = waiting.pop()
        entries = entries.chosen(entries.sizes > 0)
        if entries.sizes.sum() <= most:
            yield entries
            continue
        low = lists.position[entries.ranges[:, :, 0]].min(axis=0)
        high = lists.position[entries.ranges[:, :, 1] - 1].max(axis=0)
        stream = int(np.argmax(high - low))
        if low[stream] == high[stream]:
            yield entries
            continue
        middle = (int(low[stream]) + int(high[stream]) + 1) // 2
        cuts = cut_ranges(np.ascontiguousarray(entries.ranges[:, stream]), lists.position, middle)
        lower, upper = entries.ranges.copy(), entries.ranges.copy()
        lower[:, stream, 1] = upper[:, stream, 0] = cuts
        waiting += [entries._replace(ranges=upper), entries._replace(ranges=lower)]
