"""Where the demonstration lives: a folder of its own, that it makes anew each time, unless somebody has edited it."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from deltatag.demo.statements import read_text
from pipelines.settings.configuration import FILE_NAME
from pipelines.errors import ConfigurationError

SQL_FILES = ("rules.sql", "edits.sql", "queries.sql", "more_queries.sql")
PLOT = "matches_per_rule.png"
DAGSTER_HOME = ".dagster"
_MARK = ".deltatag-demo"
"""What the demonstration left, as JSON: a digest of each file, and, once it has ended, the version of each table."""
_WRITTEN_BY_RUNS = ("rule_index", "rule_rejects", "runs")
"""Tables whose versions tell of no edit: runs alone write them."""
_OTHERS = ("lake", ".deltatag", DAGSTER_HOME, PLOT, FILE_NAME, *SQL_FILES)


def make_place(folder: Path, may_remove: Callable[[list[str]], bool] = lambda edits: False) -> bool:
    """A folder with the demonstration's files; True if an earlier demonstration was removed from it.

    Only what a demonstration made is removed; where it was edited since, only if `may_remove` says so of the edits.
    ConfigurationError if it does not, or if the folder holds anything else.
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
                f"{folder} was edited since the demonstration made it ({', '.join(edits)}) and stays as it is. To have "
                f"it made anew, edits lost: deltatag demo {folder} --force. Or name another folder: deltatag demo DIR"
            )
        _remove(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in (FILE_NAME, *SQL_FILES):
            (folder / name).write_text(read_text(name), encoding="utf-8")
        (folder / DAGSTER_HOME).mkdir()
        (folder / DAGSTER_HOME / "dagster.yaml").write_text("telemetry:\n  enabled: false\n", encoding="utf-8")
        _write_mark(folder, {"files": _digests(folder)})
    except OSError as error:
        raise ConfigurationError(f"{folder} cannot be written: {error.strerror}. Name another folder.") from None
    return again


def remember(folder: Path) -> None:
    """Note what the demonstration leaves at its end, so that a later edit shows."""
    _write_mark(folder, {"files": _digests(folder), "tables": _versions(folder)})


def edits_of(folder: Path) -> list[str]:
    """What was edited in a demonstration's folder since it ended, in words; tables tell nothing if it never did."""
    try:
        left = json.loads((folder / _MARK).read_text(encoding="utf-8"))
    except ValueError:
        return []  # made by a version that noted nothing
    now: dict[str, dict[str, Any]] = {"files": _digests(folder), "tables": _versions(folder) if "tables" in left else {}}
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
    """The newest version of each table in the lake, by its name; -1 for a folder that is no Delta table."""
    tables = sorted(path for path in (folder / "lake").iterdir() if path.name not in _WRITTEN_BY_RUNS)
    return {path.name: version_text(path / "_delta_log") for path in tables}


def version_text(log: Path) -> int:
    # by names alone: neither the JVM nor delta-rs has been loaded when one asks
    return max((int(path.stem) for path in log.glob("*.json") if path.stem.isdecimal()), default=-1)


def _remove(folder: Path) -> None:
    for name in _OTHERS:
        path = folder / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
