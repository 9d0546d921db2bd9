"""Reads the first rows of single files of a source's newest version, for samples of its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from pipelines.errors import NeedsSparkError, PipelineError
from pipelines.lake.column_types import arrow_schema_of
from pipelines.lake.reading import arrow_reads, as_dataset
from pipelines.lake.table_cache import local_folder
from pipelines.lake.table_log import table_log
from pipelines.sources.readable_features import why_spark_reads
from rules_index.workers.source_file_reader import UnreadableFileError, read_batches

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from pipelines.settings.model import Stream

Paths: TypeAlias = Mapping[str, tuple[str, ...]]
"""The columns to read, and fields within them, by their names in the result."""
FirstRows: TypeAlias = Callable[[Paths, int], Iterator[pa.Table]]
"""Yields the first rows of a file, up to a number."""
_BATCH_ROWS = 1 << 16


def files_of(stream: Stream, table: DeltaTable) -> list[FirstRows]:
    """One function for each file of the newest version. Rows that a deletion vector deletes are left out.

    Raises NeedsSparkError if only Spark reads the source, or if whole files would have to be copied here for it.
    """
    if arrow_reads(table):
        dataset = as_dataset(table)
        return [partial(_of_fragment, file, dataset.schema) for file in dataset.get_fragments()]
    if reason := why_spark_reads(stream):
        raise NeedsSparkError(reason)
    if local_folder(stream.source) is None:
        raise NeedsSparkError("files with deletion vectors are copied from an object store to be read")
    log = table_log(stream.source)
    newest = log.latest()
    schema = arrow_schema_of(newest.fields)

    def of_entry(add: Mapping[str, Any], paths: Paths, rows: int) -> Iterator[pa.Table]:
        """Rows of the file of an `add` entry."""
        read = pa.schema([field for field in schema if field.name in {path[0] for path in paths.values()}])
        for batch in read_batches(log.source_files([(0, add)]), read, with_version=False):
            found = pa.Table.from_batches([batch]).slice(0, rows).cast(read)
            yield pa.table({name: field_in(found.column(path[0]), path[1:]) for name, path in paths.items()})
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


def field_in(column: pa.ChunkedArray, names: tuple[str, ...]) -> pa.ChunkedArray:
    """A field within a column, NULL where a STRUCT around it is; the column itself without names."""
    return pc.struct_field(column, list(names)) if names else column


def reading_errors() -> tuple[type[Exception], ...]:
    """What `files_of` and its functions raise for a source that cannot be read: whoever wants a sample does without."""
    from deltalake.exceptions import DeltaError

    of_values = (ValueError, LookupError, ArithmeticError)
    return (PipelineError, UnreadableFileError, DeltaError, OSError, pa.ArrowException, *of_values)
