"""Lists of values in tags and joins through Spark and without it, and in SQL under their own names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from pipelines import value_lists
from pipelines.compile import compile_scopes
from pipelines.join import join_streams
from pipelines.lake.index_store import newest_index
from pipelines.retag import retag
from pipelines.sql import run_statement, statement_result
from pipelines.tag import tag_stream
from rules_index.index import shared_files

ACCOUNTS = ["a", "b", None, "ß", "", "z"]


@pytest.fixture
def sources(tmp_path: Path) -> dict[str, Any]:
    times = pa.array(range(len(ACCOUNTS)), pa.timestamp("us", "UTC"))
    for name in ("s", "o"):
        table = pa.table({"pk": range(len(ACCOUNTS)), "account": ACCOUNTS, "t": times, "n": [1, 2, 3, 4, 5, None]})
        write_deltalake(str(tmp_path / name), table)
    write_deltalake(str(tmp_path / "watch"), pa.table({"account": ["a", "ß", None, ""], "by": ["me"] * 4}))
    return {name: {"source": str(tmp_path / name), "key": ["pk"], "event_time": "t"} for name in ("s", "o")}


@pytest.mark.parametrize("runner", ["local", "spark"])
def test_tags_and_joins(
    new_workspace: Callable[..., Any],
    add_rules: Callable[..., None],
    sources: Any,
    tmp_path: Path,
    runner: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By a list that has been edited, so that its values are in the files of two indexes."""
    monkeypatch.setattr(value_lists, "LEAST_EDITED", 0)
    monkeypatch.setattr(shared_files, "SHARED_BYTES", 0)
    joins = {"j": {"streams": ["s", "o"], "on": ["pk"], "window": "1 s"}}
    lists = {"watch": {"source": str(tmp_path / "watch"), "column": "account"}}
    workspace = new_workspace(sources, joins=joins, lists=lists, runner=runner)
    add_rules(
        workspace,
        ("in", "s", "account IN LIST('watch')"),
        ("out", "s", "account NOT IN LIST('watch') OR n IS NULL"),
        ("both", "j", "s.account IN LIST('watch') AND o.n > 1 AND s.n <= o.n"),
    )
    if runner == "spark":
        add_rules(workspace, ("spark", "s", "soundex(account) = 'A000' AND account IN LIST('watch')"))
    watch = DeltaTable(str(tmp_path / "watch"))
    watch.delete("account = 'ß'")
    write_deltalake(watch, pa.table({"account": ["b", "x"], "by": ["you"] * 2}), mode="append")
    compile_scopes(workspace)
    watch.restore(0)
    found = [(each.state, each.rejects) for each in compile_scopes(workspace)]
    assert found == [("compiled", 0), ("unchanged", 0), ("compiled", 0)]
    files = [newest_index(workspace.lake, name).shared_files for name in ("s", "j")]
    assert [len(each) for each in files] == [1, 1]
    tag_stream(workspace, "s")
    join_streams(workspace, "j")
    found = DeltaTable(workspace.lake.uri("s_tagged")).to_pyarrow_table().sort_by("pk")["rule_ids"].to_pylist()
    first = ["in", "spark"] if runner == "spark" else ["in"]
    assert found == [first, ["out"], [], ["in"], ["in"], ["out"]]
    joined = DeltaTable(workspace.lake.uri("j_tagged")).to_pyarrow_table()
    assert sorted(row["s"]["pk"] for row in joined.to_pylist()) == [3, 4]
    assert set(map(tuple, joined["rule_ids"].to_pylist())) == {("both",)}
    # what Spark says of the same question
    asked = "account IN (SELECT account FROM watch WHERE account IS NOT NULL)"
    rows = statement_result(workspace, f"SELECT pk FROM s WHERE {asked} ORDER BY pk")
    assert rows["pk"].to_pylist() == [0, 3, 4]


def test_a_list_is_edited_under_its_name(
    new_workspace: Callable[..., Any], add_rules: Callable[..., None], sources: Any, tmp_path: Path
) -> None:
    """Also by a DELETE that leaves deletion vectors; and a re-tag finds the rows that match only now."""
    lists = {"watch": {"source": str(tmp_path / "watch"), "column": "account"}}
    workspace = new_workspace({"s": sources["s"] | {"output": "matched"}}, lists=lists, runner="spark")
    add_rules(workspace, ("in", "s", "account IN LIST('watch')"), ("two", "s", "n = 2"))
    compile_scopes(workspace)
    tag_stream(workspace, "s")

    def ids() -> dict[int, list[str]]:
        rows = DeltaTable(workspace.lake.uri("s_tagged")).to_pyarrow_table()
        return dict(zip(rows["pk"].to_pylist(), rows["rule_ids"].to_pylist(), strict=True))

    assert ids() == {0: ["in"], 1: ["two"], 3: ["in"], 4: ["in"]}
    run_statement(workspace, "ALTER TABLE watch SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    run_statement(workspace, "INSERT INTO watch VALUES ('z', 'you'), ('b', 'you')")
    run_statement(workspace, "DELETE FROM watch WHERE account = 'a'")
    compile_scopes(workspace)
    retag(workspace, "s")
    assert ids() == {1: ["in", "two"], 3: ["in"], 4: ["in"], 5: ["in"]}
