"""Encodes computed attributes; bounds the memory for their intermediate values.

Thousands of rules may each compute values of their own, and a column of texts can grow beyond what an array can hold
(`repeat`). So the values that attributes share are cached only up to a bound, and an attribute whose values would take
more is evaluated for fewer rows at a time.
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
"""About the most bytes of intermediate values that one attribute may take at a time; also the most that are cached for
other attributes."""
_NUMBER = 16
"""Bytes of a value that is not a text, with its validity and whether it raised."""
_FEW_ROWS = 16
"""So few rows are always evaluated at once: estimating their memory would take as long."""


@dataclass
class Computed:
    """What has been computed for one batch of `rows` rows so far. `values` has the values of leaves by name; `_shared`
    caches those of parts of expressions."""

    rows: int
    values: dict[str, Evaluated] = field(default_factory=dict)
    _shared: dict[Expression, Evaluated] = field(default_factory=dict)
    _shared_bytes: int = 0

    def encode(self, expression: Expression, regions: Regions, out: np.ndarray) -> Mask | None:
        """Writes the expression's codes into `out` [rows] int32. Returns on which rows it raised, [rows] bool, or None
        for none.

        An unexpected exception is logged and counts as raised on all rows, because it must not stop other rules.
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
        """Encodes the rows [start, stop). If their values do not fit an array, it halves the rows, down to one. A
        single value that does not fit makes Spark raise as well, so it counts as raised. Raises `MemoryError` if one
        row takes too much memory."""
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
    """The number of rows, at least 1, whose values of all parts of the expression take about `MAX_BYTES`."""
    if rows <= _FEW_ROWS:
        return rows
    _, total = _widths(
        expression, {leaf.name: values[leaf.name].values.nbytes / rows for leaf in leaves_of(expression)}
    )
    return rows if total * rows <= MAX_BYTES else max(1, int(MAX_BYTES / total))


def _widths(expression: Expression, leaves: Mapping[str, float]) -> tuple[float, float]:
    """The mean bytes of the expression's value on a row, and the sum of those of its parts. leaves: the mean bytes of
    leaves by name. The text that a function returns is taken to be as long as all its arguments together."""
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
