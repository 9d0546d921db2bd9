"""Reads the deletion vectors of a table's files by delta-rs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.error_texts import first_line
from pipelines.errors import NeedsSparkError
from rules_index.workers.source_file_reader import KEPT

if TYPE_CHECKING:
    from deltalake import DeltaTable

_MOST_MASKED = (1 << 31) - 1
"""The most rows of a table whose deletion vectors delta-rs (1.6) gives: it takes a byte for each row of the files that
have one, all at once, and panics if there are more."""


def deletions_in(table: DeltaTable, files: pa.Table) -> dict[str, dict[str, Any]]:
    """The deletion vectors of a table's files, by their paths: the number of deleted rows as `cardinality`, and which
    rows are left as `KEPT`. files: as `files_in` gives them. NeedsSparkError if delta-rs does not read the vectors."""
    from deltalake.exceptions import DeltaError

    if "deletionVectors" not in (table.protocol().reader_features or ()):
        return {}
    rows = pc.sum(files["num_records"]).as_py() if "num_records" in files.column_names else None
    if (rows or 0) > _MOST_MASKED:
        raise NeedsSparkError(f"the table {table.table_uri} has deletion vectors and more than {_MOST_MASKED:,} rows")
    try:
        read = pa.RecordBatchReader.from_stream(table.deletion_vectors()).read_all()
    except (DeltaError, OSError, pa.ArrowException) as error:
        raise NeedsSparkError(f"a deletion vector of {table.table_uri} cannot be read: {first_line(error)}") from error
    ends: dict[str, list[str]] = {}
    for path in files["path"].to_pylist():
        ends.setdefault(unquote(path).rpartition("/")[2], []).append(path)
    found: dict[str, dict[str, Any]] = {}
    for number, uri in enumerate(read["filepath"].to_pylist()):
        whole = unquote(uri)
        known = next((each for each in ends.get(whole.rpartition("/")[2], ()) if whole.endswith(unquote(each))), None)
        if known is None:
            raise NeedsSparkError(f"the table {table.table_uri} has a deletion vector of an unknown file, {uri}")
        kept = read["selection_vector"][number].values
        found[known] = {"cardinality": len(kept) - (kept.true_count or 0), KEPT: kept}
    return found
