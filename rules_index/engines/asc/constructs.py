"""The ASC paper's attribute selection constructs: a bitmap over all queries for each region, searched row by row.

A query of the paper is a conjunction here, and a region is a region code. The constructs of the p-attributes (those
that some conjunction names) are

- `qub` [attributes, words] uint64, the query-usage bitmaps: 1 where the conjunction names the attribute;
- `qrb` [regions, words] uint64, the query-result bitmaps: 0 where no row with this code satisfies the conjunction, so 1
  in every region of an attribute that it does not name; code c of attribute a is the region `region_at[a] + c`.

A conjunction has a slot, its bit in every bitmap. One that names no attribute can never be covered (definition 2): it
is kept separately and matches every row.
"""

from __future__ import annotations

from typing import Self

import numpy as np

from rules_index.engines.asc.bitmaps import bits_of, set_codes, words_of
from rules_index.engines.asc.evaluate import COSTS, Bitmaps, Order, evaluate_rows
from rules_index.errors import RulesIndexError
from rules_index.index.array_checks import require, require_range
from rules_index.index.conjunction_arrays import DISJUNCTION, Conjunctions
from rules_index.index.events import NO_INTERVALS, Event, offered_by

MAX_BYTES = 1 << 30
"""The most bytes of the query-result bitmaps: codes of all p-attributes x conjunctions / 8."""


class ConstructsTooLargeError(RulesIndexError):
    """The query-result bitmaps would take more memory than `MAX_BYTES`."""


