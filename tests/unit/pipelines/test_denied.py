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


@pytest.mark.slow
@pytest.mark.parametrize("at", ["source", "source/_delta_log"])
def test_a_source_that_may_not_be_read_is_not_taken_for_a_missing_one(
    folder: Path, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DELTATAG_JARS", str(folder))  # no Spark can start, nor is one needed
    with mode(folder / at, 0):
        for arguments in (["tag"], ["run"], ["status"], ["sql", "SELECT count(*) FROM s"]):
            error = told(*arguments)
            assert DENIED in error and "no source" not in error, arguments


def test_a_query_of_a_file_that_may_not_be_read_needs_no_spark(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELTATAG_JARS", str(folder))
    (file,) = (folder / "source").glob("*.parquet")
    with mode(file, 0):
        assert told("sql", "SELECT x FROM s") == f"deltatag: The table s cannot be read: {DENIED}.\n"


@pytest.mark.slow
def test_a_table_of_the_lake_that_may_not_be_read(folder: Path) -> None:
    with mode(folder / "lake" / "rules", 0):
        error = told("compile")
        assert DENIED in error and "deltatag init" not in error


EDITS = {
    "rules": ["INSERT INTO rules (rule_id, scope, expression) VALUES ('b', 's', 'x > 1')", "DELETE FROM rules"],
    "source": ["UPDATE listed SET x = 3 WHERE x = 1", "INSERT INTO listed VALUES (3, 3)"],
}
"""Edits of a table by delta-rs."""


@pytest.mark.slow
@pytest.mark.parametrize("log", ["", "_delta_log"])
@pytest.mark.parametrize("table", EDITS)
def test_an_edit_that_is_not_permitted_is_told_in_one_line(folder: Path, table: str, log: str) -> None:
    with Path("deltatag.toml").open("a") as file:
        file.write('[lists.listed]\nsource = "source"\ncolumn = "x"\n')
    with mode(folder / ("lake/rules" if table == "rules" else table) / log, 0o555):
        for statement in EDITS[table]:
            (line,) = told("sql", statement).splitlines()
            assert line.startswith("deltatag: The table ") and line.endswith(DENIED)


@pytest.mark.slow
def test_what_lint_and_compile_may_not_write_is_told_in_one_line(folder: Path) -> None:
    rule = pl.DataFrame({"rule_id": ["b"], "scope": ["s"], "expression": ["x > 2"]})
    rule.write_delta("lake/rules", mode="append", delta_write_options={"schema_mode": "merge"})
    Path("rules.jsonl").write_text('{"rule_id": "c", "scope": "s", "expression": "x > 3"}')
    assert main(["lint", "--accept", "b", "implied"]) == 0
    accept, take = ["lint", "--accept", "b", "out_of_range"], ["rules", "import", "rules.jsonl"]
    for table, arguments in (("lint_accepted", accept), ("rules", take), ("rule_index", ["compile"])):
        with mode(folder / "lake" / table, 0o555):
            (line,) = told(*arguments).splitlines()
            assert table in line and line.endswith(DENIED)


@pytest.mark.slow
def test_tables_that_may_not_be_written(folder: Path) -> None:
    with mode(folder / "lake", 0o555):
        assert told("tag").startswith("deltatag: s: Permission denied: ")
    with mode(folder / "lake" / "runs", 0o555):
        assert told("tag").rstrip().endswith(f"/lake/runs cannot be written: {DENIED}")


@pytest.mark.slow
def test_matches_that_may_not_be_maintained(folder: Path) -> None:
    for number in range(3):
        pl.DataFrame({"id": [number], "x": [2]}).write_delta("source", mode="append")
        assert main(["tag"]) == 0
    with mode(folder / "lake" / "s_matches", 0o555):
        (line,) = told("maintain").splitlines()
        assert line.startswith("deltatag: s_matches: The table s_matches at ") and line.endswith(DENIED)
