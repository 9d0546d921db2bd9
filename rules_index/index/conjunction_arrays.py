"""What all engines share: conjunctions over region codes as flat arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

DISJUNCTION = -1
"""The attribute, in `Conjunctions.terms`, of a term that names a shared disjunction."""


@dataclass(frozen=True)
class Conjunctions:
    """All conjunctions of a rule set, independent of the engine. Integers are int32 unless a dtype is given.

    sizes       [attributes] number of codes of each attribute, including those of NULL and of rows that raised
    set_start   [sets + 1] int64, offsets into intervals
    intervals   [intervals, 2] closed, ascending, disjoint ranges of codes
    start       [conjunctions + 1] int64, offsets into terms
    terms       [terms, 2] (attribute, set), at most one per attribute, or (`DISJUNCTION`, shared disjunction)
    target      [conjunctions] the shared disjunction's number, or the rule's ordinal (ascending)
    disjunction_start  [disjunctions + 1] the conjunctions of each shared disjunction; these come first, and a shared
                       disjunction names only earlier ones
    """

    sizes: np.ndarray
    set_start: np.ndarray
    intervals: np.ndarray
    start: np.ndarray
    terms: np.ndarray
    target: np.ndarray
    disjunction_start: np.ndarray

    @property
    def disjunctions(self) -> int:
        """Number of shared disjunctions."""
        return len(self.disjunction_start) - 1


class InvalidArraysError(ValueError):
    """Stored arrays that contradict each other or point outside their bounds."""


def require(condition: bool | np.bool_, what: str) -> None:
    """Raises `InvalidArraysError` naming `what` unless the condition holds."""
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
    """Requires an array of this name and dtype, with so many columns, or one-dimensional where `columns` is 0."""
    require(name in arrays, name)
    array = arrays[name]
    require(array.dtype == dtype and array.ndim == (2 if columns else 1), name)
    require(not columns or array.shape[1] == columns, name)
