"""Executes a query of one table: columns or aggregates, filtered, grouped, sorted and limited."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import polars as pl
import pyarrow as pa

from pipelines.errors import NeedsSparkError
from pipelines.local_sql.syntax import Item, Path, Select, SortKey
from pipelines.local_sql.tables import LocalTable
from pipelines.workspace import Workspace

_KEPT_ROWS = 1 << 18
"""Number of rows in memory above which those that cannot be in the result are dropped."""
_INT64 = (-(1 << 63), (1 << 63) - 1)


def select(workspace: Workspace, query: Select) -> pa.Table:
    """The result of a query; NeedsSparkError if only Spark can compute it exactly."""
    table = LocalTable(workspace, query.table)
    query = replace(query, items=tuple(each for item in query.items for each in _expanded(table, item)))
    table.aliases = tuple(item.name for item in query.items if item.alias is not None or len(item.column or ()) > 1)
    if query.group_by or any(item.aggregate for item in query.items):
        return _Aggregation(table, query).result()
    return _rows(table, query)


def _expanded(table: LocalTable, item: Item) -> list[Item]:
    return [Item(path) for path in table.fields_of(item.column or ())] if item.is_star else [item]


def _rows(table: LocalTable, query: Select) -> pa.Table:
    items = query.items or tuple(Item((name,)) for name in table.schema.names)
    columns = [table.path(item.column or ()) for item in items]
    names = [item.name for item in items]
    keys = [(_sorted_by(table, key, columns, items), key) for key in query.order_by]
    for name, _ in keys:
        _check_ordered(table.type_of(name))
    read = list(dict.fromkeys([*columns, *(name for name, _ in keys)]))
    enough = query.limit if query.limit is not None and not keys else None
    kept = table.condition(query.where)
    parts = [pa.schema([pa.field(name, table.type_of(name)) for name in read]).empty_table()]
    for part in table.batches(read, kept, *(() if enough is None else (enough,))):
        parts.append(part)
        if keys and query.limit is not None and sum(map(len, parts)) > max(_KEPT_ROWS, 4 * query.limit):
            parts = [_ordered(pa.concat_tables(parts), keys, query.limit)]
    found = pa.concat_tables(parts)
    found = _ordered(found, keys, query.limit) if keys else found
    return pa.Table.from_arrays([found.column(name) for name in columns], names=names)


def _sorted_by(table: LocalTable, key: SortKey, columns: Sequence[str], items: Sequence[Item]) -> str:
    """The key of what a sort key names: a column of the result, or else one of the table."""
    if isinstance(key.by, int):
        return columns[_place(key.by, len(columns))]
    places = [place for place, item in enumerate(items) if item.name.lower() == key.by[0].lower()]
    named = [columns[place] for place in places]
    # Spark tells aliases and fields of one name apart even if they are the same, and then looks for it in the table
    if len(set(named)) > 1 or (len(named) > 1 and not all(items[place].is_plain for place in places)):
        raise NeedsSparkError(f"several columns of the result are called {key.by[0]}")
    if len(key.by) == 1 and named:
        return named[0]
    found = table.path(key.by)
    if named and named[0] != table.path(key.by[:1]):
        raise NeedsSparkError(f"{key.by[0]} is a column of the result, too")
    return found


def _place(number: int, count: int) -> int:
    if not 1 <= number <= count:
        raise NeedsSparkError(f"the result has no column {number}")
    return number - 1


def _check_ordered(kind: pa.DataType) -> None:
    t = pa.types
    if t.is_nested(kind) or t.is_binary(kind) or t.is_null(kind):
        raise NeedsSparkError(f"only Spark orders values of the type {kind}")


def _ordered(rows: pa.Table, keys: Sequence[tuple[str, SortKey]], limit: int | None) -> pa.Table:
    """The rows sorted, and limited; as in Spark, NaN is above all numbers, and 0.0 equals -0.0."""
    frame = pl.DataFrame(
        {str(place): pl.from_arrow(rows.column(name)) for place, (name, _) in enumerate(keys)}
    ).with_row_index("row")
    columns = [pl.col(name) for name in frame.columns[1:]]
    by = [each + 0.0 if frame.schema[each.meta.output_name()].is_float() else each for each in columns]
    descending, last = [key.descending for _, key in keys], [key.nulls_last for _, key in keys]
    order = frame.sort(by, descending=descending, nulls_last=last, maintain_order=True)["row"]
    chosen = order if limit is None else order.head(limit)
    return rows.take(pa.array(chosen.to_numpy().astype(np.int64)))


class _Aggregation:
    """Aggregates over all rows, or over groups of rows."""

    def __init__(self, table: LocalTable, query: Select) -> None:
        self.table, self.query = table, query
        if not query.items:
            raise NeedsSparkError("it groups all columns")
        self.keys = list(dict.fromkeys(self._key(each) for each in query.group_by))
        self.names = [item.name for item in query.items]
        self._shown = [table.path(item.column) if item.column and not item.aggregate else "" for item in query.items]
        for item in query.items:
            self._check(item)
        asked = (table.path(item.column) for item in query.items if item.column is not None)
        # a batch without columns would not know its number of rows
        self._read = list(dict.fromkeys([*self.keys, *asked])) or [table.plainest_column]
        # the names of columns in frames: Polars would take one such as ^x$ for a pattern
        self._names = {name: f"c{place}" for place, name in enumerate(self._read)}

    def result(self) -> pa.Table:
        """One row per group, or a single row without keys."""
        schema = pa.schema([pa.field(name, self.table.type_of(name)) for name in self._read])
        parts = [self._partial(schema.empty_table())]
        for rows in self.table.batches(self._read, self.table.condition(self.query.where)):
            parts.append(self._partial(rows))
            if sum(map(len, parts)) > _KEPT_ROWS:
                parts = [self._combined(parts)]
        found = self._finished(self._combined(parts))
        if self.query.order_by:
            keys = [(str(self._of_result(key)), key) for key in self.query.order_by]
            for name, _ in keys:
                _check_ordered(found.schema.field(name).type)
            found = _ordered(found, keys, self.query.limit)
        elif self.query.limit is not None:
            found = found.slice(0, self.query.limit)
        return found.rename_columns(self.names)

    def _key(self, each: Path | int) -> str:
        if isinstance(each, int):
            item = self.query.items[_place(each, len(self.query.items))]
            if item.aggregate is not None or item.column is None:
                raise NeedsSparkError(f"it groups by the aggregate {each}")
            each = item.column
        name = self.table.path(each)
        kind = self.table.type_of(name)
        if not (_is_discrete(kind) or pa.types.is_boolean(kind)):
            raise NeedsSparkError(f"only Spark groups by values of the type {kind}")
        return name

    def _check(self, item: Item) -> None:
        if item.column is None:
            return
        name = self.table.path(item.column)
        kind = self.table.type_of(name)
        if item.aggregate is None:
            known = name in self.keys
        elif item.aggregate == "sum":
            known = pa.types.is_integer(kind)
        else:
            known = item.aggregate == "count" or _is_discrete(kind) or pa.types.is_floating(kind)
        if not known:
            raise NeedsSparkError(f"only Spark computes {item.aggregate or 'a value'} of {'.'.join(item.column)}")

    def _of_result(self, key: SortKey) -> int:
        if isinstance(key.by, int):
            return _place(key.by, len(self.names))
        named = [place for place, name in enumerate(self.names) if name.lower() == key.by[0].lower()]
        if len(key.by) > 1 and not named:
            named = [place for place, name in enumerate(self._shown) if name == self.table.path(key.by)]
        elif len(key.by) > 1:
            raise NeedsSparkError(f"{key.by[0]} is a column of the result, too")
        if len(named) != 1:
            raise NeedsSparkError(f"the result does not have exactly one column {'.'.join(key.by)}")
        return named[0]

    def _partial(self, rows: pa.Table) -> pl.DataFrame:
        """The partial aggregates of some rows."""

        def aggregate(item: Item) -> pl.Expr:
            """The aggregate of an item over rows."""
            if item.column is None:
                return pl.len().cast(pl.Int64)
            column = pl.col(self._names[self.table.path(item.column)])
            if item.aggregate == "count":
                return column.count().cast(pl.Int64)
            return _AGGREGATES[item.aggregate or ""](column)

        return self._grouped(pl.DataFrame(pl.from_arrow(rows.rename_columns([*self._names.values()]))), aggregate)

    def _combined(self, parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """The partial aggregates of several parts, combined."""
        places = {id(item): str(place) for place, item in enumerate(self.query.items)}

        def aggregate(item: Item) -> pl.Expr:
            column = pl.col(places[id(item)])
            return column.sum() if item.aggregate == "count" else _AGGREGATES[item.aggregate or ""](column)

        return self._grouped(pl.concat(parts), aggregate)

    def _grouped(self, rows: pl.DataFrame, aggregate: Callable[[Item], pl.Expr]) -> pl.DataFrame:
        asked = [(str(place), item) for place, item in enumerate(self.query.items) if item.aggregate is not None]
        found = [aggregate(item).alias(place) for place, item in asked]
        return rows.group_by([self._names[key] for key in self.keys]).agg(found) if self.keys else rows.select(found)

    def _finished(self, groups: pl.DataFrame) -> pa.Table:
        """The columns of the result, named by their places; NeedsSparkError if a sum exceeds BIGINT."""
        columns, fields = [], []
        for place, item in enumerate(self.query.items):
            name = self.table.path(item.column) if item.column is not None else ""
            kind = self.table.type_of(name) if name else pa.int64()
            column = groups[self._names[name] if item.aggregate is None else str(place)]
            if item.aggregate in ("count", "sum"):
                kind = pa.int64()
                if not column.is_between(*_INT64).all():
                    raise NeedsSparkError("a sum is beyond BIGINT")
                column = column.cast(pl.Int64)
            columns.append(column.to_arrow().cast(kind))
            fields.append(pa.field(str(place), kind))
        return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def _is_discrete(kind: pa.DataType) -> bool:
    """True for integers, decimals, strings, dates and timestamps: types whose equal values are identical."""
    t = pa.types
    is_number = t.is_integer(kind) or t.is_decimal(kind)
    return bool(is_number or t.is_string(kind) or t.is_date(kind) or t.is_timestamp(kind))


def _sum(column: pl.Expr) -> pl.Expr:
    """The sum of integers in 128 bits; NULL if all are NULL."""
    return pl.when(column.count() > 0).then(column.cast(pl.Int128).sum())


_AGGREGATES: dict[str, Callable[[pl.Expr], pl.Expr]] = {"min": pl.Expr.min, "max": pl.Expr.nan_max, "sum": _sum}
"""As in Spark, NaN is above all numbers; which of 0.0 and -0.0 is the result depends on the order of rows in both."""
