"""The description of a Spark SQL function that is evaluated here, and helpers for evaluating one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rules_index.language.evaluation.malformed_texts import Texts

Mask = npt.NDArray[np.bool_]
Columns = Sequence[pa.Array]
Result = tuple[pa.Array, Mask | None]
"""The values, and a mask [rows] bool of the rows where evaluation raised (None: no rows)."""
Types = Sequence[pa.DataType]


@dataclass(frozen=True, slots=True)
class ScalarFunction:
    """How a function is evaluated here, and when.

    - accepts: whether it is evaluated here for arguments of these types;
    - evaluate: computes its values from its arguments, in a time zone;
    - raises: whether it can raise;
    - constants: the indices of the arguments that must be constants;
    - fits: whether it is evaluated here for these values of the constants (None: for all values);
    - texts: how it takes texts that are not UTF-8;
    - strict: whether it is NULL where an argument is NULL;
    - eager: whether Spark evaluates all arguments, even those behind a NULL.
    """

    accepts: Callable[[Types], bool]
    evaluate: Callable[[Columns, str], Result]
    raises: bool = False
    constants: tuple[int, ...] = ()
    fits: Callable[[Sequence[Any]], bool] | None = None
    texts: Texts = Texts.STORED
    strict: bool = True
    eager: bool = False


def filled(values: pa.Array) -> np.ndarray:
    """The values with 0 for NULL."""
    return np.asarray(pc.fill_null(values, 0).to_numpy(zero_copy_only=False))


def nulls_of(values: pa.Array) -> Mask:
    """A mask [rows] bool of the values that are NULL."""
    if values.null_count == 0:
        return np.zeros(len(values), np.bool_)
    return np.asarray(values.is_null().to_numpy(zero_copy_only=False))


def like(values: pa.Array, found: np.ndarray, kind: pa.DataType, other: pa.Array | None = None) -> pa.Array:
    """`found` as an array of type `kind`, NULL where `values` or `other` are NULL."""
    mask = nulls_of(values) if other is None else nulls_of(values) | nulls_of(other)
    return pa.array(found, kind, mask=mask)
