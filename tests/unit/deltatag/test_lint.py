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


def test_ids_and_owners_cannot_forge_lines(folder: Path, capsys) -> None:
    rule = {"rule_id": "c\n  a: \x1b[31m", "scope": "s", "expression": "x > 5\n\x1b[0m", "owner": "me\nyou"}
    pl.DataFrame([rule]).write_delta("lake/rules", mode="append", delta_write_options={"schema_mode": "merge"})
    assert main(["lint"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith(r"  c\n  a: \x1b[31m: ") for line in lines) and not any("\x1b" in each for each in lines)
    assert any(line.endswith(r"(owner: me\nyou)") for line in lines)
    assert main(["lint", "--json"]) == 0
    (result,) = json.loads(capsys.readouterr().out)
    assert rule["rule_id"] in {each["rule_id"] for each in result["findings"]}


def test_an_id_of_a_million_characters_is_cut_short(folder: Path, capsys) -> None:
    rule = {"rule_id": "c" * 1_000_000, "scope": "s", "expression": "x > 5"}
    pl.DataFrame([rule]).write_delta("lake/rules", mode="append", delta_write_options={"schema_mode": "merge"})
    assert main(["lint", "--fail-on", "rejected"]) == 1
    out, error = capsys.readouterr()
    assert "ccc...: rejected" in out and len(out) < 10_000 and len(error) < 1_000


@pytest.mark.slow
def test_of_very_many_findings_the_first_of_each_kind_are_printed_and_all_are_in_json(folder: Path, capsys) -> None:
    wrong = [{"rule_id": f"r{number:03}", "scope": "s", "expression": f"y > {number}"} for number in range(130)]
    pl.DataFrame(wrong).write_delta("lake/rules", mode="append", delta_write_options={"schema_mode": "merge"})
    assert main(["lint", "--fail-on", "rejected"]) == 1
    first, *lines = capsys.readouterr().out.splitlines()
    assert first == "s: 132 rules, 131 findings, rules version 2"
    assert [line.split(":")[0] for line in lines if ": rejected: " in line] == [f"  r{each:03}" for each in range(100)]
    assert any(line.startswith("  b: implied: ") for line in lines), "one kind does not hide another"
    assert lines[-1] == "  and 30 findings more (rejected: 30); lint --json has them all"
    assert len(told(capsys)) == 131
    assert main(["lint", "--only", "implied"]) == 0
    assert "more" not in capsys.readouterr().out.splitlines()[-1]


def test_help_has_an_example(capsys) -> None:
    assert main(["lint", "--help"]) == 0
    assert "Example: deltatag lint" in capsys.readouterr().out


@pytest.fixture
def payments(folder: Path, capsys) -> Path:
    """Rules with mistakes of several kinds, over a source whose values are known."""
    rows = {"id": range(1_200), "x": range(1_200), "channel": ["ECOM", "POS", "ATM"] * 400}
    pl.DataFrame(rows).write_delta("source", mode="overwrite", delta_write_options={"schema_mode": "overwrite"})
    texts = {
        "b": "x > 5 AND channel = 'POS'", "raises": "x = 'high'", "spelled": "channel = 'ecom'", "syntax": "x => 5",
        "like": "channel LIKE 'PO'",
    }  # fmt: skip
    frame = pl.DataFrame({"rule_id": list(texts), "scope": "s", "expression": list(texts.values()), "owner": "team-1"})
    kept = pl.DataFrame({"rule_id": ["a"], "scope": ["s"], "expression": ["x > 3"], "owner": ["team-2"]})
    written = pl.concat([kept, frame])
    written.write_delta("lake/rules", mode="overwrite", delta_write_options={"schema_mode": "overwrite"})
    capsys.readouterr()
    return folder


def told(capsys, *arguments: str) -> list[dict[str, object]]:
    main(["lint", "--json", *arguments])
    (result,) = json.loads(capsys.readouterr().out)
    return result["findings"]


KINDS = [("syntax", "rejected"), ("raises", "always_raises"), ("spelled", "unknown_value"), ("like", "out_of_range"),
         ("like", "no_wildcard"), ("b", "implied")]  # fmt: skip


def test_what_harms_most_comes_first_with_the_rule_and_its_owner(payments: Path, capsys) -> None:
    found = told(capsys)
    assert [(each["rule_id"], each["kind"]) for each in found if each["kind"] != "out_of_range"] == [
        each for each in KINDS if each[1] != "out_of_range"
    ]
    assert found[0]["expression"] == "x => 5" and found[0]["owner"] == "team-1"
    assert main(["lint"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("  syntax: rejected: ") and "Write >= for at least." in lines[1]
    assert lines[2] == "      x => 5  (owner: team-1)"
    assert any("Write 'ECOM' if that is meant" in line for line in lines)


@pytest.mark.slow
def test_some_kinds_alone_and_kinds_that_fail(payments: Path, capsys) -> None:
    assert [each["rule_id"] for each in told(capsys, "--only", "always_raises, implied")] == ["raises", "b"]
    assert main(["lint", "--fail-on", "tautology"]) == 0
    assert main(["lint", "--only", "implied", "--fail-on", "rejected,always_raises"]) == 1
    assert "2 findings of --fail-on: rejected, always_raises" in capsys.readouterr().err
    for wrong in ("--only", "--fail-on"):
        assert main(["lint", wrong, "implid"]) == 2
        assert "'implid' is not a kind of finding; there are rejected, " in capsys.readouterr().err


def test_a_rule_of_no_stream_fails_as_rejected(folder: Path, capsys) -> None:
    assert main(["lint", "--fail-on", "rejected"]) == 0
    frame = pl.DataFrame({"rule_id": ["lost"], "scope": "streem", "expression": ["x > 1"]})
    frame.write_delta("lake/rules", mode="append", delta_write_options={"schema_mode": "merge"})
    assert main(["lint", "--fail-on", "rejected"]) == 1
    told = capsys.readouterr()
    assert "There is no stream or join named streem" in told.out
    assert "1 finding of --fail-on: rejected (lost)" in told.err
    assert main(["lint", "s", "--fail-on", "rejected"]) == 0


@pytest.mark.slow
def test_a_finding_stays_accepted_until_its_rule_changes(payments: Path, capsys) -> None:
    assert not (payments / "lake" / "lint_accepted").exists()
    assert main(["lint", "--accept", "b", "implied", "--reason", "both ids are wanted"]) == 0
    assert "Accepted until the rule changes: b: implied" in capsys.readouterr().out
    assert main(["lint", "--accept", "b", "implied"]) == 0, "what is accepted stays so"
    assert len(pl.read_delta("lake/lint_accepted")) == 1
    assert pl.read_delta("lake/lint_accepted")["reason"].to_list() == ["both ids are wanted"]
    capsys.readouterr()
    assert "implied" not in [each["kind"] for each in told(capsys)]
    assert main(["lint", "--fail-on", "implied"]) == 0
    assert ", 1 accepted, rules version" in capsys.readouterr().out
    # another rule's edit leaves it so, its own does not
    rules = pl.read_delta("lake/rules")
    other = pl.when(pl.col("rule_id") == "like").then(pl.lit("channel LIKE 'P%'")).otherwise("expression")
    rules.with_columns(expression=other).write_delta("lake/rules", mode="overwrite")
    assert "implied" not in [each["kind"] for each in told(capsys)]
    own = pl.when(pl.col("rule_id") == "b").then(pl.lit("x > 6 AND channel = 'POS'")).otherwise("expression")
    rules.with_columns(expression=own).write_delta("lake/rules", mode="overwrite")
    assert [each["rule_id"] for each in told(capsys) if each["kind"] == "implied"] == ["b"]


@pytest.mark.parametrize(
    ("rule", "kind", "status", "words"),
    [
        ("b", "tautology", 1, "Lint finds no `tautology` in rule b; it finds implied."),
        ("a", "implied", 1, "it finds nothing"),
        ("nobody", "implied", 1, "No enabled rule of a stream or a join has the id nobody."),
        ("--like", "implied", 1, "has the id --like; did you mean 'like'?"),
        ("b", "implid", 2, "'implid' is not a kind of finding"),
    ],
)
def test_only_what_is_told_is_accepted(payments: Path, capsys, rule: str, kind: str, status: int, words: str) -> None:
    assert main(["lint", "--accept", rule, kind]) == status
    assert words in capsys.readouterr().err
    assert not (payments / "lake" / "lint_accepted").exists()


def test_validate_says_the_same(payments: Path, capsys) -> None:
    assert main(["validate", "channel = 'ecom' AND x > 5", "--scope", "s"]) == 0
    assert "  unknown_value: None of the source's 1,200 rows has" in capsys.readouterr().out
    assert main(["validate", "x => 5", "--scope", "s", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["message"] == "Found => where it is not allowed. Write >= for at least."
    assert main(["validate", "x > 5", "--scope", "s", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["findings"] == []
