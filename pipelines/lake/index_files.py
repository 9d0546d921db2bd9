"""Writes indexes into files of the table `rule_index`, chunk by chunk, and commits them.

delta-rs would hold four copies of an index in memory, 640 MB of one of a million rules, and take twice as long.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.errors import not_written
from pipelines.lake.lake import Lake, arrow_schema
from pipelines.lake.log_actions import transaction
from pipelines.lake.table_log import table_log
from pipelines.table_definitions import CHUNK_BYTES, RULE_INDEX
from rules_index.workers.delta_file_writer import NewFile, remove_files
from rules_index.workers.file_statistics import statistics

if TYPE_CHECKING:
    from pipelines.lake.delta_log import DeltaLog
    from pipelines.lake.folder_snapshot import FolderSnapshot

_BOUNDED = frozenset({"rules_version", "fingerprint"})
"""The columns whose bounds are in the log: with `scope`, by which the table is partitioned, its first three."""


def write_chunks(
    lake: Lake,
    snapshot: FolderSnapshot,
    scope: str,
    chunks: Iterable[pa.RecordBatch],
    mark: tuple[str, int],
    from_scratch: bool,
) -> bool:
    """Add rows of one scope to `rule_index` in one commit; False, with nothing written, if another program has
    committed to the table since the snapshot. TableError if the table cannot be written.

    chunks: rows of `rule_index`, each in a batch of its own; mark: the transaction that the commit is, and its number;
    from_scratch: whether to remove all other rows of the scope.
    """
    log, version = table_log(lake.uri("rule_index")), snapshot.number
    adds = log.files(snapshot) if from_scratch else []
    gone = [each for each in adds if each["partitionValues"].get("scope") == scope]
    add = _written(log, scope, chunks)
    # if this raises, the file may have been committed, and must stay
    if log.write_rows(snapshot, version, gone, [json.dumps({"add": add}), transaction(*mark)]):
        return True
    remove_files(str(log.folder), [add])
    return False


def chunks_of(described: Mapping[str, Any], path: Path, chunks: int) -> Iterator[pa.RecordBatch]:
    """The rows of `rule_index` that hold an index file; one at a time, since the file may be large.

    described: the values of all columns but `chunk` and `data`.
    """
    schema = arrow_schema(RULE_INDEX)
    with path.open("rb") as file:
        for chunk in range(chunks):
            row = pa.RecordBatch.from_pylist([{**described, "chunk": chunk}], schema=schema)
            yield row.set_column(schema.get_field_index("data"), "data", _binary(file.read(CHUNK_BYTES)))


def _binary(data: bytes) -> pa.Array:
    """An array of one value, without copying the bytes."""
    offsets = np.array([0, len(data)], np.int32)
    return pa.Array.from_buffers(pa.binary(), 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _written(log: DeltaLog, scope: str, chunks: Iterable[pa.RecordBatch]) -> dict[str, Any]:
    """Write a file with these rows; returns its `add` action. TableError if it cannot be written."""
    table = arrow_schema(RULE_INDEX)
    schema = table.remove(table.get_field_index("scope"))
    described = [name for name in schema.names if name not in ("data", "statistics")]
    try:
        file = NewFile(str(log.folder), "zstd", {"scope": scope})
        try:
            # a writer that opens its file, or collects its footer, raises once more when it is deleted after an error
            with pa.OSFile(file.path, "wb") as sink, pq.ParquetWriter(
                sink, schema, compression="zstd", compression_level=1, use_dictionary=False,
                write_statistics=described, store_schema=False,
            ) as writer:  # fmt: skip
                for chunk in chunks:
                    writer.write_batch(chunk.select(schema.names))
            return file.added(statistics(pq.read_metadata(file.path), schema, {}, _BOUNDED))
        except BaseException:
            file.remove()
            raise
    except OSError as error:
        raise not_written(f"The table rule_index at {log.uri} cannot be written", error) from error
