"""An id that a second enabled row takes: the rule that was compiled goes on, and everybody is told."""

from __future__ import annotations

import json
import shutil
from datetime import datetime

import polars as pl
import pytest
from deltalake import DeltaTable

import rules_index as ri
from deltatag.__main__ import main
from pipelines.compile import compile_scopes
from pipelines.compiling.due import compile_is_due
from pipelines.compiling.notices import refusals_notice
from pipelines.lake.index_store import newest_index, read_index
from pipelines.lint import lint_scopes
from quality.evaluation import evaluate
from quality.rules import suites

STREAMS = {name: {"source": "lake/source", "event_time": "t"} for name in ("s", "other")}


@pytest.fixture
def workspace(new_workspace):
    found = new_workspace(STREAMS, spark=False)
    rows = pl.DataFrame({"x": range(10)}).with_columns(t=pl.datetime(2024, 1, 1, time_zone="UTC"))
    rows.write_delta(found.configuration.streams["s"].source)
    return found


def matched(workspace, scope: str = "s") -> dict[str, list[int]]:
    """What the newest index matches: rule -> values of x."""
    compiled = ri.loads(read_index(workspace.lake, newest_index(workspace.lake, scope)))
    found: dict[str, list[int]] = {}
    for x, ids in enumerate(compiled.match(pl.DataFrame({"x": range(10)})).to_pylist()):
        for rule in ids:
            found.setdefault(rule, []).append(x)
    return found


def rejects(workspace) -> list[tuple[str, str, str, str]]:
    columns = ["scope", "rule_id", "error", "message"]
    return [tuple(row.values()) for row in workspace.lake.arrow("rule_rejects", columns).to_pylist()]


def rules_table(workspace) -> DeltaTable:
    return workspace.lake.delta("rules")


@pytest.mark.slow
def test_the_rule_that_was_compiled_goes_on(workspace, add_rules) -> None:
    add_rules(workspace, ("a", "s", "x > 7"), ("b", "s", "x = 0"))
    compile_scopes(workspace)
    add_rules(workspace, ("a", "s", "x < 100"))
    assert [(each.rules, each.rejects) for each in compile_scopes(workspace)] == [(3, 2), (0, 0)]
    assert matched(workspace) == {"a": [8, 9], "b": [0]}
    told = rejects(workspace)
    assert [each[:3] for each in told] == [("s", "a", "DUPLICATE_ID")] * 2
    assert all("2 enabled rules have the id a" in each[3] and "version 1 of rules: x > 7" in each[3] for each in told)
    assert not compile_is_due(workspace, "s")

    # other edits are compiled beside it, again and again
    add_rules(workspace, ("c", "s", "x = 1"))
    assert compile_is_due(workspace, "s")
    compile_scopes(workspace)
    assert matched(workspace) == {"a": [8, 9], "b": [0], "c": [1]}
    rules_table(workspace).update(predicate="rule_id = 'c'", new_values={"expression": "x = 2"})
    compile_scopes(workspace)
    assert matched(workspace) == {"a": [8, 9], "b": [0], "c": [2]}
    assert not compile_is_due(workspace, "s")

    # the row that is left is the rule
    rules_table(workspace).delete("rule_id = 'a' AND expression = 'x > 7'")
    assert compile_is_due(workspace, "s")
    compile_scopes(workspace)
    assert matched(workspace)["a"] == list(range(10))
    assert rejects(workspace) == []
    assert refusals_notice(workspace) == ""


@pytest.mark.slow
def test_a_row_that_was_edited_beside_the_copy_goes_on_as_it_was(workspace, add_rules) -> None:
    add_rules(workspace, ("a", "s", "x > 7"))
    compile_scopes(workspace)
    rules_table(workspace).update(predicate="rule_id = 'a'", new_values={"expression": "x > > 7"})
    add_rules(workspace, ("a", "s", "x < 3"))
    compile_scopes(workspace)
    assert matched(workspace) == {"a": [8, 9]}


@pytest.mark.slow
def test_ids_and_scopes_of_a_million_characters_are_cut_where_every_run_prints_them(workspace, add_rules) -> None:
    long = "x" * 1_000_000
    add_rules(workspace, (long, "s", "x > 7"), (long, long, "x > 7"), ("a", long, "x > 7"))
    compile_scopes(workspace)
    texts = [*(message for *_, message in rejects(workspace)), refusals_notice(workspace)]
    texts += [found.message for found in evaluate(suites(workspace).suites)]
    assert max(map(len, texts)) < 1_500


@pytest.mark.slow
def test_a_copy_of_a_rule_that_was_rejected_itself_does_not_go_on(workspace, add_rules) -> None:
    add_rules(workspace, ("a", "s", "x > > 7"), ("b", "s", "x = 0"))
    compile_scopes(workspace)
    add_rules(workspace, ("a", "s", "x < 3"), ("b", "s", "x = 1"))
    compiled = compile_scopes(workspace)[0]
    assert (compiled.rules, compiled.rejects) == (4, 4)
    assert matched(workspace) == {"b": [0]}
    assert {(rule, "applies as in" in message) for _, rule, _, message in rejects(workspace)} == {
        ("a", False),
        ("b", True),
    }
    assert not compile_is_due(workspace, "s")
    findings = {each.rule_id: each.message for each in lint_scopes(workspace, ["s"])[0].findings}
    assert "applies as in" not in findings["a"] and "applies as in" in findings["b"]


