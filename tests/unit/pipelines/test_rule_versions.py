"""Histories of rules and differences between versions: ids of several rows, rows tagged anew, rules without a scope."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path
from zoneinfo import ZoneInfo

import polars as pl
import pyarrow as pa
import pytest
from deltalake import Schema

from deltatag.rules import history_action
from pipelines.authoring import versions as versions_module
from pipelines.authoring.versions import diff, history, in_force, rules_of, rules_of_versions
from pipelines.errors import PipelineError, TableError
from pipelines.lake import version_rows
from pipelines.reporting.edits import edits_of
from pipelines.rule_set import read_rules
from tests.tables import map_columns


@pytest.fixture
def workspace(new_workspace):
    found = new_workspace({"s": {"source": "lake/source"}}, {}, spark=False)
    pl.DataFrame({"x": [1]}).write_delta(found.configuration.streams["s"].source)
    return found


def write(workspace, *rows: tuple[str, bool | None]) -> int:
    """Rows (expression, enabled) of the rule `a`, in place of those of the table; returns the version."""
    frame = pl.DataFrame(rows, {"expression": pl.String, "enabled": pl.Boolean}, orient="row")
    frame = frame.with_columns(rule_id=pl.lit("a"), scope=pl.lit("s"))
    frame.write_delta(workspace.lake.uri("rules"), mode="overwrite", delta_write_options={"schema_mode": "merge"})
    return int(workspace.lake.delta("rules").version())


def test_a_disabled_row_hides_nothing(workspace) -> None:
    first = write(workspace, ("x > 0", False), ("x > 1", True))
    second = write(workspace, ("x > 2", None), ("x > 0", False))
    assert [each["expression"] for each in history(workspace, "a")] == ["x > 2", "x > 1"]
    changed = diff(workspace, first, second).changed
    assert changed.select("expression_before", "expression").rows() == [("x > 1", "x > 2")]


def test_the_order_of_rows_changes_nothing(workspace) -> None:
    first = write(workspace, ("x > 2", True), ("x > 1", None))
    second = write(workspace, ("x > 1", None), ("x > 2", True))
    assert [each["expression"] for each in history(workspace, "a")] == ["x > 1"]
    found = diff(workspace, first, second)
    assert found.added.is_empty() and found.changed.is_empty() and found.removed.is_empty()


def test_rows_without_an_id_or_a_text_are_rows_like_others() -> None:
    names = ["rule_id", "scope", "expression", "enabled"]
    rules = pl.DataFrame([("a", None, None, None), ("a", "s", None, None), (None, "s", "x", True)], names, orient="row")
    assert sorted(in_force(rules).rows(), key=str) == [("a", "s", None, None), (None, "s", "x", True)]


def test_history_counts_rows_that_were_tagged_anew_once(workspace, add_rules) -> None:
    add_rules(workspace, ("a", "s", "x > 3"), ("b", "s", "x > 4"))
    workspace.lake.delta("rules").update(predicate="rule_id = 'a'", new_values={"expression": "x > 5"})
    uri = workspace.lake.uri("s_tagged")
    pl.DataFrame({"rule_ids": [["a", "b"], ["a", "b"], ["a"]], "rules_version": [1, 1, 1]}).write_delta(uri)
    retagged = pl.DataFrame({"rule_ids": [["a", "b"], ["b"], ["a"]], "rules_version": [2, 2, 1]})
    retagged.write_delta(uri, mode="overwrite")
    pl.DataFrame({"rule_ids": [["b"]], "rules_version": [2]}).write_delta(uri, mode="append")
    assert [each["matches"] for each in history(workspace, "a")] == [1, 3]
    assert [each["matches"] for each in history(workspace, "b")] == [3]


def test_a_version_with_a_column_of_a_wrong_type_ends_no_history(workspace) -> None:
    write(workspace, ("x > 1", None))
    kept = write(workspace, ("x > 2", None))
    wrong = pl.DataFrame({"rule_id": ["a"], "scope": ["s"], "expression": ["x > 3"], "enabled": ["yes"]})
    wrong.write_delta(workspace.lake.uri("rules"), mode="overwrite", delta_write_options={"schema_mode": "overwrite"})
    with pytest.raises(TableError, match="enabled in version 3 of the table rules is STRING, and must be BOOLEAN"):
        history(workspace, "a")
    workspace.lake.delta("rules").restore(kept)
    assert [each["version"] for each in history(workspace, "a")] == [2, 1]
    write(workspace, ("x > 4", None))
    assert [(each["version"], each["expression"]) for each in history(workspace, "a")] == [
        (5, "x > 4"),
        (2, "x > 2"),
        (1, "x > 1"),
    ]
    edits = edits_of(workspace.lake, "s", ZoneInfo("UTC"))
    assert [(each["version"], each["changed"]) for each in edits] == [(5, 1), (4, 0), (2, 1), (1, 0), (0, 0)]


def test_the_history_of_a_rule_that_had_no_scope(workspace, add_rules) -> None:
    add_rules(workspace, ("a", None, "x > 3"))
    assert [(each["scope"], each["matches"]) for each in history(workspace, "a")] == [(None, 0)]


def test_a_table_with_column_mapping_is_read_by_the_names_of_its_columns(workspace, add_rules) -> None:
    add_rules(workspace, ("a", "s", "x > 3"), {"rule_id": "b", "scope": "s", "expression": "x > 4", "owner": "ada"})
    map_columns(workspace.lake.uri("rules"))
    assert [(each["expression"], each["owner"]) for each in history(workspace, "b")] == [("x > 4", "ada")]
    assert diff(workspace, 0, 1).added["rule_id"].to_list() == ["a", "b"]
    one = read_rules(workspace.lake, ["s"], None, pa.array(["b"]))
    assert one.valid.select("rule_id", "expression").rows() == [("b", "x > 4")]


def test_a_version_whose_files_are_removed_is_told_in_one_sentence(workspace) -> None:
    first, second = write(workspace, ("x > 0", True)), write(workspace, ("x > 1", True))
    workspace.lake.delta("rules").vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    with pytest.raises(TableError) as told:
        diff(workspace, first, second)
    message = f"Version {first} of the table rules at {workspace.lake.uri('rules')} cannot be read any more: VACUUM has"
    assert str(told.value) == f"{message} removed files of it."


def add_feature(workspace, name: str) -> None:
    """Write the next version of the table, which demands a table feature of its readers."""
    log, version = Path(workspace.lake.uri("rules"), "_delta_log"), workspace.lake.version("rules") + 1
    features = {"readerFeatures": [name], "writerFeatures": [name, "changeDataFeed"]}
    protocol = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}}
    Path(log, f"{version:020}.json").write_text(json.dumps(protocol))


@pytest.mark.parametrize("feature", ["collations", "unheardOf"])
def test_a_feature_that_only_spark_knows_is_told_with_what_to_do(workspace, feature: str) -> None:
    add_feature(workspace, feature)
    with pytest.raises(TableError, match=r"ALTER TABLE \.\.\. DROP FEATURE"):
        read_rules(workspace.lake, ["s"])


def test_a_table_with_features_that_arrow_does_not_know_is_read(workspace, add_rules) -> None:
    """Such as the checkpoints of version 2 that CLUSTER BY brings about in some products."""
    add_rules(workspace, ("a", "s", "x > 3"))
    add_feature(workspace, "v2Checkpoint")
    assert [each["expression"] for each in history(workspace, "a")] == ["x > 3"]
    assert diff(workspace, 0, 2).added["rule_id"].to_list() == ["a"]


def test_a_priority_beyond_an_int_is_the_nearest_one(workspace) -> None:
    rule = {"rule_id": "a", "scope": "s", "expression": "x > 0", "priority": 1 << 40}
    pl.DataFrame([rule]).write_delta(
        workspace.lake.uri("rules"), mode="overwrite", delta_write_options={"schema_mode": "overwrite"}
    )
    (entry,) = history(workspace, "a")
    assert entry["priority"] == (1 << 31) - 1


@pytest.fixture
def edited(workspace, add_rules):
    """A table of rules that was edited in many ways, and has got another column at last."""
    for number in range(3):
        add_rules(workspace, (f"a{number}", "s", f"x > {number}"), ("b", "s", f"x > {number}"))
    write(workspace, ("x > 7", None))
    add_rules(workspace, ("c", "s", "x > 5"))
    rules = workspace.lake.writable("rules")
    rules.update(predicate="rule_id = 'a'", new_values={"owner": "ada"})
    rules.optimize.compact()
    rules.delete("rule_id = 'c'")
    rules.restore(3)
    add_rules(workspace, ("d", "s", "x > 6"))
    rules.update_incremental()
    rules.alter.add_columns(Schema.from_json(json.dumps({"type": "struct", "fields": [SEVERITY]})).fields)
    rules.update(predicate="rule_id = 'b'", new_values={"severity": "high"})
    return workspace


SEVERITY = {"name": "severity", "type": "string", "nullable": True, "metadata": {}}


def as_rows(rules: pl.DataFrame) -> list[str]:
    return sorted(map(str, rules.to_dicts()))


@pytest.mark.slow
def test_many_versions_are_read_as_each_alone(edited) -> None:
    lake = edited.lake
    newest = lake.version("rules")
    assert newest > 10
    for versions in (range(newest + 1), range(3, newest, 2)):
        read = dict(rules_of_versions(lake, versions))
        assert list(read) == list(versions)
        for version, rules in read.items():
            assert as_rows(rules) == as_rows(rules_of(lake, lake.delta("rules", version)))
    for rule in ("a", "b", "no"):
        for version, rules in rules_of_versions(lake, range(newest + 1), rule):
            assert as_rows(rules) == as_rows(rules_of(lake, lake.delta("rules", version)).filter(rule_id=rule))


@pytest.mark.slow
def test_a_version_without_its_files_or_its_log_is_an_error(edited) -> None:
    lake = edited.lake
    newest = lake.version("rules")
    table = lake.delta("rules", 2)
    known = {version: as_rows(rules) for version, rules in rules_of_versions(lake, range(newest + 1))}
    Path(lake.uri("rules"), table.get_add_actions()["path"][0].as_py()).unlink()
    lake.delta("rules", 1).create_checkpoint()
    Path(lake.uri("rules"), "_delta_log", f"{0:020}.json").unlink()
    for version, rules in rules_of_versions(lake, range(newest + 1)):
        try:
            alone = as_rows(rules_of(lake, lake.delta("rules", version)))
        except PipelineError as error:
            assert str(rules) == str(error)
        else:
            assert as_rows(rules) == alone == known[version]


def test_the_versions_of_one_rule_are_read_many_at_once(workspace, add_rules, monkeypatch) -> None:
    """One reading of many files takes a fraction of many readings."""
    for number in range(12):
        add_rules(workspace, (f"a{number}", "s", f"x > {number}"))
    workspace.lake.delta("rules").update(predicate="rule_id = 'a3'", new_values={"expression": "x > 99"})
    monkeypatch.setattr(version_rows, "_AHEAD", 8)
    readings: list[int] = []
    rows_by_file = version_rows.rows_by_file

    def counted(table, paths, where=None):
        readings.append(len(paths))
        return rows_by_file(table, paths, where)

    monkeypatch.setattr(version_rows, "rows_by_file", counted)
    assert [each["version"] for each in history(workspace, "a3")] == [13, 4]
    assert readings == [8, 5]


@pytest.mark.parametrize("most", [3, 10_000])
def test_a_history_tells_how_far_back_it_looks(workspace, add_rules, monkeypatch, capsys, most: int) -> None:
    add_rules(workspace, ("a", "s", "x > 0"))
    for number in range(4):
        add_rules(workspace, (f"b{number}", "s", "x > 1"))
    monkeypatch.setattr(versions_module, "MOST_VERSIONS", most)
    shown = Namespace(rule="a", json=False)
    assert history_action(workspace, shown) == 0
    said = capsys.readouterr().out
    assert ("Version 3 is the oldest that was read, and the rule may be older" in said) == (most == 3)
    workspace.lake.delta("rules").delete("rule_id = 'a'")
    for number in range(4, 8):
        add_rules(workspace, (f"b{number}", "s", "x > 1"))
    if most == 3:
        with pytest.raises(TableError, match=r"^No version of the table rules that is kept, among the last 3, has a"):
            history(workspace, "a")


@pytest.mark.parametrize("name", ["__filename", "__fragment_index", "__batch_index", "__last_in_fragment"])
def test_a_column_may_have_the_name_of_one_that_arrow_adds(workspace, name: str) -> None:
    write(workspace, ("x > 1", True))
    frame = pl.DataFrame({"rule_id": ["b"], "scope": ["s"], "expression": ["x > 2"], name: ["mine"]})
    frame.write_delta(workspace.lake.uri("rules"), mode="append", delta_write_options={"schema_mode": "merge"})
    newest = workspace.lake.version("rules")
    (last,) = (rules for version, rules in rules_of_versions(workspace.lake, [newest - 1, newest]) if version == newest)
    assert sorted(last["rule_id"]) == ["a", "b"]


@pytest.mark.slow
def test_the_edits_of_a_table_of_many_files_read_each_file_once(workspace, add_rules, monkeypatch) -> None:
    for number in range(30):
        add_rules(workspace, (f"a{number:02}", "s", f"x > {number}"))
    workspace.lake.delta("rules").update(predicate="rule_id = 'a07'", new_values={"expression": "x > 99"})
    read: list[str] = []
    opened: list[int | None] = []

    def counted(table, paths, where=None):
        read.extend(paths)
        return rows_by_file(table, paths, where)

    rows_by_file = version_rows.rows_by_file
    monkeypatch.setattr(version_rows, "rows_by_file", counted)
    open_version = type(workspace.lake)._opened
    monkeypatch.setattr(
        type(workspace.lake),
        "_opened",
        lambda lake, name, version=None: opened.append(version) or open_version(lake, name, version),
    )
    edits = edits_of(workspace.lake, "s", ZoneInfo("UTC"))
    assert [(each["version"], each["added"], each["changed"]) for each in edits[:2]] == [(31, 0, 1), (30, 1, 0)]
    assert len(edits) == 20 and len(read) == len(set(read)) == 31
    assert [each["expression"] for each in history(workspace, "a07")] == ["x > 99", "x > 7"]
    assert len(read) == 2 * 31
    assert len([version for version in opened if version is not None]) == 2
