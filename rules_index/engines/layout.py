"""Conjunctions as the arrays that the batch kernel reads: which of them are scanned, keyed or sliced is given.

An attribute of more than `COARSE_CODES` codes is rounded to coarse ones for the bitmaps; what that cannot tell apart
is checked on the rows that are left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rules_index.engines.boxes import Tree
from rules_index.engines.flat import GATE, Conjunctions
from rules_index.kernels.bitmaps import ALL, COARSE_CODES, EMPTY
from rules_index.kernels.keys import FILTERED_CODES, PACKED, PAIR_BITS, QUICK, filter_places
from rules_index.kernels.match import STEP
from rules_index.kernels.scan import FAR, NEAR

BLOCK_ROWS = 4096
SCRATCH_BYTES = 64 << 20
"""Most memory for the row bitmaps of a block, and for those of gates in a chunk."""
SET_BITMAPS = 1 << 15
"""Most sets of several intervals that have a bitmap; the others are checked row by row."""
USES_OF_A_BITMAP = 8
"""An equality has a bitmap of its own, instead of two that other terms need, where so many terms share it."""
DIRECT_SLOTS = 1 << 16
"""Most slots of a table with a slot for every combination of codes, unless it has half as many entries."""
QUICK_ATTRIBUTES = 1 << 15
"""Attributes that a quick check can name."""
FILTERED = 4
"""A table of two or three attributes has a filter where there are more than so many combinations per entry."""
FILTER_SPARSITY = 64
"""Bits of a filter per entry of its table, at least."""
LARGEST_FILTER = 20
"""Most bits of a filter, as a power of two: more would not stay in the caches."""


@dataclass(frozen=True)
class Placement:
    """Where the conjunctions of rules go.

    table   [rules' conjunctions] int32, the table of `tables` that the conjunction is filed in, or -1
    slicing [rules' conjunctions] int32, the attribute of `slicings` by which it is sliced, or -1
    tables  for each table its attributes
    tree    holds those whose numbers are its keys, whatever the other fields say; None for none
    """

    table: np.ndarray
    slicing: np.ndarray
    tables: Sequence[tuple[int, ...]]
    slicings: Sequence[int]
    chunk_rows: int = BLOCK_ROWS
    tree: Tree | None = None


def scan_all(c: Conjunctions, tree: Tree | None = None) -> Placement:
    """Every conjunction scanned, or in the tree."""
    nowhere = np.full(len(c.target) - int(c.gate_start[-1]), -1, np.int32)
    return Placement(nowhere, nowhere, (), (), tree=tree)


@dataclass(frozen=True)
class Terms:
    """The terms [terms] of conjunctions in the order of the kernel: whose, and what they say.

    owner, attribute (GATE for a gate), which (the set or gate), pieces (intervals of the set), low and high (codes from
    the lowest to the highest of the set), share of the attribute's codes.
    """

    owner: np.ndarray
    attribute: np.ndarray
    which: np.ndarray
    pieces: np.ndarray
    low: np.ndarray
    high: np.ndarray
    share: np.ndarray


def terms_of(c: Conjunctions, order: np.ndarray) -> Terms:
    """The terms of the conjunctions `order`."""
    lengths = np.diff(c.start)[order]
    ends = np.cumsum(lengths)
    owner = np.repeat(np.arange(len(order)), lengths)
    pairs = c.terms[np.repeat(c.start[order] - (ends - lengths), lengths) + np.arange(lengths.sum())]
    attribute, which = pairs[:, 0], pairs[:, 1]
    named = np.flatnonzero(attribute != GATE)
    sets = which[named]
    pieces, low, high = (np.zeros(len(pairs), np.int64) for _ in range(3))
    share = np.ones(len(pairs))
    pieces[named] = np.diff(c.set_start)[sets]
    low[named] = c.intervals[c.set_start[sets], 0]
    high[named] = c.intervals[c.set_start[sets + 1] - 1, 1]
    share[named] = set_widths(c)[sets] / c.sizes[attribute[named]]
    return Terms(owner, attribute, which, pieces, low, high, share)


def set_widths(c: Conjunctions) -> np.ndarray:
    """Number of codes [sets] int64 of every set."""
    covered = np.zeros(len(c.intervals) + 1, np.int64)
    np.cumsum(c.intervals[:, 1].astype(np.int64) - c.intervals[:, 0] + 1, out=covered[1:])
    return covered[c.set_start[1:]] - covered[c.set_start[:-1]]


def lay_out(c: Conjunctions, placement: Placement) -> dict[str, np.ndarray]:
    """The arrays of `kernels.match.Index`; the scalars under that name."""
    gates_end = int(c.gate_start[-1])
    walked = np.unique(placement.tree.keys).astype(np.int64) if placement.tree is not None else np.empty(0, np.int64)
    elsewhere = np.ones(len(placement.table), bool)
    elsewhere[walked] = False
    keyed = np.flatnonzero(elsewhere & (placement.table >= 0))
    sliced = np.flatnonzero(elsewhere & (placement.table < 0) & (placement.slicing >= 0))
    scanned = np.flatnonzero(elsewhere & (placement.table < 0) & (placement.slicing < 0))
    shift = coarse_shift(c.sizes)
    keyed, tables = _tables(c, placement, keyed, gates_end, gates_end + len(scanned))
    sliced, slices = _slices(c, placement, sliced, shift, gates_end, gates_end + len(scanned) + len(keyed))
    order = np.concatenate([np.arange(gates_end), *(gates_end + part for part in (scanned, keyed, sliced, walked))])
    first_walked = len(order) - len(walked)
    terms = terms_of(c, order)
    first_keyed = gates_end + len(scanned)
    is_keyed = (terms.owner >= first_keyed) & (terms.owner < first_keyed + len(keyed))
    bitmaps, pairs, has_bitmap, exact = _bitmaps(
        c, terms, is_keyed, slice(first_keyed + len(keyed), first_walked), shift
    )
    in_key = np.zeros(len(terms.owner), bool)
    owners = placement.table[keyed][terms.owner[is_keyed] - first_keyed]
    in_key[is_keyed] = _in_tables(placement.tables, owners, terms.attribute[is_keyed], len(c.sizes))
    low, high = (np.full(len(order), edge, np.uint8) for edge in (0, COARSE_CODES))
    low[first_walked - len(sliced) : first_walked] = slices.pop("low")
    high[first_walked - len(sliced) : first_walked] = slices.pop("high")
    per_rule = np.bincount(c.target[gates_end:]) if len(c.target) > gates_end else np.zeros(1, np.int64)
    # the tests of two nodes may overlap once their codes are coarse
    met_once = placement.tree is None or len(placement.tree.keys) == len(walked)
    ascending, distinct = len(scanned) == len(placement.table), per_rule.max() <= 1 and met_once
    tree, depth = _tree(placement.tree, walked, first_walked, shift)
    chunk_rows = placement.chunk_rows if len(sliced) else _chunk_rows(placement, tables)
    block_rows, chunk_rows = _rows(len(bitmaps["bitmap_attribute"]), c.gates, chunk_rows)
    needed = np.zeros(len(shift), bool)
    needed[bitmaps["bitmap_attribute"][2:]] = True
    needed[tables["key_attributes"]] |= shift[tables["key_attributes"]] == 0
    needed[slices["slice_attribute"]] = True
    needed[tree["tree_tests"][:, 0]] = True
    tables["posted"], complete = _with_quick_checks(
        tables["posted"], terms, ~in_key & is_keyed, shift, needed, c.target[order].astype(np.int64)
    )
    unchecked = in_key | exact | (is_keyed & complete[terms.owner])
    checks = _checks(terms, ~unchecked, len(order), shift, needed)
    return {
        "shift": np.where(needed, shift, -1).astype(np.int32),
        "sizes": c.sizes,
        **bitmaps,
        "set_start": c.set_start,
        "set_intervals": c.intervals,
        "term_start": _starts(terms.owner[has_bitmap], len(order)),
        "terms": pairs[has_bitmap],
        **checks,
        "target": c.target[order].astype(np.int32),
        "gate_start": c.gate_start.astype(np.int32),
        **tables,
        **slices,
        **tree,
        "slice_low": low,
        "slice_high": high,
        "scalars": np.array([len(scanned), block_rows, chunk_rows, ascending, distinct, depth], np.int64),
    }


def _tree(tree: Tree | None, walked: np.ndarray, first: int, shift: np.ndarray) -> tuple[dict[str, np.ndarray], int]:
    """The arrays of `kernels.walk` and the depth of the tree."""
    if tree is None:
        nothing, starts = np.empty(0, np.int32), np.zeros(1, np.int64)
        tree = Tree(nothing, starts, nothing.reshape(-1, 3), starts, nothing)
    tests = tree.tests.astype(np.int32).reshape(-1, 3)
    tests[:, 1:] >>= shift[tests[:, 0], None]
    return {
        "tree_end": tree.end.astype(np.int32),
        "tree_test_start": tree.test_start.astype(np.int64),
        "tree_tests": tests,
        "tree_key_start": tree.key_start.astype(np.int64),
        "tree_keys": (first + np.searchsorted(walked, tree.keys)).astype(np.int32),
    }, depth_of(tree.end)


def depth_of(end: np.ndarray) -> int:
    """Nodes from the root to the deepest one of a tree in preorder."""
    changes = np.zeros(len(end) + 1, np.int64)
    changes[:-1] += 1
    np.subtract.at(changes, end, 1)
    return int(np.cumsum(changes).max(initial=0))


def coarse_shift(sizes: np.ndarray) -> np.ndarray:
    """Bits [attributes] int32 that the coarse codes of an attribute leave out."""
    shift = np.zeros(len(sizes), np.int32)
    while (too_many := (sizes.astype(np.int64) - 1) >> shift >= COARSE_CODES).any():
        shift[too_many] += 1
    return shift


def _rows(bitmaps: int, gates: int, chunk_rows: int) -> tuple[int, int]:
    """Rows of a block and of a chunk, so that the bitmaps fit the scratch memory."""
    block = max(STEP, min(BLOCK_ROWS, SCRATCH_BYTES * 8 // max(1, bitmaps + gates) // STEP * STEP))
    chunk = max(block, min(chunk_rows, SCRATCH_BYTES * 8 // max(1, gates)) // block * block)
    return block, chunk


def _chunk_rows(placement: Placement, tables: dict[str, np.ndarray]) -> int:
    """Enough rows to be worth bringing the tables into the near caches, and few enough to stay there with them."""
    touched = sum(array.nbytes for array in tables.values())
    return min(placement.chunk_rows, max(2 * BLOCK_ROWS, 1 << (touched // 64).bit_length()))


def _starts(owner: np.ndarray, count: int) -> np.ndarray:
    starts = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(owner, minlength=count), out=starts[1:])
    return starts


def _bitmaps(
    c: Conjunctions, terms: Terms, is_keyed: np.ndarray, sliced: slice, shift: np.ndarray
) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray, np.ndarray]:
    """The bitmaps; and per term its pair of them [terms, 2], whether it has one, and whether the pair says it all."""
    gate = terms.attribute == GATE
    at = np.where(gate, 0, terms.attribute)
    by = shift[at]
    last = (c.sizes[at].astype(np.int64) - 1) >> by
    low, high = terms.low >> by, terms.high >> by
    mask = (np.int64(1) << by) - 1
    aligned = (terms.low & mask == 0) & (((terms.high + 1) & mask == 0) | (terms.high == c.sizes[at] - 1))
    single = ~gate & (terms.pieces == 1)
    has_bitmap = single & ~is_keyed & ((low > 0) | (high < last))
    several = ~gate & ~single & ~is_keyed
    equal = has_bitmap & (low == high)
    below = _Edges(at, low, last, has_bitmap & ~equal & (low > 0))
    upto = _Edges(at, high + 1, last, has_bitmap & ~equal & (high < last))
    edges = np.unique(np.concatenate([below.keys(), upto.keys()]))
    own = _own_bitmaps(at, low, last, equal, edges)
    by_edges = equal & ~own
    below = _Edges(at, low, last, by_edges & (low > 0))
    upto = _Edges(at, high + 1, last, by_edges & (high < last))
    edges = np.unique(np.concatenate([edges, below.keys(), upto.keys()]))
    singles = np.unique(at[own] * 512 + low[own])
    sets, set_of, chosen = _set_bitmaps(terms, several)
    number_of_edge, number_of_single, number_of_set, bitmaps = _number(c, edges, singles, sets, shift)
    pairs = np.empty((len(at), 2), np.int64)
    pairs[:, 0], pairs[:, 1] = EMPTY, ALL
    ranged = has_bitmap & ~own
    lower, upper = ranged & (low > 0), ranged & (high < last)
    pairs[lower, 0] = number_of_edge[np.searchsorted(edges, at[lower] * 512 + low[lower])]
    pairs[upper, 1] = number_of_edge[np.searchsorted(edges, at[upper] * 512 + high[upper] + 1)]
    pairs[own, 1] = number_of_single[np.searchsorted(singles, at[own] * 512 + low[own])]
    pairs[chosen, 1] = number_of_set[set_of]
    # where rows are sorted anew, the bitmaps of gates do not stand in their order: gates are checked there
    scanned_gate = gate & ~is_keyed & ((terms.owner < sliced.start) | (terms.owner >= sliced.stop))
    pairs[scanned_gate, 1] = len(bitmaps["bitmap_attribute"]) + terms.which[scanned_gate]
    exact = scanned_gate | (single & ~is_keyed & aligned)
    exact[chosen] = (shift[at] == 0)[chosen]
    return bitmaps, pairs.astype(np.int32), has_bitmap | chosen | scanned_gate, exact


@dataclass(frozen=True)
class _Edges:
    """Edges of coarse intervals: the codes below `code` of an attribute."""

    attribute: np.ndarray
    code: np.ndarray
    last: np.ndarray
    which: np.ndarray

    def keys(self) -> np.ndarray:
        """attribute * 512 + code, of those chosen."""
        return self.attribute[self.which].astype(np.int64) * 512 + self.code[self.which]


def _own_bitmaps(at: np.ndarray, low: np.ndarray, last: np.ndarray, equal: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Which equalities [terms] bool have a bitmap of their own."""
    own = np.zeros(len(at), bool)
    keys = at[equal].astype(np.int64) * 512 + low[equal]
    values, inverse, uses = np.unique(keys, return_inverse=True, return_counts=True)
    code, most = values % 512, np.zeros(len(values), np.int64)
    most[inverse] = last[equal]
    known = (np.isin(values, edges) | (code == 0)) & (np.isin(values + 1, edges) | (code == most))
    own[equal] = (~known | (uses >= USES_OF_A_BITMAP))[inverse]
    return own


def _set_bitmaps(terms: Terms, several: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The sets with a bitmap, the place there of every term that has one, and which terms [terms] bool do."""
    sets, uses = np.unique(terms.which[several], return_counts=True)
    sets = np.sort(sets[np.argsort(-uses, kind="stable")[:SET_BITMAPS]])
    chosen = several & np.isin(terms.which, sets)
    return sets, np.searchsorted(sets, terms.which[chosen]), chosen


def _number(
    c: Conjunctions, edges: np.ndarray, singles: np.ndarray, sets: np.ndarray, shift: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """Numbers the bitmaps by attribute, so that its codes are read while they are near; their arrays."""
    owner_of_set = np.zeros(len(c.set_start) - 1, np.int64)
    named = c.terms[:, 0] != GATE
    owner_of_set[c.terms[named, 1]] = c.terms[named, 0]
    pieces = np.diff(c.set_start)[sets]
    attribute = np.concatenate([edges // 512, singles // 512, owner_of_set[sets]])
    lengths = np.concatenate([np.ones(len(edges) + len(singles), np.int64), pieces])
    gather = np.repeat(c.set_start[sets] - (np.cumsum(pieces) - pieces), pieces) + np.arange(pieces.sum())
    of_sets = c.intervals[gather].astype(np.int64) >> np.repeat(shift[owner_of_set[sets]], pieces)[:, None]
    low = np.concatenate([np.zeros(len(edges), np.int64), singles % 512, of_sets[:, 0]])
    high = np.concatenate([edges % 512 - 1, singles % 512, of_sets[:, 1]])
    order = np.argsort(attribute, kind="stable")
    number = np.empty(len(order), np.int64)
    number[order] = 2 + np.arange(len(order))
    starts = np.cumsum(lengths) - lengths
    gather = np.repeat(starts[order], lengths[order]) + _within(lengths[order])
    split = len(edges), len(edges) + len(singles)
    return number[: split[0]], number[split[0] : split[1]], number[split[1] :], {
        "bitmap_attribute": np.concatenate([[-1, -1], attribute[order]]).astype(np.int32),
        "bitmap_start": np.concatenate([[0, 0, 0], np.cumsum(lengths[order])]).astype(np.int64),
        "bitmap_intervals": np.stack([low[gather], high[gather]], 1).astype(np.int32),
    }  # fmt: skip


def _within(lengths: np.ndarray) -> np.ndarray:
    """0, 1, ... within every run."""
    return np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)


def _checks(
    terms: Terms, checked: np.ndarray, conjunctions: int, shift: np.ndarray, needed: np.ndarray
) -> dict[str, np.ndarray]:
    """Checks of the terms, the most selective of a conjunction first; sets the attributes whose coarse codes these
    need."""
    at = np.flatnonzero(checked)
    at = at[np.lexsort((terms.share[at], terms.owner[at]))]
    gate, single = terms.attribute[at] == GATE, terms.pieces[at] == 1
    checks = np.zeros((len(at), 4), np.int32)
    checks[:, 0] = np.where(gate, -1, terms.attribute[at])
    checks[:, 1] = np.where(single, terms.low[at], 0)
    checks[:, 2] = np.where(single, terms.high[at], 0)
    near = shift[np.where(gate, 0, terms.attribute[at])] == 0
    checks[:, 3] = np.where(single, np.where(near, NEAR, FAR), terms.which[at])
    needed[terms.attribute[at[single & near]]] = True
    return {"check_start": _starts(terms.owner[at], conjunctions), "checks": checks}


def _with_quick_checks(
    posted: np.ndarray, terms: Terms, of: np.ndarray, shift: np.ndarray, needed: np.ndarray, target: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The entries [entries, 1 + QUICK] int32 with the most selective terms of their conjunctions as quick checks, and
    the conjunctions [conjunctions] bool that these check completely; sets the attributes that they need."""
    at = np.flatnonzero(of)
    able = (terms.attribute != GATE) & (terms.attribute < QUICK_ATTRIBUTES)
    at = at[np.lexsort((terms.share[at], ~able[at], terms.owner[at]))]
    count = np.bincount(terms.owner[at], minlength=len(target))
    place = _within(count)
    quick_ones = able[at] & (place < QUICK)
    exact = quick_ones & (terms.pieces[at] == 1) & (shift[terms.attribute[at]] == 0)
    complete = np.bincount(terms.owner[at], weights=~exact, minlength=len(target)) == 0
    at, place = at[quick_ones], place[quick_ones]
    by = shift[terms.attribute[at]]
    low, high = terms.low[at] >> by, terms.high[at] >> by
    quick = np.full((len(target), QUICK), COARSE_CODES, np.int64)
    quick[terms.owner[at], place] = terms.attribute[at].astype(np.int64) << 16 | low << 8 | (high - low)
    if len(posted):
        needed[terms.attribute[at]] = True
    entries = np.empty((len(posted), 1 + QUICK), np.int32)
    entries[:, 0] = np.where(complete[posted], -1 - target[posted], posted)
    entries[:, 1:] = quick[posted]
    return entries, complete


def _in_tables(
    tables: Sequence[tuple[int, ...]], table: np.ndarray, attribute: np.ndarray, attributes: int
) -> np.ndarray:
    """Whether [terms] bool the attribute is one of the table's."""
    member = np.zeros((len(tables) + 1, attributes + 1), bool)
    for number, names in enumerate(tables):
        member[number, list(names)] = True
    return member[table, attribute]


def _tables(
    c: Conjunctions, placement: Placement, keyed: np.ndarray, gates_end: int, first: int
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """The keyed conjunctions in the order of the kernel, and the arrays of `kernels.keys`."""
    keyed = keyed[np.argsort(placement.table[keyed], kind="stable")]
    bounds = np.searchsorted(placement.table[keyed], np.arange(len(placement.tables) + 1))
    collected = _Tables()
    ordered: list[np.ndarray] = []
    at = first
    for number, attributes in enumerate(placement.tables):
        members = keyed[bounds[number] : bounds[number + 1]]
        conjunction, codes = _keys(c, gates_end + members, attributes)
        # filed in the order of their codes, so that a row's candidates stand together
        place = np.full(len(members), len(codes), np.int64)
        rank = np.lexsort(codes.T[::-1]) if len(codes) else np.empty(0, np.int64)
        np.minimum.at(place, conjunction[rank], np.arange(len(rank)))
        new_order = np.argsort(place, kind="stable")
        renumbered = np.empty(len(members), np.int64)
        renumbered[new_order] = np.arange(len(members))
        ordered.append(members[new_order])
        collected.add(attributes, codes[rank], at + renumbered[conjunction[rank]], c.sizes[list(attributes)])
        at += len(members)
    return np.concatenate([np.empty(0, np.int64), *ordered]).astype(np.int64), collected.arrays()


def _keys(c: Conjunctions, conjunctions: np.ndarray, attributes: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """For every combination of codes that a conjunction's terms on the attributes allow: the conjunction's place
    [combinations], and the codes [combinations, attributes]."""
    terms = terms_of(c, conjunctions)
    owner = np.arange(len(conjunctions))
    columns: list[np.ndarray] = []
    for attribute in attributes:
        named = np.flatnonzero(terms.attribute == attribute)
        which = np.empty(len(conjunctions), np.int64)
        which[terms.owner[named]] = terms.which[named]
        pieces = np.diff(c.set_start)[which]
        interval = np.repeat(c.set_start[which], pieces) + _within(pieces)
        width = (c.intervals[interval, 1] - c.intervals[interval, 0] + 1).astype(np.int64)
        code = np.repeat(c.intervals[interval, 0], width) + _within(width)
        total = set_widths(c)[which]
        begin = np.cumsum(total) - total
        count = total[owner]
        chosen = np.repeat(begin[owner], count) + _within(count)
        columns = [np.repeat(column, count) for column in columns]
        columns.append(code[chosen])
        owner = np.repeat(owner, count)
    return owner, np.stack(columns, 1) if columns else np.empty((0, 0), np.int64)


class _Tables:
    """Growing arrays of `kernels.keys`."""

    def __init__(self) -> None:
        self._parts: dict[str, list[np.ndarray]] = {
            name: [np.empty(0, dtype)]
            for name, dtype in {
                "key_attributes": np.int32, "key_factors": np.int64, "key_bits": np.int32, "slot_at": np.int64,
                "slot_start": np.int32, "filter_at": np.int64, "filter_bits": np.int32, "filter_words": np.int32,
                "groups": np.int32, "group_codes": np.int32, "group_code_at": np.int64, "posted": np.int32,
            }.items()
        }  # fmt: skip
        self._key_start = [0]
        self._length = dict.fromkeys(self._parts, 0)

    def add(self, attributes: tuple[int, ...], codes: np.ndarray, conjunctions: np.ndarray, sizes: np.ndarray) -> None:
        """A table of entries that ascend by their codes [entries, attributes]."""
        slots = int(np.prod(sizes.astype(object)))
        entries = len(codes)
        self._put("slot_at", self._length["slot_start"])
        self._put("key_attributes", attributes)
        direct = slots <= max(DIRECT_SLOTS, 2 * entries)
        packed = len(attributes) <= PACKED and bool((sizes <= COARSE_CODES).all())
        looked_at = codes[:, :FILTERED_CODES]
        combinations = int(np.prod(sizes[:FILTERED_CODES].astype(object)))
        near = bool((sizes[:FILTERED_CODES] <= COARSE_CODES).all())
        filtered = len(attributes) > 1 and near and combinations > FILTERED * _distinct(looked_at)
        self._put("filter_at", self._length["filter_words"] if filtered else -1)
        self._put("filter_bits", self._filter(looked_at) if filtered else 0)
        if direct:
            factors = np.cumprod([1, *sizes[:0:-1].astype(np.int64)])[::-1]
            slot = codes @ factors
            bits = 0
            starts = np.concatenate([[0], np.cumsum(np.bincount(slot, minlength=slots))]) + self._length["posted"]
        else:
            factors = _multipliers(len(attributes))
            bits = max(4, (2 * _distinct(codes)).bit_length())
            starts, conjunctions = self._groups(codes, conjunctions, factors, bits, packed)
        self._put("key_factors", factors)
        self._put("key_bits", bits)
        self._put("slot_start", starts)
        self._put("posted", conjunctions)
        self._key_start.append(self._length["key_attributes"])

    def _filter(self, codes: np.ndarray) -> int:
        """Adds the filter of a table; its bits as a power of two."""
        sparse = (FILTER_SPARSITY * _distinct(codes)).bit_length()
        bits = PAIR_BITS if codes.shape[1] == 2 else min(LARGEST_FILTER, max(10, sparse))
        words = np.zeros(1 << bits, np.uint8)
        words[filter_places(codes, bits)] = 1
        self._put("filter_words", np.packbits(words, bitorder="little").view(np.int32))
        return bits

    def _groups(
        self, codes: np.ndarray, conjunctions: np.ndarray, factors: np.ndarray, bits: int, packed: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        """Adds the groups of equal codes by slot; the slots' starts, and the entries by group."""
        with np.errstate(over="ignore"):
            total = (codes.astype(np.uint64) * factors.view(np.uint64)).sum(1, dtype=np.uint64)
        slot = (total >> np.uint64(64 - bits)).astype(np.int64)
        order = np.argsort(slot, kind="stable")
        slot, codes, conjunctions = slot[order], codes[order], conjunctions[order]
        new = np.ones(len(codes), bool)
        if len(codes):
            # stable by slot over ascending codes: equal combinations stand together
            new[1:] = (codes[1:] != codes[:-1]).any(1)
        begins = np.flatnonzero(new)
        group_slot = slot[begins]
        # every table's groups end with one that begins where the next table's entries do
        number = self._length["groups"] // 2
        tags = _packed(codes) if packed else total[order].astype(np.uint32).view(np.int32)
        groups = np.zeros((len(begins) + 1, 2), np.int64)
        groups[:-1, 0] = tags[begins]
        groups[:, 1] = np.append(begins, len(codes)) + self._length["posted"]
        width = 0 if packed else codes.shape[1]
        self._put("group_code_at", self._length["group_codes"] - number * width)
        self._put("group_codes", codes[begins, :width].reshape(-1))
        self._put("group_codes", np.full(width, -1))
        self._put("groups", groups.reshape(-1))
        starts = np.concatenate([[0], np.cumsum(np.bincount(group_slot, minlength=1 << bits))]) + number
        return starts, conjunctions

    def _put(self, name: str, values: object) -> None:
        part = np.atleast_1d(np.asarray(values)).astype(self._parts[name][0].dtype)
        self._parts[name].append(part)
        self._length[name] += len(part)

    def arrays(self) -> dict[str, np.ndarray]:
        """All of them."""
        # a direct table has no groups, but every table has a place to look for them
        arrays = {name: np.concatenate(parts) for name, parts in self._parts.items()}
        places = np.zeros(len(arrays["key_bits"]), np.int64)
        places[arrays["key_bits"] > 0] = arrays["group_code_at"]
        arrays["groups"] = arrays["groups"].reshape(-1, 2)
        return {**arrays, "group_code_at": places, "key_start": np.array(self._key_start, np.int64)}


def _distinct(codes: np.ndarray) -> int:
    """Number of different rows of an array in which equal ones stand together."""
    return int((codes[1:] != codes[:-1]).any(1).sum()) + min(1, len(codes))


def _packed(codes: np.ndarray) -> np.ndarray:
    """Codes [., at most `PACKED`] as one number, a byte each."""
    packed = np.zeros(len(codes), np.int64)
    for column in codes.T:
        packed = packed << 8 | column
    return packed


def _multipliers(count: int) -> np.ndarray:
    """Odd numbers [count] int64 whose bits look random: multiples of the golden ratio's."""
    golden = 0x9E3779B97F4A7C15
    return np.array([(golden * (2 * i + 1)) % (1 << 64) | 1 for i in range(count)], np.uint64).view(np.int64)


def _slices(
    c: Conjunctions, placement: Placement, sliced: np.ndarray, shift: np.ndarray, gates_end: int, first: int
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """The sliced conjunctions in the order of the kernel, and the arrays of `kernels.slices`."""
    attribute = placement.slicing[sliced]
    terms = terms_of(c, gates_end + sliced)
    of = np.flatnonzero(terms.attribute == attribute[terms.owner])
    low, high = (np.zeros(len(sliced), np.int64) for _ in range(2))
    low[terms.owner[of]], high[terms.owner[of]] = terms.low[of], terms.high[of]
    low, high = low >> shift[attribute], high >> shift[attribute]
    level = np.zeros(len(sliced), np.int64)
    while (apart := low >> level != high >> level).any():
        level[apart] += 1
    rank = np.searchsorted(placement.slicings, attribute) if len(placement.slicings) else attribute
    order = np.lexsort((low, low >> level, level, rank))
    key = np.stack([rank, level, low >> level], 1)[order]
    new = np.ones(len(order), bool)
    new[1:] = (key[1:] != key[:-1]).any(1)
    begins = np.flatnonzero(new)
    ends = np.append(begins, len(order))[1:]
    bucket_level, place = key[begins, 1], key[begins, 2]
    buckets = np.stack([place << bucket_level, ((place + 1) << bucket_level) - 1, first + begins, first + ends], 1)
    starts = np.searchsorted(key[begins, 0], np.arange(len(placement.slicings) + 1))
    return sliced[order], {
        "slice_attribute": np.array(placement.slicings, np.int32),
        "slice_bucket_start": starts.astype(np.int64),
        "slice_buckets": buckets.astype(np.int32).reshape(-1, 4),
        "low": low[order].astype(np.uint8),
        "high": high[order].astype(np.uint8),
    }
