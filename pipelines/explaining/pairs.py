"""Finds joined rows in the sources of a join, in this process; also rows that satisfy no rule, so are in no table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

import rules_index as ri
from pipelines.errors import NeedsSparkError, SourceError
from pipelines.joining.local_joins import LocalJoins
from pipelines.joining.local_rows import LocalRows
from pipelines.joining.local_sides import names_of
from pipelines.joining.sides import SideFiles
from pipelines.runners.spark_required import why_spark_evaluates
from pipelines.scopes import JoinScope
from pipelines.sources.positions import Position, Slice
from pipelines.sources.readable_features import why_spark_reads
from rules_index.join.index import JoinIndex
from rules_index.join.worker import JoinTask, join_partition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pipelines.settings.model import Stream


def joined_rows_where(scope: JoinScope, compiled: ri.CompiledRules, wanted: int) -> list[pa.RecordBatch]:
    """Joined rows of the current sources that satisfy the rule in `compiled`, with one STRUCT column for each stream.

    These are at least `wanted` rows, if there are as many.

    SourceError if a source cannot be read, or only Spark can read and compare the rows.
    """
    try:
        if reason := why_spark_evaluates(compiled):
            raise NeedsSparkError(reason)
        return list(_joined(scope, compiled, wanted))
    except NeedsSparkError as error:
        raise SourceError(
            f"No row of {scope.name} satisfies the condition. Joined rows that match no rule are looked for without "
            f"Spark only, which is not possible: {error}."
        ) from error


def _joined(scope: JoinScope, compiled: ri.CompiledRules, wanted: int) -> Iterator[pa.RecordBatch]:
    join, index = scope.join, JoinIndex.of(compiled, scope.join.streams)
    rows = LocalRows(scope.workspace, join, [_all_files(scope, stream) for stream in scope.streams], [index])
    names, windows = names_of(rows.readers), tuple(join.window[stream] for stream in join.streams)
    columns = tuple(names[stream] for stream in join.streams)
    task = JoinTask(join.streams, columns, windows, len(rows.readers[0].types), pa.string())
    try:
        for part in rows.tasks():
            for found in join_partition(index, task, part()):
                yield found.select([*join.streams])
                wanted -= len(found)
                if wanted <= 0:
                    return
    finally:
        rows.release()


def _all_files(scope: JoinScope, stream: Stream) -> SideFiles:
    """All files of a source's newest version, as if all their rows were new."""
    if reason := why_spark_reads(stream):
        raise NeedsSparkError(f"of the stream {stream.name}: {reason}")
    source = LocalJoins(scope.workspace).open_source(stream, f"deltatag join {scope.name}")
    version = source.version
    files = tuple((version, add) for add in source.current_files.values())
    taken = Slice(source.table_id, Position(version), Position(version), version, files)
    return SideFiles(stream, source, taken, (), None, (), version)
