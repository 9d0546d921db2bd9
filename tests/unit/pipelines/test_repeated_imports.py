"""Imports into a table that earlier imports and authors have written: several files, and ids of other scopes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pipelines.authoring.exchange import export_rules, import_rules
from pipelines.authoring.versions import rules_of
from pipelines.workspace import Workspace


@pytest.fixture(params=["string"])
def workspace(request: pytest.FixtureRequest, tmp_path: Path, new_workspace: Any) -> Workspace:
    source = tmp_path / "source"
    pl.DataFrame({"x": [1]}).write_delta(str(source))
    streams = {name: {"source": str(source)} for name in ("s", "other")}
    opened: Workspace = new_workspace(streams, spark=False, id_type=request.param)
    return opened


def rules_file(folder: Path, *rules: dict[str, Any]) -> Path:
    path = folder / "rules.jsonl"
    path.write_text("".join(json.dumps(rule) + "\n" for rule in rules))
    return path


def stored(workspace: Workspace) -> list[tuple[Any, str]]:
    rules = rules_of(workspace.lake, workspace.lake.delta("rules"))
    return sorted(zip(rules["rule_id"], rules["scope"], strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("workspace", ["string", "bigint"], indirect=True)
def test_each_import_adds_to_those_before(workspace: Workspace, tmp_path: Path) -> None:
    for number in (10, 20, 30):
        rules = [{"rule_id": str(number + each), "scope": "s", "expression": "x > 3"} for each in range(3)]
        path = rules_file(tmp_path, *rules)
        assert len(import_rules(workspace, path, dry_run=True).added) == 3
        assert import_rules(workspace, path).version == number // 10
        assert import_rules(workspace, path).unchanged == 3
    assert len(workspace.lake.delta("rules").file_uris()) == 3
    assert [int(rule_id) for rule_id, _ in stored(workspace)] == [10, 11, 12, 20, 21, 22, 30, 31, 32]


def test_rules_of_other_scopes_stay_where_a_scope_is_replaced(
    workspace: Workspace, add_rules: Any, tmp_path: Path
) -> None:
    add_rules(workspace, {"rule_id": "a", "scope": "s", "expression": "x > 3"})
    add_rules(workspace, {"rule_id": "a", "scope": "other", "expression": "x > 4", "enabled": False})
    path = rules_file(tmp_path, {"rule_id": "b", "scope": "s", "expression": "x > 5"})
    found = import_rules(workspace, path, replace=True)
    assert (found.added, found.changed, found.removed) == (("b",), (), ("a",))
    assert stored(workspace) == [("a", "other"), ("b", "s")]


@pytest.mark.parametrize("workspace", ["string", "bigint"], indirect=True)
def test_only_rules_that_share_an_id_are_refused(workspace: Workspace, add_rules: Any, tmp_path: Path) -> None:
    """Also if the table itself has them, as a file that was exported from it has then."""
    one, two, three = (1, 2, 3) if workspace.lake.rule_id_type() == "bigint" else ("1", "2", "3")
    rules = [
        {"rule_id": str(number), "scope": "s", "expression": f"x > {bound}", "labels": {"team": "a"}}
        for number, bound in ((1, 3), (1, 4), (2, 3), (3, 3), (3, 3))
    ]
    found = import_rules(workspace, rules_file(tmp_path, *rules))
    assert found.added == (two, three)
    (reject,) = found.rejected
    assert (reject["rule_id"], reject["error"]) == (one, "DUPLICATE_ID")
    assert "Rules 1, 2 of " in reject["message"]
    add_rules(workspace, *({"rule_id": one, "scope": "s", "expression": f"x > {bound}"} for bound in (3, 4)))
    exported = tmp_path / "exported.yaml"
    export_rules(workspace, exported)
    found = import_rules(workspace, exported, replace=True)
    assert (found.added, found.changed, found.removed, found.rejected, found.unchanged) == ((), (), (), (), 4)
    exported.write_text(exported.read_text().replace("x > 4", "x > 5"))
    found = import_rules(workspace, exported, replace=True)
    assert ([each["rule_id"] for each in found.rejected], found.removed) == ([one], ())
    assert [rule_id for rule_id, _ in stored(workspace)] == [one, one, two, three]
