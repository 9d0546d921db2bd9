"""Engine `asc`: attribute selection constructs turned around, so that a batch of rows is matched at once.

The paper keeps, per region of an attribute, a bitmap over the rules; here every region has a bitmap over the
rows of a block, and the attribute to evaluate first is chosen per conjunction from the block's own histogram
(the paper's conditional selectivity, exact instead of monitored). Conjunctions that name one of very many
values (an account, a device) are posted under it and visited only where a block holds that value.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rules_index.engines.flat import GATE, Conjunctions, require, require_offsets, require_range
from rules_index.kernels.bitmaps import DENSE, RANKED, UNUSED
from rules_index.kernels.match import FlatIndex, match_codes

POSTING_RATIO = 8192
"""A conjunction is posted where one of its terms names fewer than one code in so many of its attribute."""
SCRATCH_BYTES = 64 << 20
"""Most memory for the row bitmaps of gates, and of sets, in a block."""
BLOCK_ROWS = 4096
DENSE_CODES = 512
"""Attributes with at most so many codes have a bitmap per code."""
COUNTED_CODES = 1 << 14
"""Ranked attributes with at most so many codes have a count per code; others bisect the sorted codes."""

_SCALARS = ("block_rows", "bitmap_sets", "set_bitmap", "gate_bitmap", "flat")
_ARRAYS = tuple(name for name in FlatIndex._fields if name not in _SCALARS)


class Asc:
    """Flat conjunctions over row bitmaps, with postings for values that few rules name."""

    name = "asc"

    def __init__(self, arrays: dict[str, np.ndarray]) -> None:
        self.arrays = arrays
        fields: dict[str, Any] = {name: arrays[name] for name in _ARRAYS}
        fields.update(zip(_SCALARS, (int(x) for x in arrays["scalars"]), strict=True))
        self._index = FlatIndex(**fields)

    @classmethod
    def build(cls, conjunctions: Conjunctions) -> Asc:
        """An engine over these conjunctions."""
        return cls(_build(conjunctions))

    @classmethod
    def load(cls, arrays: dict[str, np.ndarray], attributes: int, rules: int) -> Asc:
        """From stored arrays; raises `InvalidArraysError` where they are not consistent."""
        _validate(arrays, attributes, rules)
        return cls(arrays)

    def match(self, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """`codes` [attributes, rows] int32 -> (offsets [rows + 1] int64, rule ordinals [hits] int32)."""
        result: tuple[np.ndarray, np.ndarray] = match_codes(codes, self._index)
        return result


def _build(c: Conjunctions) -> dict[str, np.ndarray]:
    first_rule = int(c.gate_start[-1])
    access = _access_terms(c, first_rule)
    posted = access >= 0
    order = np.concatenate(
        [np.arange(first_rule), first_rule + np.flatnonzero(~posted), first_rule + np.flatnonzero(posted)]
    )
    flat = int((~posted).sum())
    block_rows = max(64, min(BLOCK_ROWS, SCRATCH_BYTES // 8 // max(1, c.gates) * 64 // 64 * 64))
    layout = _lay_out(c, np.unique(c.terms[access[posted], 0]), block_rows)
    return {
        "sizes": c.sizes,
        "gate_start": c.gate_start.astype(np.int32),
        "target": c.target[order].astype(np.int32),
        **layout,
        **_kernel_terms(c, order, first_rule + flat, layout, block_rows, flat),
        **_postings(c, access[posted], first_rule + flat),
    }


def _lay_out(c: Conjunctions, posting: np.ndarray, block_rows: int) -> dict[str, np.ndarray]:
    """Which attributes are dense or ranked, and where their bitmaps and counts begin."""
    sizes = c.sizes.astype(np.int64)
    used = np.zeros(len(sizes), bool)
    used[c.terms[c.terms[:, 0] != GATE, 0]] = True
    kind = np.where(sizes <= DENSE_CODES, DENSE, RANKED)
    kind[posting] = RANKED
    kind[~used] = UNUSED
    ranked = kind == RANKED
    bitmaps = np.select([kind == DENSE, ranked], [sizes + 1, block_rows // 64 + 1], 0)
    counted = ranked & (sizes <= COUNTED_CODES)
    counts = np.where(counted, sizes + 1, 0)
    return {
        "kind": kind.astype(np.int32),
        "bitmap_at": (1 + np.cumsum(bitmaps) - bitmaps).astype(np.int64),
        "count_at": np.where(counted, np.cumsum(counts) - counts, -1).astype(np.int64),
        "order_of": np.where(ranked, np.cumsum(ranked) - 1, -1).astype(np.int32),
    }


def _bitmaps(kind: np.ndarray, sizes: np.ndarray, block_rows: int) -> int:
    """Number of the bitmaps of the attributes, the empty one included."""
    return int(
        1 + np.select([kind == DENSE, kind == RANKED], [sizes.astype(np.int64) + 1, block_rows // 64 + 1], 0).sum()
    )


def _access_terms(c: Conjunctions, first_rule: int) -> np.ndarray:
    """For each conjunction of a rule the term under which it is posted, or -1."""
    widths = np.zeros(len(c.set_start) - 1, np.int64)
    if len(c.intervals):
        per_interval = (c.intervals[:, 1] - c.intervals[:, 0] + 1).astype(np.int64)
        covered = np.concatenate([[0], np.cumsum(per_interval)])
        widths = covered[c.set_start[1:]] - covered[c.set_start[:-1]]
    access = np.full(len(c.target) - first_rule, -1, np.int64)
    begin = int(c.start[first_rule])
    terms = c.terms[begin:]
    owner = np.repeat(np.arange(len(access)), np.diff(c.start)[first_rule:])
    plain = terms[:, 0] != GATE
    share = np.full(len(terms), np.inf)
    share[plain] = widths[terms[plain, 1]] / c.sizes[terms[plain, 0]]
    good = np.flatnonzero(share < 1 / POSTING_RATIO)
    for_each = good[np.argsort(-share[good], kind="stable")]
    access[owner[for_each]] = for_each + begin
    return access


def _kernel_terms(
    c: Conjunctions, order: np.ndarray, flat_end: int, layout: dict[str, np.ndarray], block_rows: int, flat: int
) -> dict[str, np.ndarray]:
    """Terms as the kernels read them: pairs of bitmaps, or comparisons with codes of ranked attributes."""
    lengths = np.diff(c.start)[order]
    ends = np.cumsum(lengths)
    owner = np.repeat(np.arange(len(order)), lengths)
    terms = c.terms[np.repeat(c.start[order] - (ends - lengths), lengths) + np.arange(lengths.sum())]
    gate = terms[:, 0] == GATE
    pieces = np.zeros(len(terms), np.int64)
    pieces[~gate] = np.diff(c.set_start)[terms[~gate, 1]]
    single = pieces == 1
    interval = np.zeros((len(terms), 2), np.int64)
    interval[single] = c.intervals[c.set_start[terms[single, 1]]]
    several = ~gate & ~single
    sets, number = _kernel_sets(c, terms, several, several & (owner < flat_end))
    bitmap_sets = int(sets.pop("bitmap_sets")[0])
    set_bitmap = _bitmaps(layout["kind"], c.sizes, block_rows)
    gate_bitmap = set_bitmap + bitmap_sets
    ranked = single & (layout["kind"][terms[:, 0]] == RANKED)
    looked_up = several & (number >= bitmap_sets)
    dense = ~ranked & ~looked_up
    pairs = np.zeros((len(terms), 2), np.int64)
    inline = single & ~ranked
    pairs[inline] = layout["bitmap_at"][terms[inline, 0], None] + interval[inline] + [0, 1]
    # below the first code there is nothing: the one empty bitmap stays in the nearest cache
    pairs[inline & (interval[:, 0] == 0), 0] = 0
    pairs[several, 1] = set_bitmap + number[several]
    pairs[gate, 1] = gate_bitmap + terms[gate, 1]
    compared = np.zeros((len(terms), 3), np.int32)
    compared[ranked, 0] = terms[ranked, 0]
    compared[ranked, 1:] = interval[ranked]
    compared[looked_up, 0] = -1
    compared[looked_up, 1] = number[looked_up]
    return {
        **sets,
        "dense_start": _starts(owner[dense], len(order)),
        "dense_terms": pairs[dense].astype(np.int32),
        "ranked_start": _starts(owner[~dense], len(order)),
        "ranked_terms": compared[~dense],
        "scalars": np.array([block_rows, bitmap_sets, set_bitmap, gate_bitmap, flat], np.int64),
    }


def _starts(owner: np.ndarray, count: int) -> np.ndarray:
    starts = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(owner, minlength=count), out=starts[1:])
    return starts


def _kernel_sets(
    c: Conjunctions, terms: np.ndarray, several: np.ndarray, flat: np.ndarray
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The sets of several intervals, those of flat conjunctions first, and the number [terms] of each term's."""
    number = np.full(len(terms), -1, np.int64)
    used, first_use, inverse = np.unique(terms[several, 1], return_index=True, return_inverse=True)
    in_flat = np.isin(used, terms[flat, 1])
    order = np.argsort(~in_flat, kind="stable")
    renumbered = np.empty(len(used), np.int64)
    renumbered[order] = np.arange(len(used))
    number[several] = renumbered[inverse]
    chosen = used[order]
    lengths = np.diff(c.set_start)[chosen]
    set_start = np.zeros(len(chosen) + 1, np.int64)
    np.cumsum(lengths, out=set_start[1:])
    gather = np.repeat(c.set_start[chosen] - set_start[:-1], lengths) + np.arange(set_start[-1])
    return {
        "set_attribute": terms[several, 0][first_use[order]].astype(np.int32),
        "set_start": set_start,
        "set_intervals": c.intervals[gather].astype(np.int32).reshape(-1, 2),
        "bitmap_sets": np.array([min(int(in_flat.sum()), SCRATCH_BYTES * 8 // BLOCK_ROWS)]),
    }, number


def _postings(c: Conjunctions, access: np.ndarray, first: int) -> dict[str, np.ndarray]:
    """Per posting attribute, for every code the conjunctions posted under it."""
    attributes = np.unique(c.terms[access, 0]) if len(access) else np.empty(0, np.int32)
    at = np.zeros(len(attributes), np.int64)
    starts: list[np.ndarray] = []
    posted: list[np.ndarray] = []
    entries = codes_before = 0
    for i, attribute in enumerate(attributes):
        members = np.flatnonzero(c.terms[access, 0] == attribute)
        which = c.terms[access[members], 1]
        pieces = np.diff(c.set_start)[which]
        interval = np.repeat(c.set_start[which] - (np.cumsum(pieces) - pieces), pieces) + np.arange(pieces.sum())
        low, high = (
            c.intervals[interval, 0].astype(np.int64),
            c.intervals[interval, 1].astype(np.int64),
        )
        owner = np.repeat(members, pieces)
        width = high - low + 1
        code = np.repeat(low - (np.cumsum(width) - width), width) + np.arange(width.sum())
        conjunction = np.repeat(owner, width) + first
        order = np.argsort(code, kind="stable")
        per_code = np.bincount(code, minlength=int(c.sizes[attribute]))
        starts.append(entries + np.concatenate([[0], np.cumsum(per_code)]))
        posted.append(conjunction[order])
        at[i] = codes_before
        codes_before += int(c.sizes[attribute]) + 1
        entries += len(code)
    return {
        "posting_attribute": attributes.astype(np.int32),
        "posting_at": at,
        "posting_start": np.concatenate([np.empty(0, np.int64), *starts]).astype(np.int64),
        "posted": np.concatenate([np.empty(0, np.int64), *posted]).astype(np.int32),
    }


def _validate(a: dict[str, np.ndarray], attributes: int, rules: int) -> None:
    """Whatever a kernel uses as an index is within the array that it indexes."""
    for name in (*_ARRAYS, "scalars"):
        require(name in a, name)
    require(a["scalars"].shape == (len(_SCALARS),), "scalars")
    block_rows, bitmap_sets, set_bitmap, gate_bitmap, flat = (int(x) for x in a["scalars"])
    require(64 <= block_rows <= BLOCK_ROWS and block_rows % 64 == 0, "scalars")
    sizes = a["sizes"].astype(np.int64)
    require(sizes.shape == (attributes,) and bool((sizes >= 2).all()), "sizes")
    _validate_layout(a, sizes, block_rows)
    sets, conjunctions, gates = len(a["set_attribute"]), len(a["target"]), len(a["gate_start"]) - 1
    require_offsets(a["gate_start"], int(a["gate_start"][-1]) if gates >= 0 else 0, "gate_start")
    first_rule = int(a["gate_start"][-1])
    require(set_bitmap == _bitmaps(a["kind"], sizes, block_rows) and 0 <= bitmap_sets <= sets, "scalars")
    require(gate_bitmap == set_bitmap + bitmap_sets and 0 <= flat <= conjunctions - first_rule, "scalars")
    require(len(a["set_start"]) == sets + 1 and a["set_intervals"].shape[1:] == (2,), "set_start")
    require_offsets(a["set_start"], len(a["set_intervals"]), "set_start")
    require_range(a["set_attribute"], 0, attributes, "set_attribute")
    require(bool((a["kind"][a["set_attribute"]] != UNUSED).all()), "set_attribute")
    of_set = np.repeat(sizes[a["set_attribute"]], np.diff(a["set_start"]))
    _require_codes(a["set_intervals"], of_set, "set_intervals")
    _validate_terms(a, sizes, sets, gate_bitmap)
    require(np.array_equal(a["target"][:first_rule], np.repeat(np.arange(gates), np.diff(a["gate_start"]))), "target")
    require_range(a["target"][first_rule:], 0, rules, "target")
    require(bool((np.diff(a["target"][first_rule : first_rule + flat]) >= 0).all()), "target")
    _validate_postings(a, sizes, first_rule + flat, conjunctions)


def _validate_layout(a: dict[str, np.ndarray], sizes: np.ndarray, block_rows: int) -> None:
    kind = a["kind"]
    for name in ("kind", "bitmap_at", "count_at", "order_of"):
        require(a[name].shape == sizes.shape, name)
    require_range(kind, UNUSED, RANKED + 1, "kind")
    ranked = kind == RANKED
    bitmaps = np.select([kind == DENSE, ranked], [sizes + 1, block_rows // 64 + 1], 0)
    require(np.array_equal(a["bitmap_at"], 1 + np.cumsum(bitmaps) - bitmaps), "bitmap_at")
    require(np.array_equal(a["order_of"], np.where(ranked, np.cumsum(ranked) - 1, -1)), "order_of")
    counted = a["count_at"] >= 0
    require(bool((ranked[counted]).all()), "count_at")
    counts = np.where(counted, sizes + 1, 0)
    require(np.array_equal(a["count_at"], np.where(counted, np.cumsum(counts) - counts, -1)), "count_at")


def _require_codes(intervals: np.ndarray, size: np.ndarray, what: str) -> None:
    low, high = intervals[:, 0], intervals[:, 1]
    require(bool(((low >= 0) & (low <= high) & (high < size)).all()), what)


def _validate_terms(a: dict[str, np.ndarray], sizes: np.ndarray, sets: int, gate_bitmap: int) -> None:
    conjunctions = len(a["target"])
    require(a["dense_terms"].shape[1:] == (2,) and a["ranked_terms"].shape[1:] == (3,), "terms")
    for start, terms in (("dense_start", "dense_terms"), ("ranked_start", "ranked_terms")):
        require(len(a[start]) == conjunctions + 1, start)
        require_offsets(a[start], len(a[terms]), start)
    gates = len(a["gate_start"]) - 1
    # a gate reads only the bitmaps before its own: those of attributes, of sets and of earlier gates
    limit = np.full(conjunctions, gate_bitmap + gates, np.int64)
    limit[: a["gate_start"][-1]] = gate_bitmap + np.repeat(np.arange(gates), np.diff(a["gate_start"]))
    require_range(a["dense_terms"][:, 0], 0, gate_bitmap + gates, "dense_terms")
    require(bool((a["dense_terms"][:, 1] >= 0).all()), "dense_terms")
    owner = np.repeat(np.arange(conjunctions), np.diff(a["dense_start"]))
    require(bool((a["dense_terms"][:, 1] < limit[owner]).all()), "dense_terms")
    ranked = a["ranked_terms"]
    require_range(ranked[:, 0], -1, len(sizes), "ranked_terms")
    inline = ranked[:, 0] >= 0
    require(bool((a["kind"][ranked[inline, 0]] == RANKED).all()), "ranked_terms")
    _require_codes(ranked[inline, 1:], sizes[ranked[inline, 0]], "ranked_terms")
    require_range(ranked[~inline, 1], 0, sets, "ranked_terms")


def _validate_postings(a: dict[str, np.ndarray], sizes: np.ndarray, first: int, conjunctions: int) -> None:
    require_range(a["posting_attribute"], 0, len(sizes), "posting_attribute")
    require(bool((a["kind"][a["posting_attribute"]] == RANKED).all()), "posting_attribute")
    require(
        len(np.unique(a["posting_attribute"])) == len(a["posting_attribute"]),
        "posting_attribute",
    )
    heights = sizes[a["posting_attribute"]] + 1
    require(np.array_equal(a["posting_at"], np.cumsum(heights) - heights), "posting_at")
    require(len(a["posting_start"]) == heights.sum(), "posting_start")
    starts = a["posting_start"]
    require(len(starts) == 0 or bool((np.diff(starts) >= 0).all()), "posting_start")
    require_range(starts, 0, len(a["posted"]) + 1, "posting_start")
    require_range(a["posted"], first, conjunctions, "posted")
