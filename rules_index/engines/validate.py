"""Stored arrays are checked before a kernel follows them: whatever is used as an index is within what it indexes."""

from __future__ import annotations

import numpy as np

from rules_index.engines.flat import GATE, Conjunctions, InvalidArraysError, require, require_offsets, require_range
from rules_index.engines.layout import BLOCK_ROWS, depth_of
from rules_index.kernels.bitmaps import ALL, COARSE_CODES, STEP
from rules_index.kernels.keys import PACKED, QUICK
from rules_index.kernels.llvm import LOOKED_UP
from rules_index.kernels.scan import FAR, NEAR
from rules_index.kernels.sift import MOST_CHUNK_ROWS, MOST_PLANES, SIFTED
from rules_index.kernels.vectors import SIGNS

DTYPES = {
    "bitmap_start": np.int64, "term_start": np.int64, "check_start": np.int64, "key_start": np.int64,
    "key_factors": np.int64, "slot_at": np.int64, "filter_at": np.int64, "sign_at": np.int64,
    "group_code_at": np.int64, "slice_level_start": np.int64, "signs": np.uint8,
    "tree_test_start": np.int64, "tree_key_start": np.int64, "scalars": np.int64,
}  # fmt: skip
"""Of the kernel's arrays that are not int32."""
WIDTHS = {
    "bitmap_intervals": 2, "terms": 2, "checks": 4, "groups": 2, "posted": 1 + QUICK, "slice_places": COARSE_CODES + 2,
    "tree_tests": 3,
}  # fmt: skip
"""Columns of the kernel's arrays that have several."""
CONJUNCTION_DTYPES = {"set_start": np.int64, "start": np.int64}


def validate(arrays: dict[str, np.ndarray], attributes: int, rules: int) -> Conjunctions:
    """The conjunctions of an engine's stored arrays; `InvalidArraysError` where these or the kernel's arrays are not
    sound."""
    conjunctions = validate_conjunctions(arrays, attributes, rules)
    kernel = {name[len("kernel_") :]: array for name, array in arrays.items() if name.startswith("kernel_")}
    _Kernel(kernel, conjunctions, rules).validate()
    return conjunctions


def validate_conjunctions(arrays: dict[str, np.ndarray], attributes: int, rules: int) -> Conjunctions:
    """The conjunctions among an engine's stored arrays; `InvalidArraysError` where they are not sound."""
    for name in Conjunctions.__dataclass_fields__:
        columns = 2 if name in ("intervals", "terms") else None
        _require_form(arrays, name, CONJUNCTION_DTYPES.get(name, np.int32), columns)
    c = Conjunctions(**{name: arrays[name] for name in Conjunctions.__dataclass_fields__})
    require(len(c.sizes) == attributes and bool((c.sizes >= 2).all()), "sizes")
    require_offsets(c.set_start, len(c.intervals), "set_start")
    require(bool((np.diff(c.set_start) > 0).all()), "set_start")
    require_offsets(c.start, len(c.terms), "start")
    require(len(c.target) == len(c.start) - 1, "target")
    require(len(c.gate_start) > 0, "gate_start")
    require_offsets(c.gate_start, int(c.gate_start[-1]), "gate_start")
    require(c.gate_start[-1] <= len(c.target), "gate_start")
    require_range(c.terms[:, 0], GATE, attributes, "terms")
    gate = c.terms[:, 0] == GATE
    require_range(c.terms[~gate, 1], 0, len(c.set_start) - 1, "terms")
    owner = np.repeat(np.arange(len(c.target)), np.diff(c.start))
    first = int(c.gate_start[-1])
    # a gate names only gates before it
    limit = np.full(len(c.target), c.gates, np.int64)
    limit[:first] = np.repeat(np.arange(c.gates), np.diff(c.gate_start))
    require_range(c.terms[gate, 1], 0, c.gates, "terms")
    require(bool((c.terms[gate, 1] < limit[owner[gate]]).all()), "terms")
    size = np.zeros(len(c.set_start) - 1, np.int64)
    size[c.terms[~gate, 1]] = c.sizes[c.terms[~gate, 0]]
    require(bool((size[c.terms[~gate, 1]] == c.sizes[c.terms[~gate, 0]]).all()), "terms")
    _require_intervals(c, np.repeat(size, np.diff(c.set_start)))
    require(bool((c.target[:first] == limit[:first]).all()), "target")
    require_range(c.target[first:], 0, rules, "target")
    require(bool((np.diff(c.target[first:]) >= 0).all()), "target")
    keys = owner[~gate].astype(np.int64) * attributes + c.terms[~gate, 0]
    require(len(np.unique(keys)) == len(keys), "terms")
    return c


def _require_intervals(c: Conjunctions, size: np.ndarray) -> None:
    low, high = c.intervals[:, 0].astype(np.int64), c.intervals[:, 1].astype(np.int64)
    require(
        bool(((low >= 0) & (low <= high)).all()) and bool((high < np.where(size > 0, size, 1 << 31)).all()), "intervals"
    )
    first_of_set = np.zeros(len(low) + 1, bool)
    first_of_set[c.set_start] = True
    follows = ~first_of_set[1:-1] if len(low) else np.empty(0, bool)
    require(bool((low[1:][follows] > high[:-1][follows]).all()), "intervals")


