"""Which values a single file of rules has, and which it may not have."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from pipelines.authoring.rule_files import RuleFileError, read_rules_file, write_rules_file


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("bytes.yaml", "- rule_id: !!binary AAAA\n  expression: x > 1\n"),
        ("set.yaml", "- rule_id: !!set {a, b}\n  expression: x > 1\n"),
        ("large.jsonl", '{"rule_id": 1e999, "expression": "x > 1"}\n'),
    ],
)
def test_values_that_are_no_texts_are_refused(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(RuleFileError, match=r"rule 1: rule_id is .*, and must be a text"):
        read_rules_file(tmp_path / name, "string", ZoneInfo("UTC"))


def test_texts_of_yaml_stay_as_written(tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(
        "rules:\n- rule_id: 012\n  scope: no\n  expression: TRUE\n  owner: 2026-01-01\n  enabled: true\n"
        "  valid_from: 2026-01-01 00:00:00\n  labels: {1: on, null: ~}\n  description: ~\n"
    )
    (row,) = read_rules_file(path, "string", ZoneInfo("Europe/Berlin")).to_dicts()
    assert (row["rule_id"], row["scope"], row["expression"], row["owner"]) == ("012", "no", "TRUE", "2026-01-01")
    assert row["valid_from"] == datetime(2025, 12, 31, 23, tzinfo=UTC)
    assert (row["enabled"], row["description"]) == (True, None)


@pytest.mark.parametrize(("name", "opening"), [("rules.yaml", "["), ("rules.jsonl", '{"a":')])
def test_a_file_that_is_nested_too_deep_is_told(tmp_path: Path, name: str, opening: str) -> None:
    (tmp_path / name).write_text(opening * 100_000)
    with pytest.raises(RuleFileError, match=r"is not .*: it is nested too deep\.$"):
        read_rules_file(tmp_path / name, "string", ZoneInfo("UTC"))


def test_blank_lines_of_csv_are_no_rules(tmp_path: Path) -> None:
    path = tmp_path / "rules.csv"
    path.write_text("rule_id,scope,expression,priority\n\na,s,n = 1,1\n,,,\n  \nb,s,n = 2,2\n\n")
    assert read_rules_file(path, "string", ZoneInfo("UTC"))["rule_id"].to_list() == ["a", "b"]
    path.write_text(path.read_text() + "c,s,n = 3,x\n")
    with pytest.raises(RuleFileError, match="line 8, rule 3: priority is 'x'"):
        read_rules_file(path, "string", ZoneInfo("UTC"))


def test_a_file_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "rules.csv").mkdir()
    rules = pa.table({"rule_id": ["a"], "labels": [None]})
    with pytest.raises(RuleFileError, match="cannot be written"):
        write_rules_file(tmp_path / "rules.csv", rules)
    assert [each.name for each in tmp_path.iterdir()] == ["rules.csv"]


def test_a_label_that_is_given_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rules.csv"
    path.write_text('rule_id,scope,expression,labels\nr,s,n = 1,"{""team"": ""a"", ""team"": ""b""}"\n')
    with pytest.raises(RuleFileError, match=r"rule 1: labels is .* must be a mapping"):
        read_rules_file(path, "string", ZoneInfo("UTC"))


def test_bounds_beyond_the_years_of_utc_are_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "rules.csv").write_text(
        "rule_id,expression,valid_from,valid_to\na,x,0001-01-01T00:00+02:00,9999-12-31T23:59:59\n"
    )
    (rule,) = read_rules_file(tmp_path / "rules.csv", "string", ZoneInfo("America/New_York")).to_dicts()
    assert (rule["valid_from"], rule["valid_to"]) == tuple(
        each.replace(tzinfo=UTC) for each in (datetime.min, datetime.max)
    )
