"""The description of a Spark SQL function that is evaluated here, and helpers for evaluating one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Mask = npt.NDArray[np.bool_]
Columns = Sequence[pa.Array]
Result = tuple[pa.Array, Mask | None]
"""The values, and where evaluation raised (None: nowhere)."""
Types = Sequence[pa.DataType]


@dataclass(frozen=True, slots=True)
class ScalarFunction:
    """accepts: for which types of its arguments it is evaluated here; evaluate: its values from its arguments, in the
    time zone given; raises: whether it may raise; constants: the places of arguments that must be constants; fits:
    for which values of these it is evaluated here (None: for all); decodes: whether its texts must be valid UTF-8;
    strict: whether it is NULL where an argument is; eager: whether Spark evaluates all arguments, those behind a NULL
    too."""

    accepts: Callable[[Types], bool]
    evaluate: Callable[[Columns, str], Result]
    raises: bool = False
    constants: tuple[int, ...] = ()
    fits: Callable[[Sequence[Any]], bool] | None = None
    decodes: bool = False
    strict: bool = True
    eager: bool = False


def filled(values: pa.Array) -> np.ndarray:
    """The values with 0 for NULL."""
    return np.asarray(pc.fill_null(values, 0).to_numpy(zero_copy_only=False))


def nulls_of(values: pa.Array) -> Mask:
    """Where the values are NULL, [rows] bool."""
    if values.null_count == 0:
        return np.zeros(len(values), np.bool_)
    return np.asarray(values.is_null().to_numpy(zero_copy_only=False))


def like(values: pa.Array, found: np.ndarray, kind: pa.DataType, other: pa.Array | None = None) -> pa.Array:
    """`found` as an array of type `kind`, NULL where the values are."""
    mask = nulls_of(values) if other is None else nulls_of(values) | nulls_of(other)
    return pa.array(found, kind, mask=mask)
