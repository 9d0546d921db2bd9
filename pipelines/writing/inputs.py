"""Checks that a source still has the columns that an index reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pipelines.errors import IndexOutdatedError
from pipelines.lake.column_types import nullable, spark_name
from rules_index.names import column_key, field_key, path_parts, spelled

if TYPE_CHECKING:
    import rules_index as ri


def check_inputs(
    compiled: ri.CompiledRules,
    schema: pa.Schema,
    scope: str,
    newest: Callable[[], pa.Schema] | None = None,
    command: str = "deltatag tag",
) -> None:
    """Raise IndexOutdatedError if `schema` lacks a column that the index reads, or has it with another type.

    newest: returns the columns that the source has now, if `schema` has those of the version that is taken next;
    command: the command that takes it, without the scope.
    """
    for leaf in compiled.inputs:
        if leaf.text is not None:
            continue
        found = type_in(schema, path_parts(leaf.name))
        if found == leaf.type:
            continue
        if newest is not None and type_in(newest(), path_parts(leaf.name)) == leaf.type:
            then = f"was {spark_name(found)}" if found is not None else "was not there"
            raise IndexOutdatedError(
                f"The column {leaf.name} {then} when the next rows of {scope} were written, and is "
                f"{spark_name(leaf.type)} now, the type that the rules were compiled for. Process everything again "
                f"with: {command} {scope} --restart"
            )
        now = f"is {spark_name(found)} now" if found is not None else "is gone"
        raise IndexOutdatedError(
            f"The rules of {scope} were compiled when the column {leaf.name} was {spark_name(leaf.type)}; it {now}. "
            f"Compile them again with: deltatag compile {scope}"
        )


def type_in(fields: Any, parts: list[str]) -> pa.DataType | None:
    """The type of a column, or of a field within STRUCTs, by its path; None if there is none. As in an index, it allows
    NULL at every level."""
    key = column_key if isinstance(fields, pa.Schema) else field_key
    # of thousands of columns, the names alone take a fraction of the fields' time
    names = fields.names if isinstance(fields, pa.Schema) else [field.name for field in fields]
    name = spelled(names, parts[0], key)
    if name is None:
        return None
    if len(parts) == 1:
        return nullable(pa.schema([fields.field(name)])).field(0).type
    inner = fields.field(name).type
    return type_in(inner, parts[1:]) if pa.types.is_struct(inner) else None
