"""A table of boxes by key, which can be added and removed one by one. Id lists refer to its slots."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple, Self

import numpy as np

from rules_index.index.array_checks import require, require_offsets, require_range
from rules_index.index.boxes import Boxes
from rules_index.kernels.jit import jit

SPARE_TERMS = 4096
"""The terms are compacted if more than this number, and more than half of all, belong to removed boxes."""


class Slots(NamedTuple):
    """The slots of boxes. A later box can reuse a free slot; ids in lists are slots.

    keys   [slots] int32, -1 where the slot is free
    at     [slots] int64, offset into terms
    number [slots] int32, number of terms
    terms  [., 3] int32 (attribute, low, high), closed; those of a box by ascending share of the attribute's codes
    """

    keys: np.ndarray
    at: np.ndarray
    number: np.ndarray
    terms: np.ndarray


class BoxTable:
    """Boxes in slots. The terms of a box are ordered by ascending share of their attributes' codes."""

    def __init__(self, slots: Slots, sizes: np.ndarray) -> None:
        self.slots = slots
        self.sizes = sizes
        self._free = np.flatnonzero(slots.keys < 0)[::-1].tolist()
        self._used_terms = len(slots.terms)

    @classmethod
    def of_boxes(cls, boxes: Boxes) -> Self:
        """The table of all boxes, box i with key i in slot i. Raises `ValueError` if a box is invalid."""
        sizes = boxes.sizes.astype(np.int32)
        terms = np.stack([boxes.attributes, boxes.low, boxes.high], axis=1).astype(np.int32)
        count = np.diff(boxes.start).astype(np.int32)
        if not are_sound(terms, boxes.start, sizes):
            raise ValueError("a box repeats an attribute, or an interval of it is empty or outside of its codes")
        _narrowest_first(boxes.start, terms, sizes)
        keys = np.arange(len(count), dtype=np.int32)
        return cls(Slots(keys, boxes.start[:-1].astype(np.int64), count, terms), sizes)

    @classmethod
    def load(cls, arrays: dict[str, np.ndarray], sizes: np.ndarray) -> Self:
        """Loads the arrays that `arrays` saves. Raises `InvalidArraysError` if they are inconsistent."""
        keys, start, terms = arrays["keys"], arrays["start"], arrays["terms"]
        require(keys.ndim == 1 and keys.dtype == np.int32 and len(start) == len(keys) + 1, "keys")
        require(len(keys) == 0 or bool(keys[0] >= 0 and (np.diff(keys.astype(np.int64)) > 0).all()), "keys")
        require(terms.ndim == 2 and terms.shape[1] == 3 and terms.dtype == np.int32, "terms")
        require(start.dtype == np.int64, "start")
        require_offsets(start, len(terms), "start")
        require_range(terms[:, 0], 0, len(sizes), "terms")
        named = np.sort(np.repeat(np.arange(len(keys)), np.diff(start)) * len(sizes) + terms[:, 0])
        require(bool((np.diff(named) > 0).all()), "terms")
        low, high = terms[:, 1], terms[:, 2]
        require(bool(((low >= 0) & (low <= high) & (high < sizes[terms[:, 0]])).all()), "terms")
        number = np.diff(start).astype(np.int32)
        return cls(Slots(keys.copy(), start[:-1].copy(), number, terms.copy()), sizes)

    def __len__(self) -> int:
        """Number of boxes."""
        return len(self.slots.keys) - len(self._free)

    @property
    def live(self) -> np.ndarray:
        """The slots [boxes] of the boxes, by ascending key."""
        taken = np.flatnonzero(self.slots.keys >= 0)
        return taken[np.argsort(self.slots.keys[taken])]

    @property
    def unbounded(self) -> np.ndarray:
        """Keys [.] int32, ascending, of the boxes without terms."""
        live = self.live
        return self.slots.keys[live[self.slots.number[live] == 0]]

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """`keys` [boxes] int32, ascending; `start` [boxes + 1] int64 into `terms` [., 3] int32."""
        live = self.live
        start = np.concatenate([[0], np.cumsum(self.slots.number[live], dtype=np.int64)])
        return {"keys": self.slots.keys[live], "start": start, "terms": self.terms_of(live)[0]}

    def terms_of(self, slots: np.ndarray, first: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """Returns the terms [., 3] int32 of the boxes in these slots, slot by slot, and the slot [.] int32 of each
        term. first: only the first term of each box."""
        count = self.slots.number[slots].astype(np.int64)
        if first:
            count = np.minimum(count, 1)
        begin = np.repeat(self.slots.at[slots] - (np.cumsum(count) - count), count)
        return self.slots.terms[begin + np.arange(len(begin))], np.repeat(slots, count).astype(np.int32)

    @cached_property
    def _slot_of(self) -> dict[int, int]:
        taken = np.flatnonzero(self.slots.keys >= 0)
        return dict(zip(self.slots.keys[taken].tolist(), taken.tolist(), strict=True))

    def slot(self, key: int) -> int:
        """The slot of a box. Raises `KeyError` if no box has this key."""
        return self._slot_of[key]

    def add(self, key: int, attributes: np.ndarray, low: np.ndarray, high: np.ndarray) -> int:
        """Puts a box into a slot; returns the slot. Raises `ValueError` if the key is negative or in use, or the box
        invalid."""
        if not 0 <= key < np.iinfo(np.int32).max or key in self._slot_of:
            raise ValueError(f"key {key} is not a number of 32 bits, or in use")
        terms = np.stack([attributes, low, high], axis=1).astype(np.int32)
        start = np.array([0, len(terms)], np.int64)
        if not are_sound(terms, start, self.sizes):
            raise ValueError(f"box {key} repeats an attribute, or an interval of it is empty or outside of its codes")
        _narrowest_first(start, terms, self.sizes)
        end = self._used_terms + len(terms)
        if not self._free or end > len(self.slots.terms):
            self._make_room(len(terms))
            end = self._used_terms + len(terms)
        slot = self._free.pop()
        self.slots.terms[self._used_terms : end] = terms
        self.slots.keys[slot], self.slots.at[slot], self.slots.number[slot] = key, self._used_terms, len(terms)
        self._used_terms = end
        self._slot_of[key] = slot
        return slot

    def remove(self, key: int) -> None:
        """Frees the slot of a box."""
        slot = self._slot_of.pop(key)
        self.slots.keys[slot], self.slots.number[slot] = -1, 0
        self._free.append(slot)

    def _make_room(self, terms: int) -> None:
        """Doubles the slots if none is free, and makes room for more terms; drops those of removed boxes."""
        slots, used = self.slots, self._used_terms
        kept = int(slots.number.sum())
        if used - kept > max(SPARE_TERMS, used // 2):
            taken = np.flatnonzero(slots.keys >= 0)
            packed = self.terms_of(taken)[0]
            slots.at[taken] = np.cumsum(slots.number[taken], dtype=np.int64) - slots.number[taken]
            slots = slots._replace(terms=packed)
            used = kept
        if used + terms > len(slots.terms):
            larger = np.empty((max(16, 2 * (used + terms)), 3), np.int32)
            larger[:used] = slots.terms[:used]
            slots = slots._replace(terms=larger)
        if not self._free:
            number = len(slots.keys)
            room = max(8, number)
            self._free = list(range(number + room - 1, number - 1, -1))
            slots = slots._replace(
                keys=np.append(slots.keys, np.full(room, -1, np.int32)),
                at=np.append(slots.at, np.zeros(room, np.int64)),
                number=np.append(slots.number, np.zeros(room, np.int32)),
            )
        self.slots, self._used_terms = slots, used


@jit
def are_sound(terms: np.ndarray, start: np.ndarray, sizes: np.ndarray) -> bool:
    """Whether attributes exist and ascend within each box, and 0 <= low <= high < size in every term."""
    for box in range(len(start) - 1):
        for term in range(start[box], start[box + 1]):
            attribute, low, high = terms[term, 0], terms[term, 1], terms[term, 2]
            if attribute < 0 or attribute >= len(sizes) or low < 0 or low > high or high >= sizes[attribute]:
                return False
            if term > start[box] and attribute <= terms[term - 1, 0]:
                return False
    return True


@jit
def _narrowest_first(start: np.ndarray, terms: np.ndarray, sizes: np.ndarray) -> None:
    """Sorts the terms of every box in place by share of the attribute's codes; stable."""
    for box in range(len(start) - 1):
        for term in range(start[box] + 1, start[box + 1]):
            attribute, low, high = terms[term, 0], terms[term, 1], terms[term, 2]
            share = (high - low + 1) / sizes[attribute]
            at = term
            while at > start[box] and (terms[at - 1, 2] - terms[at - 1, 1] + 1) / sizes[terms[at - 1, 0]] > share:
                for column in range(3):
                    terms[at, column] = terms[at - 1, column]
                at -= 1
            terms[at, 0], terms[at, 1], terms[at, 2] = attribute, low, high
