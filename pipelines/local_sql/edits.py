"""Executes edits of `rules` and of lists (INSERT, UPDATE, DELETE), each statement in one commit."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from pipelines.error_texts import first_line
from pipelines.errors import NeedsSparkError, not_written
from pipelines.lake.authors import by_this_user
from pipelines.lake.reading import quoted, rewrite_alters_times
from pipelines.local_sql.syntax import Change, Insert, TableName
from pipelines.local_sql.tables import LocalTable, known_name
from pipelines.local_sql.values import value_of
from pipelines.table_definitions import RULES
from pipelines.workspace import Workspace
from rules_index.names import column_key

if TYPE_CHECKING:
    from deltalake import DeltaTable

_FEATURES = frozenset({"appendOnly", "invariants", "changeDataFeed", "checkConstraints", "generatedColumns"})
"""Features that a table edited here may have. `_editable` then looks for constraints and generated columns."""
_REFUSED_PROPERTIES = ("delta.constraints.", "delta.appendOnly", "delta.columnMapping.mode", "delta.identity.")
_MOST_NAMED = 1_000
"""Maximum number of rows that a commit's predicate names by their keys."""
_MOST_NAMED_WHOLE = 100
"""Maximum number of rows that a commit's predicate names by several columns."""
_ATTEMPTS = 20
"""Maximum number of attempts of a statement if others edit the table in the meantime."""
_AGAIN = "The statement has changed nothing: free some space and execute it again."


def insert(workspace: Workspace, statement: Insert) -> pa.Table:
    """Append the rows; returns a table without columns, as Spark does. TableError if the table cannot be written,
    NeedsSparkError for rows or a table that only Spark can judge or write."""
    from deltalake import write_deltalake

    def write(table: LocalTable) -> pa.Table:
        """Append the rows to one version of the table."""
        names = [table.column(name) for name in statement.columns or table.schema.names]
        if len(set(names)) < len(names) or any(len(row) != len(names) for row in statement.rows):
            raise NeedsSparkError("a row does not have one value for each column")
        kinds = [table.schema.field(name).type for name in names]
        given = {
            name: pa.array([value_of(row[place], kind, table.zone) for row in statement.rows], kind)
            for place, (name, kind) in enumerate(zip(names, kinds, strict=True))
        }
        columns = [given.get(field.name, pa.nulls(len(statement.rows), field.type)) for field in table.schema]
        rows = pa.Table.from_arrays(columns, schema=table.schema)
        write_deltalake(table.snapshot.writable(), rows, mode="append", commit_properties=by_this_user())
        return pa.table({})

    return committed(workspace, statement.table, write)


def change(workspace: Workspace, statement: Change) -> pa.Table:
    """Update or delete rows; returns how many. TableError if the table cannot be written."""

    def write(table: LocalTable) -> pa.Table:
        """Change the rows of one version of the table."""
        changes = _changes(table, statement)
        count, where = _chosen(table, statement)
        if count:
            _write(table, changes, where)
        return pa.table({"num_affected_rows": pa.array([count], pa.int64())})

    return committed(workspace, statement.table, write)


def committed(workspace: Workspace, name: TableName, write: Callable[[LocalTable], pa.Table]) -> pa.Table:
    """The result of `write` on the newest version of an editable table; tried again after a concurrent commit.

    TableError if the table cannot be written; NeedsSparkError if only Spark can write it.
    """
    from deltalake import exceptions

    for attempt in range(_ATTEMPTS):
        table = _editable(workspace, name)
        try:
            return write(table)
        except exceptions.DeltaProtocolError as error:
            raise NeedsSparkError(first_line(error)) from error
        except (exceptions.DeltaError, OSError) as error:
            if not isinstance(error, exceptions.CommitFailedError) or attempt == _ATTEMPTS - 1:
                raise not_written(f"The table {name.name} could not be written", error, _AGAIN) from error
        time.sleep(random.uniform(0.02, 0.1) * (attempt + 1))
    raise AssertionError("the last attempt raises")


def writable_of(table: LocalTable) -> DeltaTable:
    """The table for delta-rs to rewrite rows of; NeedsSparkError if that would change their timestamps."""
    writable = table.snapshot.writable()
    if rewrite_alters_times(writable):
        raise NeedsSparkError("rows of the table have times before 1678 or after 2261, in files that Spark has written")
    return writable


def _write(table: LocalTable, changes: dict[str, str] | None, where: str | None) -> None:
    writable = writable_of(table)
    if changes is None:
        writable.delete(where, commit_properties=by_this_user())
    else:
        writable.update(changes, predicate=where, commit_properties=by_this_user())


def _changes(table: LocalTable, statement: Change) -> dict[str, str] | None:
    """The columns that an UPDATE sets and their values, as delta-rs spells them; None for a DELETE."""
    if statement.values is None:
        return None
    values: dict[str, Any] = {}
    for name, text in statement.values:
        column = table.column(name)
        if column in values:
            raise NeedsSparkError(f"it sets {column} twice")
        kind = table.schema.field(column).type
        values[column] = _new_value(value_of(text, kind, table.zone), kind)
    return {quoted(column): value for column, value in values.items()}


