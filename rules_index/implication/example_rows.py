"""Makes rows of real values with wanted codes, and reads the codes that rows really have.

A column that is an attribute itself gets a value of the wanted region. The value of an expression can only be aimed at:
its columns are drawn from values near the constants that it is compared with, and its code is read afterwards.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rules_index.domains.values import decimals
from rules_index.implication.null_propagation import columns_needed
from rules_index.implication.region_boxes import Codes
from rules_index.index.compiled import CompiledRules
from rules_index.language.constants import domain
from rules_index.language.evaluation.evaluate import evaluate
from rules_index.language.evaluation.evaluated import Evaluated
from rules_index.language.patterns.like import text_like
from rules_index.language.scope import Scope
from rules_index.language.typed import Expression, Leaf, Operation, leaves_of

_TEXTS = ("", "a", "b", "ab", "aa", "abc", "1", "42", " ", ".", "\n")
_NULLS = 0.15
"""The share of NULL among values that are drawn."""


NO_VALUE = -2
"""Stands for one of an attribute's last two codes: it is NULL, or its evaluation failed."""


class ExampleRows:
    """Makes rows for the attributes of a compiled rule set, from a seed.

    scope: the rules'; if given, columns that only derived columns need are made, too, as NULL.
    """

    def __init__(self, compiled: CompiledRules, codes: Codes, scope: Scope | None = None, seed: int = 0) -> None:
        self._compiled = compiled
        self._codes = codes
        self._random = np.random.default_rng(seed)
        self.columns = tuple(leaf for leaf in compiled.inputs if leaf.text is None)
        self._number = {
            attribute: number for number, attribute in enumerate(compiled.attributes) if isinstance(attribute, Leaf)
        }
        self.column_attributes = np.array(sorted(self._number.values()), np.int64)
        """The attributes [.] that are columns themselves."""
        apart = {leaf for leaf in self.columns if not any(_lies_within(other, leaf) for other in self.columns)}
        self.computable = np.array(
            [all(leaf in apart for leaf in leaves_of(each)) for each in compiled.attributes], bool
        )
        """Which attributes [attributes] bool can be computed from the columns here, without Spark."""
        self._needs: dict[int, list[Leaf]] = {}
        for number in np.flatnonzero(~self.computable).tolist():
            found = columns_needed(compiled.attributes[number], scope) if scope is not None else ()
            columns = sorted(found, key=lambda leaf: leaf.name)
            self._needs[number] = [leaf for leaf in columns if leaf in apart or self._is_new(leaf)]
            self.columns += tuple(leaf for leaf in self._needs[number] if leaf not in self.columns)
        computed = [a for a in compiled.attributes if isinstance(a, Operation)]
        self.is_plain = self.computable.all() and not computed
        """Whether each attribute is a column, so that every combination of codes occurs in some row."""
        self._pools = {
            leaf: self._pool(leaf, dict.fromkeys(a for a in computed if leaf in leaves_of(a)))
            for leaf in {leaf for attribute in computed for leaf in leaves_of(attribute) if leaf.text is None}
        }

    def table(self, wanted: np.ndarray, free: np.ndarray | None = None) -> pa.Table:
        """Makes rows in which columns that are attributes have the wanted codes, NULL for -1. Other columns are drawn
        at random.

        wanted: [n, rows] int32, for the n `column_attributes`; free: [rows] bool, rows in which columns that are
        attributes are drawn, too, if an expression reads them.
        """
        columns = []
        for leaf in self.columns:
            number = self._number.get(leaf)
            if number is None:
                columns.append(self._drawn(leaf, wanted.shape[1]))
                continue
            region = self._region(number, wanted[np.searchsorted(self.column_attributes, number)])
            values = self._codes.values[number]
            column = values.take(pa.array(region, mask=(region < 0) | (region >= len(values))))
            if free is not None and leaf in self._pools:
                column = pc.if_else(pa.array(free), self._drawn(leaf, wanted.shape[1]), column)
            columns.append(column)
        names = [leaf.name for leaf in self.columns]
        return pa.Table.from_arrays([*columns, pa.nulls(wanted.shape[1])], [*names, ""]).select(names)

    def read(self, table: pa.Table, dimensions: np.ndarray) -> np.ndarray:
        """The codes [n, rows] int32 of rows made here, in some dimensions [n] int64. The code of an attribute that
        cannot be computed here is `NO_VALUE` if a column that it needs is NULL, else -1; that of a shared disjunction
        is always -1."""
        rows = table.num_rows
        codes = np.full((len(dimensions), rows), -1, np.int32)
        values = {leaf.name: Evaluated(table.column(leaf.name).combine_chunks()) for leaf in self.columns}
        cache: dict[Expression, Evaluated] = {}
        found = np.empty(rows, np.int32)
        for place, number in enumerate(dimensions.tolist()):
            if number < len(self.computable) and self.computable[number]:
                result = evaluate(self._compiled.attributes[number], values, rows, cache)
                self._compiled.regions[number].encode(_one(result.values), result.raised, found)
                codes[place] = self._codes.code[self._codes.old_start[number] + found]
            for leaf in self._needs.get(number, ()):
                codes[place, np.asarray(table.column(leaf.name).is_null())] = NO_VALUE
        return codes

    def _is_new(self, leaf: Leaf) -> bool:
        """Whether a column is none of the present ones, nor a field of one, and contains none."""
        return not any(
            leaf == other or _lies_within(leaf, other) or _lies_within(other, leaf) for other in self.columns
        )

    def _region(self, number: int, codes: np.ndarray) -> np.ndarray:
        """The region codes of an attribute's codes, -1 for -1."""
        regions = self._codes.region[self._codes.start[number] : self._codes.start[number + 1]]
        return np.where(codes < 0, -1, regions[codes])

    def _drawn(self, leaf: Leaf, rows: int) -> pa.Array:
        pool = self._pools.get(leaf)
        if pool is None or len(pool) == 0:
            return pa.nulls(rows, leaf.type)
        places = self._random.integers(0, len(pool), rows)
        return pool.take(pa.array(places, mask=self._random.random(rows) < _NULLS))

    def _pool(self, leaf: Leaf, readers: Collection[Expression]) -> pa.Array:
        """The values to draw from for a column: a value of each of its own regions, values near those of expressions
        that read it and of attributes of its type, and usual ones."""
        parts = [self._codes.values[self._number[leaf]]] if leaf in self._number else []
        near: list[Any] = []
        for number, attribute in enumerate(self._compiled.attributes):
            if attribute in readers or (attribute.type == leaf.type and self.computable[number]):
                near.append(self._codes.values[number])
        parts += [found for each in near if (found := _like(each, leaf.type)) is not None]
        parts.append(_usual(leaf.type, readers))
        pool = pc.drop_null(pa.concat_arrays(parts))
        return pool if pa.types.is_nested(leaf.type) else pc.unique(pool)


