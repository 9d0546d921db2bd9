"""What the engines share: conjunctions over region codes as flat arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

DISJUNCTION = -1
"""In `Conjunctions.terms`, the attribute of a term that names a shared disjunction."""


@dataclass(frozen=True)
class Conjunctions:
    """All conjunctions of a rule set, engine-neutral; integers are int32 unless said.

    sizes       [attributes] number of codes of each, those of NULL and of raised rows included
    set_start   [sets + 1] into intervals, int64
    intervals   [intervals, 2] closed, ascending, disjoint ranges of codes
    start       [conjunctions + 1] into terms, int64
    terms       [terms, 2] (attribute, set), at most one an attribute, or (`DISJUNCTION`, shared disjunction)
    target      [conjunctions] the shared disjunction's number, or the rule's ordinal (ascending)
    disjunction_start  [disjunctions + 1] the conjunctions of each shared disjunction; they come first, and it names
                       only earlier ones
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
    """Offsets that start at 0, never fall, and end at `end`."""
    require(offsets.ndim == 1 and len(offsets) > 0, what)
    require(
        offsets[0] == 0 and offsets[-1] == end and bool((offsets[1:] >= offsets[:-1]).all()),
        what,
    )


def require_range(values: np.ndarray, low: int, high: int, what: str) -> None:
    """Integers in [low, high)."""
    require(values.size == 0 or (values.min() >= low and values.max() < high), what)


def require_form(arrays: Mapping[str, np.ndarray], name: str, dtype: Any, columns: int = 0) -> None:
    """An array of this name and type with so many columns, or of one dimension for 0."""
    require(name in arrays, name)
    array = arrays[name]
    require(array.dtype == dtype and array.ndim == (2 if columns else 1), name)
    require(not columns or array.shape[1] == columns, name)
