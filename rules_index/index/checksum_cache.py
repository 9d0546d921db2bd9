"""Index files are named by the SHA-256 of their bytes; a process hashes each file only once to compare it with its
name."""

from __future__ import annotations

import hashlib
import mmap
import os
import time
from pathlib import Path
from typing import IO

from rules_index.errors import ArtifactError

_Status = tuple[int, int, int, int, int]
_TICK = 50_000_000
"""Nanoseconds within which a file system may give two changes of a file the same time."""
_known: dict[_Status, str] = {}
"""The SHA-256 by status: device, inode, size and the times of change. A file that is written or replaced has another
status."""


def sha256_once(path: Path) -> str:
    """The SHA-256 of a file, in hex. It is not computed again until the file changes. Raises `OSError`."""
    with open(path, "rb") as file:
        status = _status(file)
        if status in _known:
            return _known[status]
        found = hashlib.file_digest(file, "sha256").hexdigest()
        # a write soon after another one may not change the times
        if time.time_ns() - max(status[-2:]) > _TICK:
            _known[status] = found
        return found


def map_file(path: Path) -> tuple[mmap.mmap, bool]:
    """Maps a file into memory. Also returns whether `sha256_once` has found that the bytes have the SHA-256 that the
    file is named by. Raises `ArtifactError` for a file that is empty or cannot be read."""
    try:
        with open(path, "rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), _known.get(_status(file)) == path.stem
    except ValueError:
        raise ArtifactError(f"{path} is empty; it is not an index.") from None
    except OSError as error:
        raise ArtifactError(f"{path} cannot be read: {error.strerror}.") from error


def _status(file: IO[bytes]) -> _Status:
    found = os.fstat(file.fileno())
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
