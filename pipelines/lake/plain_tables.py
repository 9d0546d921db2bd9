"""Whether deltatag itself commits to a table of the lake, which takes less time and memory than delta-rs does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pipelines.lake.table_cache import local_folder

if TYPE_CHECKING:
    from deltalake import DeltaTable

_PLAIN_FEATURES = frozenset({"appendOnly", "changeDataFeed", "invariants"})
"""Table features that require nothing of files."""


def is_plain(table: DeltaTable, partition_by: Sequence[str] = ()) -> bool:
    """Whether a table is in a folder, is partitioned by these columns, and asks no more of a commit than its rows."""
    protocol, metadata = table.protocol(), table.metadata()
    return (
        local_folder(table.table_uri) is not None
        and list(metadata.partition_columns) == list(partition_by)
        and not protocol.reader_features
        and set(protocol.writer_features or ()) <= _PLAIN_FEATURES
        and (metadata.configuration.get("delta.appendOnly") or "").lower() != "true"
        and not any(name.startswith("delta.constraints.") for name in metadata.configuration)
    )
