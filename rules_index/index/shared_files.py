"""Files that artifacts share: an artifact may refer to others in its folder, for what it has in common with them.

A long value list, or the full compile that an updated index changes, stays in the file that it was loaded from. The new
artifact then has that file's name and checksum. So each edit adds only what it changes, however many rules there are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rules_index.errors import ArtifactError
from rules_index.index.array_checks import require
from rules_index.index.artifact import checksum_of, read_header
from rules_index.index.checksum_cache import map_file

SHARED_BYTES = 1 << 20
"""What has at least so many bytes can stay in its file: less costs no more than a reference to another file."""
_NAME = re.compile(r"[0-9a-f]{64}\.index")
"""The name of a file that other artifacts may refer to: the SHA-256 of its content."""


def is_shared(size: int) -> bool:
    """True if so many bytes are to stay in their file."""
    return size >= SHARED_BYTES


@dataclass(frozen=True, slots=True)
class SharedFile:
    """A file that other artifacts may refer to: its name, the checksum in its prefix, and its size in bytes."""

    name: str
    checksum: str
    size: int


class ArtifactFiles:
    """The file of one artifact, and those that it refers to, each of which is read once.

    view, path: the artifact's bytes and its file; None for bytes without a file.
    """

    def __init__(self, view: memoryview, path: Path | None) -> None:
        named = path is not None and _NAME.fullmatch(path.name) is not None
        self.own = SharedFile(path.name, checksum_of(view), len(view)) if path is not None and named else None
        self._folder = path.parent if path is not None else None
        self._others: dict[str, OtherArtifact] = {}

    def other(self, name: Any, checksum: Any) -> OtherArtifact:
        """Another artifact. Raises `ArtifactError` if it cannot be read, `InvalidArraysError` if its checksum is not
        the expected one."""
        require(isinstance(name, str) and _NAME.fullmatch(name) is not None, "file")
        if self._folder is None:
            raise ArtifactError(f"The index refers to the file {name}; load it from the folder of that file.")
        if name not in self._others:
            mapped, is_checked = map_file(self._folder / name)
            view = memoryview(mapped)
            header = read_header(view, is_checked)
            require(checksum_of(view) == checksum, "file")
            files = ArtifactFiles(view, self._folder / name)
            self._others[name] = OtherArtifact(header, view[header["_start"] :], files)
        return self._others[name]


@dataclass(frozen=True, slots=True)
class OtherArtifact:
    """An artifact that another one refers to: its header, its sections, and the files that it refers to itself."""

    header: Mapping[str, Any]
    body: memoryview
    files: ArtifactFiles
