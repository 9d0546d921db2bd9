"""Finds the distinct values of a column of strings, so that an expression over it is evaluated once for each."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

LEAST_ROWS = 1 << 10
"""In fewer rows distinct values are not looked for; of more rows, so many are looked at first."""
_LEAST_REPEATS = 2
"""How often a value must occur in the mean: hashing a value takes as long as evaluating a cheap expression for it."""


class DistinctValues(NamedTuple):
    """values: the distinct values of a column, and NULL as the last one; rows [rows] int64: the number of each row's
    value among them."""

    values: pa.Array
    rows: np.ndarray


def distinct_values(strings: pa.Array) -> DistinctValues | None:
    """The distinct values of a column; None if it has few rows, or values are seldom repeated."""
    if len(strings) < LEAST_ROWS or not _are_repeated(strings.slice(0, LEAST_ROWS)):
        return None
    coded = strings.dictionary_encode()
    if _LEAST_REPEATS * len(coded.dictionary) > len(strings):
        return None
    rows = pc.fill_null(coded.indices, len(coded.dictionary)).to_numpy(zero_copy_only=False)
    return DistinctValues(pa.concat_arrays([coded.dictionary, pa.nulls(1, strings.type)]), rows)


def _are_repeated(strings: pa.Array) -> bool:
    return bool(_LEAST_REPEATS * pc.count_distinct(strings).as_py() <= len(strings))
