"""Annotations of tagged rows without a JVM: against brute force, after edits, and in tables that had none."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from pipelines.compile import compile_scopes
from pipelines.compiling.due import compile_is_due
from pipelines.errors import ConfigurationError, IndexOutdatedError, TableError
from pipelines.retag import retag
from pipelines.settings.configuration import parse_configuration
from pipelines.status import status
from pipelines.tag import tag_stream
from pipelines.workspace import Workspace
from tests import annotated_rows, lakes
from tests.annotated_rows import (
    RULES_OF_S,
    STREAM,
    append,
    assert_annotated,
    check_bounds,
    joined_lake,
    local,
    rows,
    tagged,
    write_rules,
)

EDITED = local(annotated_rows.EDITED)


@pytest.fixture
def workspace(new_workspace) -> Workspace:
    made = new_workspace({"s": STREAM}, spark=False)
    append(made, 0, 100)
    write_rules(made, local(RULES_OF_S))
    compile_scopes(made)
    return made


@pytest.mark.slow
def test_rows_have_what_brute_force_says(workspace) -> None:
    tag_stream(workspace, "s")
    assert_annotated(workspace)
    check_bounds(workspace)
    found = tagged(workspace)
    labels = ["kind", "level=high", "severity=critical", "team=fraud", "é=\U0001f600,x"]
    assert found[6] == (["a", "b", "c", "é"], "é", labels, "critical")
    assert {row[3] for row in found.values()} == {None, "low", "high", "critical"}


@pytest.mark.parametrize("value", [5, [1], {"a": 1}, b"low", datetime(2020, 1, 1)])
def test_a_severity_of_another_type_refuses_its_own_rule(new_workspace, value) -> None:
    made = new_workspace({"s": STREAM}, spark=False)
    append(made, 0, 10)
    lakes.write_rules(made, [{"rule_id": "a", "scope": "s", "expression": "TRUE", "labels": {"level": "low"}}])
    others = [{"rule_id": name, "scope": name, "expression": "TRUE", "severity": value} for name in ("s", "nowhere")]
    write_deltalake(made.lake.uri("rules"), pa.Table.from_pylist(others), mode="append", schema_mode="merge")
    (result,) = compile_scopes(made)
    assert (result.state, result.rules, result.rejects) == ("compiled", 2, 1)
    (reject,) = made.lake.arrow("rule_rejects", filters=[("scope", "s")]).to_pylist()
    assert (reject["rule_id"], reject["error"]) == ("s", "UNKNOWN_SEVERITY")
    assert "not STRING" in reject["message"]
    tag_stream(made, "s")
    assert {(*row[0], row[3]) for row in tagged(made).values()} == {("a", "low")}


@pytest.mark.slow
def test_only_what_is_asked_for_is_added_and_compiled(new_workspace) -> None:
    made = new_workspace({"s": STREAM | {"annotations": ["severity"]}}, spark=False)
    append(made, 0, 40)
    write_rules(made, local(RULES_OF_S))
    compile_scopes(made)
    tag_stream(made, "s")
    names = [field.name for field in DeltaTable(made.lake.uri("s_tagged")).schema().fields]
    assert names[3:6] == ["rule_ids", "severity", "rules_version"]
    relabelled = [
        rule | {"labels": {"level": "low"} if rule["rule_id"] == "é" else rule.get("labels")} for rule in EDITED
    ]
    before = compile_scopes(made)[0].fingerprint
    write_rules(made, [rule | {"priority": 1} for rule in local(RULES_OF_S)])
    assert compile_scopes(made)[0].fingerprint == before
    write_rules(made, relabelled)
    assert compile_scopes(made)[0].fingerprint != before


@pytest.mark.slow
def test_an_edit_of_a_label_is_an_edit(workspace) -> None:
    tag_stream(workspace, "s")
    old = tagged(workspace)
    before = compile_scopes(workspace)[0].fingerprint
    write_rules(workspace, EDITED)
    assert compile_is_due(workspace, "s")
    assert compile_scopes(workspace)[0].fingerprint != before
    append(workspace, 100, 140)
    tag_stream(workspace, "s")
    now = tagged(workspace)
    assert {seq: row for seq, row in now.items() if seq < 100} == old, "rows keep what they were given"
    result = retag(workspace, "s")
    assert_annotated(workspace)
    check_bounds(workspace)
    now = tagged(workspace)
    changed = {seq for seq, row in old.items() if now[seq] != row}
    assert result.rows_changed == len(changed) > 0
    again = retag(workspace, "s")
    assert (again.rows_changed, again.files_written) == (0, 0)
    tag_stream(workspace, "s", restart=True)
    assert tagged(workspace) == now


@pytest.mark.slow
def test_a_range_of_event_times_leaves_other_rows_their_annotations(new_workspace) -> None:
    made = new_workspace({"s": STREAM | {"event_time": "t"}}, spark=False)
    days = pa.array([datetime(2024, 5, 1 + n // 10) for n in range(40)], pa.timestamp("us"))
    write_deltalake(made.configuration.streams["s"].source, rows(0, 40).append_column("t", days))
    write_rules(made, local(RULES_OF_S))
    compile_scopes(made)
    tag_stream(made, "s")
    before = tagged(made)
    write_rules(made, [rule for rule in EDITED if rule["rule_id"] != "a"])
    compile_scopes(made)
    retag(made, "s", "2024-05-02", "2024-05-04")
    check_bounds(made)
    now = tagged(made)
    tag_stream(made, "s", restart=True)
    anew = tagged(made)
    assert now == {seq: (anew if 10 <= seq < 30 else before)[seq] for seq in now}
    assert now != before


@pytest.mark.slow
def test_rows_that_match_only_now_have_annotations(new_workspace) -> None:
    made = new_workspace({"s": STREAM | {"output": "matched"}}, spark=False)
    append(made, 0, 80)
    write_rules(made, local(RULES_OF_S)[:1])
    compile_scopes(made)
    tag_stream(made, "s")
    before = len(tagged(made))
    write_rules(made, EDITED)
    compile_scopes(made)
    retag(made, "s")
    now = tagged(made)
    assert len(now) > before
    assert_annotated(made)
    check_bounds(made)
    tag_stream(made, "s", restart=True)
    assert tagged(made) == now


@pytest.mark.slow
def test_edits_of_all_kinds_together(workspace) -> None:
    tag_stream(workspace, "s")
    rules = [rule for rule in EDITED if rule["rule_id"] != "a"]
    rules[1] = rules[1] | {"expression": "n IN (1, 2)", "labels": {"new": "one"}}
    rules.append({"rule_id": "e", "expression": "n >= 0", "priority": -9, "severity": "informational"})
    write_rules(workspace, rules)
    compile_scopes(workspace)
    retag(workspace, "s")
    assert_annotated(workspace)
    now = tagged(workspace)
    tag_stream(workspace, "s", restart=True)
    assert tagged(workspace) == now


@pytest.mark.slow
def test_a_table_without_the_columns_is_widened_in_a_step(new_workspace) -> None:
    plain = {key: value for key, value in STREAM.items() if key != "annotations"}
    made = new_workspace({"s": plain}, spark=False)
    append(made, 0, 40)
    write_rules(made, local(RULES_OF_S))
    compile_scopes(made)
    tag_stream(made, "s")
    document: dict[str, Any] = {"lake": {"root": "lake"}, "streams": {"s": STREAM}}
    wider = Workspace(parse_configuration(document, made.configuration.path), None)
    append(made, 40, 80)
    with pytest.raises(IndexOutdatedError, match="deltatag compile s"):
        tag_stream(wider, "s")
    assert compile_is_due(wider, "s")
    compile_scopes(wider)
    assert (status(wider)[0].problem or "").startswith("The table s_tagged was made without first_rule_id, labels")
    statement = (
        r"ALTER TABLE s_tagged ADD COLUMNS \(first_rule_id STRING AFTER rule_ids, labels ARRAY<STRING> AFTER "
        r"first_rule_id, severity STRING AFTER labels\)"
    )
    for act in (tag_stream, retag):
        with pytest.raises(TableError, match=statement):
            act(wider, "s")


@pytest.mark.parametrize(
    "settings",
    [{"annotations": ["first"]}, {"annotations": "labels"}, {"annotations": ["labels"], "retag": "new_rules"}],
)
def test_wrong_configurations_are_refused(settings: dict[str, Any], tmp_path) -> None:
    document = {"lake": {"root": "lake"}, "streams": {"s": {"source": "x"} | settings}}
    with pytest.raises(ConfigurationError, match="annotations"):
        parse_configuration(document, tmp_path / "deltatag.toml")


def test_a_source_with_such_a_column_is_refused(new_workspace) -> None:
    made = new_workspace({"s": STREAM}, spark=False)
    source = made.configuration.streams["s"].source
    append(made, 0, 3)
    table = DeltaTable(source).to_pyarrow_table()
    write_deltalake(source, table.append_column("Labels", table["w"]), mode="overwrite", schema_mode="overwrite")
    write_rules(made, local(RULES_OF_S))
    (result,) = compile_scopes(made)
    assert result.error is not None and "has a column Labels" in result.error
    assert 'Leave "labels" out of annotations' in result.error


def test_severities_may_be_others(new_workspace) -> None:
    made = new_workspace({"s": STREAM}, {"severities": ["warn", "block"]}, spark=False)
    append(made, 0, 40)
    rules = [
        {"rule_id": "w", "expression": "n > 3", "severity": "warn"},
        {"rule_id": "b", "expression": "n > 8", "severity": "block"},
        {"rule_id": "x", "expression": "n > 0", "severity": "high"},
    ]
    write_rules(made, rules)
    assert compile_scopes(made)[0].rejects == 1
    tag_stream(made, "s")
    assert {row[3] for row in tagged(made).values()} == {None, "warn", "block"}


@pytest.mark.slow
def test_a_stream_behind_one_with_annotations_reads_its_source_columns(new_workspace) -> None:
    behind = {"source_stream": "s", "key": ["seq"], "annotations": ["labels"]}
    made = new_workspace({"s": STREAM, "t": behind}, spark=False)
    append(made, 0, 40)
    write_rules(made, [*local(RULES_OF_S)])
    compile_scopes(made)
    tag_stream(made, "s")
    compile_scopes(made, ["t"])
    tag_stream(made, "t")
    names = [field.name for field in DeltaTable(made.lake.uri("t_tagged")).schema().fields]
    assert names[:5] == ["seq", "n", "w", "rule_ids", "labels"]


@pytest.mark.slow
def test_joined_rows_without_spark(new_workspace) -> None:
    made, qualified = joined_lake(new_workspace, spark=False)
    table = DeltaTable(made.lake.uri("j_tagged")).to_pyarrow_table().to_pylist()
    assert len(table) > 20
    for row in table:
        mine = [rule for rule in qualified if rule["rule_id"] in row["rule_ids"]]
        first = min(mine, key=lambda r: (r["priority"] is None, r["priority"], r["rule_id"]))
        labels = {k if v is None else f"{k}={v}" for r in mine for k, v in r.get("labels", {}).items()}
        assert (row["first_rule_id"], row["labels"]) == (first["rule_id"], sorted(labels))
    assert {row["severity"] for row in table} == {None, "low", "high", "critical"}
