"""Refuses rules that read a column which the tagged table has with another type than the source now has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipelines.errors import SourceChangedError
from pipelines.scopes import StreamScope
from pipelines.table_definitions import tagged_table
from pipelines.writing.altered_types import cure_of_types
from pipelines.writing.inputs import type_in
from rules_index.language.coercion import name_of
from rules_index.names import path_parts

if TYPE_CHECKING:
    import pyarrow as pa

    import rules_index as ri
    from pipelines.scopes import Scope


def refuse_other_types(scope: Scope, table_columns: pa.Schema, compiled: ri.CompiledRules | None) -> None:
    """SourceChangedError if an index reads a column, or a field of one, that the tagged table has with another type.

    table_columns: the columns of the tagged table, followed by columns of the source that it lacks; compiled: None if
    there is nothing to match.
    """
    for leaf in compiled.inputs if compiled is not None else ():
        if leaf.text is not None:
            continue
        parts = path_parts(leaf.name)
        found, table = type_in(table_columns, parts), tagged_table(scope.name)
        if found == leaf.type:
            continue
        verb = "tag" if isinstance(scope, StreamScope) else "join"
        anew = f"process everything again: deltatag {verb} {scope.name} --restart"
        if found is None:
            raise SourceChangedError(
                f"Rules of {scope.name} read {leaf.name}, which {table} does not have yet. First let deltatag "
                f"{verb} {scope.name} process rows that have it, or {anew}"
            )
        raise SourceChangedError(
            f"Rules of {scope.name} read {leaf.name}, which is {name_of(leaf.type)} in the source now, and "
            f"{name_of(found)} in {table}, so the rows in that table cannot be matched again. "
            f"{cure_of_types(scope.workspace.lake, table, parts[:1])} {anew}"
        )
