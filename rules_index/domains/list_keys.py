"""Converts the values of lists to keys, which the kernels compare (integers or byte strings), and sets of keys to
regions."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from rules_index.domains.region_codes import (
    INT64_MAX,
    INT64_MIN,
    Regions,
    byte_arrays,
    byte_strings,
    cut_arrays,
    integer_keys,
    plain,
)
from rules_index.domains.values import is_bytes

if TYPE_CHECKING:
    import polars as pl

Values: TypeAlias = pa.Array | pa.ChunkedArray


def keys_of(values: Values, data_type: pa.DataType) -> pl.Series:
    """The keys [.], Int64 or Binary, of the values that are not NULL. data_type: the type of a list with such values.

    Raises `pa.ArrowException` for more than 2 GiB of values, and for values that the type cannot hold.
    """
    import polars as pl

    values = plain(values, data_type).drop_null()
    if not is_bytes(data_type):
        return pl.Series("key", integer_keys(values, data_type).astype(np.int64))
    offsets, data = byte_strings(values, data_type)
    buffers = [None, pa.py_buffer(offsets.astype(np.int64)), pa.py_buffer(data)]
    return pl.Series("key", pa.Array.from_buffers(pa.large_binary(), len(values), buffers), dtype=pl.Binary)


def regions_of(keys: pl.Series, data_type: pa.DataType) -> Regions:
    """Two regions: the values with these keys, which are distinct and ascend, have the code 1, all others 0."""
    if not is_bytes(data_type):
        return Regions(data_type, 2, _integer_arrays(keys.to_numpy()))
    ones, none = np.ones(len(keys), np.int32), pa.array([], pa.large_binary())
    return Regions(data_type, 2, byte_arrays(_packable(keys), ones, none, np.empty(0, np.int32)))


def are_in(regions: Regions, keys: pl.Series) -> np.ndarray:
    """Which keys [.] bool have the code 1 in regions that `regions_of` made."""
    import polars as pl

    codes = np.zeros(len(keys), np.int32)
    regions.encode_keys(keys.to_numpy() if keys.dtype == pl.Int64 else _packable(keys), codes)
    return codes == 1


def cuts_of(regions: Regions) -> np.ndarray:
    """The integers [.] int64, ascending, at which membership begins and ends, alternately."""
    arrays = regions.arrays
    codes = arrays["codes"]
    cuts = arrays["cuts"] if "cuts" in arrays else arrays["low"][0] + np.flatnonzero(np.diff(codes))
    return np.concatenate([[INT64_MIN], cuts]) if codes[0] == 1 else cuts


def _packable(keys: pl.Series) -> pa.LargeBinaryArray:
    """The keys as one array, which `Regions.encode_keys` and `byte_arrays` read."""
    found = keys.to_arrow().cast(pa.large_binary())
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def _integer_arrays(keys: np.ndarray) -> dict[str, np.ndarray]:
    """The arrays for distinct ascending keys [.] int64: cuts at which membership begins and ends, alternately."""
    begins = np.ones(len(keys), bool)
    begins[1:] = keys[1:] != keys[:-1] + 1
    first, last = keys[begins], keys[np.roll(begins, -1)]
    cuts = np.stack([first, last + np.int64(1)], axis=1).reshape(-1)
    if len(keys) and keys[-1] == INT64_MAX:
        cuts = cuts[:-1]  # no value is above the greatest key
    codes = np.tile(np.array([1, 0], np.int32), len(cuts) // 2 + 1)[: len(cuts)]
    return cut_arrays(cuts, codes)
