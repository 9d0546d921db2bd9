"""Files of Sigma rules: what is read of them, which of their documents and files are refused, and their import."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml

from deltatag.__main__ import main
from pipelines.authoring.exchange import import_rules
from pipelines.authoring.rule_files import RuleFileError
from pipelines.authoring.sigma import read_sigma
from pipelines.authoring.versions import rules_of
from pipelines.errors import ConfigurationError
from tests.unit.pipelines.test_sigma import MAPPING, SCHEMA, rule, write


@pytest.mark.parametrize("more", [{}, {"logsource": {"category": "process_creation"}}])
def test_what_is_no_rule_of_one_row_is_refused(tmp_path: Path, more: dict[str, Any]) -> None:
    given = [
        {"title": "c", "correlation": {"type": "event_count"}},
        {"title": "g", "action": "global", "detection": {"s": {"Image": "a"}, "condition": "s"}},
    ]
    path, fields = write(tmp_path, *given, mapping=MAPPING | more)
    found = read_sigma(path, "s", SCHEMA, fields)
    assert [(each["rule_id"], each["error"]) for each in found.rejected] == [("c", "CORRELATION"), ("g", "COLLECTION")]
    assert found.left_out == 0


def test_of_several_documents_rules_are_read_and_collections_refused(tmp_path: Path) -> None:
    path, fields = write(tmp_path, mapping=MAPPING | {"logsource": {"product": "windows"}})
    about = {"logsource": {"product": "windows"}}
    apart = [rule({"s": {"Image": "a"}, "condition": "s"}, id=each, **about) for each in ("one", "two")]
    (path / "apart.yml").write_text(yaml.safe_dump_all(apart))
    parts = [
        {"title": "whole", "action": "global", "detection": {"condition": "s"}},
        rule({"s": {"Image": "a"}, "condition": "s"}, id="first", **about),
        rule({"s": {"Image": "a"}}, id="second", logsource={"product": "linux"}),
        rule({"s": {"Image": "a"}}, id="third", correlation={}),
    ]
    (path / "parts.yml").write_text(yaml.safe_dump_all(parts))
    found = read_sigma(path, "s", SCHEMA, fields)
    assert [row["rule_id"] for row in found.rows] == ["one", "two"] and found.left_out == 0
    told = [(each["rule_id"], each["error"]) for each in found.rejected]
    assert told == [(each, "COLLECTION") for each in ("whole", "first", "second", "third")]


BROKEN = {
    "alias.yml": ("a: &x [1]\nb: *x\n", "aliases"),
    "binary.yml": ("a: !!bool maybe\n", "maybe"),
    "broken.yml": ("title: [a\nid: b", "line 2, is not a YAML"),
    "indented.yml": (
        "a:\n\tb: 1\n",
        "line 2, is not a YAML file of rules: found character that cannot start any token (the",
    ),
    "latin.yml": (b"title: \xe9\n", "UTF-8"),
    "list.yml": ("[a, b]\n", "Document 1 of the file is not a Sigma rule"),
    "moment.yml": ("a: !!timestamp soon\n", "not a YAML"),
    "surrogate.yml": ('title: "\\ud800"\n', "Unicode character"),
    "tag.yml": ("a: !!python/object/apply:pathlib.Path.touch [run]\n", "could not determine a constructor"),
    "twice.yml": ("id: a\nid: b\n", "given twice, line 1"),
}


def test_files_that_cannot_be_read_are_refused_and_the_others_go_on(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    path, fields = write(tmp_path, *(rule({"s": {"Image": "a"}, "condition": "s"}, id=each) for each in ("x", "y")))
    for name, (text, _) in BROKEN.items():
        (path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    found = read_sigma(path, "s", SCHEMA, fields)
    assert [row["rule_id"] for row in found.rows] == ["x", "y"]
    assert [each["rule_id"] for each in found.rejected] == [str(path / name) for name in BROKEN]
    for each, (name, (_, words)) in zip(found.rejected, BROKEN.items(), strict=True):
        assert (each["error"], each["file"], each["position"]) == ("UNREADABLE", str(path / name), None)
        assert words in each["message"]
    assert not Path("run").exists()


@pytest.mark.parametrize("name", ["alias.yml", "latin.yml", "tag.yml", "twice.yml", "none.yml"])
def test_the_only_file_must_be_readable(tmp_path: Path, name: str) -> None:
    if name in BROKEN:
        text = BROKEN[name][0]
        (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(RuleFileError, match=name):
        read_sigma(tmp_path / name, "s", SCHEMA, None)


def test_what_else_a_rule_says_is_kept(tmp_path: Path) -> None:
    given = rule(
        {"s": {"Image": "a"}, "condition": "s"}, id="id-1", title="A title", level="high", status="test", author="me",
        description="What it is for", tags=["attack.t1", "attack.t2"],
        logsource={"category": "c", "product": "windows"},
    )  # fmt: skip
    path, fields = write(tmp_path, given, rule({"s": {"Image": "b"}, "condition": "s"}, id="id-1"))
    found = read_sigma(path, "s", SCHEMA, fields)
    labels = {"title": "A title", "level": "high", "status": "test", "tags": "attack.t1,attack.t2", "category": "c"}
    assert found.rows == [
        {
            "rule_id": "id-1", "scope": "s", "expression": "`Image` ILIKE 'a'", "priority": 2,
            "labels": list((labels | {"product": "windows"}).items()), "owner": "me", "description": "What it is for",
        }
    ]  # fmt: skip
    (reject,) = found.rejected
    assert (reject["error"], reject["title"], reject["file"]) == ("DUPLICATE_ID", "t", str(path / "001.yml"))
    assert "000.yml has the id id-1 too" in reject["message"]


def test_rules_about_something_else_are_left_out(tmp_path: Path) -> None:
    about = [{"category": "process_creation", "product": "windows"}, {"category": "dns"}, None]
    rules = [rule({"s": {"Image": "a"}, "condition": "s"}, id=str(n), logsource=each) for n, each in enumerate(about)]
    path, fields = write(tmp_path, *rules, mapping=MAPPING | {"logsource": {"category": "process_creation"}})
    found = read_sigma(path, "s", SCHEMA, fields)
    assert ([row["rule_id"] for row in found.rows], found.left_out) == (["0"], 2)


@pytest.mark.parametrize(
    ("mapping", "words"),
    [
        ({"field": {}}, "nothing else"),
        ({"fields": ["a"]}, "mappings"),
        ({"fields": {"Image": "Nowhere"}}, "no such column"),
        ([], "nothing else"),
    ],
)
def test_a_mapping_file_that_is_none(tmp_path: Path, mapping: Any, words: str) -> None:
    path, fields = write(tmp_path, rule({"s": {"Image": "a"}, "condition": "s"}))
    fields.write_text(json.dumps(mapping))
    with pytest.raises(RuleFileError, match=words):
        read_sigma(path, "s", SCHEMA, fields)


@pytest.fixture
def workspace(new_workspace):
    found = new_workspace({"s": {"source": "lake/source"}}, spark=False)
    rows = pl.DataFrame({"Image": ["a"], "CommandLine": ["b"]})
    rows.write_delta(found.configuration.streams["s"].source)
    return found


def test_an_import_is_planned_written_and_repeated(workspace, tmp_path: Path, monkeypatch) -> None:
    path, _ = write(
        tmp_path, rule({"s": {"Image|endswith": "\\cmd.exe"}, "condition": "s"}, id="a"),
        rule({"s": {"Image|re": "(?=x)"}, "condition": "s"}, id="b"), rule({"s": ["k"], "condition": "s"}, id="c"),
    )  # fmt: skip
    with monkeypatch.context() as patched:
        patched.delattr(type(workspace.lake), "writable")
        planned = import_rules(workspace, path, "s", dry_run=True, language="sigma")
    assert planned.added == ("a",) and planned.version is None
    assert [(each["rule_id"], each["error"]) for each in planned.rejected] == [("b", "PATTERN"), ("c", "KEYWORDS")]
    written = import_rules(workspace, path, "s", language="sigma")
    assert (written.added, written.version) == (("a",), 1)
    (row,) = rules_of(workspace.lake, workspace.lake.delta("rules")).to_dicts()
    assert row["expression"] == r"`Image` ILIKE r'%\\cmd.exe'"
    again = import_rules(workspace, path, "s", language="sigma")
    assert (again.added, again.changed, again.unchanged, again.version) == ((), (), 1, None)


def test_what_an_import_needs_is_said(workspace, tmp_path: Path) -> None:
    path, fields = write(tmp_path, rule({"s": {"Image": "a"}, "condition": "s"}))
    with pytest.raises(ConfigurationError, match="--scope"):
        import_rules(workspace, path, language="sigma")
    with pytest.raises(ConfigurationError, match="--format"):
        import_rules(workspace, tmp_path / "rules.yaml", "s", mapping=fields)
    with pytest.raises(RuleFileError, match="no file whose name ends"):
        (tmp_path / "empty").mkdir()
        import_rules(workspace, tmp_path / "empty", "s", language="sigma")


def test_nothing_is_removed_where_a_file_cannot_be_read(workspace, tmp_path: Path) -> None:
    path, _ = write(tmp_path, *(rule({"s": {"Image": each}, "condition": "s"}, id=each) for each in "abc"))
    assert import_rules(workspace, path, "s", language="sigma").added == ("a", "b", "c")
    (path / "000.yml").write_text("a: &x [1]\nb: *x\n")
    (path / "001.yml").unlink()
    found = import_rules(workspace, path, "s", replace=True, language="sigma")
    assert (found.removed, found.unchanged, found.version) == ((), 1, None)
    (reject,) = found.rejected
    assert reject["message"].endswith("No rule is removed, since the file's rules are unknown.")
    (path / "000.yml").unlink()
    assert import_rules(workspace, path, "s", replace=True, language="sigma").removed == ("a", "b")


def test_a_rule_that_does_not_compile_has_its_file_and_title(workspace, tmp_path: Path) -> None:
    path, _ = write(tmp_path, rule({"s": {"Image|re": "(a{1000}){1000}"}, "condition": "s"}, id="a", title="Long"))
    (reject,) = import_rules(workspace, path, "s", language="sigma").rejected
    assert (reject["rule_id"], reject["error"], reject["title"]) == ("a", "PATTERN", "Long")
    assert reject["file"] == str(path / "000.yml")


def test_the_command_line(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init"]) == 0
    with Path("deltatag.toml").open("a") as file:
        file.write('[streams.s]\nsource = "source"\n')
    pl.DataFrame({"Img": ["a"]}).write_delta("source")
    path, fields = write(
        tmp_path, rule({"s": {"Image": "a"}, "condition": "s"}, id="a"), mapping={"fields": {"Image": "Img"}}
    )
    capsys.readouterr()
    command = ["rules", "import", str(path), "--format", "sigma", "--mapping", str(fields), "--scope", "s", "--json"]
    assert main(command) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["added"], told["rejected"], told["left_out"], told["version"]) == (["a"], [], 0, 1)
    (path / "000.yml").write_text(yaml.safe_dump(rule({"s": ["k"], "condition": "s"}, id="b", title="Some words")))
    (path / "001.yml").write_text("a: [")
    assert main(command) == 1
    word, file = json.loads(capsys.readouterr().out)["rejected"]
    assert (word["title"], word["file"], word["error"]) == ("Some words", str(path / "000.yml"), "KEYWORDS")
    assert (file["rule_id"], file["error"]) == (str(path / "001.yml"), "UNREADABLE")
    assert main(command[:-1]) == 1
    first, second = capsys.readouterr().err.splitlines()[-2:]
    assert first.startswith(f"deltatag: b (Some words, {path / '000.yml'}) is rejected and not written: KEYWORDS: ")
    assert second.startswith(f"deltatag: {path / '001.yml'} is rejected and not written: UNREADABLE: ")
