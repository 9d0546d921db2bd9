"""Rules in files and in time: round trips, what an import changes and refuses, histories and differences."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import polars as pl
import pytest

from pipelines.authoring import exchange
from pipelines.authoring.exchange import export_rules, import_rules
from pipelines.authoring.rule_files import RuleFileError
from pipelines.authoring.versions import diff, history, rules_of
from pipelines.compile import compile_scopes
from pipelines.duplicate_ids import current_rules
from pipelines.errors import ConfigurationError, TableError
from pipelines.reporting.edits import edits_of

STREAMS = {"s": {"source": "lake/source", "event_time": "t"}, "other": {"source": "lake/source"}}
LINE_BREAKS = ("\n", "\r\n", "\r")
ODD = 'line\nbreak, "quotes" \' null NULL no 012 é \U0001f600 #: - {x} '
RULES: list[dict[str, Any]] = [
    {"rule_id": "a", "scope": "s", "expression": "x > 3", "labels": [("k", "v"), ("no", "12")], "priority": -3},
    {"rule_id": ODD, "scope": "s", "expression": f"name = '{ODD.replace(chr(39), '')}'", "description": ODD},
    {"rule_id": "null", "scope": "other", "expression": "x IS NULL", "enabled": False, "owner": "no"},
    {"rule_id": "012", "scope": "other", "expression": "x = 12", "enabled": True, "labels": []},
    {
        "rule_id": "timed",
        "scope": "s",
        "expression": "TRUE",
        "valid_from": datetime(1, 1, 1, tzinfo=UTC),
        "valid_to": datetime(2024, 3, 31, 1, 0, 0, 1, tzinfo=UTC),
    },
    *({"rule_id": f"l{mark}e", "scope": "s", "expression": f"x >{mark}3", "owner": mark} for mark in LINE_BREAKS),
]
SUFFIXES = pytest.mark.parametrize("suffix", ["csv", "yaml", "yml", "jsonl"])


@pytest.fixture(params=["string"])
def workspace(request, new_workspace):
    found = new_workspace(STREAMS, {"time_zone": "Europe/Berlin"}, spark=False, id_type=request.param)
    rows = pl.DataFrame({"x": [1], "name": ["a"]}).with_columns(t=pl.datetime(2024, 1, 1, time_zone="UTC"))
    rows.write_delta(found.configuration.streams["s"].source)
    return found


def stored(workspace) -> list[dict[str, Any]]:
    return rules_of(workspace.lake, workspace.lake.delta("rules")).sort("rule_id").to_dicts()


def write(folder: Path, suffix: str, rows: list[dict[str, Any]]) -> Path:
    """The rows as a person would write them."""
    path = folder / f"rules.{suffix}"
    if suffix == "csv":
        pl.DataFrame(rows, infer_schema_length=None).write_csv(path)
    elif suffix == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n\n" for row in rows))
    else:
        path.write_text("".join(f"- {json.dumps(row)}\n" for row in rows))
    return path


@SUFFIXES
def test_what_is_exported_is_imported_as_it_was(workspace, add_rules, tmp_path: Path, suffix: str) -> None:
    add_rules(workspace, *RULES)
    before = stored(workspace)
    path = tmp_path / f"rules.{suffix}"
    assert export_rules(workspace, path) == len(RULES)
    again = import_rules(workspace, path, replace=True)
    assert (again.added, again.changed, again.removed, again.rejected) == ((), (), (), ())
    assert (again.unchanged, again.version) == (len(RULES), None)
    workspace.lake.delta("rules").delete()
    found = import_rules(workspace, path)
    assert (set(found.added), found.rejected) == ({rule["rule_id"] for rule in RULES}, ())
    assert stored(workspace) == before


def test_line_breaks_of_windows_are_those_of_the_file_alone(workspace, tmp_path: Path) -> None:
    path = tmp_path / "rules.csv"
    path.write_bytes(b'rule_id,scope,expression\r\na,s,"x >\r\n 3"\r\nb,s,x > 4\r\n')
    assert import_rules(workspace, path).added == ("a", "b")
    assert [rule["expression"] for rule in stored(workspace)] == ["x >\n 3", "x > 4"]


def test_a_table_with_other_spellings_of_its_columns(workspace, tmp_path: Path) -> None:
    rows = pl.DataFrame({"RULE_ID": ["a"], "Scope": ["s"], "expression": ["x > 3"]})
    rows.write_delta(workspace.lake.uri("rules"), mode="overwrite", delta_write_options={"schema_mode": "overwrite"})
    path = tmp_path / "rules.jsonl"
    assert export_rules(workspace, path) == 1
    path.write_text(path.read_text().replace("x > 3", "x > 5"))
    assert import_rules(workspace, path).changed == ("a",)
    assert [each["expression"] for each in history(workspace, "a")] == ["x > 5", "x > 3"]


def test_a_table_with_other_types_is_told(workspace, tmp_path: Path) -> None:
    rows = pl.DataFrame({"rule_id": ["a"], "scope": ["s"], "expression": ["x > 3"], "priority": ["high"]})
    rows.write_delta(workspace.lake.uri("rules"), mode="overwrite", delta_write_options={"schema_mode": "overwrite"})
    for attempt in (lambda: export_rules(workspace, tmp_path / "r.csv"), lambda: history(workspace, "a")):
        with pytest.raises(TableError, match="priority in version 1 of the table rules is STRING, and must be INT"):
            attempt()


@pytest.mark.parametrize(("labels", "kind"), [("red, blue", "STRING"), (["red", "blue"], "ARRAY")])
def test_labels_that_are_no_map_are_read_and_not_written(workspace, tmp_path: Path, labels: Any, kind: str) -> None:
    rows = pl.DataFrame({"rule_id": ["a"], "scope": ["s"], "expression": ["x > 3"], "labels": [labels]})
    rows.write_delta(workspace.lake.uri("rules"), mode="overwrite", delta_write_options={"schema_mode": "overwrite"})
    assert history(workspace, "a")[0]["labels"] == {"red": None, "blue": None}
    path = tmp_path / "r.jsonl"
    export_rules(workspace, path)
    assert json.loads(path.read_text())["labels"] == {"red": None, "blue": None}
    with pytest.raises(TableError, match=f"The column labels of the table rules is {kind}, and an import writes MAP"):
        import_rules(workspace, path)


@SUFFIXES
def test_an_import_is_one_commit_of_what_differs(workspace, add_rules, tmp_path: Path, suffix: str) -> None:
    add_rules(workspace, ("a", "s", "x > 3"), ("b", "s", "x > 4"), ("c", "s", "x > 5"), ("o", "other", "x = 1"))
    add_rules(workspace, {"rule_id": "d", "scope": "s", "expression": "x > 6", "owner": "me", "priority": 7})
    version = workspace.lake.version("rules")
    path = write(
        tmp_path,
        suffix,
        [
            {"rule_id": "a", "scope": "s", "expression": "x > 3"},
            {"rule_id": "b", "scope": "s", "expression": "x > 40"},
            {"rule_id": "d", "scope": "s", "expression": "x > 60"},
            {"rule_id": "e", "scope": "s", "expression": "x IN (1, 2)"},
            {"rule_id": "f", "scope": "s", "expression": "y > 1"},
            {"rule_id": "g", "scope": "othr", "expression": "x > 1"},
        ],
    )
    dry = import_rules(workspace, path, replace=True, dry_run=True)
    assert (dry.added, dry.changed, dry.removed, dry.unchanged) == (("e",), ("b", "d"), ("c",), 1)
    assert {(each["rule_id"], each["error"]) for each in dry.rejected} == {
        ("f", "UNKNOWN_COLUMN"),
        ("g", "UNKNOWN_SCOPE"),
    }
    assert any(each["message"].endswith("named othr; did you mean 'other'?") for each in dry.rejected)
    assert workspace.lake.version("rules") == version
    done = import_rules(workspace, path, replace=True)
    assert done.version == workspace.lake.version("rules") == version + 1
    texts = {each["rule_id"]: each["expression"] for each in stored(workspace)}
    assert texts == {"a": "x > 3", "b": "x > 40", "d": "x > 60", "e": "x IN (1, 2)", "o": "x = 1"}
    assert [(each.state, each.rules) for each in compile_scopes(workspace)] == [("compiled", 4), ("compiled", 1)]
    (d,) = (each for each in stored(workspace) if each["rule_id"] == "d")
    assert (d["owner"], d["priority"]) == ("me", 7), "columns that the file has not stay"


@pytest.mark.slow
def test_an_edit_of_somebody_else_is_not_lost(workspace, add_rules, tmp_path: Path, monkeypatch) -> None:
    add_rules(workspace, ("a", "s", "x > 3"), ("b", "s", "x > 4"))
    path = write(tmp_path, "csv", [{"rule_id": "a", "scope": "s", "expression": "x > 30"}])
    known, done = exchange._commit, []

    def commit(lake: Any, *others: Any, **options: Any) -> Any:
        if not done:
            done.append(1)
            lake.delta("rules").update({"expression": "'x > 300'"}, predicate="rule_id = 'a'")
            add_rules(workspace, ("late", "s", "x > 9"))
        return known(lake, *others, **options)

    monkeypatch.setattr(exchange, "_commit", commit)
    assert import_rules(workspace, path).changed == ("a",)
    assert {each["rule_id"]: each["expression"] for each in stored(workspace)} == {
        "a": "x > 30",
        "b": "x > 4",
        "late": "x > 9",
    }


@pytest.mark.parametrize("workspace", ["bigint"], indirect=True)
def test_ids_that_are_numbers(workspace, tmp_path: Path) -> None:
    path = write(tmp_path, "csv", [{"rule_id": 12, "scope": "s", "expression": "x = 1"}])
    assert import_rules(workspace, path).added == (12,)
    assert export_rules(workspace, tmp_path / "out.yaml", "s") == 1
    assert import_rules(workspace, tmp_path / "out.yaml").unchanged == 1
    path.write_text("rule_id,scope,expression\n1.5,s,TRUE\n")
    with pytest.raises(RuleFileError, match=r"rule 1: rule_id is '1.5', and must be a whole number"):
        import_rules(workspace, path)
    assert [each["expression"] for each in history(workspace, "12")] == ["x = 1"]
    for none in ("a", "--5", "9" * 19, "9" * 5000):
        with pytest.raises(TableError, match="whole numbers here, and"):
            history(workspace, none)


def test_ids_that_clash_in_the_table_are_refused(workspace, add_rules, tmp_path: Path) -> None:
    add_rules(workspace, ("a", "s", "x > 3"), ("a", "s", "x > 4"))
    path = write(tmp_path, "csv", [{"rule_id": "a", "scope": "s", "expression": "x > 30"}])
    (reject,) = import_rules(workspace, path).rejected
    assert reject["error"] == "DUPLICATE_ID"


LAUGHS = "a: &a [x, x]\nb: &b [*a, *a]\nrules: [*b, *b]\n"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("rules.txt", "", "ends with .csv"),
        ("rules.csv", "rule_id,scope,expression,colour\na,s,TRUE,red\n", "no column colour"),
        ("rules.csv", "rule_id,scope,expresion\na,s,TRUE\n", "no column expresion; did you mean 'expression'"),
        (
            "rules.csv",
            'rule_id,scope,expression\na,s,"x >\n1"\nb,s,x IN (1, 2)\n',
            r"line 4 \(rule b\): it has 4 values for 3 columns. Put an expression with commas in double quotes",
        ),
        ("rules.csv", 'rule_id,scope,expression\na,s,"x" = 1\n', "line 2: "),
        ("rules.csv", "a,s,TRUE\n", "its first line has no rule_id; begin with a header such as rule_id,scope,expr"),
        ("rules.csv", "rule_id;scope;expression\na;s;x IN (1, 2)\n", "separated by ;, use commas"),
        ("rules.csv", "rule_id,scope,expression,scope\na,s,x > 1,s\n", "the column scope twice"),
        (
            "rules.csv",
            'rule_id,scope,expression,valid_from\na,s,"x >\n1",\nb,s,TRUE,15.08.2026\n',
            "line 4, rule 2: valid_from is '15.08.2026', and must be a date or a time such as 2026-08-15 or ",
        ),
        (
            "rules.csv",
            "rule_id,scope,expression,severity\na,s,TRUE,high\n",
            'add it first: deltatag sql "ALTER TABLE rules ADD COLUMN severity STRING"',
        ),
        ("rules.csv", "rule_id,scope,expression\na,s\n,", "rules.csv"),
        ("rules.csv", "rule_id,scope\na,s\n", "no column expression"),
        ("rules.csv", "rule_id,expression\na,TRUE\n", "--scope"),
        ("rules.csv", "rule_id,scope,expression\na,s,\n", "rule 1: it has no expression"),
        ("rules.csv", "rule_id,scope,expression,enabled\na,s,TRUE,yes\n", "enabled is 'yes'"),
        ("rules.csv", "rule_id,scope,expression,priority\na,s,TRUE,2147483648\n", "priority"),
        ("rules.csv", "rule_id,scope,expression,valid_from\na,s,TRUE,soon\n", "valid_from is 'soon'"),
        ("rules.csv", 'rule_id,scope,expression,labels\na,s,TRUE,"{"\n', "labels"),
        ("rules.yaml", LAUGHS, "aliases"),
        ("rules.yaml", "- !!python/object/apply:os.system ['true']\n", "not a YAML file of rules"),
        ("rules.yaml", "- {rule_id: a, rule_id: b}\n", "given twice"),
        ("rules.yaml", "- a\n", "rule 1: a rule is a mapping"),
        ("rules.yaml", "x: {y: 1}\n", "a list of mappings"),
        ("rules.yaml", "- [" * 5_000, "rules.yaml"),
        ("rules.yaml", "- " + "[" * 50_000, "nested too deep"),
        ("rules.jsonl", '{"rule_id": "a"\n', "line 1 is not JSON"),
        ("rules.jsonl", '{"rule_id": "a", "rule_id": "b"}\n', "given twice"),
        ("rules.jsonl", '{"rule_id": ["a"], "scope": "s", "expression": "TRUE"}\n', "rule_id is"),
        ("rules.jsonl", "[" * 100_000, "not JSON"),
        ("rules.jsonl", "{}", "has no column rule_id"),
    ],
)
def test_a_malformed_file_changes_nothing(workspace, tmp_path: Path, name: str, text: str, message: str) -> None:
    version = workspace.lake.version("rules")
    (tmp_path / name).write_text(text)
    with pytest.raises(RuleFileError, match=message) as caught:
        import_rules(workspace, tmp_path / name)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 500
    assert workspace.lake.version("rules") == version


@pytest.mark.slow
@SUFFIXES
def test_an_added_column_is_part_of_files_and_of_changes(workspace, add_rules, tmp_path: Path, suffix: str) -> None:
    add_rules(workspace, ("a", "s", "x > 3"), ("b", "s", "x > 4"))
    path, out = tmp_path / f"rules.{suffix}", tmp_path / f"out.{suffix}"
    assert export_rules(workspace, path) == 2 and "severity" not in path.read_text()
    add_severity(workspace)
    assert import_rules(workspace, path).unchanged == 2
    first = workspace.lake.version("rules")
    path = write(tmp_path, suffix, [{"rule_id": "a", "scope": "s", "expression": "x > 3", "severity": "high"}])
    assert import_rules(workspace, path).changed == ("a",)
    assert import_rules(workspace, path).unchanged == 1
    assert {each["rule_id"]: each["severity"] for each in stored(workspace)} == {"a": "high", "b": None}
    export_rules(workspace, out)
    assert "severity" in out.read_text() and import_rules(workspace, out, replace=True).unchanged == 2
    found = diff(workspace, first, first + 1)
    (row,) = found.changed.to_dicts()
    assert (found.differing(row), row["severity_before"], row["severity"]) == (["severity"], None, "high")
    assert [each["severity"] for each in history(workspace, "a")] == ["high", None]
    edit = edits_of(workspace.lake, "s", ZoneInfo("UTC"))[0]
    assert (edit["changed"], edit["rules"][0]["others"]) == (1, "severity: None → high")
    path = write(tmp_path, suffix, [{"rule_id": "a", "scope": "s", "expression": "x > 30"}])
    assert import_rules(workspace, path).changed == ("a",)
    assert stored(workspace)[0]["severity"] == "high", "columns that the file has not stay"


def add_severity(workspace) -> None:
    from deltalake.schema import Field

    workspace.lake.delta("rules").alter.add_columns(Field("severity", "string"))


def test_a_severity_that_is_not_configured_is_refused(new_workspace, add_rules, tmp_path: Path) -> None:
    streams = {"s": STREAMS["s"] | {"annotations": ["severity"]}, "other": STREAMS["other"]}
    found = new_workspace(streams, spark=False)
    rows = pl.DataFrame({"x": [1]}).with_columns(t=pl.datetime(2024, 1, 1, time_zone="UTC"))
    rows.write_delta(found.configuration.streams["s"].source)
    add_rules(
        found, ("a", "s", "x > 3"), {"rule_id": "b", "scope": "s", "expression": "x", "labels": [("level", "no")]}
    )
    add_severity(found)
    rules = [("a", "s", "urgent"), ("c", "s", "high"), ("d", "other", "urgent")]
    path = write(tmp_path, "csv", [dict(zip(NAMES, each, strict=True)) | {"expression": "x > 4"} for each in rules])
    result = import_rules(found, path)
    assert [(each["rule_id"], each["error"]) for each in result.rejected] == [("a", "UNKNOWN_SEVERITY")]
    assert (result.added, result.changed) == (("c", "d"), ())
    path = write(tmp_path, "csv", [{"rule_id": "b", "scope": "s", "expression": "x > 4"}])
    assert [each["error"] for each in import_rules(found, path).rejected] == ["UNKNOWN_SEVERITY"]


NAMES = ("rule_id", "scope", "severity")


@SUFFIXES
def test_a_file_without_rules_replaces_nothing(workspace, add_rules, tmp_path: Path, suffix: str) -> None:
    add_rules(workspace, ("a", "s", "x > 3"))
    path = tmp_path / f"rules.{suffix}"
    for text in ("", "rule_id,scope,expression\n" if suffix == "csv" else "\n"):
        path.write_text(text)
        with pytest.raises(RuleFileError, match=r"holds no rules.*DELETE FROM rules WHERE scope = 's'"):
            import_rules(workspace, path, scope="s", replace=True)
        assert import_rules(workspace, path, scope="s").removed == ()
    assert len(stored(workspace)) == 1


def test_rejected_rules_keep_what_is_there(workspace, add_rules, tmp_path: Path) -> None:
    add_rules(workspace, ("a", "s", "x > 3"), ("b", "s", "x > 4"), ("c", "s", "x > 5"), ("d", "other", "x = 1"))
    rules = [{"rule_id": "a", "scope": "s", "expression": "x >"}]
    found = import_rules(workspace, write(tmp_path, "csv", rules), replace=True)
    assert (found.removed, found.version, len(found.rejected)) == ((), None, 1)
    rules += [{"rule_id": "b", "scope": "s", "expression": "x > 4"}]
    rules += [{"rule_id": "e", "scope": "other", "expression": "y = 4"}]
    assert import_rules(workspace, write(tmp_path, "csv", rules), replace=True).removed == ("c",)
    assert [each["rule_id"] for each in stored(workspace)] == ["a", "b", "d"]


def test_refused_rules_of_other_languages_keep_what_is_there(workspace, add_rules, tmp_path: Path) -> None:
    sigma = "title: {0}\nid: {0}\nlogsource: {{product: p}}\ndetection: {{s: {{{1}: 1}}, condition: s}}\n"
    add_rules(workspace, ("a", "s", "x > 3"), ("b", "s", "x > 4"), ("c", "s", "x > 5"))
    for name, field in (("a", "x"), ("b", "nowhere")):
        (tmp_path / f"{name}.yml").write_text(sigma.format(name, field))
    found = import_rules(workspace, tmp_path / "b.yml", "s", replace=True, language="sigma")
    assert (found.removed, [each["rule_id"] for each in found.rejected]) == ((), ["b"])
    found = import_rules(workspace, tmp_path, "s", replace=True, language="sigma")
    assert (found.removed, found.changed, [each["rule_id"] for each in found.rejected]) == (("c",), ("a",), ["b"])


def test_a_refused_decision_table_keeps_its_rows(workspace, add_rules, tmp_path: Path) -> None:
    decision = (
        '<decision name="{0}"><decisionTable hitPolicy="{1}"><input><inputExpression><text>x</text></inputExpression>'
        "</input><output/><rule><inputEntry><text>&gt; 7</text></inputEntry><outputEntry><text>1</text></outputEntry>"
        "</rule></decisionTable></decision>"
    )
    add_rules(workspace, *[(each, "s", "x > 3") for each in ("kept/1", "kept/2", "new/1", "new/2")])
    space = "https://www.omg.org/spec/DMN/20191111/MODEL/"
    text = decision.format("kept", "NONSENSE") + decision.format("new", "COLLECT")
    (tmp_path / "t.dmn").write_text(f'<definitions xmlns="{space}">{text}</definitions>')
    found = import_rules(workspace, tmp_path / "t.dmn", "s", replace=True)
    assert [each["rule_id"] for each in found.rejected] == ["kept"]
    assert (found.removed, found.changed) == (("new/2",), ("new/1",))


def test_unknown_scopes_and_files_are_told(workspace, tmp_path: Path) -> None:
    with pytest.raises(RuleFileError, match="cannot be read"):
        import_rules(workspace, tmp_path / "none.csv")
    path = write(tmp_path, "csv", [{"rule_id": "a", "expression": "x > 1"}])
    with pytest.raises(ConfigurationError, match="nowhere"):
        import_rules(workspace, path, scope="nowhere")
    assert import_rules(workspace, path, scope="s").added == ("a",)
    with pytest.raises(RuleFileError, match="cannot be written"):
        export_rules(workspace, tmp_path / "none" / "rules.csv")


def test_a_scope_with_blanks_at_its_ends_is_shown_in_quotes(workspace, add_rules, tmp_path: Path) -> None:
    """In a sentence they are not seen, as those that follow the commas of a CSV."""
    message = "There is no stream or join named ' s'; did you mean 's'?"
    path = tmp_path / "rules.csv"
    path.write_text("rule_id,scope,expression\na, s,x > 1\n")
    assert [each["message"] for each in import_rules(workspace, path).rejected] == [message]
    add_rules(workspace, ("a", " s", "x > 1"))
    assert current_rules(workspace).rejects["message"].to_list() == [message]
