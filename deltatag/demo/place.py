"""Where the demonstration lives: a folder of its own, that it makes anew each time."""

from __future__ import annotations

import shutil
from pathlib import Path

from deltatag.demo.statements import read_text
from pipelines.config import FILE_NAME
from pipelines.errors import ConfigurationError

SQL_FILES = ("rules.sql", "edits.sql", "queries.sql")
PLOT = "matches_per_rule.png"
DAGSTER_HOME = ".dagster"
_MARK = ".deltatag-demo"
_OTHERS = ("lake", ".deltatag", DAGSTER_HOME, PLOT, FILE_NAME, *SQL_FILES)


def make_place(folder: Path) -> bool:
    """A folder with the demonstration's files; True if an earlier demonstration was removed from it.

    Only what a demonstration made is removed. ConfigurationError if the folder holds anything else.
    """
    again = (folder / _MARK).is_file()
    if folder.exists() and not again and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigurationError(
            f"{folder} is not empty and was not made by the demonstration, which leaves it as it is. Name another "
            "folder: deltatag demo DIR"
        )
    if again:
        _remove(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _MARK).write_text("Made by `deltatag demo`, which may make everything here anew.\n", encoding="utf-8")
        for name in (FILE_NAME, *SQL_FILES):
            (folder / name).write_text(read_text(name), encoding="utf-8")
        (folder / DAGSTER_HOME).mkdir()
        (folder / DAGSTER_HOME / "dagster.yaml").write_text("telemetry:\n  enabled: false\n", encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"{folder} cannot be written: {error.strerror}. Name another folder.") from None
    return again


def _remove(folder: Path) -> None:
    for name in _OTHERS:
        path = folder / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
