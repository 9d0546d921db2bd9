"""Boxes in CSR form by key, added and removed one by one; the leaves or lists of an index refer to their slots."""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np

from rules_index.arrays import grown
from rules_index.index.array_checks import require, require_offsets, require_range
from rules_index.index.boxes import Boxes

INT32_MAX = np.iinfo(np.int32).max


class BoxArrays(NamedTuple):
    """The arrays of a `BoxStore` as kernels read them. A box keeps its slot as long as it exists.

    start   [slots] int64, offset of a box's first term
    length  [slots] int32, number of its terms
    terms   [., 3] int32 (attribute, low, high), closed, attributes ascending within a box
    key     [slots] int32, -1 where the slot is free
    leaf    [slots] int32, the leaf that has the box as an entry
    """

    start: np.ndarray
    length: np.ndarray
    terms: np.ndarray
    key: np.ndarray
    leaf: np.ndarray


class BoxStore:
    """Boxes by slot and by key."""

    def __init__(self, sizes: np.ndarray, start: np.ndarray, terms: np.ndarray, key: np.ndarray) -> None:
        self.sizes = sizes.astype(np.int32)
        self._start = start[:-1].astype(np.int64)
        self._length = np.diff(start).astype(np.int32)
        self._terms = terms
        self._key = key.astype(np.int32)
        self._leaf = np.full(len(key), -1, np.int32)
        self._slots = len(key)
        self._used_terms = len(terms)
        self._lost_terms = 0
        self._free: list[int] = np.flatnonzero(key < 0)[::-1].tolist()
        self._note_keys()

    @classmethod
    def of(cls, boxes: Boxes) -> Self:
        """Builds a store in which a box's number is both its key and its slot."""
        terms = np.stack([boxes.attributes, boxes.low, boxes.high], axis=1).astype(np.int32)
        return cls(boxes.sizes, boxes.start, terms, np.arange(len(boxes)))

    def __len__(self) -> int:
        """Number of boxes."""
        return self._slots - len(self._free)

    @property
    def view(self) -> BoxArrays:
        """The arrays for kernels; valid until a box is added."""
        return BoxArrays(self._start, self._length, self._terms, self._key, self._leaf)

    @property
    def slots(self) -> np.ndarray:
        """The slots [boxes] int32 in use, ascending."""
        return np.flatnonzero(self._key[: self._slots] >= 0).astype(np.int32)

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays to save: `box_start` [slots + 1] int64, `box_terms` [., 3] int32, `box_key` [slots] int32."""
        self._compact(np.arange(self._slots))
        offsets = np.append(self._start[: self._slots], self._used_terms)
        return {
            "box_start": offsets.astype(np.int64),
            "box_terms": self._terms[: self._used_terms],
            "box_key": self._key[: self._slots],
        }

    @classmethod
    def load(cls, arrays: dict[str, np.ndarray], sizes: np.ndarray) -> Self:
        """Loads saved `arrays`. Raises `InvalidArraysError` if they are inconsistent."""
        start = loaded(arrays, "box_start", np.int64, 1)
        terms = loaded(arrays, "box_terms", np.int32, 2)
        key = loaded(arrays, "box_key", np.int32, 1)
        require(sizes.ndim == 1 and bool((sizes > 0).all()), "sizes")
        require(terms.shape[1] == 3 and len(start) == len(key) + 1, "box_terms")
        # the range is checked first: differences of arbitrary numbers could overflow
        require_range(start, 0, len(terms) + 1, "box_start")
        require_offsets(start, len(terms), "box_start")
        require_range(key, -1, INT32_MAX, "box_key")
        live = key[key >= 0]
        require(len(np.unique(live)) == len(live), "box_key")
        require(bool((np.diff(start)[key < 0] == 0).all()), "box_start")
        attribute, low, high = terms.T
        require_range(attribute, 0, len(sizes), "box_terms")
        require(bool(((low >= 0) & (low <= high) & (high < sizes[attribute])).all()), "box_terms")
        owner = np.repeat(np.arange(len(key)), np.diff(start))
        require(bool(((np.diff(attribute) > 0) | (np.diff(owner) > 0)).all()), "box_terms")
        return cls(sizes, start, terms, key)

    def slot(self, key: int) -> int:
        """The slot of a box. Raises `KeyError` if no box has this key."""
        slot = self._find(key)
        if slot < 0:
            raise KeyError(key)
        return slot

    def add(self, key: int, attributes: np.ndarray, low: np.ndarray, high: np.ndarray) -> int:
        """Adds a box; returns its slot. Raises `ValueError` if the key is in use or negative."""
        if not 0 <= key < INT32_MAX:
            raise ValueError(f"a key is an integer from 0 on, not {key}")
        if self._find(key) >= 0:
            raise ValueError(f"there is a box of key {key} already")
        count = len(attributes)
        self._reserve(count)
        slot = self._free.pop() if self._free else self._slots
        self._slots = max(self._slots, slot + 1)
        terms = slice(self._used_terms, self._used_terms + count)
        for column, values in enumerate((attributes, low, high)):
            self._terms[terms, column] = values
        self._start[slot], self._length[slot], self._key[slot] = self._used_terms, count, key
        self._used_terms += count
        self._recent[key] = slot
        if len(self._recent) > max(1024, len(self._known) // 2):
            self._note_keys()
        return slot

    def remove(self, key: int) -> None:
        """Frees the slot of an existing box."""
        slot = self.slot(key)
        self._lost_terms += int(self._length[slot])
        self._recent.pop(key, None)
        self._key[slot] = -1
        self._length[slot] = 0
        self._free.append(slot)

    def reorder(self, slots: np.ndarray) -> None:
        """Moves the box in `slots[i]` to slot i, so that the boxes of a leaf are contiguous. `slots` must be all slots
        in use."""
        self._compact(slots)
        self._key = self._key[slots]
        self._leaf = np.full(len(slots), -1, np.int32)
        self._slots = len(slots)
        self._free = []
        self._note_keys()

    def _compact(self, slots: np.ndarray) -> None:
        """Makes the box in `slots[i]` the i-th of start, length and terms, and drops terms that belong to no box."""
        count = self._length[slots].astype(np.int64)
        start = np.cumsum(count) - count
        if self._lost_terms or not np.array_equal(start, self._start[slots]):
            gather = np.repeat(self._start[slots] - start, count) + np.arange(count.sum())
            self._terms = self._terms[gather]
        self._start, self._length = start, self._length[slots]
        self._key, self._leaf = self._key[: self._slots], self._leaf[: self._slots]
        self._used_terms, self._lost_terms = int(count.sum()), 0

    def _note_keys(self) -> None:
        """Sorts the present keys for binary search; keys that are added later are kept in the dictionary `_recent`."""
        slots = self.slots
        order = np.argsort(self._key[slots], kind="stable")
        self._known, self._known_slot = self._key[slots[order]], slots[order]
        self._recent: dict[int, int] = {}

    def _find(self, key: int) -> int:
        """The slot of a key, or -1."""
        slot = self._recent.get(key, -1)
        if slot < 0 <= key < INT32_MAX:
            at = int(np.searchsorted(self._known, np.int32(key)))
            # a key that has been removed since is still in `_known`, but its slot is free or has another key
            if at < len(self._known) and self._known[at] == key and self._key[self._known_slot[at]] == key:
                slot = int(self._known_slot[at])
        return slot

    def _reserve(self, count: int) -> None:
        """Makes room for one more box with so many terms."""
        if self._lost_terms > max(1024, self._used_terms // 2):
            self._compact(np.arange(self._slots))
        self._terms = grown(self._terms, self._used_terms + count)
        if not self._free:
            self._start = grown(self._start, self._slots + 1)
            self._length = grown(self._length, self._slots + 1)
            self._key = grown(self._key, self._slots + 1, -1)
            self._leaf = grown(self._leaf, self._slots + 1, -1)


def loaded(arrays: dict[str, np.ndarray], name: str, dtype: type[np.generic], axes: int) -> np.ndarray:
    """A writable copy of a stored array. Raises `InvalidArraysError` if its dtype or dimensions differ."""
    require(name in arrays, name)
    array = arrays[name]
    require(array.dtype == dtype and array.ndim == axes, name)
    return np.array(array, order="C")