def _lies_within(leaf: Leaf, other: Leaf) -> bool:
    """Whether a column is a field of another, so that their values depend on each other."""
    return leaf.name.startswith(f"{other.name}.")


def _one(values: Any) -> pa.Array:
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values


def _like(values: pa.Array, data_type: pa.DataType) -> pa.Array | None:
    """Values of one type as another one: numbers together with one less and one more each; None if they are not
    numbers. Values that have the type already are returned as they are."""
    if values.type == data_type:
        return values
    if not (_is_number(values.type) and _is_number(data_type)):
        return None
    numbers = pc.drop_null(values.cast(pa.float64(), safe=False)).to_numpy()
    return _numbers(np.concatenate([numbers - 1, numbers, numbers + 1]), data_type)


def _usual(data_type: pa.DataType, readers: Iterable[Expression]) -> pa.Array:
    """Values that most expressions distinguish: a few neighbours, both extremes, and strings that their patterns
    match."""
    t = pa.types
    if t.is_string(data_type) or t.is_binary(data_type):
        patterns = [reader.parameters for reader in readers if isinstance(reader, Operation) and reader.parameters]
        texts = [*_TEXTS, *(text_like(str(pattern), *map(str, rest[:1])) for pattern, *rest in patterns)]
        return pa.array([text.encode() for text in texts] if t.is_binary(data_type) else texts, data_type)
    if t.is_boolean(data_type):
        return pa.array([False, True])
    if _is_number(data_type):
        return _numbers(np.array([-1.0, 0.0, 1.0, 2.0, -np.inf, np.inf]), data_type)
    if t.is_date32(data_type) or t.is_timestamp(data_type):
        return pa.array(np.arange(3).astype(f"int{data_type.bit_width}")).view(data_type)
    if t.is_nested(data_type):
        return pa.array([{}] if t.is_struct(data_type) else [[]], data_type)
    return pa.array([], data_type)


def _is_number(data_type: pa.DataType) -> bool:
    t = pa.types
    return bool(t.is_integer(data_type) or t.is_floating(data_type) or t.is_decimal(data_type))


def _numbers(numbers: np.ndarray, data_type: pa.DataType) -> pa.Array:
    """Doubles as values of a numeric type, clamped to its range and rounded."""
    if pa.types.is_floating(data_type):
        with np.errstate(over="ignore"):
            return pa.array(numbers.astype(data_type.to_pandas_dtype()))
    least, greatest = domain(data_type)
    assert isinstance(least, int) and isinstance(greatest, int)
    scale = data_type.scale if pa.types.is_decimal(data_type) else 0
    units = [
        greatest if each == np.inf else least if each == -np.inf else min(max(int(each * 10**scale), least), greatest)
        for each in numbers.tolist()
        if each == each
    ]
    return decimals(units, data_type) if pa.types.is_decimal(data_type) else pa.array(units, data_type)
