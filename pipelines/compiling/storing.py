"""Stores a compiled index in its file and in `rule_index`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import rules_index as ri
from pipelines.lake.index_store import (
    StoredIndex,
    fetch_index,
    newest_index,
    read_index,
    store_index,
)
from pipelines.lake.lake import Lake
from pipelines.scratch import indexes_folder, new_file
from rules_index.index.checksum_cache import sha256_once

_CHECKED_BYTES = 64 << 20
"""Size in bytes up to which a stored index is read from the table and checked on each compile."""


def sound_index(lake: Lake, name: str) -> StoredIndex | None:
    """The scope's newest index, after checking its bytes; None if there is none. IndexDamagedError if it is damaged."""
    stored = newest_index(lake, name)
    if stored is not None:
        fetch_index(lake, stored) if stored.bytes > _CHECKED_BYTES else read_index(lake, stored)
    return stored


def save_to_temporary_file(compiled: ri.CompiledRules) -> Path:
    """Write the index to a temporary file, for `store`. Long lists, and the rules that it shares with an older
    index, stay in the files that they were loaded from."""
    handle, path = new_file(indexes_folder())
    os.close(handle)
    try:
        compiled.save(path, shares_files=True)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return path


def store(
    lake: Lake,
    path: Path,
    name: str,
    version: int,
    fingerprint: str,
    engine: str,
    statistics: Mapping[str, Any],
    force: bool,
) -> StoredIndex:
    """Store the index in `rule_index`, and rename its file so that `fetch_index` finds it."""
    try:
        stored = store_index(lake, name, version, fingerprint, engine, path, statistics, force)
        if sha256_once(path) == stored.sha256:
            os.replace(path, path.with_name(f"{stored.sha256}.index"))
    finally:
        path.unlink(missing_ok=True)
    return stored
