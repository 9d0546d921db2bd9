"""Checks the kernel's arrays before the kernel reads them: every value that is used as an index must be within bounds.

`kernels.fields` says how each field is checked by itself. Values that follow from other fields (offsets, strides,
flags) are derived again and compared. Arrays that are consistent pass even if they test other values than the rules do:
they are a valid index of other rules.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rules_index.index.array_checks import require, require_form, require_offsets, require_range
from rules_index.index.conjunction_arrays import DISJUNCTION, Conjunctions
from rules_index.index.layout import SCRATCH_BYTES, coarse_shift, depth_of, multipliers, rows_of_block, strides
from rules_index.index.term_checks import are_intervals
from rules_index.kernels.bitmaps import ALL, COARSE_CODES, EMPTY
from rules_index.kernels.fields import FIELDS, SCALARS
from rules_index.kernels.hash_tables import NEVER, NOTHING, PACKED
from rules_index.kernels.llvm import LOOKED_UP
from rules_index.kernels.prefilter import MOST_CHUNK_ROWS, PAIR_BITS, PREFILTERED
from rules_index.kernels.scan import FAR, NEAR


def validate_kernel(arrays: Mapping[str, np.ndarray], conjunctions: Conjunctions, rules: int) -> None:
    """Raises `InvalidArraysError` with the name of the field of `kernels.match.KernelArrays` that is inconsistent."""
    for field in FIELDS:
        require_form(arrays, field.name, field.dtype, field.columns)
    require_form(arrays, "scalars", np.int64)
    kernel = _Kernel(arrays, conjunctions, rules)
    kernel.fields()
    kernel.bitmaps()
    kernel.order()
    kernel.terms()
    _Tables(kernel).validate()
    kernel.runs()
    kernel.tree()
    kernel.scalars()


class _Kernel:
    """The checks, field by field; later ones rely on earlier ones."""

    def __init__(self, arrays: Mapping[str, np.ndarray], conjunctions: Conjunctions, rules: int) -> None:
        self.a, self.c, self.rules = arrays, conjunctions, rules
        self.first = int(conjunctions.disjunction_start[-1])
        bitmaps = len(arrays["bitmap_attribute"])
        self._counts = {
            "attributes": len(conjunctions.sizes),
            "conjunctions": len(conjunctions.target),
            "bitmaps": bitmaps,
            "bitmaps_and_disjunctions": bitmaps + conjunctions.disjunctions,
            "tables": len(arrays["key_bits"]),
            "rules_or_one": max(1, rules),
        }

    def count(self, name: str | int) -> int:
        """The number that a count in `kernels.fields` stands for in this index."""
        if isinstance(name, int):
            return name
        return self._counts[name] if name in self._counts else len(self.a[name])

    def fields(self) -> None:
        """Checks each field by itself."""
        require_range(self.a["shift"], -1, 31, "shift")
        for field in FIELDS:
            array = self.a[field.name]
            require(field.length is None or len(array) == self.count(field.length) + field.more, field.name)
            if field.into is not None:
                require_offsets(array, self.count(field.into), field.name)
            if field.low is not None and field.high is not None:
                require_range(array, field.low, self.count(field.high), field.name)
            if field.coarse:
                self.require_coarse(array[:, 0] if field.columns else array, field.name)

    def require_coarse(self, attributes: np.ndarray, what: str) -> None:
        """Requires attributes for which the kernel makes coarse codes."""
        require_range(attributes, 0, len(self.c.sizes), what)
        require(bool((self.a["shift"][attributes] >= 0).all()), what)

    def bitmaps(self) -> None:
        """Checks coarse codes and bitmaps."""
        a = self.a
        shift, attribute = a["shift"], a["bitmap_attribute"]
        require(bool(((shift == coarse_shift(self.c.sizes)) | (shift == -1)).all()), "shift")
        require(len(attribute) > ALL and bool((attribute[: ALL + 1] == -1).all()), "bitmap_attribute")
        self.require_coarse(attribute[ALL + 1 :], "bitmap_attribute")
        require(bool((attribute[1:] >= attribute[:-1]).all()), "bitmap_attribute")
        lengths = np.diff(a["bitmap_start"])
        require(not lengths[: ALL + 1].any() and bool((lengths[ALL + 1 :] > 0).all()), "bitmap_start")
        require(bool((a["bitmap_intervals"][:, 0] <= a["bitmap_intervals"][:, 1]).all()), "bitmap_intervals")

    def order(self) -> None:
        """Checks that the conjunctions are in the kernel's order: of shared disjunctions, scanned, in hash tables, in
        sorted runs, in the tree."""
        a, total = self.a, len(self.a["target"])
        require(self.a["scalars"].shape == (len(SCALARS),), "scalars")
        require(bool((a["target"][: self.first] == self.c.target[: self.first]).all()), "target")
        require_range(a["target"][self.first :], 0, self.rules, "target")
        require(0 <= a["scalars"][0] <= total - self.first, "scalars")
        keys, places = a["tree_keys"], a["level_offsets"]
        require_range(keys, self.first, total, "tree_keys")
        self.keyed_begin = self.first + int(a["scalars"][0])
        self.runs_end = int(keys.min()) if len(keys) else total
        met = np.zeros(total - self.runs_end, bool)
        met[keys - self.runs_end] = True
        require(bool(met.all()), "tree_keys")
        self.runs_begin = int(places[0, 0]) if len(places) else self.runs_end
        require(self.keyed_begin <= self.runs_begin <= self.runs_end, "scalars")
        # if all conjunctions are scanned, a row's matches are found in this order, and are not sorted
        scanned = a["target"][self.first : self.keyed_begin]
        require(bool((scanned[1:] >= scanned[:-1]).all()), "target")

    def terms(self) -> None:
        """Checks the terms and the checks. A shared disjunction may only name earlier ones."""
        a, bitmaps = self.a, len(self.a["bitmap_attribute"])
        low, high = a["terms"][:, 0], a["terms"][:, 1]
        disjunction = np.flatnonzero(high >= bitmaps)
        self._require_disjunctions(disjunction, high[disjunction] - bitmaps, "term_start", "terms")
        require(bool((low[disjunction] == EMPTY).all()), "terms")
        start = a["term_start"]
        # the bitmaps of shared disjunctions are in the order of rows, not in that of a sorted run
        require(bool((high[start[self.runs_begin] : start[self.runs_end]] < bitmaps).all()), "terms")
        self._require_intervals()
        checks = a["checks"]
        require_range(checks[:, 0], DISJUNCTION, len(self.c.sizes), "checks")
        is_disjunction = checks[:, 0] == DISJUNCTION
        disjunction = np.flatnonzero(is_disjunction)
        self._require_disjunctions(disjunction, checks[disjunction, 3], "check_start", "checks")
        kind = checks[~is_disjunction, 3]
        require_range(kind, min(NEAR, FAR), len(self.c.set_start) - 1, "checks")
        require(bool((a["shift"][checks[~is_disjunction, 0][kind == NEAR]] == 0).all()), "checks")

    def _require_disjunctions(self, at: np.ndarray, disjunctions: np.ndarray, start: str, what: str) -> None:
        """Requires that the terms (or checks) `at` [.] name `disjunctions` [.] that exist and, in a conjunction of a
        shared disjunction, are earlier than it."""
        owner = np.searchsorted(self.a[start], at, side="right") - 1
        limit = np.full(len(at), self.c.disjunctions, np.int64)
        of_disjunction = owner < self.first
        limit[of_disjunction] = self.a["target"][owner[of_disjunction]]
        require(bool(((disjunctions >= 0) & (disjunctions < limit)).all()), what)

    def _require_intervals(self) -> None:
        """Requires for each term that the rows in its bitmap `high` but not in its bitmap `low` are those of an
        interval of codes, so that `low` is a subset of `high`."""
        a = self.a
        begin, intervals = a["bitmap_start"], a["bitmap_intervals"]
        edge = np.full(len(begin) - 1 + self.c.disjunctions, -1, np.int64)
        single = ALL + 1 + np.flatnonzero(np.diff(begin)[ALL + 1 :] == 1)
        below = intervals[begin[single]]
        edge[single] = np.where(below[:, 0] == 0, below[:, 1] + 1, -1)
        edge[ALL] = COARSE_CODES + 1
        require(are_intervals(a["terms"], edge, a["bitmap_attribute"]), "terms")

    def runs(self) -> None:
        """Checks that the conjunctions of each level of the sorted runs are contiguous."""
        places = self.a["level_offsets"]
        require(bool((places[:, 1:] >= places[:, :-1]).all()), "level_offsets")
        require(bool((places[1:, 0] == places[:-1, -1]).all()), "level_offsets")
        require((int(places[-1, -1]) if len(places) else self.runs_begin) == self.runs_end, "level_offsets")

    def tree(self) -> None:
        """Checks that every subtree ends within its parent's, and that nodes test coarse codes."""
        a = self.a
        require_range(a["tree_tests"][:, 1:], 0, COARSE_CODES, "tree_tests")
        require(bool((a["tree_tests"][:, 1] <= a["tree_tests"][:, 2]).all()), "tree_tests")
        require(self._nested(), "tree_end")

    def _nested(self) -> bool:
        end = self.a["tree_end"]
        nodes = len(end)
        if not bool(((end > np.arange(nodes)) & (end <= nodes)).all()):
            return False
        # no node may end behind the nearest end among its ancestors
        open_ends: list[int] = []
        for node, last in enumerate(end.tolist()):
            while open_ends and open_ends[-1] <= node:
                open_ends.pop()
            if open_ends and last > open_ends[-1]:
                return False
            open_ends.append(last)
        return True

    def scalars(self) -> None:
        """Checks the sizes of blocks and chunks, and the flags that follow from other fields."""
        a = self.a
        _, block, chunk, ascending, distinct, depth, alone = a["scalars"].tolist()
        require(block == rows_of_block(len(a["bitmap_attribute"]), self.c.disjunctions), "scalars")
        most = max(block, min(MOST_CHUNK_ROWS, SCRATCH_BYTES * 8 // max(1, self.c.disjunctions)))
        require(block <= chunk <= most and chunk % block == 0, "scalars")
        require(ascending == (self.keyed_begin == len(a["target"])), "scalars")
        require(distinct == self.distinct, "scalars")
        require(depth == depth_of(a["tree_end"]), "scalars")
        in_tables = self.runs_begin - self.keyed_begin == len(a["target"]) - self.first
        require(alone == (self.distinct and in_tables and a["key_plain"].tolist() == [1]), "scalars")

    @property
    def distinct(self) -> bool:
        """Whether no row can meet a rule twice: each rule has one conjunction, and that is in one node of the tree at
        most."""
        target, keys = self.a["target"][self.first :], self.a["tree_keys"]
        return len(target) == 0 or (
            int(np.bincount(target).max()) <= 1 and len(keys) == len(self.a["target"]) - self.runs_end
        )


class _Tables:
    """Checks the hash tables one after the other: each table's parts begin where those of the table before end."""

    def __init__(self, kernel: _Kernel) -> None:
        self.k, self.a = kernel, kernel.a
        self.at = dict.fromkeys(
            ("slot_start", "groups", "group_codes", "posted", "plain", "filter_words"), 0
        )  # fmt: skip
        self.in_order = kernel.distinct

    def validate(self) -> None:
        """Raises `InvalidArraysError` with the name of the field that is inconsistent."""
        a = self.a
        require(len(a["plain"]) >= LOOKED_UP, "plain")
        # bytes are only read as coarse codes
        near = coarse_shift(self.k.c.sizes[a["key_attributes"]]) == 0
        self.k.require_coarse(a["key_attributes"][near], "key_attributes")
        self._entries()
        for table in range(len(a["key_bits"])):
            self._table(table)
        self.at["plain"] += LOOKED_UP
        for name, length in self.at.items():
            require(length == len(a[name]), name)

    def _entries(self) -> None:
        """Checks the entries of `posted`. If no rule may be met twice, sets `rules` [entries] to the rule of each, -1
        for the unused places of even tables."""
        k, posted = self.k, self.a["posted"]
        numbers, quick = posted[:, 0], posted[:, 1:]
        named = numbers >= 0
        require_range(numbers, -k.rules if k.rules else -1, k.runs_begin, "posted")
        require(bool((numbers[named] >= k.keyed_begin).all()), "posted")
        k.require_coarse(quick[quick != NOTHING] >> 16, "posted")
        filed = quick[:, 0] != NEVER
        require(k.rules > 0 or not filed.any(), "posted")
        if not self.in_order:
            return
        self.rules = np.where(named, self.a["target"][np.where(named, numbers, 0)], -1 - numbers)
        self.rules[~filed] = -1
        self.keyed = np.zeros(max(1, k.rules), bool)
        self.keyed[self.a["target"][k.keyed_begin : k.runs_begin]] = True
        self.table_of = np.full(max(1, k.rules), -1, np.int32)

    def _table(self, table: int) -> None:
        a, at = self.a, self.at
        begin, end = int(a["key_start"][table]), int(a["key_start"][table + 1])
        attributes, width = a["key_attributes"][begin:end], end - begin
        require(width > 0, "key_start")
        bits, plain = int(a["key_bits"][table]), bool(a["key_plain"][table])
        require(bits < 31, "key_bits")
        field = "plain" if plain else "posted"
        sizes = self.k.c.sizes[attributes]
        slots = 1 << bits if bits > 0 else int(np.prod(sizes.astype(object)))
        room = len(a["slot_start"]) - at["slot_start"] - 1 if bits >= 0 else (len(a[field]) - at[field]) // -bits
        require(slots <= room and not (plain and bits < 0), "key_bits")
        factors = multipliers(width) if bits > 0 else strides(sizes)
        require(bool((a["key_factors"][begin:end] == factors).all()), "key_factors")
        require(int(a["slot_at"][table]) == at["slot_start" if bits >= 0 else "posted"], "slot_at")
        self._prefilter(table, attributes[:PREFILTERED], width)
        before = at[field]
        if bits < 0:
            at[field] += slots * -bits
            bounds = np.arange(before, at[field] + 1, -bits)
        else:
            bounds = self._slots(table, attributes, slots, bits)
            require_range(bounds[:1], before, before + 1, "slot_start")
            require(bool((bounds[1:] >= bounds[:-1]).all()), "slot_start")
            at[field] = int(bounds[-1])
        require(at[field] <= len(a[field]) - (LOOKED_UP if plain else 0), "slot_start")
        self._require_lists(
            table, (a["plain"] if plain else self.rules)[before : at[field]] if self.in_order else None, bounds
        )

    def _slots(self, table: int, attributes: np.ndarray, slots: int, bits: int) -> np.ndarray:
        """The bounds [.] of the lists of entries: those of the slots of a direct table, or of the groups of a hashed
        one."""
        a, at = self.a, self.at
        starts = a["slot_start"][at["slot_start"] : at["slot_start"] + slots + 1]
        at["slot_start"] += slots + 1
        require(bits > 0 or a["group_code_at"][table] == 0, "group_code_at")
        if bits == 0:
            return starts
        number, last = at["groups"], int(starts[-1])
        require(starts[0] == number and bool((starts[1:] >= starts[:-1]).all()), "slot_start")
        require(last < len(a["groups"]), "slot_start")
        packed = len(attributes) <= PACKED and bool((a["shift"][attributes] == 0).all())
        width = 0 if packed else len(attributes)
        require(int(a["group_code_at"][table]) == at["group_codes"] - number * width, "group_code_at")
        at["groups"] = last + 1
        at["group_codes"] += (last + 1 - number) * width
        return a["groups"][number : last + 1, 1]

    def _prefilter(self, table: int, attributes: np.ndarray, width: int) -> None:
        a, at = self.a, self.at
        words, size = int(a["filter_at"][table]), int(a["filter_bits"][table])
        require(words in (-1, at["filter_words"]), "filter_at")
        if words >= 0:
            require(width > 1 and (size == PAIR_BITS if width == 2 else 5 <= size < 32), "filter_bits")
            at["filter_words"] += (1 << size) // 32
            require(at["filter_words"] <= len(a["filter_words"]), "filter_words")
            self.k.require_coarse(attributes, "key_attributes")

    def _require_lists(self, table: int, rules: np.ndarray | None, bounds: np.ndarray) -> None:
        """If no rule may be met twice: checks that the rules of each list ascend and are in no other table. rules: None
        if a rule may be met twice."""
        if rules is None or not len(rules):
            return
        what = "plain" if self.a["key_plain"][table] else "posted"
        opens = np.zeros(len(rules) + 1, bool)
        opens[bounds - bounds[0]] = True
        filed = rules >= 0
        require(bool((opens[1:-1] | ~filed[1:] | (filed[:-1] & (rules[1:] > rules[:-1]))).all()), what)
        named = rules[filed]
        require(bool((self.keyed[named] & np.isin(self.table_of[named], (-1, table))).all()), what)
        self.table_of[named] = table
