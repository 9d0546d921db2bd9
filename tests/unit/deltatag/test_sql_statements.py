"""The command `deltatag sql` without a JVM: where statements come from, and in which encoding."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from deltatag.__main__ import main


@pytest.mark.slow
def test_the_command_line_starts_no_jvm(tmp_path: Path) -> None:
    def deltatag(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-X", "importtime", "-m", "deltatag", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
        assert " py4j" not in done.stderr
        return done

    deltatag("init")
    edits = (
        "INSERT INTO rules (rule_id, scope, expression) VALUES ('a', 's', 'n > 1'); DELETE FROM rules WHERE scope = 't'"
    )
    told = deltatag("sql", edits, "SELECT rule_id FROM rules", "--json").stdout
    assert [json.loads(line) for line in told.splitlines()] == [[], [{"num_affected_rows": 0}], [{"rule_id": "a"}]]


def test_statements_come_from_a_file_from_arguments_and_from_standard_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init"]) == 0
    insert = "INSERT INTO rules (rule_id, scope, expression) VALUES ('{0}', 's', 'n > {0}');"
    Path("edits.sql").write_text(insert.format(1) + insert.format(2))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(insert.format(4).encode())))
    capsys.readouterr()
    assert main(["sql", "--file", "edits.sql", insert.format(3), "-", "SELECT count(*) AS n FROM rules"]) == 0
    told = capsys.readouterr().out.split("\n\n")
    assert told[:4] == ["(executed)"] * 4 and told[4].splitlines() == ["n", "-", "4", "(1 row)"]


@pytest.mark.slow
def test_statements_are_read_as_utf_8_whatever_the_environment_names(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init"]) == 0
    ascii_only = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    insert = "INSERT INTO rules (rule_id, scope, expression) VALUES ('{}', 's', 'n > 1')"

    def deltatag(*arguments: str | bytes, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        command = [sys.executable, "-m", "deltatag", *arguments]
        return subprocess.run(command, input=given, env=ascii_only, capture_output=True, timeout=100)

    Path("edits.sql").write_bytes(b"\xef\xbb\xbf" + insert.format("ö").encode())
    assert deltatag("sql", insert.format("é").encode(), "-", given=insert.format("ü").encode()).returncode == 0
    assert deltatag("sql", "--file", "edits.sql").returncode == 0
    assert sorted(pl.read_delta("lake/rules")["rule_id"]) == ["é", "ö", "ü"]
    Path("edits.sql").write_bytes(b"SELECT '\xff'")
    for arguments, status in (["sql", b"\xff"], 2), (["sql", "-"], 1), (["sql", "--file", "edits.sql"], 1):
        told = deltatag(*arguments, given=b"\xff")
        assert told.returncode == status and b"is not text in UTF-8" in told.stderr


def test_a_closed_standard_input_holds_no_statement(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init"]) == 0
    monkeypatch.setattr("sys.stdin", None)
    for arguments in (["-"], [], [" ; "]):
        assert main(["sql", *arguments]) == 2
        assert "There is no statement to execute" in capsys.readouterr().err