def _require_form(arrays: dict[str, np.ndarray], name: str, dtype: type, columns: int | None) -> None:
    require(name in arrays, name)
    array = arrays[name]
    require(array.dtype == dtype and array.ndim == (1 if columns is None else 2), name)
    require(columns is None or array.shape[1] == columns, name)


class _Kernel:
    """The checks of the arrays of `kernels.match.Index`, part by part."""

    def __init__(self, arrays: dict[str, np.ndarray], conjunctions: Conjunctions, rules: int) -> None:
        self.a = arrays
        self.c = conjunctions
        self.rules = rules

    def validate(self) -> None:
        """Raises `InvalidArraysError` naming the array that is not sound."""
        from rules_index.engines.engine import KERNEL

        for name in (*KERNEL, "scalars"):
            _require_form(self.a, name, DTYPES.get(name, np.int32), WIDTHS.get(name))
        self._scalars()
        self._bitmaps()
        self._terms()
        self._tables()
        self._slices()
        self._tree()

    def _scalars(self) -> None:
        require(self.a["scalars"].shape == (7,), "scalars")
        scanned, block, chunk, ascending, distinct, depth, alone = (int(x) for x in self.a["scalars"])
        require(0 <= scanned <= len(self.a["target"]) - int(self.c.gate_start[-1]), "scalars")
        require(STEP <= block <= BLOCK_ROWS and block % STEP == 0, "scalars")
        require(block <= chunk <= MOST_CHUNK_ROWS and chunk % block == 0, "scalars")
        require(ascending in (0, 1) and distinct in (0, 1) and alone in (0, 1), "scalars")
        require(not alone or (bool(distinct) and self.a["key_plain"].tolist() == [1]), "scalars")
        require(depth == depth_of(self.a["tree_end"]) if self._nested() else False, "tree_end")

    def _nested(self) -> bool:
        """Whether every node ends within the one that it is below."""
        end = self.a["tree_end"]
        nodes = len(end)
        if not bool(((end > np.arange(nodes)) & (end <= nodes)).all()):
            return False
        # the closest end among the nodes that are open at each node may not lie before the node's own end
        open_ends: list[int] = []
        for node, last in enumerate(end.tolist()):
            while open_ends and open_ends[-1] <= node:
                open_ends.pop()
            if open_ends and last > open_ends[-1]:
                return False
            open_ends.append(last)
        return True

    def _bitmaps(self) -> None:
        a, sizes = self.a, self.c.sizes.astype(np.int64)
        shift = a["shift"]
        require(shift.shape == sizes.shape, "shift")
        require_range(shift, -1, 31, "shift")
        require(bool(((sizes - 1 >> np.maximum(shift, 0)) < COARSE_CODES)[shift >= 0].all()), "shift")
        attribute = a["bitmap_attribute"]
        require(len(attribute) > ALL and bool((attribute[: ALL + 1] == -1).all()), "bitmap_attribute")
        self._require_coarse(attribute[ALL + 1 :], "bitmap_attribute")
        require(len(a["bitmap_start"]) == len(attribute) + 1, "bitmap_start")
        require_offsets(a["bitmap_start"], len(a["bitmap_intervals"]), "bitmap_start")
        require(bool((np.diff(a["bitmap_start"])[ALL + 1 :] > 0).all()), "bitmap_start")
        self._require_coarse_intervals(a["bitmap_intervals"], "bitmap_intervals")

    def _require_coarse(self, attributes: np.ndarray, what: str) -> None:
        require_range(attributes, 0, len(self.c.sizes), what)
        require(bool((self.a["shift"][attributes] >= 0).all()), what)

    @staticmethod
    def _require_coarse_intervals(intervals: np.ndarray, what: str) -> None:
        require_range(intervals, 0, COARSE_CODES, what)
        require(bool((intervals[:, 0] <= intervals[:, 1]).all()), what)

    def _terms(self) -> None:
        a, first = self.a, int(self.c.gate_start[-1])
        conjunctions = len(a["target"])
        require(conjunctions == len(self.c.target), "target")
        require(bool((a["target"][:first] == self.c.target[:first]).all()), "target")
        require_range(a["target"][first:], 0, self.rules, "target")
        for start, of in (("term_start", "terms"), ("check_start", "checks")):
            require(len(a[start]) == conjunctions + 1, start)
            require_offsets(a[start], len(a[of]), start)
        require_range(a["terms"], 0, len(a["bitmap_attribute"]) + self.c.gates, "terms")
        checks = a["checks"]
        gate = checks[:, 0] == GATE
        require_range(checks[:, 0], GATE, len(self.c.sizes), "checks")
        require_range(checks[gate, 3], 0, self.c.gates, "checks")
        require_range(checks[~gate, 3], min(NEAR, FAR), len(self.c.set_start) - 1, "checks")
        near = ~gate & (checks[:, 3] == NEAR)
        require(bool((a["shift"][checks[near, 0]] == 0).all()), "checks")

    def _tables(self) -> None:
        a = self.a
        tables = len(a["key_bits"])
        for name in ("slot_at", "filter_at", "filter_bits", "sign_at", "sign_planes", "group_code_at", "key_plain"):
            require(len(a[name]) == tables, name)
        require(len(a["key_start"]) == tables + 1, "key_start")
        require_offsets(a["key_start"], len(a["key_attributes"]), "key_start")
        require(len(a["key_factors"]) == len(a["key_attributes"]), "key_factors")
        require_range(a["key_attributes"], 0, len(self.c.sizes), "key_attributes")
        require_range(a["key_bits"], -len(a["posted"]), 31, "key_bits")
        require_range(a["key_plain"], 0, 2, "key_plain")
        require_range(a["plain"], 0, max(1, self.rules), "plain")
        require(len(a["plain"]) >= LOOKED_UP, "plain")
        posted = a["posted"]
        require_range(posted[:, 0], -self.rules, len(a["target"]), "posted")
        require_range(posted[:, 1:] >> 16, 0, max(1, len(self.c.sizes)), "posted")
        for table in range(tables):
            self._table(table)

    def _table(self, table: int) -> None:
        a = self.a
        begin, end = int(a["key_start"][table]), int(a["key_start"][table + 1])
        attributes, factors = a["key_attributes"][begin:end], a["key_factors"][begin:end]
        width, bits, at = end - begin, int(a["key_bits"][table]), int(a["slot_at"][table])
        require(width > 0, "key_start")
        plain = bool(a["key_plain"][table])
        entries = len(a["plain"]) - LOOKED_UP if plain else len(a["posted"])
        slots = 1 << max(0, bits)
        if bits <= 0:
            require(bool((factors >= 0).all()), "key_factors")
            slots = 1 + sum((int(self.c.sizes[x]) - 1) * int(f) for x, f in zip(attributes, factors, strict=True))
        if bits < 0:
            require(not plain and 0 <= at <= entries + bits * slots, "slot_at")
        else:
            self._slots(table, bits, slots, entries)
        words, size = int(a["filter_at"][table]), int(a["filter_bits"][table])
        if words >= 0:
            require(width > 1 and 5 <= size < 32 and words + (1 << size) // 32 <= len(a["filter_words"]), "filter_at")
            self._require_coarse(attributes[:SIFTED], "key_attributes")
        sign_at, planes = int(a["sign_at"][table]), int(a["sign_planes"][table])
        require(0 <= planes <= MOST_PLANES, "sign_planes")
        if planes:
            require(0 <= sign_at <= len(a["signs"]) - planes * SIGNS * min(width, SIFTED), "sign_at")
            self._require_coarse(attributes[:SIFTED], "key_attributes")

    def _slots(self, table: int, bits: int, slots: int, entries: int) -> None:
        a, at = self.a, int(self.a["slot_at"][table])
        require(at >= 0 and at + slots + 1 <= len(a["slot_start"]), "slot_at")
        starts = a["slot_start"][at : at + slots + 1]
        if bits == 0:
            require_range(starts, 0, entries + 1, "slot_start")
            return
        require_range(starts, 0, max(1, len(a["groups"])), "slot_start")
        first, last = int(starts.min()), int(starts.max())
        require_range(a["groups"][first : last + 1, 1], 0, entries + 1, "groups")
        begin, end = int(a["key_start"][table]), int(a["key_start"][table + 1])
        width, attributes = end - begin, a["key_attributes"][begin:end]
        if not (width <= PACKED and bool((a["shift"][attributes] == 0).all())):
            place = int(a["group_code_at"][table])
            require(place + first * width >= 0, "group_code_at")
            require(place + (last + 1) * width <= len(a["group_codes"]), "group_code_at")

    def _slices(self) -> None:
        a = self.a
        self._require_coarse(a["slice_attribute"], "slice_attribute")
        levels, places = len(a["slice_reach"]), a["slice_places"]
        require(len(a["slice_level_start"]) == len(a["slice_attribute"]) + 1, "slice_level_start")
        require_offsets(a["slice_level_start"], levels, "slice_level_start")
        require_range(a["slice_reach"], 1, 2 * COARSE_CODES, "slice_reach")
        require(len(places) == levels, "slice_places")
        require_range(places, int(self.c.gate_start[-1]), len(a["target"]) + 1, "slice_places")
        require(bool((np.diff(places, axis=1) >= 0).all()), "slice_places")

    def _tree(self) -> None:
        a, nodes = self.a, len(self.a["tree_end"])
        for start, of in (("tree_test_start", "tree_tests"), ("tree_key_start", "tree_keys")):
            require(len(a[start]) == nodes + 1, start)
            require_offsets(a[start], len(a[of]), start)
        self._require_coarse(a["tree_tests"][:, 0], "tree_tests")
        self._require_coarse_intervals(a["tree_tests"][:, 1:], "tree_tests")
        require_range(a["tree_keys"], int(self.c.gate_start[-1]), max(1, len(a["target"])), "tree_keys")


__all__ = ["InvalidArraysError", "validate", "validate_conjunctions"]
