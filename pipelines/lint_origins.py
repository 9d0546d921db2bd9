"""Finds streams that could read another stream's tagged rows instead of the source that both read now."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.errors import PipelineError
from pipelines.lake.added_files import files_in
from pipelines.lake.lake import open_delta, rows_in
from pipelines.origin import IndexedRules, implied_by
from pipelines.settings.configuration import is_catalog_name
from pipelines.settings.model import Configuration, Stream
from pipelines.settings.streams_over_streams import not_asked
from pipelines.table_definitions import tagged_table
from pipelines.workspace import Workspace


def possible_origins(configuration: Configuration, stream: Stream) -> list[Stream]:
    """The streams whose tagged rows the stream could read, as far as the configuration allows it.

    They read the same source and keep only rows that matched. Whether their rules imply the stream's is not checked.
    """
    joined = any(stream.name in join.streams for join in configuration.joins.values())
    if joined or stream.source_stream is not None or stream.output != "matched":
        return []
    return [
        other
        for other in configuration.streams.values()
        if other.name != stream.name
        and other.source_stream is None
        and (other.source, other.start, other.output) == (stream.source, stream.start, "matched")
        and not any(not_asked(stream, other.key, other.checks))
    ]


def origin_proposal(
    workspace: Workspace, stream: Stream, mine: IndexedRules, theirs: dict[str, IndexedRules], schema: pa.Schema
) -> str | None:
    """A proposal to read the smallest tagged table that holds all rows which the stream's rules can match.

    theirs: the rules of `possible_origins`, by name. None if there is no such table.
    """
    found = [
        workspace.configuration.stream(name)
        for name, rules in theirs.items()
        if implied_by(mine, rules, schema)["implied"].fill_null(False).all()
    ]
    if not found or mine.rules.is_empty():
        return None
    sizes = {each.name: _size(workspace.lake.settings.place(tagged_table(each))) for each in found}
    best = min(found, key=lambda each: (sizes[each.name] is None, sizes[each.name] or (0, 0)))
    then = f", then: deltatag tag {stream.name} --restart" if workspace.lake.exists(tagged_table(stream)) else ""
    return (
        f"Every rule of {stream.name} is implied by the rules of {best.name}, so {stream.name} can read what "
        f"{best.name} has tagged{_shown(sizes[best.name])} in place of the source{_shown(_size(stream.source))}. Write "
        f'source_stream = "{best.name}" in place of source in [streams.{stream.name}]{then}'
    )


def _size(place: str) -> tuple[int, int | None] | None:
    """Bytes and rows of a table; None if it does not exist, cannot be read, or is in a catalog."""
    from deltalake import exceptions

    if is_catalog_name(place):
        return None
    try:
        table = open_delta(place, None, "a table", "")
        return pc.sum(files_in(table)["size_bytes"]).as_py() or 0, rows_in(table)
    except (PipelineError, exceptions.DeltaError, OSError, ValueError):
        return None


def _shown(size: tuple[int, int | None] | None) -> str:
    if size is None:
        return ""
    rows = f"{size[1]:,} rows, " if size[1] is not None else ""
    return f" ({rows}{size[0] / 2**20:,.1f} MiB)"
