"""Lists of values in Delta tables, from an edit of one to the tags of rows, without Spark."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from pipelines import value_lists
from pipelines.authoring.exchange import import_rules
from pipelines.backtest import Candidate, backtest
from pipelines.compile import compile_scopes
from pipelines.compiling.due import compile_is_due
from pipelines.errors import ConfigurationError, SourceError
from pipelines.explain import explain
from pipelines.lake.index_store import newest_index
from pipelines.lint import lint_scopes
from pipelines.retag import retag
from pipelines.settings.configuration import parse_configuration
from pipelines.tag import tag_stream
from pipelines.validate import validate_expression
from tests.lakes import write_rules
from tests.tables import map_columns

RULES = [
    ("listed", "s", "account IN LIST('sanctioned')"),
    ("large", "s", "account NOT IN LIST('sanctioned') AND amount > 10"),
    ("plain", "s", "amount > 10"),
]


def written(path: Path, **columns: Any) -> str:
    write_deltalake(str(path), pa.table(columns), mode="append")
    return str(path)


@pytest.fixture
def lake(tmp_path: Path, new_workspace: Any, add_rules: Any) -> Any:
    source = written(tmp_path / "source", account=["a", "b", None, "c"], amount=[5, 50, 500, 5000], pk=[1, 2, 3, 4])
    written(tmp_path / "list", account=["a", "x", None, "a"], note=["1", "2", "3", "4"])
    lists = {"sanctioned": {"source": str(tmp_path / "list"), "column": "ACCOUNT"}}
    streams = {"s": {"source": source, "key": ["pk"]}}
    workspace = new_workspace(streams, spark=False, lists=lists)
    add_rules(workspace, *RULES)
    return workspace


def tags(workspace: Any) -> dict[int, list[str]]:
    table = DeltaTable(workspace.lake.uri("s_tagged")).to_pyarrow_table()
    return dict(sorted(zip(table["pk"].to_pylist(), table["rule_ids"].to_pylist(), strict=True)))


def test_lint_reads_each_list_once(lake: Any, new_workspace: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list of ten million values takes seconds to read."""
    configuration = lake.configuration
    streams = {name: {"source": configuration.streams["s"].source, "key": ["pk"]} for name in ("s", "t")}
    lists = {"sanctioned": {"source": configuration.lists["sanctioned"].source, "column": "account"}}
    workspace = new_workspace(streams, spark=False, lists=lists)
    write_rules(workspace, [*RULES, ("far", "t", "account IN LIST('sanctioned') AND amount > 99")])
    read: list[str] = []
    made = value_lists._read

    def noted(wanted: Any, *table: Any) -> Any:
        read.append(wanted.name)
        return made(wanted, *table)

    monkeypatch.setattr(value_lists, "_read", noted)
    assert not any(each.error for each in lint_scopes(workspace))
    assert read == ["sanctioned"]


def test_a_shell_takes_the_command_that_makes_a_missing_list_as_it_is_printed(
    tmp_path: Path, new_workspace: Any
) -> None:
    source = written(tmp_path / "source", account=["a"])
    missing = str(tmp_path / "it's a list")
    lake = new_workspace({"s": {"source": source}}, spark=False, lists={"l": {"source": missing}})
    message = validate_expression(lake, "account IN LIST('l')", "s").message
    assert message is not None
    command = message.partition("for instance with: ")[2]
    shown = subprocess.run(["sh", "-c", f'deltatag() {{ printf %s "$2"; }}; {command}'], capture_output=True, text=True)
    assert (shown.stdout, shown.stderr) == (f"CREATE TABLE delta.`{missing}` (value STRING) USING delta", "")


