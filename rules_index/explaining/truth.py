"""Evaluates formulas on rows, with SQL's three truth values and a fourth one for evaluation that raised."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from rules_index.domains.region_codes import integer_keys
from rules_index.domains.values import Key, ValueSet, is_bytes
from rules_index.language.constants import clamp
from rules_index.language.evaluation.evaluate import evaluate
from rules_index.language.evaluation.evaluated import Evaluated
from rules_index.language.formula import And, Fixed, Formula, Not, Predicate
from rules_index.language.typed import Expression

FALSE, TRUE, NULL, RAISED = range(4)
"""Truth codes, int8. For a match, RAISED counts as NULL."""
_NEGATED = np.array([TRUE, FALSE, NULL, RAISED], np.int8)
VALUES: dict[int, bool | str | None] = {FALSE: False, TRUE: True, NULL: None, RAISED: "error"}
"""The value of each truth code in an explanation."""


class Truths:
    """Evaluates formulas on some rows, given the values of their leaves by name; common parts are evaluated once."""

    def __init__(self, inputs: Mapping[str, Evaluated], rows: int) -> None:
        self.rows = rows
        self._inputs = inputs
        self._cache: dict[Expression, Evaluated] = {}

    def of(self, formula: Formula) -> np.ndarray:
        """Truth codes [rows] int8."""
        if isinstance(formula, Predicate):
            return self._predicate(formula)
        if isinstance(formula, Fixed):
            return np.full(self.rows, int(formula.truth), np.int8)
        if isinstance(formula, Not):
            return negated(self.of(formula.operand))
        parts = [self.of(operand) for operand in formula.operands]
        return all_of(parts, self.rows) if isinstance(formula, And) else any_of(parts, self.rows)

    def value(self, expression: Expression) -> Evaluated:
        """The values of an expression."""
        return evaluate(expression, self._inputs, self.rows, self._cache)

    def _predicate(self, predicate: Predicate) -> np.ndarray:
        result = self.value(predicate.attribute)
        values = result.values.combine_chunks() if isinstance(result.values, pa.ChunkedArray) else result.values
        missing = np.asarray(values.is_null())
        truth = np.full(self.rows, NULL, np.int8)
        truth[_members(values, missing, predicate.false)] = FALSE
        truth[_members(values, missing, predicate.true)] = TRUE
        truth[missing] = int(predicate.null)
        if result.raised is not None:
            truth[result.raised] = RAISED
        return truth


def _members(values: pa.Array, missing: np.ndarray, wanted: ValueSet) -> np.ndarray:
    """Returns which values [rows] bool are in a set; meaningless for NULLs."""
    wanted = clamp(wanted, values.type)
    if not wanted.cuts:
        return np.full(len(values), wanted.start)
    if is_bytes(values.type):
        below = [0 if key is None else bisect.bisect_right(wanted.cuts, key) for key in keys_of(values)]
        return wanted.start ^ (np.array(below, np.int64) % 2 == 1)
    keys = np.where(missing, 0, integer_keys(values, values.type)).astype(np.int64)
    return wanted.start ^ (np.searchsorted(np.array(wanted.cuts, np.int64), keys, side="right") % 2 == 1)


def keys_of(values: pa.Array) -> list[Key | None]:
    """The keys (`domains.values`) of values; None for NULL."""
    if is_bytes(values.type):
        return [None if value is None else _bytes_key(value) for value in values.to_pylist()]
    missing = np.asarray(values.is_null()).tolist()
    keys = integer_keys(values, values.type).tolist()
    return [None if null else int(key) for key, null in zip(keys, missing, strict=True)]


def _bytes_key(value: Any) -> Key:
    if isinstance(value, Decimal):
        sign, digits, _ = value.as_tuple()
        unscaled = int("".join(map(str, digits)))
        return -unscaled if sign else unscaled
    return value.encode() if isinstance(value, str) else value


def negated(truth: np.ndarray) -> np.ndarray:
    """NOT of truth codes."""
    return _NEGATED[truth]


def all_of(parts: Iterable[np.ndarray], rows: int) -> np.ndarray:
    """AND of truth codes [rows] int8; TRUE of none."""
    return _reduced(parts, rows, TRUE, FALSE)


def any_of(parts: Iterable[np.ndarray], rows: int) -> np.ndarray:
    """OR of truth codes [rows] int8; FALSE of none."""
    return _reduced(parts, rows, FALSE, TRUE)


def _reduced(parts: Iterable[np.ndarray], rows: int, neutral: int, decisive: int) -> np.ndarray:
    """The decisive value if a part has it, else RAISED, else NULL, else the neutral value."""
    found = np.full(rows, neutral, np.int8)
    raised, decided = np.zeros(rows, bool), np.zeros(rows, bool)
    for part in parts:
        found[part == NULL] = NULL
        raised |= part == RAISED
        decided |= part == decisive
    found[raised] = RAISED
    found[decided] = decisive
    return found
