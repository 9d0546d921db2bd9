"""Creates the demonstration's folder, in place of an earlier one unless that was edited."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from deltatag.demo.statements import read_text
from pipelines.errors import ConfigurationError
from pipelines.settings.configuration import FILE_NAME

SQL_FILES = ("rules.sql", "edits.sql", "queries.sql", "more_queries.sql")
PLOT = "matches_per_rule.png"
DAGSTER_HOME = ".dagster"
_MARK = ".deltatag-demo"
"""A JSON file with a digest of each file of the demonstration and, once it has ended, each table's version."""
_WRITTEN_BY_RUNS = ("rule_index", "rule_rejects", "runs")
"""Tables whose versions do not show edits, since only runs write them."""
_OTHERS = ("lake", ".deltatag", DAGSTER_HOME, PLOT, FILE_NAME, *SQL_FILES)


def make_place(folder: Path, may_remove: Callable[[list[str]], bool] = lambda edits: False) -> bool:
    """Create a folder with the demonstration's files; True if an earlier demonstration was removed from it.

    Only files of a demonstration are removed; if they were edited since, only if `may_remove` agrees for these edits.
    ConfigurationError if it does not, or if the folder contains anything else.
    """
    again = (folder / _MARK).is_file()
    if folder.exists() and not again and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigurationError(
            f"{folder} is not empty and was not made by the demonstration, which leaves it as it is. Name another "
            "folder: deltatag demo DIR"
        )
    if again:
        edits = edits_of(folder)
        if edits and not may_remove(edits):
            raise ConfigurationError(
                f"{folder} was edited since the demonstration made it ({', '.join(edits)}) and is left as it is. To "
                f"make it again and lose the edits: deltatag demo {folder} --force. Or name another folder: deltatag "
                "demo DIR"
            )
        _remove(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in (FILE_NAME, *SQL_FILES):
            (folder / name).write_text(read_text(name), encoding="utf-8")
        (folder / DAGSTER_HOME).mkdir()
        (folder / DAGSTER_HOME / "dagster.yaml").write_text(read_text("dagster.yaml"), encoding="utf-8")
        _write_mark(folder, {"files": _digests(folder)})
    except OSError as error:
        raise ConfigurationError(f"{folder} cannot be written: {error.strerror}. Name another folder.") from None
    return again


def remember(folder: Path) -> None:
    """Record the state of files and tables at the end, to detect later edits."""
    _write_mark(folder, {"files": _digests(folder), "tables": _versions(folder)})


def edits_of(folder: Path) -> list[str]:
    """The edits in a demonstration's folder since it ended, in words; tables are only compared if it has ended."""
    try:
        left = json.loads((folder / _MARK).read_text(encoding="utf-8"))
    except ValueError:
        return []  # created by a version that recorded nothing
    now: dict[str, dict[str, Any]] = {
        "files": _digests(folder),
        "tables": _versions(folder) if "tables" in left else {},
    }
    edits = []
    for kind, what in (("files", ""), ("tables", "the table ")):
        before, after = left.get(kind, {}), now[kind]
        for name in sorted({*before, *after}):
            if before.get(name) != after.get(name):
                how = "added" if name not in before else "removed" if name not in after else "changed"
                edits.append(f"{what}{name} {how}")
    return edits


def _write_mark(folder: Path, left: dict[str, Any]) -> None:
    (folder / _MARK).write_text(json.dumps(left, indent=1), encoding="utf-8")


def _digests(folder: Path) -> dict[str, str]:
    files = [folder / name for name in (FILE_NAME, *SQL_FILES)]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files if path.is_file()}


def _versions(folder: Path) -> dict[str, int]:
    """The newest version of each table in the lake, by name; -1 for a folder that is not a Delta table."""
    tables = sorted(path for path in (folder / "lake").iterdir() if path.name not in _WRITTEN_BY_RUNS)
    return {path.name: version_text(path / "_delta_log") for path in tables}


def version_text(log: Path) -> int:
    """The newest version in a table's log, by the names of its files; -1 if there is none."""
    # by names alone, so that neither a JVM nor delta-rs needs to be loaded
    return max((int(path.stem) for path in log.glob("*.json") if path.stem.isdecimal()), default=-1)


def _remove(folder: Path) -> None:
    for name in _OTHERS:
        path = folder / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
