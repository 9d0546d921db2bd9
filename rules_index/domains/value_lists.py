"""Value lists: lists of values that rules name instead of spelling them out, as in `account IN LIST('sanctioned')`.

A list divides an attribute into two regions (`region_codes.py`), the values in it and the others. Ten million values
are a hash table or sorted cuts, mapped into memory with the index; each row costs one lookup.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import polars as pl
import pyarrow as pa

from rules_index.arrays import distinct
from rules_index.domains.list_names import NAMED
from rules_index.domains.region_codes import Regions, byte_arrays, byte_strings, cut_arrays, integer_keys, plain
from rules_index.domains.values import is_bytes, is_indexable
from rules_index.errors import RulesIndexError

_INT64_MAX = (1 << 63) - 1


@dataclass(frozen=True, eq=False)
class ValueList:
    """The distinct values of a list; NULL is not among them.

    `count` values of the type of `regions`, which codes them 1 and all others 0. `digest` differs for lists with other
    values or of another type.
    """

    name: str
    count: int
    digest: str
    regions: Regions

    @property
    def type(self) -> pa.DataType:
        """The type of the values: integers are BIGINT, floating-point numbers DOUBLE."""
        return self.regions.type

    def contains(self, values: pa.Array) -> np.ndarray:
        """Which values [.] of the list's type are in it, bool; False for NULL."""
        codes = np.zeros(len(values), np.int32)
        self.regions.encode(values, None, codes)
        return codes == 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ValueList) and (self.name, self.digest) == (other.name, other.digest)

    def __hash__(self) -> int:
        return hash((self.name, self.digest))


@dataclass(frozen=True, slots=True)
class MissingList:
    """A list without values: rules that name it are refused, with the reason."""

    name: str
    reason: str
    digest: str = ""


AnyList: TypeAlias = ValueList | MissingList


def value_list(name: str, values: pa.Array | pa.ChunkedArray) -> ValueList:
    """A value list; the values may come in any order, repeat and be NULL.

    Raises `RulesIndexError` for a name that rules cannot write, for values of a type that cannot be compared, and for
    more than 2 GiB of values.
    """
    if NAMED.fullmatch(f"LIST('{name}')") is None:
        raise RulesIndexError(f"{name!r} cannot be a list's name; use letters, digits, points, - and _.")
    data_type = list_type(values.type)
    if data_type is None:
        raise RulesIndexError(f"The list {name} holds {values.type}, and values of that type are not compared.")
    try:
        values = plain(values, data_type).drop_null()
    except pa.ArrowException as error:
        reason = f"The list {name} holds more than 2 GiB, or values that {data_type} cannot hold: {error}"
        raise RulesIndexError(reason) from error
    if is_bytes(data_type):
        count, arrays = _byte_list(values, data_type)
    else:
        count, arrays = _integer_list(distinct(integer_keys(values, data_type).astype(np.int64)))
    digest = hashlib.sha256(str(data_type).encode())
    for key in sorted(arrays):
        digest.update(arrays[key].data)
    return ValueList(name, count, digest.hexdigest(), Regions(data_type, 2, arrays))


def list_type(data_type: pa.DataType) -> pa.DataType | None:
    """The type of a list with such values; None where they cannot be compared."""
    t = pa.types
    if t.is_dictionary(data_type):
        return list_type(data_type.value_type)
    if t.is_integer(data_type):
        return pa.int64()
    if t.is_floating(data_type):
        return pa.float64()
    if t.is_large_string(data_type) or t.is_string_view(data_type):
        return pa.string()
    if t.is_large_binary(data_type) or t.is_binary_view(data_type):
        return pa.binary()
    if t.is_timestamp(data_type):
        return pa.timestamp("us", "UTC" if data_type.tz else None)
    return data_type if is_indexable(data_type) else None


def _integer_list(keys: np.ndarray) -> tuple[int, dict[str, np.ndarray]]:
    """Distinct ascending keys [.] int64 as cuts, at which membership alternately begins and ends."""
    begins = np.ones(len(keys), bool)
    begins[1:] = keys[1:] != keys[:-1] + 1
    first, last = keys[begins], keys[np.roll(begins, -1)]
    cuts = np.stack([first, last + np.int64(1)], axis=1).reshape(-1)
    if len(keys) and keys[-1] == _INT64_MAX:
        cuts = cuts[:-1]  # no value is above the greatest key
    codes = np.tile(np.array([1, 0], np.int32), len(cuts) // 2 + 1)[: len(cuts)]
    return len(keys), cut_arrays(cuts, codes)


def _byte_list(values: pa.Array, data_type: pa.DataType) -> tuple[int, dict[str, np.ndarray]]:
    """Values as the points of a hash table, ascending."""
    offsets, data = byte_strings(values, data_type)
    buffers = [None, pa.py_buffer(offsets.astype(np.int64)), pa.py_buffer(data)]
    strings = pa.Array.from_buffers(pa.large_binary(), len(values), buffers)
    points = pl.Series(strings, dtype=pl.Binary).unique().sort().to_arrow().cast(pa.large_binary())
    ones, none = np.ones(len(points), np.int32), pa.array([], pa.large_binary())
    return len(points), byte_arrays(points, ones, none, np.empty(0, np.int32))
