"""A store of boxes whose narrowest terms come first. Id lists refer to its slots."""

from __future__ import annotations

from typing import Self

import numpy as np

from rules_index.engines.box_store import BoxStore
from rules_index.index.array_checks import require, require_offsets, require_range
from rules_index.index.boxes import Boxes
from rules_index.kernels.jit import jit


class BoxTable(BoxStore):
    """Boxes in slots. The terms of a box are ordered by ascending share of their attributes' codes."""

    @classmethod
    def of(cls, boxes: Boxes) -> Self:
        """The table of all boxes, box i with key i in slot i. Raises `ValueError` if a box is invalid."""
        sizes = boxes.sizes.astype(np.int32)
        terms = np.stack([boxes.attributes, boxes.low, boxes.high], axis=1).astype(np.int32)
        if not are_sound(terms, boxes.start, sizes):
            raise ValueError("a box repeats an attribute, or an interval of it is empty or outside of its codes")
        _narrowest_first(boxes.start, terms, sizes)
        return cls(sizes, boxes.start, terms, np.arange(len(boxes)))

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
        return cls(sizes, start, terms.copy(), keys)

    @property
    def live(self) -> np.ndarray:
        """The slots [boxes] of the boxes, by ascending key."""
        slots = self.slots
        return slots[np.argsort(self._key[slots])]

    @property
    def unbounded(self) -> np.ndarray:
        """Keys [.] int32, ascending, of the boxes without terms."""
        live = self.live
        return self._key[live[self._length[live] == 0]]

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """`keys` [boxes] int32, ascending; `start` [boxes + 1] int64 into `terms` [., 3] int32."""
        live = self.live
        start = np.concatenate([[0], np.cumsum(self._length[live], dtype=np.int64)])
        return {"keys": self._key[live], "start": start, "terms": self.terms_of(live)[0]}

    def terms_of(self, slots: np.ndarray, first: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """Returns the terms [., 3] int32 of the boxes in these slots, slot by slot, and the slot [.] int32 of each
        term. first: only the first term of each box."""
        count = self._length[slots].astype(np.int64)
        if first:
            count = np.minimum(count, 1)
        begin = np.repeat(self._start[slots] - (np.cumsum(count) - count), count)
        return self._terms[begin + np.arange(len(begin))], np.repeat(slots, count).astype(np.int32)

    def add(self, key: int, attributes: np.ndarray, low: np.ndarray, high: np.ndarray) -> int:
        """Adds a box; returns its slot. Raises `ValueError` if the key is negative or in use, or the box invalid."""
        terms = np.stack([attributes, low, high], axis=1).astype(np.int32)
        start = np.array([0, len(terms)], np.int64)
        if not are_sound(terms, start, self.sizes):
            raise ValueError(f"box {key} repeats an attribute, or an interval of it is empty or outside of its codes")
        _narrowest_first(start, terms, self.sizes)
        return super().add(key, *terms.T)


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
