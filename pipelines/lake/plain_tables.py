"""Whether deltatag itself commits to a table of the lake, which takes less time and memory than delta-rs does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from pipelines.lake.lake import arrow_schema
from pipelines.lake.reading import plain_field
from pipelines.lake.table_cache import local_folder

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from pipelines.table_definitions import Table

_PLAIN_FEATURES = frozenset({"appendOnly", "changeDataFeed", "invariants"})
"""Table features that require nothing of files."""


def is_plain(table: DeltaTable, definition: Table) -> bool:
    """Whether a table is in a folder, has the columns and partitions of its definition, and perhaps more columns, and
    asks no more of a commit than its rows."""
    protocol, metadata = table.protocol(), table.metadata()
    held = {field.name: plain_field(field).type for field in pa.schema(table.schema())}
    return (
        local_folder(table.table_uri) is not None
        and all(held.get(field.name) == field.type for field in arrow_schema(definition))
        and list(metadata.partition_columns) == list(definition.partition_by)
        and not protocol.reader_features
        and set(protocol.writer_features or ()) <= _PLAIN_FEATURES
        and (metadata.configuration.get("delta.appendOnly") or "").lower() != "true"
        and not any(name.startswith("delta.constraints.") for name in metadata.configuration)
    )
