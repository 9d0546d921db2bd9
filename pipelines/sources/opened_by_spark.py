"""Opens by Spark a source that delta-rs cannot open, or does not look for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipelines.errors import SourceError, TableError
from pipelines.settings.model import LOCAL, Stream

if TYPE_CHECKING:
    from pipelines.sources.source import Source
    from pipelines.workspace import Workspace


def opened_by_spark(workspace: Workspace, stream: Stream, unopened: TableError | None = None) -> Source:
    """The stream's source, read by Spark.

    unopened: why delta-rs cannot open the table, for instance because an object store is out of reach. Spark then often
    fails for another reason, which says nothing, so that both are told. SourceError if Spark cannot open it either, or
    is ruled out.
    """
    if unopened is not None and workspace.configuration.lake.runner == LOCAL:
        raise SourceError(f'{unopened}. Spark is not asked, since [lake] runner is "local".')
    from pipelines.sources.source import open_source

    try:
        return open_source(workspace.spark, stream)
    except SourceError as error:
        if unopened is None:
            raise
        raise SourceError(f"{unopened}. Spark cannot open it either: {error}") from None
