"""Opens the log of a table, wherever the table is."""

from __future__ import annotations

from pipelines.lake.delta_log import DeltaLog
from pipelines.lake.folder_log import FolderLog
from pipelines.lake.table_cache import local_folder


def table_log(uri: str, bounds: bool = False) -> DeltaLog:
    """The log of the table at `uri`, in a folder or in an object store; bounds: as for `DeltaLog`."""
    if local_folder(uri) is not None:
        return FolderLog(uri, bounds)
    from pipelines.lake.store_log import StoreLog

    return StoreLog(uri, bounds)
