"""Says what to do if a column of a tagged table, of its matches or its quarantine has another type than its source."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipelines.lake.lake import Lake

_TYPE_CHANGES = "delta.typeChanges"
"""What the metadata of a column has once its type was widened."""


def cure_of_types(lake: Lake, table: str, columns: Iterable[str]) -> str:
    """The begin of a sentence on how these columns, or fields of them, get the same types in a table and its source.

    columns: with all that differ, case aside. Only people widen a column of deltatag's tables; if none has done so, the
    source's type has changed.
    """
    fields: list[dict[str, Any]] = json.loads(lake.delta(table).schema().to_json())["fields"]
    widened = {field["name"].lower(): field["name"] for field in fields if _TYPE_CHANGES in json.dumps(field)}
    if column := next((widened[each.lower()] for each in columns if each.lower() in widened), None):
        return (
            f"The column {column} of {table} itself was widened by ALTER TABLE. Put {table} back to the version before "
            f'that, which deltatag sql "DESCRIBE HISTORY {table}" shows, with: deltatag sql "RESTORE TABLE {table} TO '
            'VERSION AS OF ...", or'
        )
    return "Give the source its old type back, or"
