"""Reads the first rows of single files of a source's newest version, for samples of its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from pipelines.errors import NeedsSparkError
from pipelines.lake.column_types import arrow_schema_of
from pipelines.lake.reading import arrow_reads, as_dataset
from pipelines.lake.table_log import table_log
from pipelines.sources.readable_features import why_spark_reads
from rules_index.workers.source_file_reader import read_batches

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from pipelines.settings.model import Stream

Paths: TypeAlias = Mapping[str, tuple[str, ...]]
"""The columns to read, and fields within them, by their names in the result."""
FirstRows: TypeAlias = Callable[[Paths, int], Iterator[pa.Table]]
"""Yields the first rows of a file, up to a number. Only one such iterator of a source may be in use at a time."""
_BATCH_ROWS = 1 << 16


def files_of(stream: Stream, table: DeltaTable) -> list[FirstRows]:
    """One function for each file of the newest version. Rows that a deletion vector deletes are left out.

    Raises NeedsSparkError if only Spark reads the source.
    """
    if arrow_reads(table):
        dataset = as_dataset(table)
        return [partial(_of_fragment, file, dataset.schema) for file in dataset.get_fragments()]
    if reason := why_spark_reads(stream):
        raise NeedsSparkError(reason)
    log = table_log(stream.source)  # its copies of files are kept as long as it is
    newest = log.latest()
    schema = arrow_schema_of(newest.fields)

    def of_entry(add: Mapping[str, Any], paths: Paths, rows: int) -> Iterator[pa.Table]:
        """Rows of the file of an `add` entry. In an object store, it is copied here in place of the one before."""
        read = pa.schema([field for field in schema if field.name in {path[0] for path in paths.values()}])
        log.keep_only([add["path"]])
        for batch in read_batches(log.source_files([(0, add)]), read, with_version=False):
            found = pa.Table.from_batches([batch]).slice(0, rows).cast(read)
            yield pa.table({name: _field(found.column(path[0]), path[1:]) for name, path in paths.items()})
            rows -= found.num_rows
            if rows <= 0:
                break

    return [partial(of_entry, add) for add in log.files(newest)]


def _of_fragment(file: ds.Fragment, schema: pa.Schema, paths: Paths, rows: int) -> Iterator[pa.Table]:
    columns = {name: ds.field(*path) for name, path in paths.items()}
    for batch in file.to_batches(schema, columns=columns, batch_size=min(rows, _BATCH_ROWS), batch_readahead=1):
        yield pa.Table.from_batches([batch.slice(0, rows)])
        rows -= batch.num_rows
        if rows <= 0:
            break


def _field(column: pa.ChunkedArray, names: tuple[str, ...]) -> pa.ChunkedArray:
    """A field within a column, NULL where a STRUCT around it is; the column itself without names."""
    return pc.struct_field(column, list(names)) if names else column
