"""Reads the few rows of a table that satisfy a condition."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa

from pipelines.lake.added_files import files_in
from pipelines.lake.reading import arrow_reads, as_dataset, as_texts, plain_field, read_rows
from pipelines.lake.table_cache import local_folder
from rules_index.workers.source_file_reader import SourceFile, UnreadableFileError, read_batches

if TYPE_CHECKING:
    import pyarrow.compute as pc
    from deltalake import DeltaTable


def filtered_rows(table: DeltaTable, columns: Sequence[str], where: pc.Expression) -> pa.Table:
    """Some columns, among them those that the condition names, of the rows that satisfy it, in no particular order.

    Texts that are not UTF-8 are as `as_texts` gives them. Raises what delta-rs and Arrow raise.
    """
    if not arrow_reads(table):
        return read_rows(table, columns).filter(where)
    folder, paths = local_folder(table.table_uri), files_in(table)["path"].to_pylist()
    # a shallow clone names files of another table by their URIs
    if folder is not None and not table.metadata().partition_columns and not any("://" in path for path in paths):
        files = [SourceFile(str(Path(folder) / unquote(path)), {}, 0) for path in paths]
        try:
            return as_texts(_streamed(table, files, columns, where))
        except UnreadableFileError:
            pass
    return as_texts(as_dataset(table).to_table(list(columns), where))


def _streamed(table: DeltaTable, files: Sequence[SourceFile], columns: Sequence[str], where: pc.Expression) -> pa.Table:
    """Reads the files in batches: a dataset holds all texts of a row group at once, hundreds of MB of a million
    rules."""
    schema = pa.schema([plain_field(field) for field in pa.schema(table.schema())])
    wanted = pa.schema([schema.field(name) for name in columns])
    parts = [wanted.empty_table()]
    for batch in read_batches(files, schema, columns, with_version=False):
        kept = batch.filter(where)
        if len(kept):
            parts.append(pa.Table.from_batches([kept]).select(columns).cast(wanted))
    return pa.concat_tables(parts)
