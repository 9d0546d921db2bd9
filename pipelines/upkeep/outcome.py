"""What the upkeep of one table came to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pipelines.upkeep.small_files import File


@dataclass(slots=True)
class Upkept:
    """One table: its files and bytes before and after, how many files were merged into how many, how many files were
    removed from its folder, and how many rows were deleted (of `runs`: folded into others). `notes` are sentences on
    what was left or put off; `error` says why it failed."""

    table: str
    files: int = 0
    bytes: int = 0
    files_before: int = 0
    bytes_before: int = 0
    merged: int = 0
    into: int = 0
    removed: int = 0
    rows: int = 0
    notes: list[str] = field(default_factory=list)
    error: str | None = None
    seconds: float = 0.0

    @classmethod
    def of(cls, table: str, files: Sequence[File]) -> Upkept:
        """A table as it is found."""
        size = sum(file.size for file in files)
        return cls(table, len(files), size, len(files), size)

    def after(self, files: Sequence[File]) -> None:
        """Take down what there is when all is done."""
        self.files, self.bytes = len(files), sum(file.size for file in files)

    def put_off(self, what: str) -> None:
        """Note what is not done now, as a sentence."""
        self.notes.append(f"{what[0].upper()}{what[1:]}.")

    @property
    def changed(self) -> bool:
        """Whether anything was done."""
        return bool(self.merged or self.removed or self.rows)
