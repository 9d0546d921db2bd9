"""Checks stored conjunctions, and the kernel's arrays with them, before anything uses them as indices."""

from __future__ import annotations

import numpy as np

from rules_index.index.array_checks import InvalidArraysError, require, require_form, require_offsets, require_range
from rules_index.index.conjunction_arrays import Conjunctions
from rules_index.index.term_checks import sizes_of_sets
from rules_index.index.validate_kernel import validate_kernel

CONJUNCTION_DTYPES = {"set_start": np.int64, "start": np.int64}
"""The dtypes of fields of `Conjunctions` that are not int32."""


def validate(arrays: dict[str, np.ndarray], attributes: int, rules: int) -> Conjunctions:
    """The conjunctions among an engine's stored arrays. Raises `InvalidArraysError` if these or the kernel's arrays are
    inconsistent."""
    conjunctions = validate_conjunctions(arrays, attributes, rules)
    validate_kernel(
        {name[len("kernel_") :]: array for name, array in arrays.items() if name.startswith("kernel_")},
        conjunctions,
        rules,
    )
    return conjunctions


def validate_conjunctions(arrays: dict[str, np.ndarray], attributes: int, rules: int) -> Conjunctions:
    """The conjunctions among an engine's stored arrays. Raises `InvalidArraysError` if they are inconsistent; the
    kernel's arrays are not checked."""
    for name in Conjunctions.__dataclass_fields__:
        columns = 2 if name in ("intervals", "terms") else 0
        require_form(arrays, name, CONJUNCTION_DTYPES.get(name, np.int32), columns)
    c = Conjunctions(**{name: arrays[name] for name in Conjunctions.__dataclass_fields__})
    require(len(c.sizes) == attributes and bool((c.sizes >= 2).all()), "sizes")
    require_offsets(c.set_start, len(c.intervals), "set_start")
    require(bool((np.diff(c.set_start) > 0).all()), "set_start")
    require_offsets(c.start, len(c.terms), "start")
    require(len(c.target) == len(c.start) - 1, "target")
    require(len(c.disjunction_start) > 0, "disjunction_start")
    require_offsets(c.disjunction_start, int(c.disjunction_start[-1]), "disjunction_start")
    require(c.disjunction_start[-1] <= len(c.target), "disjunction_start")
    first = int(c.disjunction_start[-1])
    owner = np.repeat(np.arange(c.disjunctions, dtype=np.int32), np.diff(c.disjunction_start))
    require(bool((c.target[:first] == owner).all()), "target")
    size = np.zeros(len(c.set_start) - 1, np.int32)
    require(sizes_of_sets(c.terms, c.start, owner, c.disjunctions, c.sizes, size), "terms")
    _require_intervals(c, np.repeat(size, np.diff(c.set_start)))
    require_range(c.target[first:], 0, rules, "target")
    require(bool((np.diff(c.target[first:]) >= 0).all()), "target")
    return c


def _require_intervals(c: Conjunctions, size: np.ndarray) -> None:
    """Requires ascending, disjoint intervals within [0, size) of their set's attribute; `size` [intervals] is 0 for a
    set that no term names."""
    low, high = c.intervals[:, 0].astype(np.int64), c.intervals[:, 1].astype(np.int64)
    require(
        bool(((low >= 0) & (low <= high)).all()) and bool((high < np.where(size > 0, size, 1 << 31)).all()), "intervals"
    )
    first_of_set = np.zeros(len(low) + 1, bool)
    first_of_set[c.set_start] = True
    follows = ~first_of_set[1:-1] if len(low) else np.empty(0, bool)
    require(bool((low[1:][follows] > high[:-1][follows]).all()), "intervals")


__all__ = ["InvalidArraysError", "validate", "validate_conjunctions"]
