"""Opens Delta tables with delta-rs and keeps them open: a run asks for the same few tables dozens of times."""

from __future__ import annotations

import os
import re
import threading
import time
from collections import OrderedDict
from contextlib import suppress
from errno import EACCES, EROFS
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote, urlparse

from pipelines.errors import not_written

if TYPE_CHECKING:
    from deltalake import DeltaTable

_KEPT = 32
"""Maximum number of tables that are kept; the least recently used one is dropped."""
_KEPT_SECONDS = 600
"""Maximum seconds for which a table of an object store is kept: nobody removes files of its log that are this new."""
_TRUSTED_SECONDS = 5
"""Seconds for which a version in an object store is taken to be there still: each look takes two requests. Meanwhile, a
table that was dropped and created again with as many versions is taken for the old one, whose files are gone."""
_Log = tuple[tuple[int, ...] | None, ...]
"""The identities of the version's commit file and of the file that names the last checkpoint, when a table was opened.

The first changes if the table was dropped and created again. If the second changes, files of the log that the opened
table still has to read may have been removed.
"""


class _Kept(NamedTuple):
    table: DeltaTable
    version: int
    log: _Log
    seen: float
    """When the log was last seen to have the version, in seconds of the monotonic clock."""


_tables: OrderedDict[tuple[str, int | None, bool], _Kept] = OrderedDict()
_lock = threading.Lock()


def shared_table(uri: str, version: int | None, moves_on: bool = False) -> DeltaTable:
    """A version of the table at `uri`, by default the newest; raises what deltalake raises.

    All callers that ask for the same version get the same object, so none may write through it: see `own_table`.
    A look at the log shows whether there is a newer version.

    moves_on: the object of the newest version is brought up to date, rather than replaced, if the table has a newer
    one. That reads only what the log has gained, but the version changes for all who have the object; so they may also
    write through it.
    """
    key = uri, version, moves_on
    with _lock:
        kept = _tables.get(key)
        newest = _tables.get((uri, None, False))
        if kept is None and newest is not None and newest.version == newest.table.version() == version:
            kept = newest
        # somebody may have written through the object against the rule; and one that moves on has gone back if two
        # threads wrote through it, and the older commit ended last
        unmoved = kept is not None and kept.table.version() == kept.version
        if kept is not None and unmoved and (version is not None or _is_newest(uri, kept)):
            seen = kept.seen if _is_trusted(uri, kept) else time.monotonic()
            if seen == kept.seen or _is_there(uri, kept):
                _keep(key, kept.table, kept.log, seen)
                return kept.table
        if kept is not None and moves_on and _is_there(uri, kept):
            kept.table.update_incremental()
            _keep(key, kept.table, (_commit(uri, int(kept.table.version())), kept.log[1]))
            return kept.table
    # looked up first, since the table may be opened from an older checkpoint than the one that is there afterwards
    checkpoint = _checkpoint(uri)
    table = own_table(uri, version)
    log = _commit(uri, int(table.version())), checkpoint
    with _lock:
        _keep(key, table, log)
    return table


def share(uri: str, table: DeltaTable) -> None:
    """Keep a table that the caller has written through, and will not use any more, as the newest version. It need not
    be opened again then."""
    from deltalake import exceptions

    with suppress(exceptions.DeltaError, OSError):
        table.update_incremental()
        log = _commit(uri, int(table.version())), _checkpoint(uri)
        with _lock:
            _keep((uri, None, False), table, log)


def _keep(key: tuple[str, int | None, bool], table: DeltaTable, log: _Log, seen: float | None = None) -> None:
    _tables.pop(key, None)
    if log[0] is not None:
        _tables[key] = _Kept(table, int(table.version()), log, time.monotonic() if seen is None else seen)
        if len(_tables) > _KEPT:
            _tables.popitem(last=False)


def own_table(uri: str, version: int | None = None) -> DeltaTable:
    """A version of the table, by default the newest, in an object that the caller may write through."""
    from deltalake import DeltaTable

    return DeltaTable(delta_rs_uri(uri), version=version)


def table_to_write(uri: str, name: str = "", version: int | None = None) -> DeltaTable:
    """Like `own_table`; TableError if this user may not write in the table's folder: otherwise a thread of delta-rs
    would panic, with a stack trace on standard error.

    name: the table's name in messages.
    """
    table = own_table(uri, version)
    refuse_if_not_writable(uri, name)
    return table


def refuse_if_not_writable(uri: str, name: str) -> None:
    """TableError if this user may not write in the folder of the table at `uri`; `name` as for `table_to_write`."""
    folder = local_folder(delta_rs_uri(uri))
    if folder is None or all(os.access(Path(folder, log), os.W_OK) for log in ("", "_delta_log")):
        return
    reason = EROFS if os.statvfs(folder).f_flag & os.ST_RDONLY else EACCES
    named = f"The table {name} at {uri}" if name else f"The table at {uri}"
    raise not_written(f"{named} cannot be written", OSError(reason, os.strerror(reason)))


def delta_rs_uri(uri: str) -> str:
    """The URI as delta-rs spells it."""
    return re.sub(r"^s3[an]://", "s3://", re.sub(r"^file:/+", "/", uri))


def local_folder(uri: str) -> str | None:
    """The folder that a path or a `file:` URI names; None for an object store."""
    parsed = urlparse(uri)
    if parsed.scheme not in ("", "file"):
        return None
    return unquote(parsed.path) if parsed.scheme else uri


def _is_newest(uri: str, kept: _Kept) -> bool:
    """Whether the log has no later version."""
    if local_folder(uri) is not None:
        return _commit(uri, kept.version + 1) is None
    from deltalake import exceptions

    try:
        return bool(kept.table._table.get_latest_version() == kept.version)
    except (exceptions.DeltaError, OSError):
        return False  # opening it anew says why


def _is_trusted(uri: str, kept: _Kept) -> bool:
    """Whether the log need not be looked at to see that it has the version."""
    is_new = time.monotonic() - kept.seen < _TRUSTED_SECONDS
    return is_new and local_folder(uri) is None and kept.log[1] == _checkpoint(uri)


def _is_there(uri: str, kept: _Kept) -> bool:
    """Whether the log still has the version, and no newer checkpoint."""
    return (_commit(uri, kept.version), _checkpoint(uri)) == kept.log


def _commit(uri: str, version: int) -> tuple[int, ...] | None:
    return _file(uri, f"{version:020}.json")


def _checkpoint(uri: str) -> tuple[int, ...] | None:
    if local_folder(uri) is None:  # each look would take a request; instead, tables are not kept for long
        return (int(time.monotonic() // _KEPT_SECONDS),)
    return _file(uri, "_last_checkpoint")


def _file(uri: str, name: str) -> tuple[int, ...] | None:
    """The identity of a file of the log: inode (not in a store), modification time and size; None if there is none."""
    folder = local_folder(uri)
    try:
        if folder is None:
            from pipelines.lake.store import store_of

            return store_of(delta_rs_uri(uri)).identity(f"_delta_log/{name}")
        found = os.stat(Path(folder, "_delta_log", name))
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
