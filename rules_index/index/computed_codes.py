"""The region codes of computed attributes, a bounded part of their intermediate values at a time.

Thousands of rules may each compute values of their own, and a text may be repeated until no array can hold a column of
it. So values that attributes share are kept up to a bound, and an attribute whose values would take more is evaluated
for fewer rows at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
import pyarrow as pa

from rules_index.domains.region_codes import Regions
from rules_index.language.evaluation.evaluate import evaluate
from rules_index.language.evaluation.evaluated import Evaluated, Mask
from rules_index.language.typed import Constant, Expression, Leaf, leaves_of

_LOG = logging.getLogger(__name__)
MAX_BYTES = 128 << 20
"""The most bytes of intermediate values, about, that one attribute may take at a time, and that are kept for others."""
_NUMBER = 16
"""Bytes of a value that is no text, with its validity and whether it raised."""
_FEW_ROWS = 16
"""So few rows are evaluated at once, whatever is computed: estimating would take as long."""


@dataclass
class Computed:
    """What was computed for one batch of `rows` rows so far; `values` has the values of leaves by name."""

    rows: int
    values: dict[str, Evaluated] = field(default_factory=dict)
    _shared: dict[Expression, Evaluated] = field(default_factory=dict)
    _shared_bytes: int = 0

    def encode(self, expression: Expression, regions: Regions, out: np.ndarray) -> Mask | None:
        """Writes the expression's codes into `out` [rows] int32; returns the rows that raised [rows] bool, or None.

        A fault of the library's own is logged, and counts as raised on all rows: it must stop no other rule.
        """
        try:
            return self._encode(expression, regions, out)
        except (pa.ArrowCapacityError, MemoryError):
            raise
        except Exception:
            names = ", ".join(sorted({leaf.name for leaf in leaves_of(expression)}))
            _LOG.warning(
                "A part of a rule over %s could not be evaluated and counts as an error:", names, exc_info=True
            )
            out[:] = regions.count + 1
            return np.ones(self.rows, np.bool_)

    def _encode(self, expression: Expression, regions: Regions, out: np.ndarray) -> Mask | None:
        at_once = _rows_at_once(expression, self.values, self.rows)
        if at_once >= self.rows:
            try:
                return self._encode_whole(expression, regions, out)
            except (pa.ArrowCapacityError, MemoryError):
                at_once = (self.rows + 1) // 2
        self._forget()
        raised = np.zeros(self.rows, np.bool_)
        for start in range(0, self.rows, at_once):
            self._encode_rows(expression, regions, start, min(start + at_once, self.rows), out, raised)
        return raised

    def _encode_whole(self, expression: Expression, regions: Regions, out: np.ndarray) -> Mask | None:
        before = len(self._shared)
        result = evaluate(expression, self.values, self.rows, self._shared)
        for value in islice(reversed(self._shared.values()), len(self._shared) - before):
            self._shared_bytes += value.values.nbytes
        if self._shared_bytes > MAX_BYTES:
            self._forget()
        regions.encode(result.values, result.raised, out)
        return result.raised

    def _forget(self) -> None:
        self._shared, self._shared_bytes = {}, 0

    def _encode_rows(
        self, expression: Expression, regions: Regions, start: int, stop: int, out: np.ndarray, raised: Mask
    ) -> None:
        """The codes of some rows: of fewer at a time where values are too long for one array, down to one row. A value
        that is too long by itself is so for Spark as well, which raises. MemoryError where one row takes too much."""
        inputs = {leaf.name: _rows_of(self.values[leaf.name], start, stop) for leaf in leaves_of(expression)}
        try:
            result = evaluate(expression, inputs, stop - start)
        except (pa.ArrowCapacityError, MemoryError) as error:
            if stop - start > 1:
                middle = (start + stop) // 2
                self._encode_rows(expression, regions, start, middle, out, raised)
                self._encode_rows(expression, regions, middle, stop, out, raised)
                return
            if isinstance(error, MemoryError):
                raise  # another process may have taken the memory: the row may well satisfy the rule
            result = Evaluated(pa.nulls(1, expression.type), np.ones(1, np.bool_))
        regions.encode(result.values, result.raised, out[start:stop])
        if result.raised is not None:
            raised[start:stop] = result.raised


def _rows_of(value: Evaluated, start: int, stop: int) -> Evaluated:
    raised = None if value.raised is None else value.raised[start:stop]
    return Evaluated(value.values.slice(start, stop - start), raised)


def _rows_at_once(expression: Expression, values: Mapping[str, Evaluated], rows: int) -> int:
    """For how many rows the values of all parts of the expression take about `MAX_BYTES`, at least 1."""
    if rows <= _FEW_ROWS:
        return rows
    _, total = _widths(
        expression, {leaf.name: values[leaf.name].values.nbytes / rows for leaf in leaves_of(expression)}
    )
    return rows if total * rows <= MAX_BYTES else max(1, int(MAX_BYTES / total))


def _widths(expression: Expression, leaves: Mapping[str, float]) -> tuple[float, float]:
    """The mean bytes of the expression's value on a row, and of the values of all of its parts; `leaves` has those of
    leaves, by name. A function of texts may return all of its arguments together."""
    if isinstance(expression, Leaf):
        return leaves[expression.name], 0.0
    if isinstance(expression, Constant):
        own = float(len(expression.value)) if isinstance(expression.value, str | bytes) else _NUMBER
        return own, own
    operands = [_widths(operand, leaves) for operand in expression.operands]
    own = float(_NUMBER)
    if not pa.types.is_primitive(expression.type):
        all_of = sum if expression.name == "call" else max
        own += all_of(width for width, _ in operands)
    return own, own + sum(total for _, total in operands)
