"""`deltatag sql`: what it prints in each form."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deltatag.__main__ import main
from pipelines.errors import StatementError

TWICE = "SELECT rule_id, scope, rule_id FROM rules"


@pytest.fixture(autouse=True)
def rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init"]) == 0
    assert main(["sql", "INSERT INTO rules (rule_id, scope, expression) VALUES ('a', 's', 'x > 1')"]) == 0
    capsys.readouterr()


def test_json_does_not_lose_a_column_of_two_with_one_name(capsys) -> None:
    assert main(["sql", TWICE, "--format", "json"]) == 1
    out, err = capsys.readouterr()
    assert (out, err) == (
        "",
        (
            "deltatag: The result has several columns called rule_id, and JSON would keep only one of them: "
            "give them different names with AS.\n"
        ),
    )
    assert main(["sql", TWICE.replace(", rule_id", ", rule_id AS again"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [{"rule_id": "a", "scope": "s", "again": "a"}]


def test_csv_and_tables_have_every_column(capsys) -> None:
    assert main(["sql", TWICE, "--format", "csv"]) == 0
    assert capsys.readouterr().out.splitlines() == ["rule_id,scope,rule_id", "a,s,a"]
    assert main(["sql", TWICE]) == 0
    assert capsys.readouterr().out.splitlines()[0].split() == ["rule_id", "scope", "rule_id"]


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("SELECT * FROM s", "The stream s has no source: there is no Delta table at "),
        ("SELECT count(*) FROM S_tagged WHERE x > 1", "s_tagged"),
        ("INSERT INTO watch VALUES ('a')", "The list watch has no table yet: there is none at "),
    ],
)
def test_a_table_that_is_not_there_yet_is_told_without_spark(capsys, monkeypatch, statement: str, told: str) -> None:
    monkeypatch.setattr("pipelines.sql.statement_result", None)
    with Path("deltatag.toml").open("a") as file:
        file.write('[streams.s]\nsource = "nowhere"\n[lists.watch]\nsource = "nowhere"\ncolumn = "v"\n')
    assert main(["sql", statement]) == 1
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("deltatag: ") and told in err and "JVM" not in err


@pytest.mark.parametrize(("place", "done"), [(1, "and none was"), (2, "after those before it were")])
def test_it_is_told_which_of_several_statements_failed(capsys, monkeypatch, place: int, done: str) -> None:
    count = "SELECT count(*) AS n FROM rules"

    def no_spark(workspace: object, statement: str) -> None:
        raise StatementError("no")

    monkeypatch.setattr("pipelines.sql.statement_result", no_spark)
    statements = [count] * 2
    statements.insert(place - 1, "SELECT n + 1 FROM rules")
    assert main(["sql", *statements]) == 1
    assert f"deltatag: statement {place} of 3, {done} executed: no" in capsys.readouterr().err
