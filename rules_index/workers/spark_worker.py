"""What a Spark worker runs: open an index once per process, then turn batches of columns into rule ids.

Workers import this library and nothing else of the project.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from rules_index.index.compiled import CompiledRules, RuleId
from rules_index.index.loading import load

Figures: TypeAlias = dict[Any, int]
"""Counts of one micro-batch: `rows`, `matches`, and per rule id, under ("error", id), rows that raised."""

_KEPT = 4
_open: dict[str, CompiledRules] = {}


def open_index(path: str) -> CompiledRules:
    """The index in a file, mapped into memory once per process; the file's name must change with its content."""
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
    """The rows' rule ids as lists of `id_type`, and per rule the rows on which a predicate raised.

    `columns` are those of `compiled.inputs`, in the order of `names`.
    """
    ids = compiled.match(pa.RecordBatch.from_arrays(list(columns), list(names)))
    if ids.type != pa.list_(id_type):
        ids = ids.cast(pa.list_(id_type))
    return ids, compiled.errors


class Counts:
    """Adds up figures, as a parameter of Spark's accumulators (an AccumulatorParam by its methods).

    Spark merges a task's figures when the task has succeeded, so that a retried task counts once. It stands here
    because an accumulator takes its parameter along to the workers.
    """

    def zero(self, value: Figures) -> Figures:
        """No figures yet."""
        return {}

    def addInPlace(self, value1: Figures, value2: Figures) -> Figures:  # noqa: N802
        """The sums of both."""
        for key, count in value2.items():
            value1[key] = value1.get(key, 0) + count
        return value1
