"""Checks that a source still has the columns that an index reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pipelines.errors import IndexOutdatedError
from rules_index.names import column_key, field_key, path_parts, spelled

if TYPE_CHECKING:
    import rules_index as ri


def check_inputs(compiled: ri.CompiledRules, schema: pa.Schema, scope: str) -> None:
    """Raise IndexOutdatedError if `schema` lacks a column that the index reads, or has it with another type."""
    for leaf in compiled.inputs:
        if leaf.text is not None:
            continue
        found = _find(schema, path_parts(leaf.name))
        if found != leaf.type:
            now = f"is {found} now" if found is not None else "is gone"
            raise IndexOutdatedError(
                f"The rules of {scope} were compiled when the column {leaf.name} was {leaf.type}; it {now}. "
                f"Compile them again with: deltatag compile {scope}"
            )


def _find(fields: Any, parts: list[str]) -> pa.DataType | None:
    key = column_key if isinstance(fields, pa.Schema) else field_key
    name = spelled([field.name for field in fields], parts[0], key)
    if name is None or len(parts) == 1:
        return None if name is None else fields.field(name).type
    inner = fields.field(name).type
    return _find(inner, parts[1:]) if pa.types.is_struct(inner) else None
