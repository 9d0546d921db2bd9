"""Reads tables in tests without Spark, which takes a second for what takes delta-rs milliseconds."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from pipelines.workspace import Workspace


def rows_of(workspace: Workspace, name: str) -> list[dict[str, Any]]:
    """Rows of a table of the lake, each by the names of its columns; moments in UTC."""
    found: list[dict[str, Any]] = workspace.lake.arrow(name).to_pylist()
    return found


def columns_of(workspace: Workspace, name: str, *columns: str) -> list[tuple[Any, ...]]:
    """Rows of a table of the lake, as tuples of the named columns; `a.b` is the field b of a column a, or NULL."""
    table = workspace.lake.arrow(name, list(dict.fromkeys(column.split(".")[0] for column in columns)))
    return [tuple(_part(row, column.split(".")) for column in columns) for row in table.to_pylist()]


def _part(value: Any, path: list[str]) -> Any:
    for name in path:
        value = None if value is None else value[name]
    return value


def spark_columns(frame: Any, *columns: str) -> list[tuple[Any, ...]]:
    """The columns of a DataFrame, as tuples, by one job; moments in UTC."""
    table: pa.Table = frame.select(*columns).toArrow()
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))
