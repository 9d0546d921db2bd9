"""Rules and rows for the benchmarks: conjunctions of five ranges over integer columns, drawn from a seed.

A rule set is three arrays [rules, 5] int32 (attribute, low, high; both ends belong to the range), from which the
texts for every system are written, so that all of them run the same rules.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

COLUMNS = 20
VALUES = 100
PREDICATES = 5
ACCOUNT = 0
"""The column that every rule of an account workload names with a value of its own."""


@dataclass(frozen=True)
class Workload:
    """Rules and the rows that they are matched with.

    `rows` [rows, COLUMNS] int32; `attributes`, `low`, `high` [rules, PREDICATES] int32.
    """

    name: str
    rows: np.ndarray
    attributes: np.ndarray
    low: np.ndarray
    high: np.ndarray
    most: int = VALUES - 1

    def __len__(self) -> int:
        """Number of rules."""
        return len(self.attributes)

    def table(self) -> pa.Table:
        """The rows as columns c0, c1, ... of type int32."""
        return pa.table({name: np.ascontiguousarray(self.rows[:, i]) for i, name in enumerate(names())})

    def texts(self, rules: slice = slice(None)) -> list[str]:
        """The rules as SQL conditions."""
        parts = zip(self.attributes[rules].tolist(), self.low[rules].tolist(), self.high[rules].tolist(), strict=True)
        return [
            " AND ".join(self._predicate(*p) for p in zip(attributes, low, high, strict=True))
            for attributes, low, high in parts
        ]

    def _predicate(self, attribute: int, low: int, high: int) -> str:
        if low == high:
            return f"c{attribute} = {low}"
        if low == 0:
            return f"c{attribute} <= {high}"
        if high >= VALUES - 1:
            return f"c{attribute} >= {low}"
        return f"c{attribute} BETWEEN {low} AND {high}"

    def first(self, rows: int) -> Workload:
        """The same rules over the first rows only."""
        return Workload(self.name, self.rows[:rows], self.attributes, self.low, self.high, self.most)


def names() -> list[str]:
    """The columns' names."""
    return [f"c{i}" for i in range(COLUMNS)]


def ranges(rules: int, rows: int, seed: int = 7) -> Workload:
    """Three predicates of ten are equalities; the others are open to one side or a tenth of the values wide."""
    choice = np.random.default_rng([seed, rules])
    attributes = np.argsort(choice.random((rules, COLUMNS)), axis=1)[:, :PREDICATES].astype(np.int32)
    low, high = _bounds(choice, (rules, PREDICATES), equalities=0.3)
    values = np.random.default_rng(seed).integers(0, VALUES, (rows, COLUMNS), dtype=np.int32)
    return Workload("ranges", values, attributes, low, high)


def accounts(rules: int, rows: int, seed: int = 7) -> Workload:
    """Every rule names an account of its own by equality, and four ranges; each row belongs to one of the accounts."""
    choice = np.random.default_rng([seed, rules, 1])
    others = 1 + np.argsort(choice.random((rules, COLUMNS - 1)), axis=1)[:, : PREDICATES - 1]
    low, high = _bounds(choice, (rules, PREDICATES - 1), equalities=0.0)
    account = choice.permutation(rules).astype(np.int32)[:, None]
    values = choice.integers(0, VALUES, (rows, COLUMNS), dtype=np.int32)
    values[:, ACCOUNT] = choice.integers(0, rules, rows)
    attributes = np.concatenate([np.zeros_like(account), others.astype(np.int32)], axis=1)
    return Workload(
        "accounts", values, attributes, np.concatenate([account, low], 1), np.concatenate([account, high], 1), rules - 1
    )


def _bounds(choice: np.random.Generator, shape: tuple[int, int], equalities: float) -> tuple[np.ndarray, np.ndarray]:
    value = choice.integers(0, VALUES, shape)
    kind = choice.integers(0, 3, shape)
    equal = choice.random(shape) < equalities
    half = VALUES // 16
    low = np.select([equal, kind == 0, kind == 1], [value, 0, value], np.maximum(0, value - half))
    high = np.select([equal, kind == 0, kind == 1], [value, value, VALUES - 1], np.minimum(VALUES - 1, value + half))
    return low.astype(np.int32), high.astype(np.int32)


def brute_force(workload: Workload) -> np.ndarray:
    """Matches per rule [rules] int64: one pass of NumPy for every rule."""
    columns = np.ascontiguousarray(workload.rows.T)
    counts = np.zeros(len(workload), np.int64)
    for rule in range(len(workload)):
        rows = np.arange(columns.shape[1])
        for k in range(PREDICATES):
            values = columns[workload.attributes[rule, k], rows]
            rows = rows[(values >= workload.low[rule, k]) & (values <= workload.high[rule, k])]
        counts[rule] = len(rows)
    return counts
