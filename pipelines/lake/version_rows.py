"""Reads the rows of many versions of a small table, each data file only once: versions share most of their files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.errors import PipelineError
from pipelines.lake.added_files import files_in
from pipelines.lake.lake import Lake
from pipelines.lake.reading import arrow_reads, as_texts, read_rows, rows_by_file
from pipelines.lake.table_log import table_log

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from pipelines.lake.delta_log import DeltaLog

_SMALL, _KEPT_BYTES = 16 << 20, 64 << 20
"""Maximum bytes of the files of `rules`, and of their rows, that stay in memory: after many edits each reading takes
seconds."""
_AHEAD = 500
"""Number of commits whose files are read at once if few rows are wanted: one by one, each takes milliseconds."""
Where = Callable[[pa.Schema], pc.Expression | None]
"""Gives the condition of the wanted rows, for the columns of a version; None for all rows."""


def rows_of_versions(
    lake: Lake, name: str, versions: Sequence[int], where: Where | None = None
) -> Iterator[tuple[int, pa.Table | PipelineError]]:
    """Yields each of these versions, which ascend, with its rows, or with the error if it can no longer be read.

    If nothing has changed between two versions, the same object is yielded for both. The wanted rows of one version
    are held in memory. `where` saves time: if Arrow does not read the table's files as they are, it is ignored.
    """
    log = table_log(lake.uri(name))
    held: _Version | None = None
    for version in versions:
        try:
            if held is not None:
                held.read_ahead(log, versions[-1])
            if held is None or not held.advance(log, version):
                held = _Version(lake, name, version, where, held)
            found: pa.Table | PipelineError = held.rows()
        except PipelineError as error:
            held, found = held if held is not None and held.number == version else None, error
        yield version, found


def rules_at(lake: Lake, version: int, columns: list[str] | None = None) -> pa.Table:
    """The rows of one version of `rules`, in no particular order; TableError if it cannot be read.

    If the table is small, each file is read only once, however many versions have it.
    """
    if not is_small(lake.delta("rules", version)):
        return lake.arrow("rules", columns, version=version)
    ((_, found),) = rows_of_versions(lake, "rules", [version])
    if isinstance(found, PipelineError):
        raise found
    return found if columns is None else found.select(columns)


def is_small(table: DeltaTable) -> bool:
    """Whether the rows of a table may stay in memory."""
    return sum(files_in(table)["size_bytes"].to_pylist()) <= _SMALL


class _Version:
    """One version at a time: the rows of its files, and which of its files cannot be read."""

    def __init__(self, lake: Lake, name: str, number: int, where: Where | None, before: _Version | None) -> None:
        """before: another version, whose rows are used again if the columns are the same."""
        self._lake, self._name, self.number = lake, name, number
        self._table = lake.delta(name, number)
        self._schema = pa.schema(self._table.schema().to_arrow())
        self._by_file = arrow_reads(self._table) and not self._table.metadata().partition_columns
        self._paths: set[str] = set(files_in(self._table)["path"].to_pylist()) if self._by_file else set()
        is_same = before is not None and before._schema.equals(self._schema)
        self._read: dict[str, pa.Table | Exception] = before._read if before is not None and is_same else {}
        self._condition = where(self._schema) if where is not None else None
        self._is_kept = name == "rules" and self._condition is None
        self._shown: tuple[list[pa.Table], pa.Table] | None = None
        self._ahead: dict[str, pa.Table | Exception] = {}
        self._ahead_to = number

    def read_ahead(self, log: DeltaLog, last: int) -> None:
        """Read the files that the next commits add, up to the version `last`, unless all of their rows are wanted."""
        if self._condition is None or not self._by_file or self.number < self._ahead_to:
            return
        self._ahead_to = min(self.number + _AHEAD, last)
        paths: set[str] = set()
        for version in range(self.number + 1, self._ahead_to + 1):
            try:
                actions = _changes(log, version)
            except PipelineError:
                break
            if actions is None:
                break
            paths |= {each["add"]["path"] for each in actions if "add" in each}
        self._ahead = _read(self._table, sorted(paths - self._read.keys()), self._condition) if paths else {}

    def advance(self, log: DeltaLog, number: int) -> bool:
        """Become a later version by the commits of the log. False if it does not hold one of them, or if a commit
        changes more than files: then that version must be opened."""
        if not self._by_file:
            return False
        for version in range(self.number + 1, number + 1):
            actions = _changes(log, version)
            if actions is None:
                return False
            self._paths -= {each["remove"]["path"] for each in actions if "remove" in each}
            self._paths |= {each["add"]["path"] for each in actions if "add" in each}
        self.number = number
        return True

    def rows(self) -> pa.Table:
        """The rows of the version; TableError if one of its files cannot be read."""
        from deltalake import exceptions

        if not self._by_file:
            try:
                return as_texts(read_rows(self._table))
            except (exceptions.DeltaError, OSError, pa.ArrowException) as error:
                raise self._lake.unreadable(self._name, self.number, error) from error
        self._read = {path: rows for path, rows in self._read.items() if path in self._paths}
        new = self._paths - self._read.keys()
        for kept in (self._kept(), self._ahead):
            self._read |= {path: kept[path] for path in new & kept.keys()}
        if new := new - self._read.keys():
            found = _read(self._table, sorted(new), self._condition)
            self._read |= found
            self._keep({path: rows for path, rows in found.items() if isinstance(rows, pa.Table)})
        parts: list[pa.Table] = []
        for path in sorted(self._read):
            part = self._read[path]
            if isinstance(part, Exception):
                raise self._lake.unreadable(self._name, self.number, part) from part
            if len(part):
                parts.append(part)
        if self._shown is None or not _are_same(self._shown[0], parts):
            # in one chunk: Polars takes a millisecond for a dozen chunks
            self._shown = parts, pa.concat_tables([self._schema.empty_table(), *parts]).combine_chunks()
        return self._shown[1]

    def _kept(self) -> dict[str, pa.Table]:
        """The rows of files that were read before for such a version."""
        kept = self._lake.rule_files_read if self._is_kept else None
        return kept[1] if kept is not None and kept[0].equals(self._schema) else {}

    def _keep(self, rows: dict[str, pa.Table]) -> None:
        """Keep the rows of files for who asks next, unless they are many."""
        before = self._kept()
        size = sum(each.nbytes for each in rows.values())
        size += self._lake.rule_files_read[2] if before and self._lake.rule_files_read is not None else 0
        if self._is_kept and size <= _KEPT_BYTES:
            self._lake.rule_files_read = self._schema, {**before, **rows}, size


def _changes(log: DeltaLog, version: int) -> list[dict[str, Any]] | None:
    """The actions of a commit; None if the log does not hold it, or if it changes more than files."""
    try:
        actions = log.commit(version)
    except ValueError:  # what the log's file has is no JSON: delta-rs says so, or reads a checkpoint instead
        return None
    if actions is None or any("metaData" in each or "protocol" in each for each in actions):
        return None
    return actions


def _read(table: DeltaTable, paths: Sequence[str], where: pc.Expression | None) -> dict[str, pa.Table | Exception]:
    """The rows of each file, or the error of reading it."""
    try:
        return {**rows_by_file(table, paths, where)}
    except (OSError, pa.ArrowException) as error:
        if len(paths) == 1:
            return {paths[0]: error}
    return {path: found for each in paths for path, found in _read(table, [each], where).items()}


def _are_same(one: Sequence[pa.Table], two: Sequence[pa.Table]) -> bool:
    return len(one) == len(two) and all(first is second for first, second in zip(one, two, strict=True))
