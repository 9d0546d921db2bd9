"""Encodes computed attributes; bounds the memory for their intermediate values.

An attribute that is computed from one column of strings is evaluated once for each distinct value. Thousands of rules
may each compute values of their own, and a column of texts can grow beyond what an array can hold (`repeat`). So the
values that attributes share are cached only up to a bound, and an attribute whose values would take more is evaluated
for fewer rows at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
import pyarrow as pa

from rules_index.domains.region_codes import Regions
from rules_index.index.distinct_values import distinct_values
from rules_index.language.evaluation.evaluate import evaluate
from rules_index.language.evaluation.evaluated import Evaluated, Mask
from rules_index.language.evaluation.operands import ONE_BY_ONE, repeated_parts
from rules_index.language.typed import Constant, Expression, Leaf, Operation, leaves_of

_LOG = logging.getLogger(__name__)
MAX_BYTES = 128 << 20
"""About the most bytes of intermediate values that one attribute may take at a time; also the most that are cached for
other attributes."""
_NUMBER = 16
"""Bytes of a value that is not a text, with its validity and whether it raised."""
_CHARACTER = 4
"""The most bytes of a character."""
_FEW_ROWS = 16
"""So few rows are always evaluated at once: estimating their memory would take as long."""


@dataclass
class Computed:
    """What has been computed for one batch of `rows` rows so far. `values` has the values of leaves by name; `_shared`
    caches those of parts of expressions, and `_distinct` what has been computed for the distinct values of a column, by
    the name of its leaf: None if there are none to use."""

    rows: int
    values: dict[str, Evaluated] = field(default_factory=dict)
    _shared: dict[Expression, Evaluated] = field(default_factory=dict)
    _shared_bytes: int = 0
    _distinct: dict[str, tuple[Computed, np.ndarray] | None] = field(default_factory=dict)

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
        leaves = set(leaves_of(expression))
        distinct = self._of_distinct_values(*leaves) if len(leaves) == 1 else None
        if distinct is not None:
            computed, rows = distinct
            codes = np.empty(computed.rows, np.int32)
            raised = computed._encode(expression, regions, codes)
            np.take(codes, rows, out=out)
            return None if raised is None else raised[rows]
        if self.rows > _FEW_ROWS:
            widths = {leaf.name: self.values[leaf.name].values.nbytes / self.rows for leaf in leaves}
            if _widths(expression, widths)[1] * self.rows > MAX_BYTES:
                at_once = max(1, int(MAX_BYTES / _most_held(expression, widths)))
                return self._encode_parts(expression, regions, at_once, out)
        try:
            return self._encode_whole(expression, regions, out)
        except (pa.ArrowCapacityError, MemoryError):
            return self._encode_parts(expression, regions, (self.rows + 1) // 2, out)

    def _of_distinct_values(self, leaf: Leaf) -> tuple[Computed, np.ndarray] | None:
        """What is computed for the distinct values of a column of strings, and the number of each row's value [rows];
        None if each row is evaluated."""
        if leaf.name not in self._distinct:
            given = self.values[leaf.name]
            is_text = pa.types.is_string(given.values.type) and given.raised is None
            found = distinct_values(given.values) if is_text else None
            self._distinct[leaf.name] = None
            if found is not None:
                evaluated = {leaf.name: Evaluated(found.values)}
                computed = Computed(len(found.values), evaluated, _distinct={leaf.name: None})
                self._distinct[leaf.name] = computed, found.rows
        return self._distinct[leaf.name]

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

    def _encode_parts(self, expression: Expression, regions: Regions, at_once: int, out: np.ndarray) -> Mask:
        """Encodes `at_once` rows at a time, and keeps no value longer than it is needed."""
        self._forget()
        inputs = {leaf.name: self.values[leaf.name] for leaf in leaves_of(expression)}
        kept = repeated_parts(expression)

        def evaluated(start: int, stop: int) -> Evaluated:
            rows = {name: _rows_of(value, start, stop) for name, value in inputs.items()}
            return evaluate(expression, rows, stop - start, kept=kept)

        raised = np.zeros(self.rows, np.bool_)
        for start in range(0, self.rows, at_once):
            for first, result in _fitting(evaluated, expression.type, start, min(start + at_once, self.rows)):
                stop = first + len(result.values)
                regions.encode(result.values, result.raised, out[first:stop])
                if result.raised is not None:
                    raised[first:stop] = result.raised
        return raised


def _fitting(
    evaluated: Callable[[int, int], Evaluated], data_type: pa.DataType, start: int, stop: int
) -> Iterator[tuple[int, Evaluated]]:
    """The values of the rows [start, stop), with the first row of each part. If their values do not fit an array, it
    halves the rows, down to one. A single value that does not fit makes Spark raise as well, so it counts as raised.
    Raises `MemoryError` if one row takes too much memory."""
    try:
        yield start, evaluated(start, stop)
    except (pa.ArrowCapacityError, MemoryError) as error:
        if stop - start > 1:
            middle = (start + stop) // 2
            yield from _fitting(evaluated, data_type, start, middle)
            yield from _fitting(evaluated, data_type, middle, stop)
            return
        if isinstance(error, MemoryError):
            raise  # another process may have taken the memory: the row may well satisfy the rule
        yield start, Evaluated(pa.nulls(1, data_type), np.ones(1, np.bool_))


def _rows_of(value: Evaluated, start: int, stop: int) -> Evaluated:
    raised = None if value.raised is None else value.raised[start:stop]
    return Evaluated(value.values.slice(start, stop - start), raised)


def _widths(expression: Expression, leaves: Mapping[str, float]) -> tuple[float, float]:
    """The mean bytes of the expression's value on a row, and the sum of those of its parts. leaves: the mean bytes of
    leaves by name."""
    if not isinstance(expression, Operation):
        own = _own_width(expression, leaves)
        return own, 0.0 if isinstance(expression, Leaf) else own
    operands = [_widths(operand, leaves) for operand in expression.operands]
    own = _result_width(expression, [width for width, _ in operands])
    return own, own + sum(total for _, total in operands)


def _most_held(expression: Expression, leaves: Mapping[str, float]) -> float:
    """The mean bytes on a row of the values that are held at a time, if only repeated parts are kept."""
    kept = repeated_parts(expression)
    of_kept: dict[Expression, float] = {}

    def held(part: Expression) -> tuple[float, float]:
        """The bytes of the part's value, and the most while it is evaluated."""
        if not isinstance(part, Operation):
            own = _own_width(part, leaves)
            return own, own
        operands = [held(operand) for operand in part.operands]
        widths = [width for width, _ in operands]
        own = _result_width(part, widths)
        if part in kept:
            of_kept[part] = own
        at_a_time = 3 * max(widths) + own if part.name in ONE_BY_ONE else sum(widths)
        return own, own + at_a_time + max(most for _, most in operands)

    return held(expression)[1] + sum(of_kept.values())


def _own_width(expression: Leaf | Constant, leaves: Mapping[str, float]) -> float:
    """The mean bytes of a leaf's or a constant's value."""
    if isinstance(expression, Leaf):
        return leaves[expression.name]
    return float(len(expression.value)) if isinstance(expression.value, str | bytes) else _NUMBER


def _result_width(operation: Operation, operands: list[float]) -> float:
    """The mean bytes of an operation's value, given those of its operands. The text that a function returns is taken to
    be as long as all its arguments together, except that `lpad` and `rpad` fill it up to a constant length."""
    own = float(_NUMBER)
    if not pa.types.is_primitive(operation.type):
        own += sum(operands) if operation.name == "call" else max(operands)
    if operation.name == "call" and operation.parameters[0] in ("lpad", "rpad"):
        length = operation.operands[1]
        own += _CHARACTER * max(0, length.value) if isinstance(length, Constant) and length.value else 0
    return own
