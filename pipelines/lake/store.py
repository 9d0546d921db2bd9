"""The files of a table in an object store, read and written through delta-rs, with its credentials.

Parquet is only read and written in local folders of this process: whole files are copied from the store before they are
read, and to the store once they are complete. So readers and writers are the same as for tables in folders.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from deltalake.fs import DeltaStorageHandler
from pyarrow.fs import FileType, PyFileSystem

from pipelines.scratch import process_folder

_T = TypeVar("_T")
_THREADS = 16
"""Number of files that are copied at a time: a store answers each request slowly, but many of them at once."""
_PART = 8 << 20
"""Bytes of a file that are read or written in one request."""


class Store:
    """The files of one table, by their paths in the table's folder. Methods raise OSError if the store fails."""

    def __init__(self, uri: str) -> None:
        """uri: as delta-rs spells it."""
        self.uri = uri
        self._handler = DeltaStorageHandler(uri)
        self._files = PyFileSystem(self._handler)
        self.oldest_commit = 0
        """The oldest version whose commit the log held when it was last looked for."""

    def read(self, path: str) -> bytes:
        """The content of a file; FileNotFoundError if there is none."""
        with self._files.open_input_file(path) as file:
            return bytes(file.readall())

    def identity(self, path: str) -> tuple[int, ...] | None:
        """The identity of a file: modification time in nanoseconds, and size in bytes; None if there is no file.

        It differs from that of a file which is later written at the same path.
        """
        found = self._files.get_file_info(path)
        return None if found.type != FileType.File else (found.mtime_ns, found.size)

    def holds(self, path: str) -> bool:
        """Whether there is a file; this takes one request, and `identity` takes two."""
        try:
            self._files.open_input_file(path).close()
        except FileNotFoundError:
            return False
        return True

    def missing(self, paths: Sequence[str]) -> list[str]:
        """Returns the paths at which there is no file."""
        return [path for path, found in zip(paths, _each(self.holds, paths), strict=True) if not found]

    def fetch(self, sizes: Mapping[str, int], folder: Path) -> None:
        """Copy files into a folder of this machine, unless they are there.

        sizes: the files' sizes in bytes, by their paths.
        """
        # opening a file of unknown size would take a request, during which delta-rs stops all threads
        files = PyFileSystem(DeltaStorageHandler(self.uri, None, dict(sizes)))

        def copy(path: str) -> None:
            """Copy one file; it appears at its place when it is complete."""
            target = folder / path
            if target.exists():
                return
            target.parent.mkdir(parents=True, exist_ok=True)
            partial = target.with_name(f".{target.name}.{os.urandom(8).hex()}")
            with files.open_input_file(path) as file:
                file.download(str(partial), _PART)
            partial.rename(target)

        _each(copy, sizes)

    def send(self, folder: Path, paths: Sequence[str]) -> None:
        """Move files from a folder of this machine to the store; those that are no longer there were moved before."""

        def move(path: str) -> None:
            """Move one file."""
            source = folder / path
            if source.exists():
                # not through `_files`: Arrow passes buffers, but delta-rs only takes bytes
                sink: Any = self._handler._handler.open_output_stream(path)
                with source.open("rb") as file:
                    shutil.copyfileobj(file, sink, _PART)
                sink.close()
                source.unlink()

        _each(move, paths)

    @property
    def staging(self) -> Path:
        """The folder of this process in which files of the table are written before they are moved to the store."""
        folder = _folder() / hashlib.sha256(self.uri.encode()).hexdigest()[:16]
        folder.mkdir(exist_ok=True)
        return folder


@cache
def store_of(uri: str) -> Store:
    """The files of the table at `uri`, through connections that stay open."""
    return Store(uri)


@cache
def _folder() -> Path:
    """A folder of this process, which is removed when it ends; after a kill, by the next clean-up."""
    folder, _ = process_folder("stores")
    atexit.register(shutil.rmtree, folder, True)
    return folder


def copies_folder() -> Path:
    """A new folder of this process for copies of files."""
    folder = _folder() / f"copies-{os.urandom(8).hex()}"
    folder.mkdir()
    return folder


def _each(work: Callable[[str], _T], paths: Iterable[str]) -> list[_T]:
    """The results of `work` for each path, in order; threads take the paths."""
    paths = list(paths)
    if len(paths) < 2:
        return [work(path) for path in paths]
    with ThreadPoolExecutor(_THREADS, "deltatag-store") as threads:
        return list(threads.map(work, paths))
