"""What a Spark worker runs: opens an index once per process, then turns batches of columns into rule ids.

Workers import this library and nothing else of the project.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from rules_index.index.compiled import CompiledRules, RuleId
from rules_index.index.loading import load

Figures: TypeAlias = dict[Any, int]
"""Counts of one micro-batch: `rows`, `matches`, and, under ("error", id), the rows on which a rule raised."""

_KEPT = 4
"""The most indexes that a process keeps open."""
_open: dict[str, CompiledRules] = {}


def open_index(path: str) -> CompiledRules:
    """The index in a file, mapped into memory once per process. The file's name must change with its content."""
    found = _open.get(path)
    if found is None:
        found = load(path)
        while len(_open) >= _KEPT:
            del _open[next(iter(_open))]
        _open[path] = found
    return found


def match(
    compiled: CompiledRules, names: Sequence[str], columns: Sequence[pa.Array], id_type: pa.DataType
) -> tuple[pa.Array, dict[RuleId, int]]:
    """Returns the rows' rule ids as lists of `id_type`, and per rule the number of rows on which a predicate raised.

    `columns` are those of `compiled.inputs`, in the order of `names`.
    """
    ids = compiled.match(pa.RecordBatch.from_arrays(list(columns), list(names)))
    if ids.type != pa.list_(id_type):
        ids = ids.cast(pa.list_(id_type))
    return ids, compiled.errors


class Counts:
    """Adds figures; has the methods of an AccumulatorParam for Spark's accumulators.

    Spark merges a task's figures when the task has succeeded, so that a retried task counts once. The class is here
    because an accumulator takes its parameter along to the workers.
    """

    def zero(self, value: Figures) -> Figures:
        """The empty figures."""
        return {}

    def addInPlace(self, value1: Figures, value2: Figures) -> Figures:  # noqa: N802
        """Adds the second figures to the first ones, and returns these."""
        for key, count in value2.items():
            value1[key] = value1.get(key, 0) + count
        return value1
