"""Chooses the hash tables to make, and estimates the cost of conjunctions in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from rules_index.arrays import gather_indices
from rules_index.index.layout import DIRECT_SLOTS, FILTERED
from rules_index.index.planner.cardinality import CHUNK_ROWS, Expected
from rules_index.index.planner.costs import Costs
from rules_index.kernels.bitmaps import COARSE_CODES
from rules_index.kernels.prefilter import PREFILTERED

LONGEST_KEY = 3
"""The most attributes of a table. It may have more if many conjunctions name exactly these attributes, ..."""
MOST_COMMON = 63
"""... but at most so many: the number of combinations of their codes would overflow."""
NARROWEST = 10
"""Keys of several attributes combine only so many terms of a conjunction, those with the smallest share of rows."""
COMMON = 0.01
"""All narrow attributes of a conjunction become a key if at least this share of the conjunctions has exactly the same
ones."""
MOST_TABLES = 512
STEPS_TO_ENTRY = 3
"""Memory reads, each depending on the one before, to find an entry of a hashed table."""
NEAR_BYTES, SLOT_BYTES, ENTRY_BYTES = 1 << 20, 4, 16
"""Bytes of the L2 cache, of a slot and of an entry."""
KEPT_SHARES = 32
"""While conjunctions are placed, the shares of all conjunctions are cached for so many attributes."""


@dataclass(frozen=True)
class TableAssignment:
    """Which hash table each conjunction is in.

    tables   the attributes of each table
    table    [conjunctions] int32, the conjunction's table or -1
    share    [conjunctions] float32, the share of rows that meet the conjunction there
    entries  [conjunctions] float32, the number of its entries
    """

    tables: tuple[tuple[int, ...], ...]
    table: np.ndarray
    share: np.ndarray
    entries: np.ndarray


class CandidateKeys(NamedTuple):
    """The keys under which conjunctions can be filed; a key is the attributes of a table.

    For each pair of a conjunction and one of its keys, [candidates]:

    owner    the conjunction
    key      the number of the key
    share    the share of rows that meet the conjunction under this key
    entries  the number of entries that the conjunction has under it

    names    the attributes of each key, by its number
    """

    owner: np.ndarray
    key: np.ndarray
    share: np.ndarray
    entries: np.ndarray
    names: dict[int, tuple[int, ...]]


class TableCosts:
    """The expected costs of conjunctions in hash tables; `expected` are the expectations for these conjunctions."""

    def __init__(self, expected: Expected, costs: Costs) -> None:
        self.expected = expected
        self.costs = costs
        self._named: dict[int, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}
        self._shares: dict[int, np.ndarray] = {}

    def probe_cost(self, names: tuple[int, ...], entries: float, slot: float | None = None) -> float:
        """The cost per row of probing a table with so many entries, whatever is found: of its prefilter, and of the
        slots of the rows that this lets pass. slot: the cost of a slot, if it is not `slot_ns`. Entries are assumed to
        be spread evenly over the `effective_codes` of each attribute."""
        costs = self.costs
        sizes = self.expected.c.sizes[list(names)[:PREFILTERED]]
        slots = _product(self.expected.c.sizes[list(names)])
        direct = slots <= max(DIRECT_SLOTS, 2 * entries)
        slot_cost = (costs.slot_ns if slot is None else slot) + costs.fetch_ns * self._far(
            SLOT_BYTES * (slots if direct else 2 * entries)
        )
        if len(names) == 1 or (sizes > COARSE_CODES).any() or _product(sizes) <= FILTERED * entries:
            return slot_cost
        # rows with an entry read its slot; in a hashed table the group and its entries, too
        reads = 1 if direct else STEPS_TO_ENTRY
        fetched = reads * costs.fetch_ns * self._far(ENTRY_BYTES * entries)
        met = min(1.0, entries / _product(self.expected.effective_codes[list(names)]))
        return costs.filter_ns + met * (slot_cost + fetched)

    def _far(self, size: float) -> float:
        """The share of a table of so many bytes that is not in the L2 cache."""
        return max(0.0, 1 - NEAR_BYTES / max(1.0, size))

    def _key_cost(
        self, owner: np.ndarray, share: np.ndarray, entries: np.ndarray, named: np.ndarray | int
    ) -> np.ndarray:
        """The cost per row [.] of the conjunctions `owner` [.] in a table of `named` attributes each. share [.]: the
        share of rows that meet the conjunction there; entries [.]: the number of its entries."""
        each = np.where(self.expected.lengths[owner] == named, self.costs.plain_candidate_ns, self.costs.candidate_ns)
        # a row that satisfies a conjunction meets it under any key
        met = np.maximum(share, self.expected.counted[owner])
        fetched = np.minimum(entries, share * CHUNK_ROWS) / CHUNK_ROWS
        fetched *= self._far(ENTRY_BYTES * self.expected.count * self.expected.scale)
        return np.asarray(met * each + fetched * self.costs.fetch_ns, np.float32)

    def choose(self, cost: np.ndarray) -> list[tuple[int, ...]]:
        """Greedily chooses keys (the attributes of a table), in order of what they save; each saves more than probing
        its table costs. cost [conjunctions]: what each conjunction costs without tables."""
        candidates = self._candidate_keys
        if not len(candidates.owner):
            return []
        names = candidates.names
        width = np.array([len(names[number]) for number in range(len(names))])
        keyed_cost = self._key_cost(
            candidates.owner, candidates.share, candidates.entries, width[candidates.key]
        ).astype(np.float64)
        by_owner = np.argsort(candidates.owner, kind="stable")
        owner, key, keyed_cost = candidates.owner[by_owner], candidates.key[by_owner], keyed_cost[by_owner]
        owner_start = np.searchsorted(owner, np.arange(self.expected.count + 1))
        by_key = np.argsort(key, kind="stable")
        key_start = np.searchsorted(key[by_key], np.arange(len(names) + 1))
        # what each conjunction costs with the keys chosen so far, and what each further key would save
        current = cost.astype(np.float64)
        saved = np.bincount(key, weights=np.maximum(0, current[owner] - keyed_cost), minlength=len(names))
        probe_costs = self._probe_costs(owner, key, candidates.entries[by_owner], names, saved)
        chosen: list[int] = []
        while len(chosen) < MOST_TABLES:
            best = int(np.argmax(saved * self.expected.scale - probe_costs))
            if saved[best] * self.expected.scale <= probe_costs[best]:
                break
            chosen.append(best)
            under_best = by_key[key_start[best] : key_start[best + 1]]
            cheaper = under_best[keyed_cost[under_best] < current[owner[under_best]]]
            changed, new_cost = owner[cheaper], keyed_cost[cheaper]
            # these conjunctions would save less under their other keys than before
            others, offsets = gather_indices(owner_start, changed)
            before, after = current[owner[others]], np.repeat(new_cost, np.diff(offsets))
            less = np.maximum(0, before - keyed_cost[others]) - np.maximum(0, after - keyed_cost[others])
            saved -= np.bincount(key[others], weights=less, minlength=len(names))
            current[changed] = new_cost
        return [names[number] for number in chosen]

    def _probe_costs(
        self, owner: np.ndarray, key: np.ndarray, entries: np.ndarray, names: dict[int, tuple[int, ...]],
        saved: np.ndarray,
    ) -> np.ndarray:  # fmt: skip
        """The cost per row [keys] float64 of probing a table of each key; infinite for keys that save less than the
        cheapest probe costs, as most keys of few conjunctions do. saved: [keys], what each key saves; owner, key and
        entries [candidates] as in `CandidateKeys`."""
        # a conjunction is filed under only one of its candidate keys: each counts with that probability
        chances = self.expected.scale / np.bincount(owner, minlength=self.expected.count)[owner]
        entries_of = np.bincount(key, weights=chances * entries, minlength=len(names)).tolist()
        worth = np.flatnonzero(saved * self.expected.scale > min(self.costs.filter_ns, self.costs.slot_ns))
        found = np.full(len(names), np.inf)
        found[worth] = [self.probe_cost(names[number], entries_of[number]) for number in worth.tolist()]
        return found

    @cached_property
    def _candidate_keys(self) -> CandidateKeys:
        """All candidate keys of all conjunctions."""
        at = np.flatnonzero(self.expected.narrow_enough)
        at = at[np.lexsort((self.expected.terms.attribute[at], self.expected.terms.owner[at]))]
        owner, attribute, share, width = alone = self._terms(at)
        parts = [
            (owner, attribute[:, None], share, width),
            *self._longer_keys(at[self._among_narrowest(at)]),
            *self._common_keys(*alone),
        ]
        names: dict[int, tuple[int, ...]] = {}
        numbers: list[np.ndarray] = []
        for _, columns, _, _ in parts:
            distinct, inverse = np.unique(columns, axis=0, return_inverse=True)
            known = len(names)
            numbers.append(known + inverse.reshape(-1))
            names.update((known + i, tuple(row)) for i, row in enumerate(distinct.tolist()))
        return CandidateKeys(
            owner=np.concatenate([part[0] for part in parts]),
            key=np.concatenate(numbers),
            share=np.concatenate([part[2] for part in parts]),
            entries=np.concatenate([part[3] for part in parts]),
            names=names,
        )

    def _terms(self, at: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Columns of the terms `at`: owner, attribute, share of rows and number of codes."""
        terms, share, width = self.expected.terms, self.expected.share[at], self.expected.widths[at]
        return terms.owner[at], terms.attribute[at].astype(np.int64), share.astype(np.float64), width.astype(np.float64)

    def _among_narrowest(self, at: np.ndarray) -> np.ndarray:
        """Which of the terms `at` [.], ordered by owner, are among the `NARROWEST` of their conjunction, [.] bool."""
        owner = self.expected.terms.owner[at]
        order = np.lexsort((self.expected.share[at], owner))
        rank = np.empty(len(at), np.int64)
        rank[order] = np.arange(len(at)) - np.searchsorted(owner, owner)
        return np.asarray(rank < NARROWEST)

    def _longer_keys(self, at: np.ndarray) -> list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
        """All combinations of two to `LONGEST_KEY` of the terms `at` of each conjunction: for each length the
        conjunction, the attributes, the share of rows and the number of entries."""
        owner, attribute, share, width = self._terms(at)
        ends = np.searchsorted(owner, owner, side="right")
        parts = [(owner, attribute[:, None], share, width)]
        last = np.arange(len(owner))
        for _ in range(1, LONGEST_KEY):
            before, columns, product, entries = parts[-1]
            longer = ends[last] - last - 1
            source = np.repeat(np.arange(len(before)), longer)
            step = np.arange(len(source)) - np.repeat(np.cumsum(longer) - longer, longer)
            last = last[source] + 1 + step
            longer_columns = np.column_stack([columns[source], attribute[last]])
            parts.append((before[source], longer_columns, product[source] * share[last], entries[source] * width[last]))
        return parts[1:]

    def _common_keys(
        self, owner: np.ndarray, attribute: np.ndarray, share: np.ndarray, width: np.ndarray
    ) -> list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
        """For conjunctions with more narrow terms than `LONGEST_KEY`: the key of all of them, if many conjunctions have
        the same one. The result is like that of `_longer_keys`."""
        lengths = np.bincount(owner, minlength=self.expected.count)
        begin = np.cumsum(lengths) - lengths
        found = []
        for length in np.unique(lengths[(lengths > LONGEST_KEY) & (lengths <= MOST_COMMON)]).tolist():
            members = np.flatnonzero(lengths == length)
            if len(members) < COMMON * self.expected.count:
                continue
            columns = attribute[begin[members, None] + np.arange(length)]
            _, inverse, uses = np.unique(columns, axis=0, return_inverse=True, return_counts=True)
            common = uses[inverse.reshape(-1)] >= COMMON * self.expected.count
            at = begin[members[common], None] + np.arange(length)
            found.append((members[common], columns[common], share[at].prod(1), width[at].prod(1)))
        return found

    def place(self, tables: Sequence[tuple[int, ...]], cost: np.ndarray) -> tuple[TableAssignment, np.ndarray]:
        """The cheapest of the tables for every conjunction, -1 if none is cheaper than `cost` [conjunctions]; and the
        conjunction's cost there, or else `cost`."""
        table, best = np.full(self.expected.count, -1, np.int32), cost.copy()
        met, filed = np.zeros((2, self.expected.count), np.float32)
        for number, names in enumerate(tables):
            owner, share, entries = self._named_by(names[0])
            for name in names[1:]:
                other, widths = (each[owner] for each in self._share_of(name))
                both = other > 0
                owner, share, entries = owner[both], share[both] * other[both], entries[both] * widths[both]
            keyed = self._key_cost(owner, share, entries, len(names))
            better = keyed < best[owner]
            table[owner[better]], best[owner[better]] = number, keyed[better]
            met[owner[better]], filed[owner[better]] = share[better], entries[better]
        return TableAssignment(tuple(tables), table, met, filed), best

    def cost(self, assignment: TableAssignment) -> float:
        """The cost per row of an assignment, with the probes of all its tables."""
        filed: np.ndarray = np.flatnonzero(assignment.table >= 0)
        table, entries = assignment.table[filed], assignment.entries[filed]
        widths = np.array([len(names) for names in assignment.tables], np.int64)
        each = self._key_cost(filed, assignment.share[filed], entries, widths[table])
        counts = np.bincount(table, weights=entries, minlength=len(assignment.tables)) * self.expected.scale
        lists_only = (
            len(assignment.tables) == 1
            and len(filed) == self.expected.count
            and bool((self.expected.lengths == widths[0]).all())
        )
        slot = self.costs.plain_slot_ns if lists_only else None
        probes = sum(self.probe_cost(*table, slot) for table in zip(assignment.tables, counts.tolist(), strict=True))
        return self.expected.scale * float(each.sum(dtype=np.float64)) + probes

    def _named_by(self, attribute: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The conjunctions that name an attribute by few codes, the share of rows with one of these codes, and the
        number of these codes."""
        if attribute not in self._named:
            at = np.flatnonzero(self.expected.narrow_enough & (self.expected.terms.attribute == attribute))
            # a share of 0 would look like an attribute that is not named
            share = np.maximum(self.expected.share[at], np.float32(1e-30))
            self._named[attribute] = self.expected.terms.owner[at], share, self.expected.widths[at].astype(np.float32)
        return self._named[attribute]

    def _share_of(self, attribute: int) -> np.ndarray:
        """The share of rows and the number of codes of `_named_by` for every conjunction, [2, conjunctions] float32; 0
        if it does not name the attribute by few codes."""
        if attribute not in self._shares:
            if len(self._shares) == KEPT_SHARES:
                self._shares.clear()
            owner, share, widths = self._named_by(attribute)
            self._shares[attribute] = np.zeros((2, self.expected.count), np.float32)
            self._shares[attribute][:, owner] = share, widths
        return self._shares[attribute]


def _product(sizes: np.ndarray) -> float:
    with np.errstate(over="ignore"):  # infinity is near enough
        return float(np.prod(sizes.astype(np.float64)))
