"""Small files of a table written anew as one, with the layout and the statistics that the table's writers give.

delta-rs would merge them, too, and so would Spark. But the bounds that delta-rs writes of a floating-point column leave
out NaN, which is Spark's largest number, and Spark's OPTIMIZE keeps no row groups that tell rules apart.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from rules_index.workers.delta_files import DeltaFile, Layout
from rules_index.workers.source_files import UnreadableFileError, check_times

_LEGACY = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
"""What the footer of a file has whose times are in another calendar."""
_BATCH_ROWS = 1 << 16
WHOLE_FILE = 128 << 20
"""Bytes from which a file is left alone."""


class NotMergeableError(Exception):
    """The rows of a file cannot be written anew here as they are."""


@dataclass(frozen=True, slots=True)
class FileWriter:
    """How files of one table are written: its folder, its columns without those of partitions, and their layout."""

    folder: str
    schema: pa.Schema
    codec: str
    footer: Mapping[str, str]
    layout: Layout

    def merge(self, adds: Sequence[Mapping[str, Any]]) -> list[str]:
        """Write the rows of the files of one partition anew; the log's entries, which change no row, as JSON.

        NotMergeableError, and no file is left behind, where a file has what the table's columns do not tell, or fewer
        or more rows than the log says.
        """
        entries: list[dict[str, Any]] = []
        file: DeltaFile | None = None
        taken = 0
        try:
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
            self.discard(json.dumps({"add": entry}) for entry in entries)
            raise
        return [json.dumps({"add": {**entry, "dataChange": False}}) for entry in entries]

    def discard(self, entries: Iterator[str] | Sequence[str]) -> None:
        """Remove files that no log will know."""
        for entry in entries:
            path = os.path.join(self.folder, unquote(json.loads(entry)["add"]["path"]))
            if os.path.exists(path):
                os.unlink(path)

    def _copy(self, add: Mapping[str, Any], file: DeltaFile) -> None:
        told = json.loads(add.get("stats") or "{}").get("numRecords")
        path = os.path.join(self.folder, unquote(add["path"]))
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
        if told is not None and rows != told:
            raise NotMergeableError(f"the file {add['path']} has {rows} rows, and the log says {told}")

    def _check(self, parquet: pq.ParquetFile, add: Mapping[str, Any]) -> None:
        unknown = set(parquet.schema_arrow.names) - set(self.schema.names)
        legacy = any(key in (parquet.metadata.metadata or {}) for key in _LEGACY)
        if unknown or legacy or add.get("deletionVector"):
            raise NotMergeableError(f"the file {add['path']} has columns, times or deleted rows that only Spark knows")

    def _as_table_has_it(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with the table's columns; NULL for those that the file is older than."""
        columns = [
            batch.column(field.name).cast(field.type)
            if field.name in batch.schema.names
            else pa.nulls(batch.num_rows, field.type)
            for field in self.schema
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)
