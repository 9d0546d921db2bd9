"""Columns that a stream's tables have and its source has lost: both runners give the same rows, which Spark reads."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from pipelines.compile import compile_scopes
from pipelines.maintain import maintain
from pipelines.retag import retag
from pipelines.tag import tag_stream
from pipelines.workspace import Workspace


def rows(start: int, stop: int, lost: bool) -> pa.Table:
    found: list[dict[str, Any]] = []
    for n in range(start, stop):
        inner = {"c": n, "gone": n, "d": n} if not lost else {"c": n, "d": n}
        outer = {"a": n, "gone": n, "b": [inner]} if not lost else {"a": n, "b": [inner]}
        found.append({"seq": n, **({} if lost else {"gone": f"g{n}"}), "kind": "xy"[n % 2], "u": outer})
    return pa.Table.from_pylist(found)


def history(new_workspace: Any, add_rules: Any, runner: str) -> Workspace:
    stream = {"source": "lake/source", "key": ["seq"], "checks": {"known": "seq % 10 <> 4"}}
    options = {"runner": runner, "root": f"lake_{runner}"}
    workspace: Workspace = new_workspace({"s": stream}, **options)
    stream["source"] = f"lake_{runner}/source"
    workspace = new_workspace({"s": stream}, **options)
    source = workspace.configuration.streams["s"].source
    write_deltalake(source, rows(0, 20, False), partition_by=["kind"])
    add_rules(workspace, ("low", "s", "u.a < 30"))
    compile_scopes(workspace)
    tag_stream(workspace, "s")
    write_deltalake(source, rows(0, 1, True), mode="overwrite", schema_mode="overwrite", partition_by=["kind"])
    compile_scopes(workspace)
    tag_stream(workspace, "s", skip_changes=True)
    write_deltalake(source, rows(20, 40, True), mode="append")
    tag_stream(workspace, "s")
    add_rules(workspace, ("high", "s", "u.a >= 10"))
    compile_scopes(workspace)
    retag(workspace, "s")
    return workspace


def test_both_runners_leave_them_null(new_workspace, add_rules) -> None:
    local, spark = (history(new_workspace, add_rules, runner) for runner in ("local", "spark"))
    texts = ["seq", "gone", "kind", "u", "rule_ids", "u.gone AS g", "u IS NULL AS n", "size(u.b.gone) AS s", "u.b.gone"]
    for name in ("s_tagged", "quarantine_s", "s_matches"):
        chosen = texts if name == "s_tagged" else ["*"] if name == "quarantine_s" else ["rule_id", "seq"]
        found = [
            sorted(map(repr, each.spark.read.format("delta").load(each.lake.uri(name)).selectExpr(*chosen).collect()))
            for each in (local, spark)
        ]
        assert found[0] == found[1] and found[0]
    assert [each.error for each in maintain(local) if each.error] == []
    tagged = spark.spark.read.format("delta").load(local.lake.uri("s_tagged"))
    lacking = tagged.filter("seq >= 20 AND u.gone IS NULL AND u IS NOT NULL AND gone IS NULL")
    assert lacking.filter("size(u.b.gone) = 1 AND u.b.gone[0] IS NULL AND u.b.d[0] = seq").count() == 18
    assert tagged.filter("seq < 20 AND gone = concat('g', seq) AND u.b.gone[0] = seq").count() == 18


@pytest.mark.parametrize("runner", ["local", "spark"])
def test_re_tagged_matches_of_a_key_that_came_later(new_workspace, add_rules, runner: str) -> None:
    stream: dict[str, Any] = {"source": "lake/source", "key": ["a"]}
    workspace: Workspace = new_workspace({"s": stream}, runner=runner)
    source = workspace.configuration.streams["s"].source
    write_deltalake(source, pa.table({"a": [1, 2], "b": ["x", "y"]}))
    add_rules(workspace, ("one", "s", "a = 1"))
    compile_scopes(workspace)
    tag_stream(workspace, "s")
    workspace = new_workspace({"s": {**stream, "key": ["a", "b"]}}, runner=runner)
    write_deltalake(source, pa.table({"a": [3], "b": ["z"]}), mode="append")
    tag_stream(workspace, "s")
    add_rules(workspace, ("all", "s", "a > 0"))
    compile_scopes(workspace)
    retag(workspace, "s")
    rows = workspace.lake.arrow("s_matches").to_pylist()
    assert sorted((row["rule_id"], row["a"], row["b"], row["source_version"]) for row in rows) == [
        ("all", 1, "x", 0),
        ("all", 2, "y", 0),
        ("all", 3, "z", 1),
        ("one", 1, None, 0),
    ]
