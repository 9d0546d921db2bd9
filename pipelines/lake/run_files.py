"""The files of the table `runs`: reads their rows, and inserts or replaces one row by a commit of deltatag's own.

delta-rs's MERGE would do the same, and takes 20 ms and, for the first one of a process, 30 MB.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.errors import not_written
from pipelines.lake.added_files import files_in
from pipelines.lake.folder_snapshot import FolderSnapshot
from pipelines.lake.lake import Lake, arrow_schema
from pipelines.lake.reading import plain_field, read_file
from pipelines.lake.table_cache import refuse_if_not_writable
from pipelines.lake.table_log import table_log
from pipelines.table_definitions import RUNS
from rules_index.workers.delta_file_writer import DeltaFile, remove_files

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from pipelines.lake.delta_log import DeltaLog

_KEPT_BYTES = 32 << 20
"""About how many bytes of the rows of files stay in memory."""
Row = Mapping[str, Any]


def files_of(table: DeltaTable, scope: str) -> list[tuple[float, str]]:
    """The files that may have rows of a scope: the highest batch number in each, and its path."""
    found = []
    for action in files_in(table, flatten=True).to_pylist():
        low, high = action.get("min.scope"), action.get("max.scope")
        if low is None or high is None or low <= scope <= high:
            newest = action.get("max.batch")
            found.append((float("inf") if newest is None else float(newest), action["path"]))
    return found


def rows_in(lake: Lake, table: DeltaTable, path: str, scope: str) -> list[dict[str, Any]]:
    """The rows of a scope in a file. Small files are kept, for a run asks for the rows of each scope."""
    kept = lake.run_files_read
    if path not in kept:
        rows = read_file(table, path, arrow_schema(RUNS))
        if rows.nbytes + sum(size for _, size in kept.values()) > _KEPT_BYTES:
            kept.clear()
        kept[path] = rows, rows.nbytes
    rows, _ = kept[path]
    found: list[dict[str, Any]] = rows.filter(pc.field("scope") == scope).to_pylist()
    return found


def write_row(lake: Lake, row: pa.Table, is_due: Callable[[Row | None], bool]) -> bool | None:
    """Insert a row of `runs`, or replace the one with the same scope and number, in one commit; True if it was written.

    is_due: whether to write it in place of the row that it is given, or of none; False is returned if not. None, with
    nothing written, if another program has committed to the table meanwhile. TableError if the table cannot be written.
    Raises what delta-rs and Arrow raise if it cannot be read.
    """
    uri, table = lake.uri("runs"), lake.delta("runs")
    refuse_if_not_writable(uri, "runs")
    log, snapshot = table_log(uri), FolderSnapshot(uri, table)
    version = snapshot.number  # before anything is read: another thread may bring the table up to date
    (scope,), (number,) = row["scope"].to_pylist(), row["batch"].to_pylist()
    path, held = _found(lake, table, scope, number)
    if not is_due(held):
        return False
    schema = pa.schema([plain_field(field) for field in pa.schema(table.schema())])
    rows = [_conforming(row, schema)]
    if path is not None:
        same = (pc.field("scope") == scope) & (pc.field("batch") == number)
        rows.append(read_file(table, path, schema).filter(~same))
    gone = [add for add in log.files(snapshot) if add["path"] == path]
    if path is not None and not gone:  # another thread has brought the table up to date meanwhile
        return None
    add = _written(lake, log, pa.concat_tables(rows))
    # if this raises, the file may have been committed, and must stay
    if log.write_rows(snapshot, version, gone, [json.dumps({"add": add})]):
        return True
    remove_files(str(log.folder), [add])
    return None


def _found(lake: Lake, table: DeltaTable, scope: str, number: int) -> tuple[str | None, Row | None]:
    """The file that has the row with this number, and the row; None for both if there is none."""
    for newest, path in files_of(table, scope):
        for row in rows_in(lake, table, path, scope) if newest >= number else ():
            if row["batch"] == number:
                return path, row
    return None, None


def _conforming(row: pa.Table, schema: pa.Schema) -> pa.Table:
    """The row with the columns of the table, to which others may have added some."""
    added = [field for field in schema if field.name not in row.column_names]
    for field in added:
        row = row.append_column(field, pa.nulls(1, field.type))
    return row.select(schema.names).cast(schema)


def _written(lake: Lake, log: DeltaLog, rows: pa.Table) -> dict[str, Any]:
    """Write a file with these rows; returns its `add` action. TableError if it cannot be written."""
    file = DeltaFile(str(log.folder), rows.schema, "zstd", {})
    try:
        for batch in rows.to_batches():
            file.write(batch)
        return file.close()
    except BaseException as error:
        file.abandon()
        if isinstance(error, OSError):
            raise not_written(f"The table runs at {lake.uri('runs')} cannot be written", error) from error
        raise
