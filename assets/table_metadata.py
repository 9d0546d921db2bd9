"""Metadata of a table's asset: number of rows, columns, location, sample rows, and a query to copy."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg

from pipelines.lake.python_values import values_of
from pipelines.lake.reading import as_dataset
from pipelines.table_definitions import is_tagged

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from pipelines.workspace import Workspace

_ROWS = 5
_BATCH = 1024
"""Number of rows that are read at once: Arrow cuts a whole row group into batches of this size first."""
_CELL = 80
_DIGITS = 4
_SQL_TYPES = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}
"""Spark SQL's names of types that a table's log names otherwise."""
_NOT_MADE = "This table does not exist yet: no row has been written to it. A stream without rules writes none."


def rounded(value: float) -> float:
    """A rate with four significant digits; a whole number from 1,000 on."""
    return float(round(value)) if abs(value) >= 1_000 else float(f"{value:.{_DIGITS}g}")


def table_metadata(workspace: Workspace, name: str) -> dict[str, Any]:
    """The metadata of one of the lake's tables; only its location if it cannot be read, a note if it does not exist."""
    from deltalake import exceptions

    from pipelines.errors import PipelineError

    shown: dict[str, Any] = {}
    try:
        if not workspace.lake.exists(name):
            return {"state": _NOT_MADE}
        shown["dagster/uri"] = workspace.lake.uri(name)
        shown |= _of(workspace.lake.delta(name), workspace.configuration.rules.time_zone)
        shown["query"] = dg.MetadataValue.md(_query(workspace, name))
    except (PipelineError, exceptions.DeltaError, OSError, ValueError):
        pass  # missing metadata must not fail a step that has written the table
    return shown


def _of(table: DeltaTable, zone: str) -> dict[str, Any]:
    from deltalake.schema import StructType

    from pipelines.lake.lake import rows_in
    from pipelines.local_sql.statement import in_zone

    fields = table.schema().fields
    nested = {f.name: [each.name for each in f.type.fields] for f in fields if isinstance(f.type, StructType)}
    columns = [dg.TableColumn(f.name, _type(f.type), (f.metadata or {}).get("comment")) for f in fields]
    shown: dict[str, Any] = {"dagster/column_schema": dg.TableSchema(columns=columns)}
    rows = rows_in(table)
    if rows is not None:
        shown["dagster/row_count"] = rows
    if rows != 0:
        head = as_dataset(table).head(_ROWS, batch_size=_BATCH, batch_readahead=0, fragment_readahead=0)
        head = in_zone(head, zone)
        rows_of = zip(*(values_of(column) for column in head.columns), strict=True)
        records = [dg.TableRecord(_cells(dict(zip(head.column_names, row, strict=True)), nested)) for row in rows_of]
        if records:
            schema = dg.TableSchema([dg.TableColumn(name, "string") for name in records[0].data])
            shown["sample_rows"] = dg.MetadataValue.table(records, schema)
    return shown


def _type(kind: Any) -> str:
    """A column's type in Spark SQL."""
    from deltalake.schema import ArrayType, MapType, StructType

    if isinstance(kind, ArrayType):
        return f"array<{_type(kind.element_type)}>"
    if isinstance(kind, MapType):
        return f"map<{_type(kind.key_type)},{_type(kind.value_type)}>"
    if isinstance(kind, StructType):
        return f"struct<{','.join(f'{field.name}:{_type(field.type)}' for field in kind.fields)}>"
    return _SQL_TYPES.get(kind.type, str(kind.type))


def _cells(row: Mapping[str, Any], nested: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """The cells of a row as texts; each field of a STRUCT, as in joined rows, has a cell of its own."""
    cells: dict[str, str] = {}
    for key, value in row.items():
        if key in nested:
            cells |= {f"{key}.{name}": _cell(None if value is None else value[name]) for name in nested[key]}
        else:
            cells[key] = _cell(value)
    return cells


def _cell(value: Any) -> str:
    text = "NULL" if value is None else ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= _CELL else f"{text[: _CELL - 1]}…"


def _query(workspace: Workspace, name: str) -> str:
    where = " WHERE size(rule_ids) > 0" if is_tagged(name) else ""
    path = shlex.quote(str(workspace.configuration.path.absolute()))
    return f'```sh\ndeltatag sql --config {path} "SELECT * FROM {name}{where} LIMIT 10"\n```'