@pytest.mark.slow
def test_a_list_is_matched_and_its_edit_makes_a_new_index(lake: Any, tmp_path: Path) -> None:
    (result,) = compile_scopes(lake)
    assert (result.state, result.rules, result.rejects) == ("compiled", 3, 0)
    tag_stream(lake, "s")
    assert tags(lake) == {1: ["listed"], 2: ["large", "plain"], 3: ["plain"], 4: ["large", "plain"]}
    assert not compile_is_due(lake, "s") and compile_scopes(lake)[0].state == "unchanged"
    written(tmp_path / "list", account=["c"], note=["new"])
    assert compile_is_due(lake, "s")
    (again,) = compile_scopes(lake)
    assert again.state == "compiled" and again.fingerprint != result.fingerprint
    # a version of the table with the same values is no new index
    written(tmp_path / "list", account=["c"], note=["twice"])
    assert compile_is_due(lake, "s")
    (same,) = compile_scopes(lake)
    assert (same.state, same.fingerprint) == ("unchanged", again.fingerprint) and not compile_is_due(lake, "s")


def test_retag_follows_a_list(lake: Any, tmp_path: Path) -> None:
    compile_scopes(lake)
    tag_stream(lake, "s")
    written(tmp_path / "list", account=["c"], note=["new"])
    DeltaTable(str(tmp_path / "list")).delete("account = 'a'")
    compile_scopes(lake)
    outcome = retag(lake, "s")
    assert tags(lake) == {1: [], 2: ["large", "plain"], 3: ["plain"], 4: ["listed", "plain"]}
    assert outcome.rows_changed == 2


@pytest.mark.slow
@pytest.mark.parametrize("kept", [True, False])
def test_rows_that_match_only_now_are_found_beside_rules_with_lists(tmp_path: Path, new_workspace, kept: bool) -> None:
    """Also if no rule that differs, or none at all, names the list now."""
    source = written(tmp_path / "source", account=["a", "b", None, "c"], amount=[5, 50, 500, 5000], pk=[1, 2, 3, 4])
    written(tmp_path / "list", account=["a"])
    streams = {"s": {"source": source, "output": "matched"}}
    workspace = new_workspace(streams, spark=False, lists={"sanctioned": {"source": str(tmp_path / "list")}})
    for rules in ([RULES[0]], [RULES[0], RULES[2]] if kept else [RULES[2]]):
        write_rules(workspace, rules, "overwrite")
        compile_scopes(workspace)
        tag_stream(workspace, "s")
    retag(workspace, "s")
    assert tags(workspace) == {**({1: ["listed"]} if kept else {}), 2: ["plain"], 3: ["plain"], 4: ["plain"]}


@pytest.mark.slow
def test_a_list_is_read_again_only_when_it_has_changed(lake: Any, tmp_path: Path, add_rules: Any) -> None:
    """Its files are gone, and its log is not."""
    compile_scopes(lake)
    for file in (tmp_path / "list").glob("*.parquet"):
        file.unlink()
    add_rules(lake, ("more", "s", "account IN LIST('sanctioned') AND amount < 9"))
    assert compile_scopes(lake)[0].state == "compiled"
    tag_stream(lake, "s")
    assert tags(lake)[1] == ["listed", "more"]
    # what cannot be read leaves the index as it was
    written(tmp_path / "list", account=["c"], note=["new"])
    (result,) = compile_scopes(lake)
    assert result.state == "failed" and "sanctioned" in str(result.error)
    assert compile_is_due(lake, "s") and newest_index(lake.lake, "s") is not None


