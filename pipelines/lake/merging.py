"""Compaction: merges small files of a table into one, with the layout and statistics of the table's own writers.

delta-rs and Spark could compact, too. But the bounds that delta-rs writes for a floating-point column leave out NaN,
which is Spark's largest number; and Spark's OPTIMIZE does not keep the row groups that separate rules.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from rules_index.arrays import decoded
from rules_index.workers.delta_file_writer import DeltaFile, Layout, remove_files
from rules_index.workers.source_file_reader import SourceFile, UnreadableFileError, read_batches

if TYPE_CHECKING:
    from pipelines.lake.delta_log import DeltaLog

WHOLE_FILE = 128 << 20
"""Size in bytes from which a file is not compacted."""


class NotMergeableError(Exception):
    """A file's rows cannot be copied here without a change."""


@dataclass(frozen=True, slots=True)
class FileWriter:
    """Writes files of one table: its log, its columns without partition columns, and the layout of the files."""

    log: DeltaLog
    schema: pa.Schema
    codec: str
    layout: Layout

    def merge(self, adds: Sequence[Mapping[str, Any]]) -> list[str]:
        """Copy the rows of files of one partition into new files; returns their `add` actions as JSON.

        The actions have `dataChange` false. NotMergeableError, with no file left behind, if a file has columns, times
        or deleted rows that cannot be copied here, or another number of rows than the log says.
        """
        entries: list[dict[str, Any]] = []
        file: DeltaFile | None = None
        taken = 0
        try:
            for add, source in zip(adds, self.log.source_files([(0, add) for add in adds]), strict=True):
                if file is None:
                    partition = dict(adds[0].get("partitionValues") or {})
                    file = DeltaFile(str(self.log.folder), self.schema, self.codec, {}, self.layout, partition)
                self._copy(add, source, file)
                taken += int(add["size"])
                if taken >= WHOLE_FILE:
                    entries.append(file.close())
                    file, taken = None, 0
            if file is not None:
                entries.append(file.close())
        except BaseException:
            if file is not None:
                file.abandon()
            remove_files(str(self.log.folder), entries)
            raise
        finally:
            self.log.keep_only(())
        return [json.dumps({"add": {**entry, "dataChange": False}}) for entry in entries]

    def discard(self, entries: Sequence[str]) -> None:
        """Delete written files that will not be committed."""
        remove_files(str(self.log.folder), (json.loads(entry)["add"] for entry in entries))

    def _copy(self, add: Mapping[str, Any], source: SourceFile, file: DeltaFile) -> None:
        expected = json.loads(add.get("stats") or "{}").get("numRecords")
        rows = 0
        try:
            unknown = set(pq.read_schema(source.path).names) - set(self.schema.names)
            if unknown or add.get("deletionVector"):
                raise NotMergeableError(f"the file {add['path']} has columns or deleted rows that only Spark knows")
            for batch in read_batches([source], self.schema, with_version=False):
                columns = [decoded(column) for column in batch.columns]
                file.write(pa.RecordBatch.from_arrays(columns, schema=self.schema))
                rows += batch.num_rows
        except (UnreadableFileError, pa.ArrowException) as error:
            raise NotMergeableError(f"the file {add['path']} cannot be copied: {error}") from error
        if expected is not None and rows != expected:
            raise NotMergeableError(f"the file {add['path']} has {rows} rows, and the log says {expected}")
