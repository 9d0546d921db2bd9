"""Compaction: merges small files of a table into one, with the layout and statistics of the table's own writers.

delta-rs and Spark could compact, too. But the bounds that delta-rs writes for a floating-point column leave out NaN,
which is Spark's largest number; and Spark's OPTIMIZE does not keep the row groups that separate rules.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from rules_index.workers.delta_file_writer import DeltaFile, Layout, remove_files
from rules_index.workers.source_file_reader import UnreadableFileError, check_times

if TYPE_CHECKING:
    from pipelines.lake.delta_log import DeltaLog

_LEGACY = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
"""Keys of the footers of files whose times are in the Julian calendar."""
_BATCH_ROWS = 1 << 16
WHOLE_FILE = 128 << 20
"""Size in bytes from which a file is not compacted."""


class NotMergeableError(Exception):
    """A file's rows cannot be copied here without a change."""


@dataclass(frozen=True, slots=True)
class FileWriter:
    """Writes files of one table: its folder, its columns without partition columns, and the layout of the files.

    log: reads the files of a table that is not in a folder.
    """

    folder: str
    schema: pa.Schema
    codec: str
    footer: Mapping[str, str]
    layout: Layout
    log: DeltaLog | None = None

    def merge(self, adds: Sequence[Mapping[str, Any]]) -> list[str]:
        """Copy the rows of files of one partition into new files; returns their `add` actions as JSON.

        The actions have `dataChange` false. NotMergeableError, with no file left behind, if a file has columns, times
        or deleted rows that cannot be copied here, or another number of rows than the log says.
        """
        entries: list[dict[str, Any]] = []
        file: DeltaFile | None = None
        taken = 0
        try:
            if self.log is not None:
                self.log.fetch(adds)
            for add in adds:
                if file is None:
                    partition = dict(adds[0].get("partitionValues") or {})
                    file = DeltaFile(self.folder, self.schema, self.codec, self.footer, self.layout, partition)
                self._copy(add, file)
                taken += int(add["size"])
                if taken >= WHOLE_FILE:
                    entries.append(file.close())
                    file, taken = None, 0
            if file is not None:
                entries.append(file.close())
        except BaseException:
            if file is not None:
                file.abandon()
            remove_files(self.folder, entries)
            raise
        finally:
            if self.log is not None:
                self.log.keep_only(())
        return [json.dumps({"add": {**entry, "dataChange": False}}) for entry in entries]

    def discard(self, entries: Sequence[str]) -> None:
        """Delete written files that will not be committed."""
        remove_files(self.folder, (json.loads(entry)["add"] for entry in entries))

    def _copy(self, add: Mapping[str, Any], file: DeltaFile) -> None:
        expected = json.loads(add.get("stats") or "{}").get("numRecords")
        path = os.path.join(self.folder if self.log is None else self.log.source_folder, unquote(add["path"]))
        rows = 0
        try:
            with pq.ParquetFile(path, coerce_int96_timestamp_unit="us") as parquet:
                self._check(parquet, add)
                check_times(path, parquet.metadata, range(parquet.num_row_groups), parquet.schema_arrow.names)
                for batch in parquet.iter_batches(_BATCH_ROWS):
                    file.write(self._as_table_has_it(batch))
                    rows += batch.num_rows
        except UnreadableFileError as error:
            raise NotMergeableError(str(error)) from error
        except pa.ArrowException as error:
            raise NotMergeableError(f"the file {add['path']} has other types than the table: {error}") from error
        if expected is not None and rows != expected:
            raise NotMergeableError(f"the file {add['path']} has {rows} rows, and the log says {expected}")

    def _check(self, parquet: pq.ParquetFile, add: Mapping[str, Any]) -> None:
        unknown = set(parquet.schema_arrow.names) - set(self.schema.names)
        legacy = any(key in (parquet.metadata.metadata or {}) for key in _LEGACY)
        if unknown or legacy or add.get("deletionVector"):
            raise NotMergeableError(f"the file {add['path']} has columns, times or deleted rows that only Spark knows")

    def _as_table_has_it(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with the table's columns; those added after the file was written are NULL."""
        columns = [
            batch.column(field.name).cast(field.type)
            if field.name in batch.schema.names
            else pa.nulls(batch.num_rows, field.type)
            for field in self.schema
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)