@pytest.mark.slow
def test_a_last_good_version_that_the_source_has_outgrown_does_not_go_on(workspace, add_rules) -> None:
    add_rules(workspace, ("a", "s", "x > 7"), ("b", "s", "x = 0"))
    compile_scopes(workspace)
    add_rules(workspace, ("a", "s", "x < 3"))
    compile_scopes(workspace)
    assert matched(workspace) == {"a": [8, 9], "b": [0]}
    rows = pl.DataFrame({"y": range(10)}).with_columns(t=pl.datetime(2024, 1, 1, time_zone="UTC"))
    rows.write_delta(
        workspace.configuration.streams["s"].source, mode="overwrite", delta_write_options={"schema_mode": "overwrite"}
    )
    for _ in range(2):
        compile_scopes(workspace)
        assert not any("applies as in" in each[3] for each in rejects(workspace))
        assert not compile_is_due(workspace, "s")


@pytest.mark.slow
def test_a_copy_in_another_scope_stops_neither_and_adds_nothing(workspace, add_rules) -> None:
    add_rules(workspace, ("a", "s", "x > 7"))
    compile_scopes(workspace)
    add_rules(workspace, ("a", "other", "x < 3"))
    compile_scopes(workspace)
    assert (matched(workspace), matched(workspace, "other")) == ({"a": [8, 9]}, {})
    # the rule moves to the other scope
    rules_table(workspace).delete("scope = 's'")
    compile_scopes(workspace)
    assert (matched(workspace), matched(workspace, "other")) == ({}, {"a": [0, 1, 2]})


def test_ids_that_clash_from_the_first_match_nothing(workspace, add_rules) -> None:
    add_rules(workspace, ("a", "s", "x > 7"), ("a", "s", "x < 3"), ("b", "s", "x = 0"))
    compile_scopes(workspace)
    assert matched(workspace) == {"b": [0]}
    assert not any("applies as in" in each[3] for each in rejects(workspace))


@pytest.mark.slow
def test_status_and_lint_say_so(workspace, add_rules, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    add_rules(workspace, ("a", "s", "x > 7"))
    compile_scopes(workspace)
    add_rules(workspace, ("a", "s", "x < 100"))
    compile_scopes(workspace)
    notice = refusals_notice(workspace)
    assert notice.startswith("1 id is shared by several enabled rules") and "applies as in version 1" in notice
    (finding,) = lint_scopes(workspace, ["s"])[0].findings
    assert (finding.rule_id, finding.kind) == ("a", "rejected")
    assert "applies as in version 1 of rules: x > 7" in finding.message and "matches nothing" not in finding.message
    folder = workspace.configuration.path.parent
    document = f'[lake]\nroot = "{folder}/lake"\n[streams.s]\nsource = "{folder}/lake/source"\n'
    (folder / "here.toml").write_text(document)
    for verb in ("status", "compile"):
        assert main([verb, "--config", str(folder / "here.toml")]) == 0
        assert "applies as in version 1 of rules" in capsys.readouterr().out
    assert main(["status", "--config", str(folder / "here.toml"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["scope"] == "s"


@pytest.mark.slow
@pytest.mark.parametrize("anew", [False, True], ids=["vacuumed", "made anew"])
def test_the_rule_goes_on_as_it_was_compiled_though_its_version_of_rules_is_gone(workspace, add_rules, anew) -> None:
    add_rules(workspace, {"rule_id": "a", "scope": "s", "expression": "x > 7", "valid_from": datetime(2020, 1, 1)})
    compile_scopes(workspace)
    if anew:
        shutil.rmtree(workspace.lake.uri("rules"))
        workspace.lake.create("rules")
        add_rules(workspace, ("a", "s", "x > 5"))
        add_rules(workspace, ("a", "s", "x > 3"), ("b", "s", "x = 0"))
    else:
        rows = pl.read_delta(workspace.lake.uri("rules"))
        pl.concat([rows, rows]).write_delta(workspace.lake.uri("rules"), mode="overwrite")
        workspace.lake.writable("rules").vacuum(0, dry_run=False, enforce_retention_duration=False)
        add_rules(workspace, ("b", "s", "x = 0"))
    compile_scopes(workspace)
    rows = pl.DataFrame({"x": [8, 8, 0], "t": [datetime(2019, 1, 1), datetime(2024, 1, 1), datetime(2024, 1, 1)]})
    rows = rows.with_columns(pl.col("t").dt.replace_time_zone("UTC"))
    compiled = ri.loads(read_index(workspace.lake, newest_index(workspace.lake, "s")))
    assert compiled.match(rows).to_pylist() == [[], ["a"], ["b"]]
    assert all("version 1 of rules: x > 7" in each[3] for each in rejects(workspace))
    assert not compile_is_due(workspace, "s")
