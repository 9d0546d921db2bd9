"""Finds the newest version of a stream's source, without a JVM if possible."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pipelines.errors import SourceError
from pipelines.settings.configuration import is_catalog_name
from pipelines.settings.model import Stream
from pipelines.settings.streams_over_streams import no_source

if TYPE_CHECKING:
    from pipelines.workspace import Workspace
from pipelines.sources.opened_by_spark import opened_by_spark
from pipelines.sources.positions import Position


class SourceVersion(NamedTuple):
    """The newest version of a source, and the table's id."""

    version: int
    table_id: str


def newest_version(workspace: Workspace, stream: Stream) -> SourceVersion:
    """The newest version of the stream's source, without a JVM if possible; SourceError if there is no table."""
    from pipelines.errors import AccessError, MissingTableError, TableError
    from pipelines.lake.lake import open_delta

    unopened: TableError | None = None
    if not is_catalog_name(stream.source):
        try:
            table = open_delta(stream.source, None, "a source", "")
            return SourceVersion(int(table.version()), str(table.metadata().id))
        except MissingTableError:
            raise SourceError(no_source(stream.name, stream.source, stream.source_stream)) from None
        except AccessError as error:
            raise SourceError(f"The source of {stream.name} is out of reach: {error}") from None
        except TableError as error:
            unopened = error
    source = opened_by_spark(workspace, stream, unopened)
    return SourceVersion(source.version, source.table_id)


def has_more(workspace: Workspace, stream: Stream, position: Position, table_id: str, reached: bool = True) -> bool:
    """Whether a run over the stream's source has work after a position.

    This is also so if the source is now another table or an older copy, since the run must report that. reached: False
    if no row was taken yet: the position is then a start, which may be in the future.
    """
    newest = newest_version(workspace, stream)
    is_older = reached and position.is_beyond(newest.version)
    return newest.table_id != table_id or newest.version >= position.version or is_older
