"""The files of a slice in pieces, each of which one thread or task takes through the index."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from rules_index.workers.source_files import SourceFile, row_group_bytes

_PIECE_BYTES = 16 << 20
"""Bytes of row groups, before compression, from which it pays to have another thread or task."""

_FOOTERS = 16
"""Files whose footers are read at a time."""


def pieces_of(files: Sequence[SourceFile], workers: int, most_bytes: int) -> list[list[SourceFile]]:
    """Row groups in their order, as equal pieces: as many as there are workers, or more where a piece would have more
    than `most_bytes` before compression. OSError or pyarrow.ArrowException where a file cannot be read."""
    with ThreadPoolExecutor(_FOOTERS) as threads:  # a file system may be far away
        sizes = list(threads.map(lambda file: row_group_bytes(file.path), files))
    groups = [(file, number, size) for file, its in zip(files, sizes, strict=True) for number, size in enumerate(its)]
    total = sum(size for _, _, size in groups)
    count = max(1, min(workers, total // _PIECE_BYTES), -(-total // most_bytes))
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
