"""Samples a source's rows, by which the engine of an index is chosen."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from pipelines.lake.lake import open_delta
from pipelines.settings.configuration import is_catalog_name
from pipelines.settings.model import Stream
from pipelines.sources.first_rows import files_of, reading_errors
from rules_index.index.build import SAMPLE_ROWS

SAMPLED_FILES = 4
"""Maximum number of files that a sample is taken from."""


def source_sample(stream: Stream, schema: pa.Schema) -> Callable[[list[str]], pa.Table | None]:
    """A function that reads the first rows of a few files, spread over the newest version of the stream's source.

    schema: the source's columns. The function returns None for a table that cannot be read here, since a sample only
    makes tagging faster.
    """

    def sample(columns: list[str]) -> pa.Table | None:
        """Up to SAMPLE_ROWS rows of some columns; None if they cannot be read."""
        if is_catalog_name(stream.source):
            return None
        try:
            files = files_of(stream, open_delta(stream.source, None, "a source", ""))
            count = min(SAMPLED_FILES, len(files))
            paths = {name: (name,) for name in columns}
            chosen = [files[i * len(files) // count] for i in range(count)]
            heads = [rows for first_rows in chosen for rows in first_rows(paths, SAMPLE_ROWS // count)]
            return pa.concat_tables(heads).cast(pa.schema([schema.field(name) for name in columns])) if heads else None
        except reading_errors():
            return None

    return sample
