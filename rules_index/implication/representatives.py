"""A value of each region of an attribute, and which regions have none.

Constants divide the keys of a type (`domains.values`), but not every key belongs to a value: there is no integer
between 3 and 4, no FLOAT between two neighbours, no DOUBLE between infinity and NaN, and not all bytes are text.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rules_index.domains.region_codes import Regions
from rules_index.domains.values import NAN_KEY, decimals, float_key
from rules_index.language.constants import domain

_INFINITY_KEY = float_key(float("inf"))
_CODE_POINTS = 0x110000
_FIRST_SURROGATE, _SURROGATES = 0xD800, 0x800
_MOST_EXACT = 1 << 24
"""Every integer up to this one is exact as a FLOAT."""


def representatives(regions: Regions) -> pa.Array:
    """A value of each region [regions], of the attribute's type; NULL if the region has none. Values next to a constant
    and integers are preferred, which are easier to read."""
    if regions.is_bytes:
        return _of_bytes(regions)
    codes, first, last = integer_pieces(regions)
    held = first <= last
    if pa.types.is_floating(regions.type):
        chosen, held = _floats_within(first, last, held, regions.type)
    else:
        # below all constants, the value next to the least constant says more than the type's least value
        chosen = np.concatenate([last[:1] if len(first) > 1 else [0], first[1:]])
    found, place = np.unique(codes[held], return_index=True)
    keys = np.zeros(regions.count, np.int64)
    has_key = np.zeros(regions.count, bool)
    keys[found], has_key[found] = chosen[held][place], True
    return _of_keys(keys, has_key, regions.type)


def integer_pieces(regions: Regions) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the region code, the least and the greatest key [pieces] int64 of each piece, ascending. A piece is a
    range of keys in one region, of which a region has several if points divide it. If the greatest key is below the
    least one, the piece has no key of the type."""
    arrays = regions.arrays
    least, greatest = domain(regions.type)
    assert greatest is not None
    codes = arrays["codes"].astype(np.int64)
    if "cuts" in arrays:
        cuts = arrays["cuts"]
    else:
        cuts = arrays["low"][0] + np.arange(len(codes) - 1)
    first = np.concatenate([[least], np.maximum(cuts, least)])
    last = np.concatenate([np.minimum(cuts - 1, greatest), [greatest]])
    return codes, first.astype(np.int64), last.astype(np.int64)


