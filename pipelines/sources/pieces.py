"""Divides the files of a slice into pieces, one for each thread or task; threads of this process work on them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from rules_index.workers.source_files import SourceFile, row_group_bytes

_PIECE_BYTES = 16 << 20
"""Uncompressed bytes of row groups from which another thread or task pays."""

_FOOTERS = 16
"""How many footers are read at a time."""
_T = TypeVar("_T")
_R = TypeVar("_R")


def cores() -> int:
    """How many threads of this process work at a time."""
    return os.cpu_count() or 1


def each_in_threads(items: Sequence[_T], work: Callable[[_T], _R]) -> Iterator[_R]:
    """The results of `work` for each item, in order; threads take the items. The first error is raised."""
    threads = min(len(items), cores())
    if threads <= 1:
        yield from map(work, items)
        return
    with ThreadPoolExecutor(threads, "deltatag") as pool:
        yield from pool.map(work, items)


def pieces_of(files: Sequence[SourceFile], workers: int, most_bytes: int | None = None) -> list[list[SourceFile]]:
    """The row groups of files, in order, as pieces of about equal size.

    There are as many pieces as workers: more if a piece would exceed `most_bytes` uncompressed, fewer if there is
    little to read. OSError or pyarrow.ArrowException if a file cannot be read.
    """
    with ThreadPoolExecutor(_FOOTERS) as threads:  # reading footers from a remote file system is slow
        sizes = list(threads.map(lambda file: row_group_bytes(file.path), files))
    groups = [(file, number, size) for file, its in zip(files, sizes, strict=True) for number, size in enumerate(its)]
    total = sum(size for _, _, size in groups)
    count = max(1, min(workers, total // _PIECE_BYTES))
    if most_bytes is not None:
        count = max(count, -(-total // most_bytes))
    pieces: list[dict[str, tuple[SourceFile, list[int]]]] = [{} for _ in range(count)]
    before = 0
    for file, number, size in groups:
        piece = pieces[min(count - 1, (before + size // 2) * count // max(total, 1))]
        piece.setdefault(file.path, (file, []))[1].append(number)
        before += size
    return [
        [SourceFile(file.path, file.partition, file.version, tuple(numbers)) for file, numbers in piece.values()]
        for piece in pieces
        if piece
    ]
