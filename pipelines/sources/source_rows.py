"""Reads the rows of a source's newest version, or a sample of them, without a JVM."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from pipelines.error_texts import first_line
from pipelines.errors import SourceError
from pipelines.lake.column_types import nullable
from pipelines.lake.lake import open_delta, rows_in
from pipelines.lake.reading import arrow_reads, as_dataset, zoned_partitions
from pipelines.lake.table_log import table_log
from pipelines.settings.configuration import is_catalog_name
from pipelines.sources.readable_features import why_spark_reads
from rules_index.workers.source_file_reader import SourceFile, UnreadableFileError, read_batches

if TYPE_CHECKING:
    from pipelines.settings.model import Stream

BATCH_ROWS = 1 << 17
SAMPLED_PARTS = 32
_Part: TypeAlias = tuple[int, Callable[[], Iterator[pa.Table]]]
"""How many rows a part of the source has, deleted ones included, and a function that reads them."""
_T = TypeVar("_T")


class SourceRows:
    """The rows of a stream's source, in batches.

    read: how many rows the batches had so far; sampled: whether they are only a sample.
    """

    def __init__(
        self, stream: Stream, schema: pa.Schema, times: ds.Expression | None, sample: int | None, zone: str
    ) -> None:
        """schema: the columns to read; times: a filter of rows; sample: about how many rows to read, None for all;
        zone: the time zone of rules. SourceError if the source cannot be read here."""
        self.read = 0
        if is_catalog_name(stream.source):
            raise SourceError(
                f"The source of {stream.name} is in a catalog; a back-test reads only a source with a path."
            )
        self._stream, self._schema, self._times = stream, nullable(schema), times
        self._table = open_delta(stream.source, None, f"the source of {stream.name}", "Write it first.")
        if reason := why_spark_reads(stream):
            raise SourceError(f"The source of {stream.name} can be read by Spark alone: {reason}")
        if zoned := [name for name in zoned_partitions(self._table, zone) if name in schema.names]:
            raise SourceError(
                f"The source of {stream.name} can be read by Spark alone: it is partitioned by {zoned[0]}, a "
                f"TIMESTAMP, and time_zone is not UTC but {zone}. To count the rows that a rule matches, query the "
                "source with the rule as WHERE."
            )
        rows = rows_in(self._table) or 0
        self.sampled = sample is not None and sample < rows
        self._sample = sample if self.sampled else None

    def __iter__(self) -> Iterator[pa.Table]:
        """Tables of up to `BATCH_ROWS` rows; SourceError if the source cannot be read."""
        try:
            parts = self._of_dataset() if arrow_reads(self._table) else self._of_files()
            count = sum(rows for rows, _ in parts)
            for _, tables in parts:
                for table in tables():
                    found = table.cast(self._schema)
                    found = found if self._sample is None else _strided(found, self._sample, count)
                    self.read += found.num_rows
                    if found.num_rows:
                        yield found
        except (OSError, pa.ArrowException, UnreadableFileError) as error:
            raise SourceError(f"The source of {self._stream.name} cannot be read: {first_line(error)}") from error

    def _of_dataset(self) -> list[_Part]:
        """All files or, for a sample, some row groups."""
        dataset = as_dataset(self._table)

        def tables(part: ds.ParquetFileFragment) -> Iterator[pa.Table]:
            """The rows of a part."""
            names = self._schema.names
            for batch in part.to_batches(dataset.schema, columns=names, filter=self._times, batch_size=BATCH_ROWS):
                yield pa.Table.from_batches([batch])

        files = list(dataset.get_fragments(self._times))
        if self._sample is None:
            return [(0, partial(tables, file)) for file in files]
        groups = _spread([group for file in files for group in file.split_by_row_group()])
        return [(group.row_groups[0].num_rows, partial(tables, group)) for group in groups]

    def _of_files(self) -> list[_Part]:
        """The same of a table that Arrow does not read by itself, since files have deletion vectors."""
        log = self._log = table_log(self._stream.source)  # its copies of files are kept as long as it is
        adds = log.files(log.latest())

        def tables(file: SourceFile) -> Iterator[pa.Table]:
            """The rows of a part."""
            for batch in read_batches([file], self._schema, with_version=False):
                table = pa.Table.from_batches([batch])
                yield table if self._times is None else table.filter(self._times)

        def fetched(add: Mapping[str, Any]) -> Iterator[pa.Table]:
            """The rows of a file. In an object store it is copied here first, in place of the one before."""
            log.keep_only([add["path"]])
            for file in log.source_files([(0, add)]):
                yield from tables(file)

        if self._sample is None:
            return [(0, partial(fetched, add)) for add in adds]
        footers = [
            (file, pq.read_metadata(file.path)) for file in log.source_files([(0, add) for add in _spread(adds)])
        ]
        groups = _spread([(file, footer, n) for file, footer in footers for n in range(footer.num_row_groups)])
        return [
            (footer.row_group(number).num_rows, partial(tables, replace(file, groups=(number,))))
            for file, footer, number in groups
        ]


def _spread(parts: Sequence[_T]) -> Sequence[_T]:
    """Up to `SAMPLED_PARTS` parts, spread evenly."""
    if len(parts) <= SAMPLED_PARTS:
        return parts
    return [parts[i * len(parts) // SAMPLED_PARTS] for i in range(SAMPLED_PARTS)]


def _strided(table: pa.Table, sample: int, rows: int) -> pa.Table:
    """Evenly spaced rows of a part of the source: its share, at least one row, of a sample of `sample` of `rows`."""
    if sample >= rows or not table.num_rows:
        return table
    wanted = max(1, round(table.num_rows * sample / rows))
    return table.take(pa.array(np.linspace(0, table.num_rows - 1, wanted).astype(np.int64)))
