"""The keys that rules compare an attribute with. Each has a reference while keys are collected, and a position
afterwards.

A reference is an int64 that stands for a key. A position is an int64, too. Positions are in the order of the keys, and
the successor of a key has the next position. So sets of keys of any type can be computed with integers.
"""

from __future__ import annotations

import bisect
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rules_index.arrays import offsets_of
from rules_index.domains.values import Key, is_bytes, successor, wide_key

_NUL = b"\0"
_APART = 3
"""The distance of two keys that do not follow each other. It leaves room between them for the successor of the first,
and for the successor of that."""


class Keys(Protocol):
    """The keys of one attribute."""

    def refer(self, key: Key) -> int:
        """Adds a key; returns its reference."""

    def key(self, reference: int) -> Key:
        """The key of a reference."""

    def settle(self) -> None:
        """Ends the collection of keys. It must be called before `positions`."""

    def positions(self, references: np.ndarray) -> np.ndarray:
        """The positions [.] int64 of references."""

    def strings(self, positions: np.ndarray) -> pa.LargeBinaryArray:
        """The keys at these positions, for types whose keys the kernels read as byte strings. Raises `TypeError` for
        others."""


class IntegerKeys:
    """Keys of 64 bits, which are their own references and positions."""

    def refer(self, key: Key) -> int:
        """Returns the key itself."""
        return int(key)

    def key(self, reference: int) -> Key:
        """Returns the reference itself."""
        return reference

    def settle(self) -> None:
        """Does nothing."""

    def positions(self, references: np.ndarray) -> np.ndarray:
        """Returns the references themselves."""
        return references

    def strings(self, positions: np.ndarray) -> pa.LargeBinaryArray:
        """Raises `TypeError`: integer keys are not byte strings."""
        raise TypeError("Integer keys are not strings.")


class WideKeys:
    """Keys of more than 64 bits; a reference is an index into the list of keys."""

    def __init__(self) -> None:
        self._keys: list[int] = []
        self._sorted: list[int] = []
        self._at = np.empty(0, np.int64)

    def refer(self, key: Key) -> int:
        """Adds a key; returns its reference."""
        self._keys.append(key)
        return len(self._keys) - 1

    def key(self, reference: int) -> Key:
        """The key of a reference."""
        return self._keys[reference]

    def settle(self) -> None:
        """Sorts the keys and gives each its position."""
        self._sorted = sorted(set(self._keys))
        pairs = zip(self._sorted[1:], self._sorted, strict=False)
        gaps = np.array([min(key - before, 2) for key, before in pairs], np.int64)
        self._at = offsets_of(gaps)

    def positions(self, references: np.ndarray) -> np.ndarray:
        """The positions of references."""
        places = (bisect.bisect_left(self._sorted, self._keys[reference]) for reference in references.tolist())
        return self._at[np.fromiter(places, np.int64, len(references))]

    def strings(self, positions: np.ndarray) -> pa.LargeBinaryArray:
        """The keys at these positions, 16 big-endian bytes each."""
        places = np.searchsorted(self._at, positions, side="right") - 1
        beyond = (positions - self._at[places]).tolist()
        keys = [wide_key(self._sorted[place] + more) for place, more in zip(places.tolist(), beyond, strict=True)]
        return pa.array(keys, pa.large_binary())


class ByteKeys:
    """Byte strings; a reference is twice the index of a string, plus one for the string's successor."""

    def __init__(self) -> None:
        self._parts: list[pa.LargeBinaryArray] = []
        self._begins = [0]
        self._single: list[bytes] = []
        self._distinct = pa.array([], pa.large_binary())
        self._place_of = self._at = np.empty(0, np.int64)

    def refer(self, key: Key) -> int:
        """Adds a key; returns its reference."""
        self._single.append(key)
        return 2 * (self._begins[-1] + len(self._single) - 1)

    def extend(self, strings: pa.LargeBinaryArray) -> int:
        """Adds strings; returns the index of the first, which the others follow."""
        self._close()
        self._append(strings)
        return self._begins[-2]

    def key(self, reference: int) -> Key:
        """The key of a reference."""
        place = reference >> 1
        if place >= self._begins[-1]:
            key = self._single[place - self._begins[-1]]
        else:
            part = bisect.bisect_right(self._begins, place) - 1
            key = self._parts[part][place - self._begins[part]].as_py()
        return successor(key) if reference & 1 else key

    def settle(self) -> None:
        """Sorts the distinct strings and gives each its position."""
        self._close()
        strings = pa.concat_arrays([pa.array([], pa.large_binary()), *self._parts])
        self._parts.clear()
        order = pc.sort_indices(strings).to_numpy()
        ascending = strings.take(pa.array(order))
        opens = np.ones(len(order), bool)
        if len(order) > 1:
            opens[1:] = pc.not_equal(ascending[1:], ascending[:-1]).to_numpy(zero_copy_only=False)
        self._place_of = np.empty(len(order), np.int64)
        self._place_of[order] = np.cumsum(opens) - 1
        self._distinct = ascending.filter(pa.array(opens)) if not opens.all() else ascending
        self._at = np.cumsum(_gaps(self._distinct))

    def positions(self, references: np.ndarray) -> np.ndarray:
        """The positions of references."""
        return self._at[self._place_of[references >> 1]] + (references & 1)

    def strings(self, positions: np.ndarray) -> pa.LargeBinaryArray:
        """The keys at these positions."""
        places = np.searchsorted(self._at, positions, side="right") - 1
        strings = self._distinct.take(pa.array(places))
        beyond = positions != self._at[places]
        if not beyond.any():
            return strings
        ends = pa.array([b"", _NUL], pa.large_binary()).take(pa.array(beyond.astype(np.int8)))
        return pc.binary_join_element_wise(strings, ends, pa.scalar(b"", pa.large_binary()))

    def _close(self) -> None:
        if self._single:
            self._append(pa.array(self._single, pa.large_binary()))
            self._single.clear()

    def _append(self, strings: pa.LargeBinaryArray) -> None:
        self._parts.append(strings)
        self._begins.append(self._begins[-1] + len(strings))


def _gaps(strings: pa.LargeBinaryArray) -> np.ndarray:
    """The distance [strings] int64 of each string from the one before it: 1 for a successor, 2 for the successor of
    one, else `_APART`. The strings are distinct and ascend."""
    gaps = np.full(len(strings), _APART, np.int64)
    suspects = pc.indices_nonzero(pc.ends_with(strings, _NUL)).to_numpy().tolist()
    for place in suspects:
        before = strings[place - 1].as_py() if place else None
        here = strings[place].as_py()
        if before is not None and here in (before + _NUL, before + 2 * _NUL):
            gaps[place] = len(here) - len(before)
    return gaps


def keys_of(data_type: pa.DataType) -> Keys:
    """An empty collection for the keys of a type."""
    if pa.types.is_decimal(data_type):
        return WideKeys() if is_bytes(data_type) else IntegerKeys()
    return ByteKeys() if is_bytes(data_type) else IntegerKeys()
