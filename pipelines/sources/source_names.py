"""Detects renamed columns of a source with column mapping, so that derived tables do not mix different columns.

Column mapping gives each column a physical name, which stays the same when the column is renamed. The plan of each
micro-batch records both names, so that the next one can detect a change.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from pipelines.errors import SourceChangedError, SourceError
from pipelines.lake.column_types import STORED_NAME
from pipelines.sources.slices import slice_schema
from rules_index.names import back_quoted

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

    from pipelines.sources.source import Source
    from pipelines.workspace import Workspace

COLUMNS = "columns"
"""Key of a plan: the paths, physical and logical, of all columns that the tables were given."""

Path: TypeAlias = tuple[str, ...]
Names: TypeAlias = dict[Path, Path]
"""The physical path of each column and nested field -> its logical path."""


def followed_columns(
    workspace: Workspace,
    source: Source,
    schema_version: int,
    before: Mapping[str, Any] | None,
    tables: Sequence[str],
    command: str,
    within: Path = (),
) -> dict[str, Any]:
    """The entries of a plan about the names of a source's columns; empty without column mapping.

    before: the plan of the last micro-batch, if any; tables: those that `command` writes from the rows; within: the
    path below which they have the source's columns. SourceChangedError if a name now means another column.
    """
    schema = slice_schema(source, schema_version)
    if not any(STORED_NAME in field.metadata for field in schema.fields):
        return {}
    now = names_of(schema)
    known = {} if before is None else _known(source, before)
    renamed, replaced = changed_names(known, now)
    held = [name for name in tables if renamed and workspace.lake.exists(name)]
    schemas = {name: workspace.lake.frame(name).schema for name in held}
    renamed = [
        (old, new) for old, new in renamed if not _is_followed(schemas.values(), (*within, *old), (*within, *new))
    ]
    if renamed or replaced:
        behind = [(name, *each) for each in renamed for name in held if _has(schemas[name], (*within, *each[0]))]
        behind = behind or [(tables[0], *each) for each in renamed]
        raise SourceChangedError(_explained(source, renamed, replaced, behind, command, within))
    return {COLUMNS: [[list(stored), list(path)] for stored, path in {**known, **now}.items()]}


def names_of(kind: DataType, stored: Path = (), path: Path = ()) -> Names:
    """The physical and logical paths of the columns and nested fields of a type."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    found: Names = {}
    if isinstance(kind, StructType):
        for field in kind.fields:
            below = (*stored, field.metadata.get(STORED_NAME, field.name)), (*path, field.name)
            found |= {below[0]: below[1], **names_of(field.dataType, *below)}
    elif isinstance(kind, ArrayType):
        found = names_of(kind.elementType, (*stored, "element"), (*path, "element"))
    elif isinstance(kind, MapType):
        found = names_of(kind.keyType, (*stored, "key"), (*path, "key"))
        found |= names_of(kind.valueType, (*stored, "value"), (*path, "value"))
    return found


def changed_names(before: Names, now: Names) -> tuple[list[tuple[Path, Path]], list[Path]]:
    """Renamed columns, as pairs of old and new path, and new columns that took the name of a former one.

    The case of names does not matter.
    """
    renamed = [
        (before[stored], path)
        for stored, path in now.items()
        if stored in before and before[stored][-1].lower() != path[-1].lower()
    ]
    taken = {(stored[:-1], path[-1].lower()): stored for stored, path in before.items()}
    moved = {old for old, _ in renamed} | {new for _, new in renamed}
    replaced = [
        path
        for stored, path in now.items()
        if stored not in before and (stored[:-1], path[-1].lower()) in taken and path not in moved
    ]
    return renamed, replaced


def _known(source: Source, plan: Mapping[str, Any]) -> Names:
    """The names of the columns when a plan was made; empty if they are no longer known."""
    if COLUMNS in plan:
        return {tuple(stored): tuple(path) for stored, path in plan[COLUMNS]}
    try:
        return names_of(slice_schema(source, plan["schema_version"]))
    except SourceError:
        return {}


def _is_followed(schemas: Collection[StructType], old: Path, new: Path) -> bool:
    """Whether the operator has renamed a column in the tables, too: some have the new name, none the old one."""
    return not any(_has(schema, old) for schema in schemas) and any(_has(schema, new) for schema in schemas)


def _has(kind: DataType, path: Path) -> bool:
    from pyspark.sql.types import ArrayType, MapType, StructType

    if not path:
        return True
    if isinstance(kind, StructType):
        found = next((field for field in kind.fields if field.name.lower() == path[0].lower()), None)
        return found is not None and _has(found.dataType, path[1:])
    if isinstance(kind, ArrayType):
        return _has(kind.elementType, path[1:])
    return isinstance(kind, MapType) and _has(kind.keyType if path[0] == "key" else kind.valueType, path[1:])


def _explained(
    source: Source,
    renamed: Sequence[tuple[Path, Path]],
    replaced: Sequence[Path],
    behind: Sequence[tuple[str, Path, Path]],
    command: str,
    within: Path,
) -> str:
    """behind: the tables in which columns are to be renamed, each with an old and a new path."""
    listed = [f"{_text(old)} is {_text(new)} now" for old, new in renamed]
    listed += [f"{_text(path)} is another column of that name now" for path in replaced]
    swapped = {old for old, _ in renamed} & {new for _, new in renamed}
    ways = ["Give the columns their old names back"]
    if renamed and not replaced and not swapped:
        table, old, new = behind[0]
        names = " and ".join(dict.fromkeys(name for name, _, _ in behind))
        ways.append(
            f"or rename them in {names} too: ALTER TABLE {table} RENAME COLUMN "
            f"{_text((*within, *old))} TO {back_quoted(new[-1])} (if a table has no column mapping yet, first SET "
            "TBLPROPERTIES ('delta.columnMapping.mode' = 'name'), after which fewer programs can read it)"
        )
    ways.append(f"or process everything again: deltatag {command} --restart")
    return (
        f"Columns of the source of the stream {source.name} at {source.log.uri} were renamed or replaced since rows of "
        f"it were processed: {'; '.join(listed)}. In its tables one name would mean two columns, or two names one. "
        f"{', '.join(ways)}."
    )


def _text(path: Path) -> str:
    return ".".join(map(back_quoted, path))
