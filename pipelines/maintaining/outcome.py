"""The result of maintaining one table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pipelines.maintaining.small_files import File


@dataclass(slots=True)
class TableMaintenance:
    """The result of maintaining one table.

    files, bytes: after it, those before it with the suffix `_before`; merged, into: how many files were compacted into
    how many; removed: files deleted from the table's folder; rows: rows deleted (in `runs`: folded into others);
    notes: sentences on what was left or put off; error: why it failed.
    """

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
    def of(cls, table: str, files: Sequence[File]) -> TableMaintenance:
        """The state of a table before maintenance."""
        size = sum(file.size for file in files)
        return cls(table, len(files), size, len(files), size)

    def after(self, files: Sequence[File]) -> None:
        """Record the files after maintenance."""
        self.files, self.bytes = len(files), sum(file.size for file in files)

    def put_off(self, what: str) -> None:
        """Add a note on what is put off; `what` is a clause, which becomes a sentence."""
        self.notes.append(f"{what[0].upper()}{what[1:]}.")

    @property
    def changed(self) -> bool:
        """Whether anything was done."""
        return bool(self.merged or self.removed or self.rows)