def _floats_within(
    first: np.ndarray, last: np.ndarray, held: np.ndarray, data_type: pa.DataType
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the key [pieces] int64 of a FLOAT or DOUBLE in each piece, and which pieces [pieces] bool have one.

    first, last: [pieces] int64, the least and the greatest key; held: [pieces] bool, whether there is any key.
    """
    low, high = doubles(np.minimum(first, _INFINITY_KEY)), doubles(np.minimum(last, _INFINITY_KEY))
    narrow = data_type == pa.float32()
    keys = _keys(_rounded_up(low) if narrow else low)
    keys[first > _INFINITY_KEY] = NAN_KEY
    # NaN is above infinity
    keys[(keys > last) & (last == NAN_KEY)] = NAN_KEY
    has_key = held & (keys <= last)
    for whole in (np.floor(low) + 1, np.floor(high)):
        exact = np.isfinite(whole) & (np.abs(whole) <= _MOST_EXACT)
        found = _keys(np.where(exact, whole, 0.0))
        keys = np.where(exact & (first <= found) & (found <= last), found, keys)
    return keys, has_key


def _rounded_up(values: np.ndarray) -> np.ndarray:
    """The least FLOATs at or above DOUBLEs, as DOUBLEs."""
    with np.errstate(over="ignore"):
        near = values.astype(np.float32)
        above = np.nextafter(near, np.full(len(near), np.inf, np.float32))
    return np.where(near < values, above, near).astype(np.float64)


def _keys(values: np.ndarray) -> np.ndarray:
    """The keys, as in `values.float_key`, of doubles that are not NaN."""
    bits = (values + 0.0).view(np.int64)
    return np.where(bits >= 0, bits, -(bits & NAN_KEY))


def doubles(keys: np.ndarray) -> np.ndarray:
    """The doubles with these keys, the inverse of `values.float_key`."""
    bits = np.where(keys >= 0, keys, -keys | np.int64(-NAN_KEY - 1))
    return bits.astype(np.int64).view(np.float64)


def _of_keys(keys: np.ndarray, has_key: np.ndarray, data_type: pa.DataType) -> pa.Array:
    """The values of integer keys [.] int64; NULL for those that are not `has_key` [.] bool."""
    missing = pa.array(~has_key)
    if pa.types.is_boolean(data_type):
        values = pa.array(keys.astype(bool))
    elif pa.types.is_floating(data_type):
        values = pa.array(doubles(keys).astype(data_type.to_pandas_dtype()))
    elif pa.types.is_decimal(data_type):
        values = decimals(keys.tolist(), data_type)
    else:
        values = pa.array(keys.astype(f"int{data_type.bit_width}")).view(data_type)
    return pc.if_else(missing, pa.scalar(None, data_type), values)


# Byte strings


def _of_bytes(regions: Regions) -> pa.Array:
    """Values of regions whose keys are byte strings: strings, binary, and decimals of more than 18 digits."""
    arrays = regions.arrays
    points = strings(arrays["point_offsets"], arrays["point_data"])
    cuts = strings(arrays["offsets"], arrays["data"])
    found: list[bytes | None] = [None] * regions.count
    for code, point in zip(arrays["point_codes"].tolist(), points, strict=True):
        found[code] = next(_values_from(point, regions.type), None)
        if found[code] != point:
            found[code] = None
    taken = set(points)
    for code, low, high in zip(arrays["codes"].tolist(), [b"", *cuts], [*cuts, None], strict=True):
        if found[code] is None:
            found[code] = next((value for value in _values_from(low, regions.type, high) if value not in taken), None)
    if not pa.types.is_decimal(regions.type):
        texts = found if pa.types.is_binary(regions.type) else [None if v is None else v.decode() for v in found]
        return pa.array(texts, regions.type)
    values = decimals((0 if key is None else int.from_bytes(key, "big") - (1 << 127) for key in found), regions.type)
    return pc.if_else(pa.array([key is None for key in found]), pa.scalar(None, regions.type), values)


def strings(offsets: np.ndarray, data: np.ndarray) -> list[bytes]:
    """Concatenated byte strings as a list."""
    whole = data.tobytes()
    return [whole[begin:end] for begin, end in pairwise(offsets.tolist())]


def _values_from(low: bytes, data_type: pa.DataType, high: bytes | None = None) -> Iterator[bytes]:
    """The values of a type from `low` on, below `high`, ascending."""
    value: bytes | None = low
    if pa.types.is_decimal(data_type):
        greatest = 10**data_type.precision - 1 + (1 << 127)
        number = max(int.from_bytes(low, "big"), (1 << 127) - 10**data_type.precision + 1)
        while number <= greatest and (high is None or number.to_bytes(16, "big") < high):
            yield number.to_bytes(16, "big")
            number += 1
        return
    if pa.types.is_string(data_type):
        value = least_text(low)
    while value is not None and (high is None or value < high):
        yield value
        value += b"\x00"


def least_text(low: bytes) -> bytes | None:
    """The least UTF-8 string at or above `low`; None if there is none."""
    try:
        low.decode()
        return low
    except UnicodeDecodeError as error:
        begin = error.start
    while True:
        character = _least_character(low[begin:])
        if character is not None:
            return low[:begin] + character
        if begin == 0:
            return None
        # there is no character at or above these bytes: the character before must be incremented
        before = low[:begin].decode()
        begin -= len(before[-1].encode())
        low = low[:begin] + before[-1].encode() + b"\xff"


def _least_character(low: bytes) -> bytes | None:
    """The least character whose UTF-8 is at or above `low`."""
    places = range(_CODE_POINTS - _SURROGATES)
    place = bisect.bisect_left(places, low, key=_character)
    return _character(place) if place < len(places) else None


def _character(place: int) -> bytes:
    """The UTF-8 of a character, given its index among all characters, which exclude surrogates."""
    return chr(place if place < _FIRST_SURROGATE else place + _SURROGATES).encode()