class SelectionConstructs:
    """Conjunctions by key, as bitmaps: built, updated, and searched row by row along an evaluation sequence."""

    def __init__(self, sizes: np.ndarray) -> None:
        """Constructs without conjunctions; sizes [attributes] int32: the number of codes of each attribute."""
        self.sizes = sizes.astype(np.int32)
        self.version = 0
        """Increases with every change: a sequence that was found before may no longer fit."""
        self._slot_of: dict[int, int] = {}
        self._key_of = np.full(64, -1, np.int32)
        self._unbounded = np.empty(0, np.int32)
        self._region_at = np.full(len(sizes), -1, np.int64)
        self._live = np.zeros(1, np.uint64)
        self._qub = np.zeros((len(sizes), 1), np.uint64)
        self._qrb = np.zeros((0, 1), np.uint64)

    @classmethod
    def build(cls, conjunctions: Conjunctions) -> Self:
        """Builds the constructs of all conjunctions, with their numbers as keys.

        Shared disjunctions are ignored here; the caller tests them on the conjunctions found. Raises
        `ConstructsTooLargeError`.
        """
        c = conjunctions
        constructs = cls(c.sizes)
        plain = c.terms[:, 0] != DISJUNCTION
        attribute, set_index = c.terms[plain].T
        owner = np.repeat(np.arange(len(c.start) - 1), np.diff(c.start))[plain]
        uses = np.zeros(len(c.start) - 1, bool)
        uses[owner] = True
        slot = (np.cumsum(uses) - 1)[owner]
        constructs._place(np.flatnonzero(uses))
        constructs._unbounded = np.flatnonzero(~uses).astype(np.int32)
        used = np.zeros((len(c.sizes), len(constructs._key_of)), bool)
        used[attribute, slot] = True
        constructs._qub = words_of(used)
        regions = int(c.sizes[constructs.attributes].sum(dtype=np.int64))
        constructs._require_room(regions, len(constructs._live))
        constructs._lay_out()
        for a in constructs.attributes:
            constructs._qrb[constructs._regions(a)] &= ~constructs._qub[a]
        set_codes(constructs._qrb, constructs._region_at[attribute], slot, set_index, c.set_start, c.intervals)
        return constructs

    @classmethod
    def load(cls, arrays: dict[str, np.ndarray], sizes: np.ndarray) -> Self:
        """Loads saved `arrays`. Raises `InvalidArraysError` if they are inconsistent."""
        for name, dtype, dimensions in (
            ("key_of", np.int32, 1), ("unbounded", np.int32, 1), ("qub", np.int64, 2), ("qrb", np.int64, 2),
        ):  # fmt: skip
            require(name in arrays, name)
            require(arrays[name].dtype == dtype and arrays[name].ndim == dimensions, name)
        key_of, unbounded = arrays["key_of"], arrays["unbounded"]
        taken = key_of[key_of >= 0]
        require_range(key_of, -1, np.iinfo(np.int32).max, "key_of")
        require_range(unbounded, 0, np.iinfo(np.int32).max, "unbounded")
        require(bool((np.diff(unbounded) > 0).all()), "unbounded")
        require(len(np.unique(np.append(taken, unbounded))) == len(taken) + len(unbounded), "key_of")
        words = len(key_of) // 64
        require(words > 0 and len(key_of) == 64 * words, "key_of")
        require(arrays["qub"].shape == (len(sizes), words), "qub")
        constructs = cls(sizes)
        constructs._key_of, constructs._unbounded = key_of.copy(), unbounded.copy()
        constructs._slot_of = {int(key): slot for slot, key in enumerate(key_of) if key >= 0}
        constructs._live = words_of(key_of >= 0)
        constructs._qub = arrays["qub"].view(np.uint64).copy()
        regions = int(constructs.sizes[constructs.attributes].sum(dtype=np.int64))
        require(arrays["qrb"].shape == (regions, words), "qrb")
        constructs._region_at = constructs._places()
        constructs._qrb = arrays["qrb"].view(np.uint64).copy()
        require(not constructs._wrong(), "qrb")
        return constructs

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """The state: `key_of` [64 words] int32, the key of each slot or -1; `unbounded` [.] int32; the bits of `qub`
        and `qrb` as int64, those of `qrb` only for regions of p-attributes, in their order."""
        return {
            "key_of": self._key_of,
            "unbounded": self._unbounded,
            "qub": self._qub.view(np.int64),
            "qrb": self._qrb.view(np.int64),
        }

    @property
    def counts(self) -> dict[str, int]:
        """The number of p-attributes, and of query-result bitmaps of their regions."""
        return {"attributes": len(self.attributes), "region_bitmaps": len(self._qrb)}

    @property
    def attributes(self) -> np.ndarray:
        """The p-attributes [.] int32, ascending: those that some conjunction names."""
        return np.flatnonzero(self._qub.any(axis=1)).astype(np.int32)

    @property
    def bitmaps(self) -> Bitmaps:
        """The arrays that kernels read; valid until the next change."""
        words = int(np.flatnonzero(self._live)[-1]) + 1 if self._live.any() else 0
        return Bitmaps(self._region_at, self._qub, self._qrb, self._live, words)

    def qub_of(self, attribute: int) -> np.ndarray:
        """Which slots [slots] bool name an attribute."""
        return bits_of(self._qub[attribute])

    def qrb_of(self, attribute: int) -> np.ndarray:
        """Which slots [codes, slots] bool each code of a p-attribute leaves open."""
        return bits_of(self._qrb[self._regions(attribute)])

    def insert(self, key: int, attributes: np.ndarray, sets: list[np.ndarray]) -> None:
        """Adds the conjunction that names `attributes` [.] int32, ascending; `sets[i]` [., 2] are the closed intervals
        of codes of the i-th.

        Raises `ValueError` if the key is negative or in use or the sets exceed the codes, `ConstructsTooLargeError` if
        there is no room.
        """
        self._require_sound(key, attributes, sets)
        if len(attributes) == 0:
            self._unbounded = np.sort(np.append(self._unbounded, np.int32(key)))
            self.version += 1
            return
        new = np.setdiff1d(attributes, self.attributes)
        free = np.flatnonzero(self._key_of < 0)
        regions = len(self._qrb) + int(self.sizes[new].sum(dtype=np.int64))
        self._require_room(regions, len(self._live) + (len(free) == 0))
        slot = int(free[0]) if len(free) else len(self._key_of)
        if len(free) == 0:
            self._add_words()
        word, bit = slot >> 6, np.uint64(1 << (slot & 63))
        self._slot_of[key] = slot
        self._key_of[slot] = key
        self._live[word] |= bit
        self._qub[attributes, word] |= bit
        if len(new):
            self._lay_out()
        self._qrb[:, word] |= bit
        for attribute, intervals in zip(attributes.tolist(), sets, strict=True):
            column = self._qrb[self._regions(attribute), word]
            column &= ~bit
            for low, high in intervals.tolist():
                column[low : high + 1] |= bit
        self.version += 1

    def delete(self, key: int) -> None:
        """Removes a conjunction. Raises `KeyError` if no conjunction has this key."""
        kept = self._unbounded != key
        if not kept.all():
            self._unbounded = self._unbounded[kept]
            self.version += 1
            return
        slot = self._slot_of.pop(key)
        word, bit = slot >> 6, np.uint64(1 << (slot & 63))
        self._key_of[slot] = -1
        for bitmaps in (self._live[None], self._qub, self._qrb):
            bitmaps[:, word] &= ~bit
        if len(self.attributes) < (self._region_at >= 0).sum():
            self._lay_out()
        self.version += 1

    def search(self, codes: np.ndarray, order: Order | None = None) -> tuple[np.ndarray, dict[str, int]]:
        """The keys [.] int32, ascending, of the conjunctions that a row satisfies, and the cost; see `search_rows`."""
        _, keys, costs = self.search_rows(codes[:, None], order)
        return keys, costs

    def search_rows(
        self, codes: np.ndarray, order: Order | None = None
    ) -> tuple[np.ndarray, np.ndarray, dict[str, int]]:
        """Searches rows one by one, codes [attributes, rows] int32. Returns (offsets [rows + 1] int64, keys [.] int32,
        costs by the names of `evaluate.COSTS`). Without an order, p-attributes are evaluated in ascending order."""
        return self._evaluate(codes, order, True)

    def search_event(self, event: Event) -> tuple[np.ndarray, dict[str, int]]:
        """The keys [.] int32, ascending, of the conjunctions that an event matches, and the cost. For each p-attribute,
        GRB is ANDed with the union of the bitmaps of all regions that the event offers (*ours*)."""
        offered = offered_by(event)
        left, evaluated = self._live.copy(), 0
        for attribute in self.attributes.tolist():
            open_ones = ~self._qub[attribute]
            first = int(self._region_at[attribute])
            for low, high in offered.get(attribute, NO_INTERVALS).tolist():
                open_ones |= np.bitwise_or.reduce(self._qrb[first + low : first + high + 1], axis=0)
                evaluated += high - low + 1
            left &= open_ones
        keys = np.concatenate([self._key_of[bits_of(left)], self._unbounded])
        return np.sort(keys), {"constructs_evaluated": evaluated, "matches": len(keys)}

    def cost(self, codes: np.ndarray, order: Order | None = None) -> dict[str, int]:
        """The cost of `search_rows` without collecting keys; `matches` is 0."""
        return self._evaluate(codes, order, False)[2]

    def order(self, macro: np.ndarray | None = None, arrows: np.ndarray | None = None) -> Order:
        """Returns a sequence over these constructs, by default the p-attributes in ascending order without
        micro-arrows. Raises `ValueError` if it does not name every p-attribute once."""
        attributes = self.attributes
        chosen = attributes if macro is None else np.asarray(macro, np.int32)
        if not np.array_equal(np.sort(chosen), attributes):
            raise ValueError(f"the sequence {chosen.tolist()} does not name each of {attributes.tolist()} once")
        targets = np.empty(0, np.int32) if arrows is None else np.asarray(arrows, np.int32)
        if len(targets) and (len(targets) != len(self._qrb) or not np.isin(targets, [-1, *attributes]).all()):
            raise ValueError("micro-arrows are one per region, each to a p-attribute or -1")
        return Order(chosen, targets)

    def rows(self, codes: np.ndarray) -> np.ndarray:
        """`codes` [attributes, rows] as kernels take them. Raises `ValueError` if they exceed the sizes."""
        if codes.shape[0] != len(self.sizes) or (codes < 0).any() or (codes >= self.sizes[:, None]).any():
            raise ValueError("codes are not one row per attribute, or not within its codes")
        # a single memory layout and dtype, so that each kernel is compiled once
        return np.ascontiguousarray(codes, np.int32)

    def check(self) -> None:
        """Raises `AssertionError` if the bitmaps contradict definition 1 or each other."""
        wrong = self._wrong()
        assert not wrong, wrong
        assert self._slot_of == {int(k): i for i, k in enumerate(self._key_of) if k >= 0}, "keys"
        assert not set(self._slot_of) & set(self._unbounded.tolist()), "a key stands twice"
        assert np.array_equal(bits_of(self._live), self._key_of >= 0), "live slots"
        assert np.array_equal(self._region_at, self._places()), "one construct per p-attribute, and no other"

    def _wrong(self) -> str:
        if (self._qub & ~self._live).any() or (self._qrb & ~self._live).any():
            return "a bit is set in a slot without a conjunction"
        if (np.bitwise_or.reduce(self._qub, axis=0) != self._live).any():
            return "a conjunction uses no attribute"
        for attribute in self.attributes:
            if (~self._qrb[self._regions(attribute)] & self._live & ~self._qub[attribute]).any():
                return "a region fails a conjunction that does not use its attribute"
        return ""

    def _evaluate(
        self, codes: np.ndarray, order: Order | None, collect: bool
    ) -> tuple[np.ndarray, np.ndarray, dict[str, int]]:
        rows = self.rows(codes)
        checked = self.order() if order is None else self.order(order.macro, order.arrows)
        costs = np.zeros(len(COSTS), np.int64)
        offsets, keys = evaluate_rows(rows, self.bitmaps, checked, self._key_of, self._unbounded, collect, costs)
        return offsets, keys, dict(zip(COSTS, costs.tolist(), strict=True))

    def _regions(self, attribute: int) -> slice:
        begin = int(self._region_at[attribute])
        return slice(begin, begin + int(self.sizes[attribute]))

    def _places(self) -> np.ndarray:
        """`region_at` for the p-attributes."""
        used = self._qub.any(axis=1)
        width = np.where(used, self.sizes, 0).astype(np.int64)
        return np.where(used, np.cumsum(width) - width, -1)

    def _lay_out(self) -> None:
        """Gives `qrb` the regions of exactly the p-attributes; the regions of a new p-attribute leave all conjunctions
        open."""
        region_at = self._places()
        rows = int(self.sizes[region_at >= 0].sum(dtype=np.int64))
        qrb = np.empty((rows, len(self._live)), np.uint64)
        for attribute in np.flatnonzero(region_at >= 0).tolist():
            begin = region_at[attribute]
            known = self._region_at[attribute] >= 0
            qrb[begin : begin + self.sizes[attribute]] = self._qrb[self._regions(attribute)] if known else self._live
        self._qrb, self._region_at = qrb, region_at

    def _place(self, keys: np.ndarray) -> None:
        """Assigns the first slots to the conjunctions with these keys; only before any other conjunction is added."""
        words = max(1, -(-len(keys) // 64))
        self._key_of = np.full(64 * words, -1, np.int32)
        self._key_of[: len(keys)] = keys
        self._slot_of = dict(zip(keys.tolist(), range(len(keys)), strict=True))
        self._live = words_of(self._key_of >= 0)

    def _add_words(self) -> None:
        """Extends every bitmap by a quarter, within `MAX_BYTES`."""
        words = len(self._live)
        more = max(1, min(words // 4, MAX_BYTES // 8 // max(1, len(self._qrb)) - words))
        self._key_of = np.append(self._key_of, np.full(64 * more, -1, np.int32))
        self._live = np.append(self._live, np.zeros(more, np.uint64))
        self._qub = np.pad(self._qub, ((0, 0), (0, more)))
        self._qrb = np.pad(self._qrb, ((0, 0), (0, more)))

    def _require_room(self, regions: int, words: int) -> None:
        if 8 * regions * words > MAX_BYTES:
            raise ConstructsTooLargeError(
                f"the query-result bitmaps of {regions:,} regions x {64 * words:,} conjunctions take "
                f"{regions * words >> 17:,} MiB, more than {MAX_BYTES >> 20:,} MiB; another engine fits better"
            )

    def _require_sound(self, key: int, attributes: np.ndarray, sets: list[np.ndarray]) -> None:
        if not 0 <= key < np.iinfo(np.int32).max or key in self._slot_of or key in self._unbounded:
            raise ValueError(f"key {key} is not a number of 32 bits, or in use")
        ascending = bool((np.diff(attributes) > 0).all())
        if not ascending or (attributes < 0).any() or (attributes >= len(self.sizes)).any():
            raise ValueError(f"attributes {attributes.tolist()} are unknown or do not ascend")
        for attribute, intervals in zip(attributes.tolist(), sets, strict=True):
            low, high = intervals.reshape(-1, 2).T
            if ((low < 0) | (low > high) | (high >= self.sizes[attribute])).any():
                raise ValueError(f"a set is not within the codes of attribute {attribute}")
