"""Builds the hash tables of conjunctions, as `kernels.hash_tables` reads them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rules_index.arrays import gather_indices
from rules_index.index.conjunction_arrays import DISJUNCTION, Conjunctions
from rules_index.index.layout.term_columns import AccessPlan, TermColumns, set_widths, terms_of, within
from rules_index.kernels.bitmaps import COARSE_CODES
from rules_index.kernels.fields import DTYPES
from rules_index.kernels.hash_tables import NEVER, NOTHING, PACKED, QUICK
from rules_index.kernels.llvm import LOOKED_UP as PADDING
from rules_index.kernels.prefilter import PAIR_BITS, PREFILTERED, filter_places

DIRECT_SLOTS = 1 << 16
"""A table is direct, with a slot for every combination of codes, if it has at most so many slots or at most twice as
many as entries."""
PLACES_PER_ENTRY = 2
"""A direct table is even, with the same number of places for each slot, if it then has at most so many places per
entry, ..."""
EVEN_SHARE = 0.5
"""... and if more than this share of the rows is expected to have an entry: otherwise looking at the slots first
excludes more rows."""
NO_ENTRY = -1
"""Marks the unused places of an even table while `posted` is made."""
QUICK_ATTRIBUTES = 1 << 15
"""Quick checks can only name attributes with a number below this."""
FILTERED = 4
"""A table of several attributes has a prefilter if its first three have more than so many combinations of codes per
combination that occurs."""
FILTER_SPARSITY = 256
"""A prefilter has about so many bits for each combination of codes that occurs, up to `LARGEST_FILTER`."""
LARGEST_FILTER = 20
"""The most bits of a prefilter of three attributes, as a power of two: a larger one would not stay in the caches."""
COLLECTED = (
    "key_attributes", "key_factors", "key_bits", "key_plain", "slot_at", "plain", "slot_start", "filter_at",
    "filter_bits", "filter_words", "groups", "group_codes", "group_code_at", "posted",
)  # fmt: skip
"""The fields to which tables are appended one after the other."""


def tables(
    c: Conjunctions, access_plan: AccessPlan, keyed: np.ndarray, disjunctions_end: int, first: int
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """The conjunctions in hash tables in the kernel's order, and the arrays of `kernels.hash_tables`. keyed: these
    conjunctions, numbered from the first of a rule, which is `disjunctions_end`. first: the kernel's number of the
    first of them."""
    keyed = keyed[np.argsort(access_plan.table[keyed], kind="stable")]
    bounds = np.searchsorted(access_plan.table[keyed], np.arange(len(access_plan.tables) + 1))
    collected = _Tables(c.sizes, access_plan.shares)
    lengths = np.diff(c.start)
    ordered: list[np.ndarray] = []
    at = first
    for number, attributes in enumerate(access_plan.tables):
        members = keyed[bounds[number] : bounds[number + 1]]
        conjunction, codes = _keys(c, disjunctions_end + members, attributes)
        # filed in the order of their codes, so that a row's candidates are contiguous
        place = np.full(len(members), len(codes), np.int64)
        rank = np.lexsort(codes.T[::-1]) if len(codes) else np.empty(0, np.int64)
        np.minimum.at(place, conjunction[rank], np.arange(len(rank)))
        new_order = np.argsort(place, kind="stable")
        renumbered = np.empty(len(members), np.int64)
        renumbered[new_order] = np.arange(len(members))
        ordered.append(members[new_order])
        entries = at + renumbered[conjunction[rank]]
        if len(members) and bool((lengths[disjunctions_end + members] == len(attributes)).all()):
            collected.add(attributes, codes[rank], c.target[disjunctions_end + members[conjunction[rank]]], plain=True)
        else:
            collected.add(attributes, codes[rank], entries, plain=False)
        at += len(members)
    return np.concatenate([np.empty(0, np.int64), *ordered]).astype(np.int64), collected.arrays()


def _keys(c: Conjunctions, conjunctions: np.ndarray, attributes: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Every combination of codes with which a conjunction's terms on the attributes are satisfied. Returns the index
    [combinations] of the conjunction, and the codes [combinations, attributes]."""
    terms = terms_of(c, conjunctions)
    owner = np.arange(len(conjunctions))
    columns: list[np.ndarray] = []
    for attribute in attributes:
        named = np.flatnonzero(terms.attribute == attribute)
        which = np.empty(len(conjunctions), np.int64)
        which[terms.owner[named]] = terms.which[named]
        interval, _ = gather_indices(c.set_start, which)
        width = (c.intervals[interval, 1] - c.intervals[interval, 0] + 1).astype(np.int64)
        code = np.repeat(c.intervals[interval, 0], width) + within(width)
        total = set_widths(c)[which]
        begin = np.cumsum(total) - total
        count = total[owner]
        chosen = np.repeat(begin[owner], count) + within(count)
        columns = [np.repeat(column, count) for column in columns]
        columns.append(code[chosen])
        owner = np.repeat(owner, count)
    return owner, np.stack(columns, 1) if columns else np.empty((0, 0), np.int64)


