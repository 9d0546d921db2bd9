"""Paths, ids and texts in all letters, whatever encoding the environment names."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from pipelines.spark.runtime import find_java

ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
"""Variables with which Python takes all letters of the file system for ASCII."""


@pytest.mark.slow
@pytest.mark.parametrize("variables", [ASCII, ASCII | {"PYTHONIOENCODING": "ascii"}], ids=["files", "all"])
def test_a_lake_and_ids_in_other_letters(tmp_path: Path, variables: dict[str, str]) -> None:
    lake, rule, file = tmp_path / "Möwe 日", "größe", "rüle.yaml"

    def deltatag(*arguments: str) -> str:
        command = [sys.executable, "-m", "deltatag", "--config", f"{lake}/deltatag.toml", *arguments]
        told = subprocess.run(command, env=os.environ | variables, cwd=lake, capture_output=True, timeout=100)
        assert told.returncode == 0, told.stderr.decode()
        return told.stdout.decode()

    def column(table: str, name: str) -> list[object]:
        values: list[object] = DeltaTable(lake / "lake" / table).to_pyarrow_table()[name].to_pylist()
        return values

    lake.mkdir()
    deltatag("init")
    with (lake / "deltatag.toml").open("a", encoding="utf-8") as toml:
        toml.write('[streams.s]\nsource = "Möwen"\n')
    write_deltalake(lake / "Möwen", pa.table({"x": [1], "ort": ["Köln"]}))
    (lake / file).write_text(f"- {{rule_id: {rule}, scope: s, expression: ort = 'Köln' AND x > 5 AND x < 3}}", "utf-8")
    deltatag("rules", "import", file)
    assert column("rules", "rule_id") == [rule]
    deltatag("compile")
    deltatag("lint", "--accept", rule, "contradiction", "--reason", "süß")
    assert column("lint_accepted", "reason") == ["süß"]
    (found,) = json.loads(deltatag("lint", "--json"))
    assert [each["rule_id"] for each in found["accepted"]] == [rule]
    deltatag("rules", "export", "alle.jsonl")
    assert json.loads((lake / "alle.jsonl").read_text("utf-8"))["rule_id"] == rule


SCRIPT = """
import os, subprocess, sys
from pipelines.spark.jvm import name_a_utf8_locale
name_a_utf8_locale()
sys.exit(subprocess.run([sys.argv[1], "-XshowSettings:properties", "-version"]).returncode)
"""


@pytest.mark.parametrize("variables", [ASCII, {"LC_ALL": "C"}, {"LC_ALL": "POSIX"}, {"LC_ALL": "C.UTF-8"}], ids=str)
def test_java_reads_names_of_files_as_utf_8(variables: dict[str, str]) -> None:
    command = [sys.executable, "-c", SCRIPT, str(find_java().path / "bin" / "java")]
    told = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, timeout=100)
    assert told.returncode == 0
    assert "sun.jnu.encoding = UTF-8" in told.stderr
