"""`deltatag lint`: what it prints, and its exit statuses."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from deltatag.__main__ import main


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> Path:
    monkeypatch.chdir(tmp_path)
    assert main(["init"]) == 0
    with Path("deltatag.toml").open("a") as file:
        file.write('[streams.s]\nsource = "source"\n')
    pl.DataFrame({"id": [1, 2], "x": [1, 2]}).write_delta("source")
    frame = pl.DataFrame({"rule_id": ["a", "b"], "scope": "s", "expression": ["x > 0", "x > 1"]})
    frame.write_delta("lake/rules", mode="append", delta_write_options={"schema_mode": "merge"})
    capsys.readouterr()
    return tmp_path


def test_findings_are_results(folder: Path, capsys) -> None:
    assert main(["lint"]) == 0
    first, *lines = capsys.readouterr().out.splitlines()
    assert first == "s: 2 rules, 1 finding, rules version 1"
    assert len(lines) == 2 and lines[1] == "      x > 1"
    assert lines[0].startswith("  b: implied: Every row that matches this rule matches rule a too")
    assert main(["lint", "s", "--json"]) == 0
    (result,) = json.loads(capsys.readouterr().out)
    assert [(each["rule_id"], each["other_ids"]) for each in result["findings"]] == [("b", ["a"])]


def test_what_is_told_of_a_whole_stream_names_no_rule(folder: Path, capsys) -> None:
    with Path("deltatag.toml").open("a") as file:
        file.write('output = "matched"\n[streams.few]\nsource = "source"\noutput = "matched"\n')
    frame = pl.DataFrame({"rule_id": ["c"], "scope": "few", "expression": ["x > 1"]})
    frame.write_delta("lake/rules", mode="append", delta_write_options={"schema_mode": "merge"})
    assert main(["lint", "few"]) == 0
    first, line = capsys.readouterr().out.splitlines()
    assert first == "few: 1 rule, 1 finding, rules version 2"
    assert line.startswith("  implied_by_stream: Every rule of few is implied by the rules of s, so few can read")


def test_a_missing_source_fails_and_an_unknown_scope_is_a_mistake(folder: Path, capsys) -> None:
    (folder / "source").rename(folder / "elsewhere")
    assert main(["lint"]) == 1
    assert "there is no Delta table at" in capsys.readouterr().err
    assert main(["lint", "nowhere"]) == 2


def test_help_has_an_example(capsys) -> None:
    assert main(["lint", "--help"]) == 0
    assert "Example: deltatag lint" in capsys.readouterr().out
