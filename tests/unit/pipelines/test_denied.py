"""Tables that this user may not read or write: a sentence says so, and none is taken for a missing one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl
import pytest

from deltatag.__main__ import main

DENIED = "this user has no permission for it"
UNPRIVILEGED = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
"""What takes from root, who may read and write everything, that privilege."""

pytestmark = pytest.mark.skipif(
    bool(UNPRIVILEGED) and shutil.which("setpriv") is None, reason="root may read and write everything"
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> Path:
    """A working directory with a lake and a source; its rules are compiled, and nothing is tagged."""
    monkeypatch.chdir(tmp_path)
    assert main(["init"]) == 0
    with Path("deltatag.toml").open("a") as file:
        file.write('[streams.s]\nsource = "source"\nkey = ["id"]\n')
    pl.DataFrame({"id": [1, 2], "x": [1, 2]}).write_delta("source")
    rule = pl.DataFrame({"rule_id": ["a"], "scope": ["s"], "expression": ["x > 1"]})
    rule.write_delta("lake/rules", mode="append", delta_write_options={"schema_mode": "merge"})
    assert main(["compile"]) == 0
    return tmp_path


@contextmanager
def mode(path: Path, value: int) -> Iterator[None]:
    before = path.stat().st_mode
    path.chmod(value)
    yield
    path.chmod(before)


def told(*arguments: str) -> str:
    """What a command that fails writes to standard error."""
    command = [*UNPRIVILEGED, sys.executable, "-m", "deltatag", *arguments]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert run.returncode == 1
    assert "Traceback" not in run.stderr and "not supposed" not in run.stderr
    return run.stderr


@pytest.mark.parametrize("at", ["source", "source/_delta_log"])
def test_a_source_that_may_not_be_read_is_not_taken_for_a_missing_one(folder: Path, at: str) -> None:
    with mode(folder / at, 0):
        for arguments in (["tag"], ["run"], ["status"], ["sql", "SELECT count(*) FROM s"]):
            error = told(*arguments)
            assert DENIED in error and "no source" not in error, arguments


def test_a_table_of_the_lake_that_may_not_be_read(folder: Path) -> None:
    with mode(folder / "lake" / "rules", 0):
        error = told("compile")
        assert DENIED in error and "deltatag init" not in error


def test_tables_that_may_not_be_written(folder: Path) -> None:
    with mode(folder / "lake", 0o555):
        assert told("tag").startswith("deltatag: s: Permission denied: ")
    with mode(folder / "lake" / "runs", 0o555):
        assert told("tag").rstrip().endswith(f"/lake/runs cannot be written: {DENIED}")
