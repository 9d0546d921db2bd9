"""The rules and their changes are read once a run, however many scopes there are."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pipelines.compile import compile_scopes
from pipelines.compiling import changes as changes_module
from pipelines.compiling.due import refusals_are_due
from pipelines.due import scopes_to_compile
from pipelines.lake import version_rows
from pipelines.lake.lake import Lake
from pipelines.lint import lint_scopes
from pipelines.report import report_scopes
from pipelines.tag import tag_stream
from pipelines.workspace import Workspace
from quality.gates import tagged_gate


@pytest.fixture
def tables_read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tables of lakes that are read from now on, by name."""
    found: list[str] = []
    arrow = Lake.arrow

    def noted(lake: Lake, name: str, *given: Any, **named: Any) -> Any:
        found.append(name)
        return arrow(lake, name, *given, **named)

    monkeypatch.setattr(Lake, "arrow", noted)
    return found


def files_read(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each file of `rules` is read from now on."""
    files: Counter[str] = Counter()
    read = version_rows.rows_by_file

    def noted(table: Any, paths: Any, where: Any = None) -> Any:
        files.update(paths)
        return read(table, paths, where)

    monkeypatch.setattr(version_rows, "rows_by_file", noted)
    return files


def prepared(new_workspace: Any) -> Workspace:
    """Three streams over one source."""
    workspace: Workspace = new_workspace({name: {"source": "lake/source"} for name in ("s", "t", "u")}, spark=False)
    pl.DataFrame({"x": [1]}).write_delta(workspace.configuration.streams["s"].source)
    return workspace


def test_rules_are_read_once_for_all_scopes_until_they_change(new_workspace, add_rules, tables_read) -> None:
    workspace = prepared(new_workspace)
    add_rules(workspace, ("a", "s", "x > 1"), ("b", "t", "x > 1"))
    compile_scopes(workspace)
    tables_read.clear()
    again = Workspace(workspace.configuration)
    assert scopes_to_compile(again) == [] and not refusals_are_due(again)
    assert tables_read.count("rules") == 1
    add_rules(again, ("c", "t", "x > 2"))
    assert scopes_to_compile(again) == ["t"] and not refusals_are_due(again)
    assert tables_read.count("rules") == 2
    again.lake.delta("rules").delete("rule_id = 'a'")
    assert scopes_to_compile(again) == ["s", "t"]
    assert tables_read.count("rules") == 3


@pytest.mark.slow
def test_changes_are_read_once_for_all_scopes_and_only_if_there_are_any(
    new_workspace, add_rules, monkeypatch, tables_read
) -> None:
    monkeypatch.setattr(changes_module, "LEAST_RULES", 1)
    monkeypatch.setattr(changes_module, "MOST_CHANGED", 1.0)
    workspace = prepared(new_workspace)
    add_rules(workspace, ("a", "s", "x > 1"), ("b", "t", "x > 1"), ("c", "u", "x > 1"))
    compile_scopes(workspace)
    touched = changes_module._touched

    def counted(*given: Any) -> Any:
        tables_read.append("changes")
        return touched(*given)

    monkeypatch.setattr(changes_module, "_touched", counted)
    tables_read.clear()
    again = Workspace(workspace.configuration)
    assert scopes_to_compile(again) == [] and not refusals_are_due(again)
    assert tables_read.count("changes") == 1 and "rules" not in tables_read
    tables_read.clear()
    add_rules(again, ("d", "t", "x > 2"))
    assert scopes_to_compile(again) == ["t"] and not refusals_are_due(again)
    assert [result.state for result in compile_scopes(again, ["t"])] == ["compiled"]
    assert tables_read.count("changes") == 1 and tables_read.count("rules") == 1


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["lint", "report"])
def test_lint_and_report_read_each_file_of_rules_once(
    new_workspace, add_rules, monkeypatch, tables_read, tmp_path: Path, verb: str
) -> None:
    """Whoever inserts rules one by one has a table of as many files, and each reading of it takes seconds."""
    workspace = prepared(new_workspace)
    for number in range(4):
        add_rules(workspace, (f"a{number}", "s", f"x > {number}"), (f"b{number}", "t", f"x > {number}"))
        compile_scopes(workspace)
        for stream in ("s", "t"):
            pl.DataFrame({"x": [1]}).write_delta(workspace.configuration.streams["s"].source, mode="append")
            tag_stream(workspace, stream)
    files = files_read(monkeypatch)
    tables_read.clear()
    again = Workspace(workspace.configuration)
    found = lint_scopes(again) if verb == "lint" else report_scopes(again, None, tmp_path / "report")
    assert not any(each.error for each in found)
    assert "rules" not in tables_read and set(files.values()) == {1} and len(files) == 4


def test_a_gate_reads_each_file_of_rules_once(new_workspace, add_rules, monkeypatch, tables_read) -> None:
    """Also if the indexes of many versions are gone, so that it looks up their rules."""
    workspace = prepared(new_workspace)
    for number in range(4):
        add_rules(workspace, (f"a{number}", "s", f"x < {number + 3}"))
        compile_scopes(workspace, ["s"], force=True)
        pl.DataFrame({"x": [1]}).write_delta(workspace.configuration.streams["s"].source, mode="append")
        tag_stream(workspace, "s")
    files = files_read(monkeypatch)
    tables_read.clear()
    result = tagged_gate(Workspace(workspace.configuration), "s", 4)
    assert result.passed and "rules" not in tables_read
    assert set(files.values()) == {1} and len(files) > 1