def test_a_list_that_cannot_be_had_rejects_the_rules_that_name_it(
    tmp_path: Path, new_workspace: Any, add_rules: Any
) -> None:
    source = written(tmp_path / "source", account=["a"], amount=[50], pk=[1])
    written(tmp_path / "numbers", n=[1, 2])
    written(tmp_path / "two", a=["x"], b=["y"])
    lists = {name: {"source": str(tmp_path / name)} for name in ("numbers", "gone", "two")}
    lists["other"] = {"source": str(tmp_path / "two"), "column": "c"}
    workspace = new_workspace({"s": {"source": source}}, spark=False, lists=lists)
    texts = [f"account IN LIST('{name}')" for name in ("numbers", "gone", "two", "other", "unknown")]
    add_rules(workspace, *[(str(number), "s", text) for number, text in enumerate(texts)], ("good", "s", "amount > 1"))
    (result,) = compile_scopes(workspace)
    assert (result.state, result.rejects) == ("compiled", 5)
    rejects = workspace.lake.arrow("rule_rejects").sort_by("rule_id").to_pylist()
    assert [each["error"] for each in rejects] == ["TYPE_MISMATCH", *["UNKNOWN_LIST"] * 4]
    for each, part in zip(rejects, ("BIGINT", "no Delta table", "a, b", "no column c", "no list"), strict=True):
        assert part in each["message"], each
    # it is compiled once there is one
    assert not compile_is_due(workspace, "s")
    written(tmp_path / "gone", value=["a"])
    assert compile_is_due(workspace, "s")
    assert compile_scopes(workspace)[0].rejects == 4


@pytest.mark.slow
def test_validate_and_explain_know_lists(lake: Any) -> None:
    found = validate_expression(lake, "account IN LIST('sanctioned') OR amount > 3", "s")
    assert (found.error, sorted(found.indexed), found.derived) == (None, ["account", "amount"], ())
    assert validate_expression(lake, "account IN LIST('sanctoned')", "s").error == "UNKNOWN_LIST"
    compile_scopes(lake)
    tag_stream(lake, "s")
    (told,) = explain(lake, "s", ["large"], "account IN LIST('sanctioned')").explained
    assert not told.explanation.matched and "false  account NOT IN LIST('sanctioned')" in str(told.explanation)
    # the index that tagged is gone, and its rules are compiled again
    lake.lake.delta("rule_index").delete()
    assert str(explain(lake, "s", ["large"], "pk = 1").explained[0].explanation) == str(told.explanation)


def test_backtest_and_import_know_lists(lake: Any, tmp_path: Path) -> None:
    tried = backtest(lake, "s", [Candidate("new", "account IN LIST('sanctioned') OR amount > 100")])
    assert (tried.rules[0].error, tried.rules[0].matches) == (None, 3)
    file = tmp_path / "rules.csv"
    file.write_text(
        "rule_id,scope,expression\nfiled,s,account IN LIST('sanctioned')\nbad,s,amount IN LIST('sanctioned')\n"
    )
    plan = import_rules(lake, file, dry_run=True)
    assert [each["rule_id"] for each in plan.rejected] == ["bad"]


def test_lint_knows_lists(lake: Any) -> None:
    kinds = {(each.rule_id, each.kind) for each in lint_scopes(lake, ["s"])[0].findings}
    assert not {kind for _, kind in kinds} & {"rejected", "always_raises"}, kinds


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        ({"a-b": {"source": "x"}}, "letters, digits and underscores"),
        ({"rules": {"source": "x"}}, "already taken"),
        ({"n": {}}, "source"),
        ({"n": {"source": "x", "colum": "y"}}, "did you mean 'column'"),
    ],
)
def test_configuration(tmp_path: Path, lists: Any, message: str) -> None:
    document = {"lake": {"root": "lake"}, "lists": lists}
    with pytest.raises(ConfigurationError, match=message):
        parse_configuration(document, tmp_path / "deltatag.toml")


@pytest.mark.slow
def test_a_list_and_a_source_with_column_mapping_are_read_by_the_names_of_their_columns(
    lake: Any, tmp_path: Path
) -> None:
    map_columns(str(tmp_path / "list"))
    compile_scopes(lake)
    tag_stream(lake, "s")
    assert tags(lake) == {1: ["listed"], 2: ["large", "plain"], 3: ["plain"], 4: ["large", "plain"]}
    map_columns(str(tmp_path / "source"))
    with pytest.raises(SourceError, match="read by Spark alone"):
        backtest(lake, "s", [Candidate("a", "amount > 10")])
