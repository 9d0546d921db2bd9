"""Divides the files of a slice into pieces, one for each thread or task; threads of this process work on them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from rules_index.workers.source_file_reader import SourceFile, row_group_bytes

if TYPE_CHECKING:
    from pipelines.workspace import Workspace

_PIECE_BYTES = 16 << 20
"""Uncompressed bytes of row groups that make another thread or task worth while."""

_FOOTERS = 16
"""How many footers are read at a time."""
_T = TypeVar("_T")
_R = TypeVar("_R")


def cores() -> int:
    """How many threads of this process work at a time."""
    return os.cpu_count() or 1


def each_in_threads(
    items: Sequence[_T], work: Callable[[_T], _R], report: Callable[[int], None] = lambda _: None
) -> list[_R]:
    """The results of `work` for all items, in their order, computed by several threads. The first error is raised.

    report: called after each result, with the number of results so far.
    """
    threads = min(len(items), cores())
    results: list[_R] = []
    with ThreadPoolExecutor(max(threads, 1), "deltatag") as pool:
        for result in pool.map(work, items) if threads > 1 else map(work, items):
            results.append(result)
            report(len(results))
    return results


def progress_of_parts(workspace: Workspace, name: str, parts: int) -> Callable[[int], None]:
    """A function that reports how many of several parts of a micro-batch are done."""

    def report(done: int) -> None:
        if parts > 1:
            workspace.progress(f"{name}: {done} of {parts} parts of a micro-batch")

    return report


def pieces_of(files: Sequence[SourceFile], workers: int, most_bytes: int | None = None) -> list[list[SourceFile]]:
    """The row groups of files, in order, as pieces of about equal size.

    There are as many pieces as workers: more if a piece would exceed `most_bytes` uncompressed, fewer if there is
    little to read. OSError or pyarrow.ArrowException if a file cannot be read.
    """
    with ThreadPoolExecutor(_FOOTERS) as threads:  # reading footers from a remote file system is slow
        sizes = list(threads.map(lambda file: row_group_bytes(file.path), files))
    groups = [
        (file, number, size)
        for file, row_groups in zip(files, sizes, strict=True)
        for number, size in enumerate(row_groups)
    ]
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
    return [[replace(file, groups=tuple(numbers)) for file, numbers in piece.values()] for piece in pieces if piece]
