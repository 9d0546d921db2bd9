"""Executes a query with aggregates: over all rows, or over groups of rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.errors import NeedsSparkError
from pipelines.lake.column_types import spark_name
from pipelines.local_sql import decimals
from pipelines.local_sql.expressions import evaluable, is_discrete
from pipelines.local_sql.ordering import KEPT_ROWS, check_names, check_ordered, ordered, place_of
from pipelines.local_sql.syntax import Aggregate, Computed, Path, Select, SortKey, Value, placeholder
from pipelines.local_sql.tables import LocalTable
from rules_index.errors import RuleError

_INT64 = (-(1 << 63), (1 << 63) - 1)
_EXACT = 1 << 53
"""The sum of magnitudes below which a sum of integers as DOUBLEs is exact in any order."""
_Measure = tuple[str, str]
"""A function of rows, and the key of what it is applied to; `("count", "")` counts rows."""
_PARTS = {"avg": ("sum", "count", "magnitude")}
"""The measures that an aggregate is made of, if that is not the one with its name."""


def aggregated(table: LocalTable, query: Select) -> pa.Table:
    """The result of a query with groups or aggregates; NeedsSparkError if only Spark can compute it exactly."""
    return _Aggregation(table, query).result()


class _Aggregation:
    """One query: what it asks for, partial aggregates of batches of rows, and the values of its groups."""

    def __init__(self, table: LocalTable, query: Select) -> None:
        self.table, self.query = table, query
        if query.is_distinct and (query.group_by or query.having):
            raise NeedsSparkError("it has DISTINCT groups")
        groups: Sequence[Path | Computed | int] = (
            range(1, len(query.items) + 1) if query.is_distinct else query.group_by
        )
        self.keys = list(dict.fromkeys(self._key(each) for each in groups))
        values = [item.value for item in query.items] + [
            key.by for key in query.order_by if not isinstance(key.by, int)
        ]
        values += [query.having] if query.having is not None else []
        asked = [each for value in values for each in _aggregates_in(value)]
        self.measures: list[_Measure] = list(dict.fromkeys(each for one in asked for each in self._measures_of(one)))
        self._read = list(dict.fromkeys([*self.keys, *(key for _, key in self.measures if key)]))
        # the names of columns in frames: Polars would take one such as ^x$ for a pattern
        self._names = {name: f"c{place}" for place, name in enumerate(self._read)}
        self._names_of_measures = {measure: f"m{place}" for place, measure in enumerate(self.measures)}

    def result(self) -> pa.Table:
        """One row per group, or a single row without keys."""
        read = self._read or [self.table.plainest_column]
        schema = pa.schema([pa.field(name, self.table.type_of(name)) for name in read])
        parts, combined, waiting = [self._partial(schema.empty_table())], 0, 0
        for rows in self.table.batches(read, self.table.condition(self.query.where)):
            parts.append(self._partial(rows))
            waiting += rows.num_rows
            # each time as many rows as before, or combining many groups again and again would take most of the time
            if waiting > max(KEPT_ROWS, combined):
                parts, combined, waiting = [self._combined(parts)], combined + waiting, 0
        groups = self._finished(self._combined(parts))
        if self.query.having is not None:
            holds = self._value(self.query.having, groups, is_behind=True)
            if not pa.types.is_boolean(holds.type):
                raise NeedsSparkError("HAVING has no condition")
            groups = groups.filter(pc.fill_null(holds, False))
        items = self.query.items
        shown = [self._value(item.value, groups) for item in items]
        keys = [self._sorted_by(key, shown, groups) for key in self.query.order_by]
        for column in keys:
            check_ordered(column.type)
        found = pa.Table.from_arrays([*shown, *keys], names=[str(place) for place in range(len(shown) + len(keys))])
        if keys:
            named = [(str(len(shown) + place), key) for place, key in enumerate(self.query.order_by)]
            found = ordered(found, named, self.query.limit)
        elif self.query.limit is not None:
            found = found.slice(0, self.query.limit)
        return found.select(range(len(shown))).rename_columns([item.name for item in items])

    # What is asked for

    def _key(self, each: Path | Computed | int) -> str:
        """The key of what rows are grouped by: a column, an expression, or an item by its place or alias."""
        value: Value
        if isinstance(each, int):
            value = self.query.items[place_of(each, len(self.query.items))].value
        else:
            value = self._of_alias(each) or each
        if isinstance(value, Aggregate) or (isinstance(value, Computed) and value.aggregates):
            raise NeedsSparkError("it groups by an aggregate")
        name = self.table.key_of(value)
        kind = self.table.type_of(name)
        if not (is_discrete(kind) or pa.types.is_boolean(kind)) or self.table.is_constant(name):
            raise NeedsSparkError(f"only Spark groups by values of the type {spark_name(kind)}, or by constants")
        return name

    def _of_alias(self, each: Path | Computed) -> Value | None:
        """What an alias stands for; a column of the table comes first."""
        if not isinstance(each, tuple) or len(each) > 1 or self.table.has_column(each[0]):
            return None
        found = [item for item in self.query.items if item.name.lower() == each[0].lower()]
        return found[0].value if len(found) == 1 and found[0].alias is not None else None

    def _measures_of(self, asked: Aggregate) -> list[_Measure]:
        """The measures of an aggregate. NeedsSparkError if only Spark computes it."""
        if asked.value is None:
            return [(asked.function, "")]
        name = self.table.key_of(asked.value)
        kind = self.table.type_of(name)
        if asked.function not in _KNOWN or not _KNOWN[asked.function](kind):
            raise NeedsSparkError(f"only Spark computes {asked.function} of the type {spark_name(kind)}")
        parts = _PARTS.get(asked.function, (asked.function,))
        is_long = pa.types.is_decimal(kind) and kind.precision > decimals.LONGEST_IN_DOUBLES
        return [(part, name) for part in parts if not (is_long and part == "magnitude")]

    # Partial aggregates of some rows

    def _partial(self, rows: pa.Table) -> pl.DataFrame:
        """The partial aggregates of some rows."""

        def measured(measure: _Measure) -> pl.Expr:
            function, key = measure
            return _OF_ROWS[function](pl.col(self._names[key])) if key else pl.len().cast(pl.Int64)

        frame = pl.DataFrame(
            pl.from_arrow(rows.rename_columns([self._names.get(name, name) for name in rows.column_names]))
        )
        return self._grouped(frame, measured)

    def _combined(self, parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """The partial aggregates of several parts, combined."""
        return self._grouped(
            pl.concat(parts), lambda measure: _OF_PARTS[measure[0]](pl.col(self._names_of_measures[measure]))
        )

    def _grouped(self, rows: pl.DataFrame, measured: Callable[[_Measure], pl.Expr]) -> pl.DataFrame:
        found = [measured(measure).alias(name) for measure, name in self._names_of_measures.items()]
        if self.keys:
            return rows.group_by([self._names[key] for key in self.keys]).agg(found)
        # a list is one value here, and one value for each group there
        return rows.select(
            [
                each.implode() if measure[0] == "count_distinct" else each
                for measure, each in zip(self.measures, found, strict=True)
            ]
        )

    def _finished(self, groups: pl.DataFrame) -> pa.Table:
        """The groups' keys and measures, named as in frames; NeedsSparkError if a sum exceeds BIGINT."""
        columns = {}
        for key in self.keys:
            columns[self._names[key]] = groups[self._names[key]].to_arrow().cast(self.table.type_of(key))
        for (function, key), name in self._names_of_measures.items():
            column = groups[name]
            if function == "magnitude":
                if (column >= _EXACT).any():
                    raise NeedsSparkError("an average is of numbers beyond 2^53")
            elif function in ("min", "max"):
                columns[name] = column.to_arrow().cast(self.table.type_of(key))
            elif function == "count_distinct":
                columns[name] = column.list.len().cast(pl.Int64).to_arrow()
            elif function == "sum" and pa.types.is_decimal(self.table.type_of(key)):
                columns[name] = decimals.sums_of(column, self.table.type_of(key))
            elif not column.is_between(*_INT64).all():
                raise NeedsSparkError("a sum is beyond BIGINT")
            else:
                columns[name] = column.cast(pl.Int64).to_arrow()
        # a table without columns would not know its number of rows
        return pa.table({**columns, "rows": pa.nulls(groups.height)})

    # Values of groups

    def _value(self, value: Value, groups: pa.Table, is_behind: bool = False) -> pa.ChunkedArray:
        """A value for each group; `is_behind`: it may name the result's columns."""
        if is_behind:
            check_names(self.table, self.query.items)
        if isinstance(value, Aggregate):
            return self._aggregate(value, groups)
        if isinstance(value, tuple):
            key = self.table.key_of(value)
            if key not in self.keys:
                raise NeedsSparkError(f"{'.'.join(value)} is not grouped by")
            return groups.column(self._names[key])
        if not value.aggregates:
            with suppress(NeedsSparkError, RuleError):
                key = self.table.key_of(value)
                if key in self.keys:
                    return groups.column(self._names[key])
        return self._over_groups(value, groups, is_behind)

    def _over_groups(self, value: Computed, groups: pa.Table, is_behind: bool) -> pa.ChunkedArray:
        """An expression over the keys that are columns, its aggregates and, if `is_behind`, the result's columns."""
        columns = {key: groups.column(self._names[key]) for key in self.keys if self.table.has_column(key)}
        for item in self.query.items if is_behind else ():
            if item.name in columns and not item.is_plain:
                raise NeedsSparkError(f"several columns of the result are called {item.name}")
            if not item.is_plain:
                columns[item.name] = self._value(item.value, groups)
        for number, each in enumerate(value.aggregates):
            columns[placeholder(number)] = self._aggregate(each, groups)
        found = pa.table({**columns, "\1rows": groups.column("rows")})
        text = self.table.unqualified(value.text)
        return pa.chunked_array([evaluable(text, found.schema.remove(len(columns)), self.table.zone).values(found)])

    def _aggregate(self, asked: Aggregate, groups: pa.Table) -> pa.ChunkedArray:
        columns = [
            groups.column(self._names_of_measures[measure])
            for measure in self._measures_of(asked)
            if measure[0] != "magnitude"
        ]
        if asked.function != "avg" or asked.value is None:
            return columns[0]
        kind = self.table.type_of(self.table.key_of(asked.value))
        if pa.types.is_decimal(kind):
            return pa.chunked_array([decimals.means_of(columns[0], columns[1], kind, self.table.zone)])
        return pc.divide(columns[0].cast(pa.float64()), columns[1].cast(pa.float64()))

    def _sorted_by(self, key: SortKey, shown: Sequence[pa.ChunkedArray], groups: pa.Table) -> pa.ChunkedArray:
        """The values of a sort key: a column of the result, or else another value of the groups."""
        if isinstance(key.by, int):
            return shown[place_of(key.by, len(shown))]
        # behind HAVING and DISTINCT, Spark sorts by columns of the result alone
        is_free = self.query.having is None and not self.query.is_distinct
        if not isinstance(key.by, tuple):
            if not is_free:
                raise NeedsSparkError("it sorts by an expression behind HAVING or DISTINCT")
            return self._value(key.by, groups, is_behind=True)
        path = self.table.unqualified_path(key.by)
        places = [place for place, item in enumerate(self.query.items) if item.name.lower() == path[0].lower()]
        is_clear = len(places) == 1 and (path == key.by or self.query.items[places[0]].is_plain)
        if places and not (is_clear and len(path) == 1):
            raise NeedsSparkError(f"{path[0]} is a column of the result, too")
        if not places and not is_free:
            raise NeedsSparkError(f"{path[-1]} is not in the result")
        return shown[places[0]] if places else self._value(path, groups)


