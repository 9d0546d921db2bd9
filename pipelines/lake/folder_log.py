"""The log of a Delta table in a folder: a commit is a file that appears there atomically."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.errors import NeedsSparkError, not_written
from pipelines.lake.delta_log import DeltaLog
from pipelines.lake.folder_snapshot import Definition, FolderSnapshot
from pipelines.lake.log_actions import commit_info
from pipelines.lake.table_cache import local_folder


class FolderLog(DeltaLog):
    """The log of the table in one folder."""

    def __init__(self, uri: str, bounds: bool = False) -> None:
        """uri: a path, or a `file:` URI; bounds: as for `DeltaLog`."""
        super().__init__(uri, Path(local_folder(uri) or uri), bounds)
        self._log = self.folder / "_delta_log"

    def commits(self) -> range:
        """The versions from the oldest commit that the log still holds to the newest one."""
        names = os.listdir(self._log) if self._log.is_dir() else []
        versions = sorted(int(name[:20]) for name in names if len(name) == 25 and name.endswith(".json"))
        return range(versions[0], versions[-1] + 1) if versions else range(0)

    def missing(self, paths: Sequence[str]) -> list[str]:
        """Returns the paths, as in the log, at which there is no longer a file."""
        return [path for path in paths if not self.file(path).exists()]

    def file(self, path: str) -> Path:
        """The location of a file, given by its path in the log."""
        parsed = urlparse(path)
        return Path(unquote(parsed.path)) if parsed.scheme == "file" else self.folder / unquote(path)

    def checkpoint(self, version: int) -> tuple[int, pa.Table | None]:
        """The version and the rows of the newest checkpoint of `version` or of an earlier one; -1 and None if none is
        in a single file."""
        checkpoints = [int(path.name[:20]) for path in self._log.glob("*.checkpoint.parquet") if len(path.name) == 39]
        first = max((number for number in checkpoints if number <= version), default=-1)
        return first, None if first < 0 else pq.read_table(self._log / f"{first:020d}.checkpoint.parquet")

    @property
    def source_folder(self) -> Path:
        """The folder in which the table's files are read."""
        return self.folder

    def fetch(self, adds: Iterable[Mapping[str, Any]]) -> None:
        """Do nothing: files in a folder are readable at `file` as they are."""

    def keep_only(self, paths: Iterable[str]) -> None:
        """Do nothing: no copies of files in a folder are made."""

    def create(self, definition: Definition) -> bool:
        """Create the table as version 0; False if another process has created it first."""
        self._log.mkdir(parents=True, exist_ok=True)
        info = commit_info("CREATE TABLE", definition.operation_parameters(), {}, is_blind_append=True)
        return self._put(0, [info, *map(json.dumps, definition.actions(str(uuid.uuid4()), frozenset()))])

    def _commit_text(self, version: int) -> str:
        return (self._log / f"{version:020d}.json").read_text(encoding="utf-8")

    def _send(self, entries: Sequence[str]) -> None:
        """Do nothing: files are written where the table is."""

    def _actions_of(self, definition: Definition, held: FolderSnapshot) -> list[dict[str, Any]]:
        """The actions that give an existing table a new definition. NeedsSparkError if readers of the table must
        support more than TIMESTAMP_NTZ: what such a feature asks of the commit is left to Spark."""
        if foreign := sorted(held.reader_features - {"timestampNtz"}):
            raise NeedsSparkError(f"the table at {self.uri} has the table feature {foreign[0]}")
        return definition.actions(held.table_id, held.features)

    def _put(self, version: int, lines: Iterable[str]) -> bool:
        """Write a commit atomically; False if its version is taken. TableError if the log cannot be written."""
        path = self._log / f"{version:020d}.json"
        temporary = self._log / f".{path.name}.{uuid.uuid4().hex}.tmp"
        try:
            with temporary.open("w", encoding="utf-8") as file:
                file.writelines(f"{_without_surrogates(line)}\n" for line in lines)
                file.flush()
                os.fsync(file.fileno())
            os.link(temporary, path)
        except FileExistsError:
            # A network file system that sends a lost request again answers so, too, if the first one made the link.
            return temporary.samefile(path)
        except OSError as error:
            raise not_written(f"The log of the table at {self.uri} cannot be written", error) from error
        finally:
            temporary.unlink(missing_ok=True)
        return True


def _without_surrogates(line: str) -> str:
    """An action without escapes of characters beyond the first 65,536: delta-rs takes many of these for others. A half
    of such a pair, which another writer may have left, stays escaped, since UTF-8 has none."""
    if "\\ud" not in line:
        return line
    text = json.dumps(json.loads(line), ensure_ascii=False)
    return line if any("\ud800" <= each <= "\udfff" for each in text) else text
