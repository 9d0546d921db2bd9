"""Checks the terms of stored conjunctions and those of the kernel, in one pass over them and in no further memory: an
index may have tens of millions."""

from __future__ import annotations

import numpy as np

from rules_index.index.conjunction_arrays import DISJUNCTION
from rules_index.kernels.bitmaps import ALL, EMPTY
from rules_index.kernels.jit import jit


@jit
def sizes_of_sets(
    terms: np.ndarray, start: np.ndarray, limit: np.ndarray, disjunctions: int, sizes: np.ndarray, found: np.ndarray
) -> bool:
    """Whether all terms name attributes, sets and disjunctions that they may name.

    A conjunction names an attribute only once, and all terms with a set are on attributes with the same number of
    codes, which is written to `found`. Shapes and dtypes are those of `Conjunctions`, and `start` is consistent with
    `terms`.

    limit: [.] int32, for each of the first conjunctions the number of the shared disjunction that it belongs to: it
    may only name earlier ones. Others may name all `disjunctions`.
    sizes: [attributes] int32, each at least 1
    found: [sets] int32, all 0; a set that no term names keeps 0
    """
    named_by = np.full(len(sizes), -1, np.int64)
    for conjunction in range(len(start) - 1):
        last = limit[conjunction] if conjunction < len(limit) else disjunctions
        for term in range(start[conjunction], start[conjunction + 1]):
            attribute, named = terms[term, 0], terms[term, 1]
            if attribute == DISJUNCTION:
                if named < 0 or named >= last:
                    return False
                continue
            if attribute < 0 or attribute >= len(sizes) or named < 0 or named >= len(found):
                return False
            if found[named] == 0:
                found[named] = sizes[attribute]
            if found[named] != sizes[attribute] or named_by[attribute] == conjunction:
                return False
            named_by[attribute] = conjunction
    return True


@jit
def are_intervals(terms: np.ndarray, edge: np.ndarray, attribute: np.ndarray) -> bool:
    """Whether the rows of each term, those in its bitmap `high` but not in `low`, are those of an interval of codes.

    terms: [terms, 2] int32, (low, high); both are in [0, len(edge))
    edge: [bitmaps and disjunctions] int64, the first code that the bitmap lacks if it has all codes below and no other,
        else -1
    attribute: [bitmaps] int32, the attribute of each bitmap
    """
    for term in range(len(terms)):
        low, high = terms[term, 0], terms[term, 1]
        if low == EMPTY:
            continue
        if low <= ALL or edge[low] < 0 or edge[low] >= edge[high] or high >= len(attribute):
            return False
        if high != ALL and attribute[low] != attribute[high]:
            return False
    return True
