"""Executes a query without aggregates: its columns and expressions, filtered, sorted and limited."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa

from pipelines.errors import NeedsSparkError
from pipelines.local_sql.aggregation import aggregated
from pipelines.local_sql.joined_tables import JoinedTables
from pipelines.local_sql.ordering import KEPT_ROWS, check_names, check_ordered, ordered, place_of
from pipelines.local_sql.subqueries import resolved
from pipelines.local_sql.syntax import Aggregate, Computed, Item, Path, Select, SortKey
from pipelines.local_sql.tables import LocalTable
from pipelines.workspace import Workspace


def select(workspace: Workspace, query: Select) -> pa.Table:
    """The result of a query; NeedsSparkError if only Spark can compute it exactly."""
    table = LocalTable(workspace, query.table) if query.join is None else JoinedTables(workspace, query)
    for view in query.views:
        table.explode(view)
    if query.where is not None:
        found = resolved(query.where, partial(select, workspace))
        query = replace(query, where=found.where)
        table.use_lists(found.lists)
        if found.unfolded != found.where:
            table.condition(found.unfolded)
    items = tuple(each for item in query.items for each in _expanded(table, item))
    query = replace(query, items=items)
    table.aliases = tuple(item.name for item in items if not item.is_plain)
    return aggregated(table, query) if query.is_grouped else _rows(table, query)


def _expanded(table: LocalTable, item: Item) -> list[Item]:
    """The items that an item stands for; a column is named without the table."""
    if not isinstance(item.value, tuple):
        if isinstance(item.value, Aggregate) and isinstance(item.value.value, tuple):
            path = table.unqualified_path(item.value.value)
            named = replace(item, value=replace(item.value, value=table.shown_path(path)))
            return [Item(replace(item.value, value=path), named.name)]
        return [item]
    if item.is_star and not item.value:
        return [Item(path) for path in table.all_columns()]
    if item.is_star and table.is_qualifier(item.value):
        return [Item((name,)) for name in table.stored_schema.names]
    path = table.unqualified_path(item.value)
    return [Item(field) for field in table.fields_of(path)] if item.is_star else [replace(item, value=path)]


def _rows(table: LocalTable, query: Select) -> pa.Table:
    items = query.items
    columns = [table.key_of(_of_rows(item.value)) for item in items]
    keys = [(_sorted_by(table, key, columns, items), key) for key in query.order_by]
    for name, _ in keys:
        check_ordered(table.type_of(name))
    read = list(dict.fromkeys([*columns, *(name for name, _ in keys)]))
    enough = query.limit if query.limit is not None and not keys else None
    kept = table.condition(query.where)
    parts = [pa.schema([pa.field(name, table.type_of(name)) for name in read]).empty_table()]
    for part in table.batches(read, kept, *(() if enough is None else (enough,))):
        parts.append(part)
        if keys and query.limit is not None and sum(map(len, parts)) > max(KEPT_ROWS, 4 * query.limit):
            parts = [ordered(pa.concat_tables(parts), keys, query.limit)]
    found = pa.concat_tables(parts)
    found = ordered(found, keys, query.limit) if keys else found
    return pa.Table.from_arrays([found.column(name) for name in columns], names=[item.name for item in items])


def _of_rows(value: Path | Computed | Aggregate) -> Path | Computed:
    if isinstance(value, Aggregate):
        raise NeedsSparkError("it has an aggregate where there are rows")
    return value


def _sorted_by(table: LocalTable, key: SortKey, columns: Sequence[str], items: Sequence[Item]) -> str:
    """The key of what a sort key names: a column of the result, or else one of the table."""
    if isinstance(key.by, int):
        return columns[place_of(key.by, len(columns))]
    if not isinstance(key.by, tuple):
        # Spark looks for names in the result first
        check_names(table, items)
        found = table.key_of(_of_rows(key.by))
        if table.is_constant(found):
            raise NeedsSparkError("it sorts by a constant")
        return found
    path = table.unqualified_path(key.by)
    if path != key.by and any(item.name.lower() == path[0].lower() and not item.is_plain for item in items):
        raise NeedsSparkError(f"{path[0]} is a column of the result, too")
    places = [place for place, item in enumerate(items) if item.name.lower() == path[0].lower()]
    named = [columns[place] for place in places]
    # Spark tells aliases and fields of one name apart even if they are the same, and then looks for it in the table
    if len(set(named)) > 1 or (len(named) > 1 and not all(items[place].is_plain for place in places)):
        raise NeedsSparkError(f"several columns of the result are called {path[0]}")
    if len(path) == 1 and named:
        return named[0]
    found = table.key_of(path)
    if named and named[0] != table.key_of(path[:1]):
        raise NeedsSparkError(f"{path[0]} is a column of the result, too")
    return found
