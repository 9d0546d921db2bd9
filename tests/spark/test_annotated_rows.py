"""Annotations of tagged rows by Spark's runner, of joins, and in tables that had none: against brute force."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from pipelines.compile import compile_scopes
from pipelines.errors import TableError
from pipelines.retag import reproduce_tags, retag
from pipelines.settings.configuration import parse_configuration
from pipelines.sql import run_statement
from pipelines.tag import tag_stream
from pipelines.workspace import Workspace
from tests.annotated_rows import (
    EDITED,
    RULES_OF_S,
    SEVERITIES,
    STREAM,
    append,
    assert_annotated,
    check_bounds,
    joined_lake,
    rows,
    tagged,
    write_rules,
)

NEW = {"rule_id": "e", "expression": "n = 1 OR n % 5 = 0", "priority": -9, "severity": "informational"}


@pytest.mark.parametrize(
    ("output", "by_worker"),
    [
        ("all", False),  # tests/unit/pipelines/test_annotated_rows.py has the other way of writing without a JVM
        *(
            pytest.param(*each, marks=pytest.mark.soak)
            for each in (("matched", True), ("all", True), ("matched", False))
        ),
    ],
)
def test_both_ways_of_writing(new_workspace, monkeypatch: pytest.MonkeyPatch, output: str, by_worker: bool) -> None:
    if not by_worker:
        from pipelines.retagging import worker_files
        from pipelines.retagging.spark_rows import TaggedRows
        from pipelines.writing.spark_output import Output

        monkeypatch.setattr(Output, "_layouts", lambda *_: None)
        monkeypatch.setattr(TaggedRows, "_task", lambda *_: None)
        monkeypatch.setattr(worker_files, "file_task", lambda *_: None)
    made = new_workspace({"s": STREAM | {"output": output}})
    append(made, 0, 100)
    write_rules(made, RULES_OF_S)
    compile_scopes(made)
    tag_stream(made, "s")
    assert_annotated(made)
    before = tagged(made)
    write_rules(made, EDITED)
    compile_scopes(made)
    result = retag(made, "s")
    assert_annotated(made)
    now = tagged(made)
    assert result.rows_changed == sum(now[seq] != row for seq, row in before.items()) > 0
    write_rules(made, [*EDITED[1:], NEW])
    compile_scopes(made)
    retag(made, "s")
    assert_annotated(made)
    check_bounds(made)
    now = tagged(made)
    assert retag(made, "s").rows_changed == 0
    tag_stream(made, "s", restart=True)
    assert tagged(made) == now


# tests/unit/pipelines/test_annotated_rows.py::test_a_table_without_the_columns_is_widened_in_a_step has it
@pytest.mark.soak
def test_a_table_is_widened_and_filled(new_workspace) -> None:
    plain = {key: value for key, value in STREAM.items() if key != "annotations"}
    made = new_workspace({"s": plain})
    append(made, 0, 40)
    write_rules(made, RULES_OF_S)
    compile_scopes(made)
    tag_stream(made, "s")
    document: dict[str, Any] = {"lake": {"root": "lake"}, "streams": {"s": STREAM}}
    wider = Workspace(parse_configuration(document, made.configuration.path), made.spark)
    compile_scopes(wider)
    append(wider, 40, 80)
    with pytest.raises(TableError, match="deltatag sql") as refused:
        tag_stream(wider, "s")
    statement = str(refused.value).split('deltatag sql "')[1].split('"')[0]
    run_statement(wider, statement)
    tag_stream(wider, "s")
    assert {row[2] is None for seq, row in tagged(wider).items() if seq < 40} == {True}
    assert all(row[2] is not None for seq, row in tagged(wider).items() if seq >= 40)
    retag(wider, "s")
    assert_annotated(wider)
    names = [field.name for field in DeltaTable(wider.lake.uri("s_tagged")).schema().fields]
    assert names[3:8] == ["rule_ids", "first_rule_id", "labels", "severity", "rules_version"]


# test_a_range_of_event_times and test_tags_of_an_older_version_in_a_table_of_their_own in test_retag.py have the rows
@pytest.mark.soak
def test_a_range_and_an_older_version(new_workspace) -> None:
    made = new_workspace({"s": STREAM | {"event_time": "t"}})
    table = rows(0, 60)
    times = pa.array([datetime(2024, 1, 1 + n // 20) for n in range(60)], pa.timestamp("us", "UTC"))
    write_deltalake(made.configuration.streams["s"].source, table.append_column("t", times))
    write_rules(made, RULES_OF_S)
    compile_scopes(made)
    version = compile_scopes(made)[0].rules_version
    tag_stream(made, "s")
    old = tagged(made)
    write_rules(made, EDITED)
    compile_scopes(made)
    retag(made, "s", since="2024-01-02", until="2024-01-03")
    part = tagged(made)
    retag(made, "s")
    new = tagged(made)
    assert part == {seq: new[seq] if 20 <= seq < 40 else old[seq] for seq in old}
    assert any(new[seq] != old[seq] for seq in range(20, 40))
    reproduce_tags(made, "s", version, "as_it_was")
    found = DeltaTable(made.lake.uri("as_it_was")).to_pyarrow_table().to_pylist()
    assert {r["seq"]: (r["rule_ids"], r["first_rule_id"], r["labels"], r["severity"]) for r in found} == old


# tests/unit/pipelines/test_annotated_rows.py::test_joined_rows_without_spark has it
@pytest.mark.soak
def test_joined_rows(new_workspace) -> None:
    made, qualified = joined_lake(new_workspace)

    def joined() -> dict[int, Any]:
        table = DeltaTable(made.lake.uri("j_tagged")).to_pyarrow_table().to_pylist()
        return {r["s"]["seq"]: (r["rule_ids"], r["first_rule_id"], r["labels"], r["severity"]) for r in table}

    def wanted(rules: Any) -> dict[int, Any]:
        found = {}
        for seq, (ids, *_) in joined().items():
            mine = [rule for rule in rules if rule["rule_id"] in ids]
            first = min(mine, key=lambda r: (r["priority"] is None, r["priority"], r["rule_id"]))
            labels = {k if v is None else f"{k}={v}" for r in mine for k, v in r.get("labels", {}).items()}
            said = [
                r.get("severity") or r.get("labels", {}).get("severity") or r.get("labels", {}).get("level")
                for r in mine
            ]
            worst = max((SEVERITIES.index(each) for each in said if each), default=None)
            found[seq] = (ids, first["rule_id"], sorted(labels), None if worst is None else SEVERITIES[worst])
        return found

    assert len(joined()) > 20 and joined() == wanted(qualified)
    relabelled = [
        rule | ({"labels": {"k": "v"}, "priority": 0} if rule["rule_id"] == "a" else {}) for rule in qualified
    ]
    write_rules(made, relabelled, "j")
    compile_scopes(made)
    retag(made, "j")
    assert joined() == wanted(relabelled)