class _Tables:
    """Collects the arrays of `kernels.hash_tables`, table by table."""

    def __init__(self, sizes: np.ndarray, shares: np.ndarray | None) -> None:
        self._sizes, self._shares = sizes, shares
        self._parts = {name: [np.empty(0, DTYPES[name])] for name in COLLECTED}
        self._key_start = [0]
        self._length = dict.fromkeys(self._parts, 0)

    def add(self, attributes: tuple[int, ...], codes: np.ndarray, entries: np.ndarray, plain: bool) -> None:
        """Appends a table. entries [entries] are conjunctions, or rules if it is plain; codes [entries, attributes]
        ascend lexicographically."""
        sizes = self._sizes[list(attributes)]
        slots = int(np.prod(sizes.astype(object)))
        self._put("key_attributes", attributes)
        direct = slots <= max(DIRECT_SLOTS, 2 * len(entries))
        packed = len(attributes) <= PACKED and bool((sizes <= COARSE_CODES).all())
        combinations = int(np.prod(sizes[:PREFILTERED].astype(object)))
        near = bool((sizes[:PREFILTERED] <= COARSE_CODES).all())
        filtered = len(attributes) > 1 and near and combinations > FILTERED * _distinct(codes[:, :PREFILTERED])
        self._put("filter_at", self._length["filter_words"] if filtered else -1)
        self._put("filter_bits", self._filter(codes[:, :PREFILTERED]) if filtered else 0)
        field = "plain" if plain else "posted"
        first, slot_at = self._length[field], self._length["slot_start"]
        if direct:
            factors, bits = strides(sizes), 0
            counts = np.bincount(codes @ factors, minlength=slots)
            starts = np.concatenate([[0], np.cumsum(counts)]) + first
            longest = int(counts.max(initial=0))
            is_even = not plain and 0 < longest * slots <= PLACES_PER_ENTRY * len(entries)
            if is_even and self._met_share(attributes, counts) > EVEN_SHARE:
                # the places of a slot follow from its number: there are no slots to look up
                bits, slot_at, starts = -longest, first, starts[:0]
                entries = _spread_evenly(entries, counts, longest)
        else:
            factors = multipliers(len(attributes))
            bits = max(4, (2 * _distinct(codes)).bit_length())
            starts, entries = self._groups(codes, entries, factors, bits, packed, first)
        self._put("key_factors", factors)
        self._put("key_bits", bits)
        self._put("key_plain", plain)
        self._put("slot_at", slot_at)
        self._put("slot_start", starts)
        self._put(field, entries)
        self._key_start.append(self._length["key_attributes"])

    def _met_share(self, attributes: tuple[int, ...], counts: np.ndarray) -> float:
        """The expected share of rows that have an entry in a direct table. counts: the number of entries [slots] in
        each slot."""
        if self._shares is None:
            return float((counts > 0).mean())
        at = np.cumsum(self._sizes.astype(np.int64)) - self._sizes
        shares = np.ones(1)
        for attribute in attributes:
            share = self._shares[at[attribute] : at[attribute] + self._sizes[attribute]]
            shares = np.multiply.outer(shares, share).reshape(-1)
        return float(shares[counts > 0].sum())

    def _filter(self, codes: np.ndarray) -> int:
        """Appends the prefilter of a table over these codes; returns its number of bits as a power of two."""
        sparse = (FILTER_SPARSITY * _distinct(codes)).bit_length()
        bits = PAIR_BITS if codes.shape[1] == 2 else min(LARGEST_FILTER, max(10, sparse))
        words = np.zeros(1 << bits, np.uint8)
        words[filter_places(codes, bits)] = 1
        self._put("filter_words", np.packbits(words, bitorder="little").view(np.int32))
        return bits

    def _groups(
        self, codes: np.ndarray, entries: np.ndarray, factors: np.ndarray, bits: int, packed: bool, first: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Appends the groups of entries with equal codes, ordered by slot. Returns the offsets of the slots' groups,
        and the entries in the order of their groups. first: the number that the first entry will have."""
        with np.errstate(over="ignore"):
            total = (codes.astype(np.uint64) * factors.view(np.uint64)).sum(1, dtype=np.uint64)
        slot = (total >> np.uint64(64 - bits)).astype(np.int64)
        order = np.argsort(slot, kind="stable")
        slot, codes, entries = slot[order], codes[order], entries[order]
        new = np.ones(len(codes), bool)
        if len(codes):
            # a stable sort by slot of ascending codes keeps equal combinations adjacent
            new[1:] = (codes[1:] != codes[:-1]).any(1)
        begins = np.flatnonzero(new)
        group_slot = slot[begins]
        # each table has one group more as a sentinel, which begins where the next table's entries begin
        number = self._length["groups"] // 2
        tags = _packed(codes) if packed else total[order].astype(np.uint32).view(np.int32)
        groups = np.zeros((len(begins) + 1, 2), np.int64)
        groups[:-1, 0] = tags[begins]
        groups[:, 1] = np.append(begins, len(codes)) + first
        width = 0 if packed else codes.shape[1]
        self._put("group_code_at", self._length["group_codes"] - number * width)
        self._put("group_codes", codes[begins, :width].reshape(-1))
        self._put("group_codes", np.full(width, -1))
        self._put("groups", groups.reshape(-1))
        starts = np.concatenate([[0], np.cumsum(np.bincount(group_slot, minlength=1 << bits))]) + number
        return starts, entries

    def _put(self, name: str, values: object) -> None:
        part = np.atleast_1d(np.asarray(values)).astype(self._parts[name][0].dtype)
        self._parts[name].append(part)
        self._length[name] += len(part)

    def arrays(self) -> dict[str, np.ndarray]:
        """All arrays of the tables; `posted` has one column, to which `with_quick_checks` adds the others."""
        # a direct table has no groups, but each table has an element of `group_code_at`
        arrays = {name: np.concatenate(parts) for name, parts in self._parts.items()}
        places = np.zeros(len(arrays["key_bits"]), np.int64)
        places[arrays["key_bits"] > 0] = arrays["group_code_at"]
        arrays["groups"] = arrays["groups"].reshape(-1, 2)
        arrays["plain"] = np.append(arrays["plain"], np.zeros(PADDING, np.int32))
        return {**arrays, "group_code_at": places, "key_start": np.array(self._key_start, np.int64)}


def prefiltered_attributes(arrays: dict[str, np.ndarray]) -> np.ndarray:
    """The attributes [.] whose coarse codes the prefilters read."""
    filtered = np.flatnonzero(arrays["filter_at"] >= 0)
    count = np.minimum(np.diff(arrays["key_start"])[filtered], PREFILTERED)
    found: np.ndarray = arrays["key_attributes"][np.repeat(arrays["key_start"][filtered], count) + within(count)]
    return found


def _spread_evenly(entries: np.ndarray, counts: np.ndarray, longest: int) -> np.ndarray:
    """The entries of slots with `counts` [slots] entries each, in `longest` places for each slot; unused places have
    `NO_ENTRY`."""
    places = np.full(len(counts) * longest, NO_ENTRY)
    places[np.repeat(np.arange(len(counts)) * longest, counts) + within(counts)] = entries
    return places


def _distinct(codes: np.ndarray) -> int:
    """The number of distinct rows of an array in which equal rows are adjacent."""
    return int((codes[1:] != codes[:-1]).any(1).sum()) + min(1, len(codes))


def _packed(codes: np.ndarray) -> np.ndarray:
    """Packs codes [., at most `PACKED`] into one number each, a byte per code."""
    packed = np.zeros(len(codes), np.int64)
    for column in codes.T:
        packed = packed << 8 | column
    return packed


def strides(sizes: np.ndarray) -> np.ndarray:
    """The factors [attributes] int64 of a direct table, given the number of codes of each attribute; the last factor is
    1."""
    return np.cumprod([1, *sizes[:0:-1].astype(np.int64)])[::-1]


def multipliers(count: int) -> np.ndarray:
    """Odd multipliers [count] int64: powers of the golden ratio's fraction. Multiples of it would not do: the hash
    would only depend on a weighted sum of the codes, which takes few distinct values."""
    golden = 0x9E3779B97F4A7C15
    return np.array([pow(golden, i, 1 << 64) for i in range(1, count + 1)], np.uint64).view(np.int64)


def with_quick_checks(
    posted: np.ndarray,
    terms: TermColumns,
    checked: np.ndarray,
    shift: np.ndarray,
    needed: np.ndarray,
    target: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Adds quick checks to the entries `posted` [entries]: those of the most selective of the terms `checked` [terms]
    bool of each conjunction.

    Returns the entries [entries, 1 + QUICK] int32, and which conjunctions [conjunctions] bool the quick checks decide
    completely. Marks in `needed` the attributes whose coarse codes they read.
    """
    at = np.flatnonzero(checked)
    able = (terms.attribute != DISJUNCTION) & (terms.attribute < QUICK_ATTRIBUTES)
    at = at[np.lexsort((terms.share[at], ~able[at], terms.owner[at]))]
    count = np.bincount(terms.owner[at], minlength=len(target))
    place = within(count)
    quick_ones = able[at] & (place < QUICK)
    exact = quick_ones & (terms.pieces[at] == 1) & (shift[terms.attribute[at]] == 0)
    complete = np.bincount(terms.owner[at], weights=~exact, minlength=len(target)) == 0
    at, place = at[quick_ones], place[quick_ones]
    by = shift[terms.attribute[at]]
    low, high = terms.low[at] >> by, terms.high[at] >> by
    quick = np.full((len(target), QUICK), NOTHING, np.int64)
    quick[terms.owner[at], place] = terms.attribute[at].astype(np.int64) << 16 | low << 8 | (high - low)
    if len(posted):
        needed[terms.attribute[at]] = True
    filed = posted != NO_ENTRY
    # `NEVER`, the quick check of unused places, reads the coarse codes of attribute 0
    needed[:1] |= not filed.all()
    entries = np.full((len(posted), 1 + QUICK), NOTHING, np.int32)
    entries[:, 0] = np.where(complete[posted], -1 - target[posted], posted)
    entries[filed, 1:] = quick[posted[filed]]
    entries[~filed, :2] = -1, NEVER
    return entries, complete


def in_tables(
    tables: Sequence[tuple[int, ...]], table: np.ndarray, attribute: np.ndarray, attributes: int
) -> np.ndarray:
    """Which terms [terms] bool are on an attribute of their conjunction's table. table, attribute: of each term;
    attributes: the number of all attributes."""
    member = np.zeros((len(tables) + 1, attributes + 1), bool)
    for number, names in enumerate(tables):
        member[number, list(names)] = True
    return member[table, attribute]