def _chosen(table: LocalTable, statement: Change) -> tuple[int, str | None]:
    """How many rows satisfy the statement's condition, and an equivalent predicate for delta-rs.

    The predicate names the rows by their values, since delta-rs gives some expressions another meaning than Spark.
    """
    key = table.schema.names[0]
    kept = table.condition(statement.where)
    read = list(dict.fromkeys([key, *(table.column(path[0]) for path in (kept.paths if kept is not None else ()))]))
    parts = list(table.batches(read, None))
    rows = pa.concat_tables(parts) if parts else pa.schema([table.schema.field(name) for name in read]).empty_table()
    if kept is None:
        return rows.num_rows, None
    chosen = kept.holds_on(rows)
    return int(np.count_nonzero(chosen)), _naming(rows, chosen)


def _naming(rows: pa.Table, chosen: np.ndarray) -> str:
    """A predicate for delta-rs that is TRUE for the chosen rows alone.

    The first column is the key. A chosen row is named by all columns of `rows` if its key is NULL, or is also the key
    of a row that is not chosen. These are all columns that the condition reads, so that rows which agree in them are
    either all chosen or all not.
    """
    key, kind = rows.column_names[0], rows.schema.field(0).type
    try:
        keys = [] if pa.types.is_nested(kind) else rows.column(key).to_pylist()
    except (OverflowError, ValueError):
        keys = []
    if len(keys) < len(rows):
        raise NeedsSparkError(f"only Spark tells rows apart by values of {key}")
    wanted = {value for value, is_chosen in zip(keys, chosen.tolist(), strict=True) if is_chosen}
    shared = {value for value, is_chosen in zip(keys, chosen.tolist(), strict=True) if not is_chosen} & wanted
    plain = wanted - shared - {None}
    mixed = [is_chosen and value not in plain for value, is_chosen in zip(keys, chosen.tolist(), strict=True)]
    whole = {_equal_row(rows, place) for place in np.flatnonzero(mixed).tolist()}
    if len(plain) > _MOST_NAMED or len(whole) > _MOST_NAMED_WHOLE:
        raise NeedsSparkError("many rows change, or many that have no id of their own")
    listed = [f"{quoted(key)} IN ({', '.join(_as_sql(value, kind) for value in sorted(plain))})"] if plain else []
    return " OR ".join([*listed, *sorted(whole)]) or "false"


def _equal_row(rows: pa.Table, place: int) -> str:
    """A predicate for delta-rs that is TRUE for rows that agree with one row in all columns."""
    parts = []
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        try:
            value = column[place].as_py()
        except (OverflowError, ValueError):
            raise NeedsSparkError(f"a row has a {name} that only Spark writes") from None
        parts.append(f"{quoted(name)} IS NULL" if value is None else f"{quoted(name)} = {_as_sql(value, column.type)}")
    return f"({' AND '.join(parts)})"


def _editable(workspace: Workspace, name: TableName) -> LocalTable:
    """The table; NeedsSparkError if it is neither `rules` nor a list, or if a writer must do more than write rows."""
    known = {RULES.name, *workspace.configuration.lists}
    if name.is_path or known_name(workspace, name) not in known:
        raise NeedsSparkError("only rules and lists are edited without it")
    table = LocalTable(workspace, name, edited=True)
    snapshot = table.snapshot
    odd = sorted(snapshot.features - _FEATURES)
    odd += [each for each in snapshot.properties if each.startswith(_REFUSED_PROPERTIES)]
    odd += [str(each["name"]) for each in snapshot.fields if set(each.get("metadata") or {}) - {"comment"}]
    odd += [str(each["name"]) for each in snapshot.fields if not each.get("nullable", True)]
    odd += snapshot.partition_columns
    if odd or len({column_key(each) for each in table.schema.names}) < len(table.schema):
        raise NeedsSparkError(f"the table has features or columns that only Spark maintains: {', '.join(odd)}")
    return table


def _new_value(value: Any, kind: pa.DataType) -> str:
    """A value, or a MAP of such values, as an expression for delta-rs; NeedsSparkError for other values."""
    if not pa.types.is_map(kind) or not value:
        return _as_sql(value, kind)
    keys = ", ".join(_as_sql(key, kind.key_type) for key, _ in value)
    items = ", ".join(_as_sql(item, kind.item_type) for _, item in value)
    return f"map([{keys}], [{items}])"


def _as_sql(value: Any, kind: pa.DataType) -> str:
    """A string, integer, Boolean, timestamp or NULL as a literal for delta-rs; NeedsSparkError for other values."""
    if value is None:
        return "NULL"
    if kind == pa.timestamp("us", "UTC"):
        return f"arrow_cast({pa.scalar(value, kind).value}, 'Timestamp(Microsecond, Some(\"UTC\"))')"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str) and "\0" not in value:
        return "'" + value.replace("'", "''") + "'"
    raise NeedsSparkError("only Spark writes such a value in place of another")
