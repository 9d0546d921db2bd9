"""Ranges of a source's columns by Delta's statistics: minimum, maximum, and whether there are NULLs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.errors import PipelineError
from pipelines.lake.added_files import files_in
from pipelines.lake.column_types import STORED_NAME
from pipelines.lake.lake import open_delta
from pipelines.settings.configuration import is_catalog_name
from rules_index.implication.sql import literal_of
from rules_index.language.constants import key_of
from rules_index.language.scope import quote
from rules_index.language.typed import Constant
from rules_index.names import back_quoted_path

if TYPE_CHECKING:
    from pipelines.settings.model import Stream

Path: TypeAlias = tuple[str, ...]

_MILLISECOND = 1_000


@dataclass(frozen=True, slots=True)
class SourceRange:
    """The range of a column's values.

    low, high: SQL literals, None if it has only NULLs; null: whether it may be NULL; nan: whether it may be NaN, which
    statistics leave out.
    """

    column: str
    low: str | None
    high: str | None
    null: bool
    nan: bool

    @property
    def condition(self) -> str:
        """A SQL condition that is TRUE on every row of the source."""
        name = back_quoted_path(self.column)
        parts = [f"{name} BETWEEN {self.low} AND {self.high}"] if self.low is not None else []
        parts += [f"{name} IS NULL"] if self.null else []
        parts += [f"{name} > double('Infinity')"] if self.nan else []
        return f"({' OR '.join(parts)})"


def source_ranges(stream: Stream, schema: pa.Schema) -> dict[str, SourceRange]:
    """The ranges of columns and struct fields that have statistics in every file, by name.

    Empty for a source that is in a catalog, has no files, or cannot be read by delta-rs.
    """
    from deltalake import exceptions

    if is_catalog_name(stream.source):
        return {}
    try:
        table = open_delta(stream.source, None, "a source", "")
        files = files_in(table)
        stored = _stored_paths(json.loads(table.schema().to_json()))
    except (PipelineError, exceptions.DeltaError, OSError, ValueError, pa.ArrowException):
        return {}
    found = {}
    for path, data_type in _leaves(schema):
        column = ".".join(map(quote, path))
        one = _range(files, column, stored.get(path, path), data_type) if files.num_rows else None
        if one is not None:
            found[column] = one
    return found


def _leaves(fields: Any, parents: Path = ()) -> list[tuple[Path, pa.DataType]]:
    """The paths and types of columns; a struct is replaced by its fields."""
    found: list[tuple[Path, pa.DataType]] = []
    for each in fields:
        path = (*parents, each.name)
        found += _leaves(each.type, path) if pa.types.is_struct(each.type) else [(path, each.type)]
    return found


def _stored_paths(kind: Any, path: Path = (), stored: Path = ()) -> dict[Path, Path]:
    """The logical path of each column of a table's schema (in the log's form) -> its physical path in statistics."""
    found = {}
    for field in kind["fields"]:
        own = (*path, field["name"])
        found[own] = (*stored, field["metadata"].get(STORED_NAME, field["name"]))
        if isinstance(field["type"], dict) and field["type"]["type"] == "struct":
            found |= _stored_paths(field["type"], own, found[own])
    return found


def _statistic(files: pa.Table, what: str, path: Path) -> pa.ChunkedArray | None:
    """A statistic of a column for each file, [files]; None if the log has none."""
    column = files[what] if what in files.column_names else None
    for name in path:
        if column is None or not pa.types.is_struct(column.type) or column.type.get_field_index(name) < 0:
            return None
        column = pc.struct_field(column, [column.type.get_field_index(name)])
    return column


def _range(files: pa.Table, column: str, path: Path, data_type: pa.DataType) -> SourceRange | None:
    """The range of one column; None if some file lacks its statistics."""
    least, greatest, nulls = (_statistic(files, what, path) for what in ("min", "max", "null_count"))
    if least is None or greatest is None or nulls is None or "num_records" not in files.column_names:
        return None
    empty = pc.fill_null(pc.equal(nulls, files["num_records"]), False)
    if pc.any(pc.and_(pc.invert(empty), pc.or_(pc.is_null(least), pc.is_null(greatest)))).as_py():
        return None
    null = nulls.null_count > 0 or bool(pc.sum(nulls).as_py())
    low, high = pc.min(least.filter(pc.invert(empty))), pc.max(greatest.filter(pc.invert(empty)))
    if not low.is_valid:
        return SourceRange(column, None, None, True, False) if null else None
    # statistics of timestamps are truncated to milliseconds
    more = _MILLISECOND if pa.types.is_timestamp(data_type) else 0
    ends = [_literal(low, data_type, 0), _literal(high, data_type, more)]
    if None in ends:
        return None
    return SourceRange(column, ends[0], ends[1], null, pa.types.is_floating(data_type))


def _literal(value: pa.Scalar, data_type: pa.DataType, more: int) -> str | None:
    """A value as a SQL literal, a timestamp `more` microseconds later; None for a type without literals."""
    t = pa.types
    try:
        cast = value.cast(data_type)
        if t.is_timestamp(data_type) or t.is_date32(data_type):
            key: Any = cast.cast(pa.int64() if t.is_timestamp(data_type) else pa.int32()).as_py() + more
        elif t.is_decimal(data_type):
            key = int(cast.as_py().scaleb(data_type.scale))
        elif t.is_integer(data_type) or t.is_floating(data_type) or t.is_string(data_type) or t.is_boolean(data_type):
            key = key_of(Constant(cast.as_py(), data_type))
        else:
            return None
    except (pa.ArrowException, ValueError, ArithmeticError):
        return None
    return literal_of(key, data_type)
