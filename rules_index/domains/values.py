"""Values as order-preserving keys, and sets of values as sorted cuts between keys.

A key is an `int` or `bytes` whose order is Spark's order of the values of one type:

| type | key |
|---|---|
| BOOLEAN | 0, 1 |
| integers, DATE (days), TIMESTAMP and TIMESTAMP_NTZ (microseconds), DECIMAL (unscaled, at the type's scale) | int |
| FLOAT, DOUBLE | int: the bits of the double, sign folded; -0.0 is 0.0, NaN is above every number |
| STRING (UTF-8), BINARY | bytes |

Every key has a least key above it, its `successor`. So each boundary between values is "before key k", and one kind of
cut serves all types.
"""

from __future__ import annotations

import bisect
import math
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

Key: TypeAlias = Any
"""`int` or `bytes`; keys of one type are never mixed, which static types cannot express."""

NAN_KEY = (1 << 63) - 1
"""The key of NaN: the largest 64-bit integer, and above that of infinity."""
WIDE_DECIMAL = 18
"""Decimals with more digits have 128-bit keys, which are encoded as 16 big-endian bytes."""


def float_key(value: float) -> int:
    """The key of a FLOAT or DOUBLE: a signed 64-bit integer; NaN is highest, and -0.0 is equal to 0.0."""
    if math.isnan(value):
        return NAN_KEY
    (bits,) = struct.unpack("<q", struct.pack("<d", value + 0.0))
    return bits if bits >= 0 else -(bits & NAN_KEY)


def successor(key: Key) -> Key:
    """The least key above `key`."""
    return key + b"\x00" if isinstance(key, bytes) else key + 1


def is_indexable(data_type: pa.DataType) -> bool:
    """Whether values of the type have keys, so that comparisons with constants become regions."""
    t = pa.types
    return (
        t.is_boolean(data_type)
        or t.is_integer(data_type)
        or t.is_floating(data_type)
        or t.is_decimal(data_type)
        or t.is_date32(data_type)
        or t.is_timestamp(data_type)
        or t.is_string(data_type)
        or t.is_binary(data_type)
    )


def is_bytes(data_type: pa.DataType) -> bool:
    """Whether the kernels read the keys of the type as byte strings."""
    if pa.types.is_decimal(data_type):
        return bool(data_type.precision > WIDE_DECIMAL)
    return pa.types.is_string(data_type) or pa.types.is_binary(data_type)


def wide_key(key: int) -> bytes:
    """A 128-bit signed key as 16 bytes in the same order; keys beyond 128 bits are clamped."""
    clamped = min(max(key, -(1 << 127)), (1 << 127) - 1)
    return (clamped + (1 << 127)).to_bytes(16, "big")


def decimals(unscaled: Iterable[int], data_type: pa.DataType) -> pa.Array:
    """DECIMALs of a type from their unscaled values."""
    words = b"".join(each.to_bytes(16, "little", signed=True) for each in unscaled)
    return pa.Array.from_buffers(data_type, len(words) // 16, [None, pa.py_buffer(words)])


@dataclass(frozen=True, slots=True)
class ValueSet:
    """A set of non-NULL values. Below all keys membership is `start`; it flips at each cut.

    `cuts` are strictly ascending keys. A cut k lies just before k, so that {5} is `(False, (5, 6))`.
    """

    start: bool
    cuts: tuple[Any, ...]

    def __invert__(self) -> ValueSet:
        return ValueSet(not self.start, self.cuts)

    def __or__(self, other: ValueSet) -> ValueSet:
        return union((self, other))

    def __and__(self, other: ValueSet) -> ValueSet:
        return ~union((~self, ~other))

    def __contains__(self, key: Key) -> bool:
        return self.start ^ (bisect.bisect_right(self.cuts, key) % 2 == 1)

    @property
    def is_empty(self) -> bool:
        """Whether the set has no values."""
        return not self.start and not self.cuts

    @property
    def is_full(self) -> bool:
        """Whether the set has all non-NULL values."""
        return self.start and not self.cuts


NOTHING = ValueSet(False, ())
EVERYTHING = ValueSet(True, ())


def interval(low: Key | None, high: Key | None) -> ValueSet:
    """The keys in [low, high); None is an unbounded end. The set is empty if low >= high."""
    if low is not None and high is not None and low >= high:
        return NOTHING
    if low is None:
        return ValueSet(True, () if high is None else (high,))
    return ValueSet(False, (low,) if high is None else (low, high))


def points(keys: Iterable[Key]) -> ValueSet:
    """The set of exactly these keys."""
    cuts: list[Any] = []
    for key in sorted(set(keys)):
        if cuts and cuts[-1] == key:
            cuts[-1] = successor(key)
        else:
            cuts += (key, successor(key))
    return ValueSet(False, tuple(cuts))


def starting_with(prefix: bytes) -> ValueSet:
    """The strings that start with a prefix. In UTF-8 a byte is never 255, so that the last one can always be
    incremented."""
    if not prefix:
        return EVERYTHING
    return interval(prefix, prefix[:-1] + bytes([prefix[-1] + 1]))


def union(sets: Iterable[ValueSet]) -> ValueSet:
    """The union, by sorting all cuts once: an OR of a thousand equalities stays cheap."""
    members = list(sets)
    if len(members) == 1:
        return members[0]
    depth = sum(s.start for s in members)
    events = sorted((cut, 1 if (i % 2 == 0) ^ s.start else -1) for s in members for i, cut in enumerate(s.cuts))
    start, cuts, inside = depth > 0, [], depth > 0
    position = 0
    while position < len(events):
        cut = events[position][0]
        while position < len(events) and events[position][0] == cut:
            depth += events[position][1]
            position += 1
        if (depth > 0) != inside:
            inside = not inside
            cuts.append(cut)
    return ValueSet(start, tuple(cuts))