def _aggregates_in(value: Value) -> tuple[Aggregate, ...]:
    if isinstance(value, Aggregate):
        return (value,)
    return value.aggregates if isinstance(value, Computed) else ()


def _is_ordered(kind: pa.DataType) -> bool:
    return is_discrete(kind) or bool(pa.types.is_floating(kind))


def _is_summed(kind: pa.DataType) -> bool:
    """True for integers, and for decimals that are short enough for a sum of any number of them."""
    return bool(pa.types.is_integer(kind) or (pa.types.is_decimal(kind) and kind.precision <= decimals.LONGEST))


_KNOWN: dict[str, Callable[[pa.DataType], bool]] = {
    "count": lambda kind: True,
    "count_distinct": lambda kind: is_discrete(kind) or pa.types.is_boolean(kind),
    "count_if": pa.types.is_boolean,
    "min": _is_ordered,
    "max": _is_ordered,
    "sum": _is_summed,
    "avg": _is_summed,
}
"""Which types each aggregate is computed of."""


def _sum(column: pl.Expr) -> pl.Expr:
    """The sum of integers, or of the digits of decimals, in 128 bits; NULL if all are NULL."""
    return pl.when(column.count() > 0).then(column.to_physical().cast(pl.Int128).sum())


_OF_ROWS: dict[str, Callable[[pl.Expr], pl.Expr]] = {
    "count": lambda column: column.count().cast(pl.Int64),
    "count_distinct": lambda column: column.drop_nulls().unique(),
    "count_if": lambda column: column.sum().cast(pl.Int64),
    "min": pl.Expr.min,
    "max": pl.Expr.nan_max,
    "sum": _sum,
    "magnitude": lambda column: column.to_physical().cast(pl.Int128).abs().sum(),
}
"""As in Spark, NaN is above all numbers; which of 0.0 and -0.0 is the result depends on the order of rows in both."""
_OF_PARTS: dict[str, Callable[[pl.Expr], pl.Expr]] = {
    **_OF_ROWS,
    "count": pl.Expr.sum,
    "count_distinct": lambda column: column.explode().drop_nulls().unique(),
    "count_if": pl.Expr.sum,
    "magnitude": pl.Expr.sum,
}
"""How the measures of parts are combined."""
