"""Checks stored arrays: a damaged index is refused before a kernel follows an index out of bounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


class InvalidArraysError(ValueError):
    """Stored arrays that contradict each other or point outside their bounds."""


def require(condition: bool | np.bool_, what: str) -> None:
    """Raises `InvalidArraysError` with the name `what` unless the condition holds."""
    if not condition:
        raise InvalidArraysError(what)


def require_offsets(offsets: np.ndarray, end: int, what: str) -> None:
    """Requires offsets that start at 0, never fall, and end at `end`."""
    require(offsets.ndim == 1 and len(offsets) > 0, what)
    require(
        offsets[0] == 0 and offsets[-1] == end and bool((offsets[1:] >= offsets[:-1]).all()),
        what,
    )


def require_range(values: np.ndarray, low: int, high: int, what: str) -> None:
    """Requires integers in [low, high)."""
    require(values.size == 0 or (values.min() >= low and values.max() < high), what)


def require_form(arrays: Mapping[str, np.ndarray], name: str, dtype: Any, columns: int = 0) -> None:
    """Requires an array with this name and dtype: two-dimensional with so many columns, or one-dimensional if `columns`
    is 0."""
    require(name in arrays, name)
    array = arrays[name]
    require(array.dtype == dtype and array.ndim == (2 if columns else 1), name)
    require(not columns or array.shape[1] == columns, name)
