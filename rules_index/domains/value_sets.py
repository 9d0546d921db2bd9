"""Value sets in bulk: many sets of one attribute in flat arrays; `values.ValueSet` is a single one.

Cuts are *positions*: integers in the order of the keys, such that the successor of a key has the next position. An
integer key is its own position; byte strings get theirs once all constants of an attribute are known
(`interned_constants`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rules_index.arrays import gather_indices, offsets_of, segment_counts, segment_ids
from rules_index.domains.values import ValueSet
from rules_index.kernels.sets import number_sets


@dataclass(frozen=True)
class SetArrays:
    """Sets of values of one attribute; each may also contain NULL.

    start    [sets] bool, membership below the first cut
    null     [sets] bool, whether NULL is in the set
    offsets  [sets + 1] int64, offsets into cuts
    cuts     [.] int64, ascending and distinct within a set; membership flips at each
    """

    start: np.ndarray
    null: np.ndarray
    offsets: np.ndarray
    cuts: np.ndarray

    def __len__(self) -> int:
        """Number of sets."""
        return len(self.start)

    @property
    def is_empty(self) -> np.ndarray:
        """Which sets [sets] bool are empty."""
        return ~self.start & ~self.null & (np.diff(self.offsets) == 0)

    @property
    def is_full(self) -> np.ndarray:
        """Which sets [sets] bool contain every value and NULL."""
        return self.start & self.null & (np.diff(self.offsets) == 0)

    def take(self, chosen: np.ndarray) -> SetArrays:
        """The sets with these numbers, in this order."""
        gather, offsets = gather_indices(self.offsets, chosen)
        return SetArrays(self.start[chosen], self.null[chosen], offsets, self.cuts[gather])

    def complements(self) -> SetArrays:
        """For each set the values that are not in it, without NULL."""
        return SetArrays(~self.start, np.zeros(len(self), bool), self.offsets, self.cuts)

    def clamped(self, least: int, greatest: int) -> SetArrays:
        """The values in [least, greatest] of the same sets: cuts outside of that range are left out."""
        below = self.cuts <= least
        kept = ~below & (self.cuts <= greatest)
        start = self.start ^ (segment_counts(below, self.offsets) % 2 == 1)
        return SetArrays(start, self.null, offsets_of(segment_counts(kept, self.offsets)), self.cuts[kept])

    def distinct(self) -> tuple[np.ndarray, np.ndarray]:
        """Groups equal sets. Returns the number [groups] of the first set of each group, and the group [sets] of each
        set."""
        first = np.empty(len(self), np.int64)
        number = np.empty(len(self), np.int64)
        table = np.full(1 << (2 * len(self)).bit_length(), -1, np.int64)
        count = number_sets(self.start, self.null, self.offsets, self.cuts, table, first, number)
        return first[:count], number

    def intersections(self, members: np.ndarray, group_offsets: np.ndarray) -> SetArrays:
        """The intersection of each group of sets. members [.]: the numbers of the sets, group after group;
        group_offsets [groups + 1]: where each group begins in them."""
        groups = len(group_offsets) - 1
        sizes = np.diff(group_offsets)
        group = segment_ids(group_offsets)
        gather, offsets = gather_indices(self.offsets, members)
        member = segment_ids(offsets)
        # a sweep over each group's cuts: `depth` is how many of its sets contain the values behind a cut
        entering = ((np.arange(len(gather)) - offsets[member]) % 2 == 0) ^ self.start[members][member]
        order = np.lexsort((self.cuts[gather], group[member]))
        cuts, owner = self.cuts[gather][order], group[member][order]
        began = segment_counts(self.start[members], group_offsets)
        depth = np.cumsum(np.where(entering[order], 1, -1))
        event_offsets = offsets_of(np.bincount(owner, minlength=groups))
        depth += began[owner] - np.concatenate([[0], depth])[event_offsets[:-1]][owner]
        # of several changes at one cut only the last says how many sets contain the values behind it
        last = np.ones(len(cuts), bool)
        last[:-1] = (cuts[1:] != cuts[:-1]) | (owner[1:] != owner[:-1])
        cuts, owner, inside = cuts[last], owner[last], depth[last] == sizes[owner[last]]
        begins = np.ones(len(owner), bool)
        begins[1:] = owner[1:] != owner[:-1]
        before = np.concatenate([[False], inside[:-1]]) if len(inside) else inside
        changes = inside != np.where(begins, (began == sizes)[owner], before)
        return SetArrays(
            began == sizes,
            segment_counts(self.null[members], group_offsets) == sizes,
            offsets_of(np.bincount(owner[changes], minlength=groups)),
            cuts[changes],
        )


def join(parts: Sequence[SetArrays]) -> SetArrays:
    """The sets of several arrays, one array after the other."""
    if len(parts) == 1:
        return parts[0]
    lengths = [np.diff(part.offsets) for part in parts]
    return SetArrays(
        np.concatenate([np.empty(0, bool), *(part.start for part in parts)]),
        np.concatenate([np.empty(0, bool), *(part.null for part in parts)]),
        offsets_of(np.concatenate([np.empty(0, np.int64), *lengths])),
        np.concatenate([np.empty(0, np.int64), *(part.cuts for part in parts)]),
    )


def ranges(low: np.ndarray, high: np.ndarray, offsets: np.ndarray | None = None) -> SetArrays:
    """The sets of positions in [low, high), each [sets] int64. With `offsets` [sets + 1], each set is the union of
    several such ranges, which must be equal or disjoint."""
    if offsets is None:
        held = low < high
        return SetArrays(
            np.zeros(len(low), bool),
            np.zeros(len(low), bool),
            offsets_of(2 * held),
            np.stack([low[held], high[held]], axis=1).reshape(-1),
        )
    lists = len(offsets) - 1
    held = low < high
    low, high, owner = low[held], high[held], segment_ids(offsets)[held]
    order = np.lexsort((low, owner))
    low, high, owner = low[order], high[order], owner[order]
    # a range that is equal to the one before, or begins where that ends, continues it
    opens = np.ones(len(low), bool)
    opens[1:] = (owner[1:] != owner[:-1]) | (low[1:] > high[:-1])
    closes = np.ones(len(low), bool)
    closes[:-1] = opens[1:]
    return SetArrays(
        np.zeros(lists, bool),
        np.zeros(lists, bool),
        offsets_of(2 * np.bincount(owner[opens], minlength=lists)),
        np.stack([low[opens], high[closes]], axis=1).reshape(-1),
    )


def rays(cut: np.ndarray, start: bool) -> SetArrays:
    """The sets of all positions below `cut` [sets] int64 if `start`, else of all positions from it on."""
    count = len(cut)
    return SetArrays(np.full(count, start), np.zeros(count, bool), np.arange(count + 1), cut.astype(np.int64))


def as_arrays(sets: Sequence[ValueSet], null: Sequence[bool], positions: Sequence[int]) -> SetArrays:
    """The sets as arrays. positions: those of all their cuts, concatenated."""
    return SetArrays(
        np.array([values.start for values in sets], bool),
        np.array(null, bool),
        offsets_of(np.array([len(values.cuts) for values in sets], np.int64)),
        np.array(positions, np.int64),
    )
